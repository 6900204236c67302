"""Whether the process that wrote a trial still exists, as far as this machine can tell."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Any

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_PID_NAMESPACE = "/proc/self/ns/pid"


def is_gone(process: Mapping[str, Any]) -> bool:
    """Whether the process is known to have ended. Not knowing counts as no.

    Args:
        process: ``host``, ``pid`` and, where the writer knew them, ``started`` (in the terms of
            ``/proc/<pid>/stat``), ``boot`` (the machine's boot id) and ``namespace`` (of process
            numbers).
    """
    host, pid, boot = process.get("host"), process.get("pid"), process.get("boot")
    if host != socket.gethostname() or type(pid) is not int or pid <= 0:
        return False
    here = _read(_BOOT_ID)
    if boot and here and boot != here:
        return True  # the machine has been started anew since
    namespace = process.get("namespace")
    if namespace and namespace != _link(_PID_NAMESPACE):
        return False  # its number means another process here
    if here:
        return _is_gone_linux(pid, process.get("started"))
    return os.name == "posix" and _is_gone_posix(pid)


def is_here(process: Mapping[str, Any]) -> bool:
    """Whether the process certainly lives on this machine, under that number. Unknown counts as no.

    Args:
        process: As for ``is_gone``.
    """
    pid, started = process.get("pid"), process.get("started")
    boot, namespace = process.get("boot"), process.get("namespace")
    if type(pid) is not int or pid <= 0 or None in (started, boot, namespace):
        return False
    is_ours = process.get("host") == socket.gethostname() and boot == _read(_BOOT_ID)
    if not is_ours or namespace != _link(_PID_NAMESPACE) or not os.path.exists(f"/proc/{pid}"):
        return False
    return not _is_gone_linux(pid, started)


def _is_gone_linux(pid: int, started: object) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            # The name of the command, in brackets, may hold anything; after it, fields 3 and on.
            fields = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return True
    except OSError:
        return False
    if len(fields) < 20:
        return False
    is_zombie = fields[0] in "ZX"
    return is_zombie or (started is not None and fields[19] != str(started))


def _is_gone_posix(pid: int) -> bool:
    try:
        os.kill(pid, 0)  # sends nothing
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _read(path: str) -> str | None:
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return None


def _link(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:
        return None
