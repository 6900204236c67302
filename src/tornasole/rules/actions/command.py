"""The action that runs a command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

from tornasole.errors import SMDebugValueError
from tornasole.rules.actions.contract import Action, Occasion, Undone, number_at_least

_VARIABLE = "TORNASOLE_FINDING"
_LONGEST_VARIABLE = 100_000  # bytes; systems allow little more


@dataclass(frozen=True)
class Command(Action):
    """Runs a command. It gets the finding as JSON on stdin and in ``TORNASOLE_FINDING``.

    The finding never becomes part of the command line, because tensor names can be anything.

    Attributes:
        command: The program and its arguments; or one text, which the system's shell runs.
        timeout: Seconds after which it is killed, with all that it started.
    """

    command: str | Sequence[str]
    timeout: float = 60

    def __post_init__(self) -> None:
        super().__post_init__()
        number_at_least(0.001, timeout=self.timeout)
        parts = [self.command] if isinstance(self.command, str) else list(self.command)
        if not parts or not all(isinstance(part, str) for part in parts) or not parts[0].strip():
            raise SMDebugValueError(
                f"A command is a text, or a program and its arguments, not {self.command!r}."
            )
        if not isinstance(self.command, str):
            object.__setattr__(self, "command", tuple(parts))

    def perform(self, occasion: Occasion) -> None:
        content = json.dumps(occasion.to_json_dict(), allow_nan=False)
        environment = dict(os.environ)
        environment.pop(_VARIABLE, None)
        if len(content) <= _LONGEST_VARIABLE:
            environment[_VARIABLE] = content
        # Files instead of pipes: nobody waits for a child of the command that keeps one open.
        with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stderr:
            stdin.write(content.encode() + b"\n")
            stdin.seek(0)
            self._run(stdin, stderr, environment)

    def _run(self, stdin: IO[bytes], stderr: IO[bytes], environment: dict[str, str]) -> None:
        name = self.command if isinstance(self.command, str) else self.command[0]
        try:
            process = subprocess.Popen(
                self.command,
                shell=isinstance(self.command, str),
                stdin=stdin,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                env=environment,
                start_new_session=True,  # so that a Ctrl-C that ends the training spares it
            )
        except (OSError, ValueError) as error:
            raise Undone(f"{name} cannot be run: {error}") from None
        try:
            code = process.wait(self.timeout)
        except subprocess.TimeoutExpired:
            _kill(process)
            raise Undone(f"{name} was killed: it took more than {self.timeout:g} s") from None
        if code:
            stderr.seek(max(0, stderr.seek(0, os.SEEK_END) - 2000))
            said = stderr.read().decode(errors="replace").strip().splitlines()
            last = f": {said[-1]}" if said else ""
            raise Undone(f"{name} ended with code {code}{last}")


def _kill(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (AttributeError, OSError):  # no such thing on Windows; or it has just ended
        process.kill()
    process.wait()
