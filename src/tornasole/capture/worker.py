"""Which of the job's processes this one is."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Launchers that tell every process its rank and their number through the environment.
_LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)


@dataclass(frozen=True)
class Worker:
    """One process of a job.

    Attributes:
        label: The name that the user gave it. Workers with such names make a trial together,
            whichever of them comes first.
    """

    rank: int = 0
    count: int = 1
    label: str | None = None

    @property
    def name(self) -> str:
        return f"worker_{self.rank}" if self.label is None else self.label

    @property
    def joins(self) -> bool:
        return self.label is not None

    @property
    def is_chief(self) -> bool:
        return self.rank == 0

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Worker:
        """The worker that the launcher's variables name; without any, the only one."""
        for rank, count in _LAUNCHERS:
            values = environ.get(rank, ""), environ.get(count, "")
            if all(value.isdecimal() for value in values) and int(values[0]) < int(values[1]):
                return cls(int(values[0]), int(values[1]))
        return cls()


def this_process() -> dict[str, Any]:
    """What tells this process from others, so that a reader can see whether it still lives."""
    about: dict[str, Any] = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "started": None,
        "boot": None,
        "namespace": None,
    }
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            about["boot"] = file.read().strip()
        with open("/proc/self/stat") as file:
            about["started"] = int(file.read().rpartition(")")[2].split()[19])
        about["namespace"] = os.readlink("/proc/self/ns/pid")
    except (OSError, ValueError, IndexError):
        pass  # not Linux: the reader then goes by the process number alone
    return about
