"""The contract of actions: what is done about a finding, and what an action is told about it.

An action is a frozen dataclass with one verb, ``perform``. It does its work once, on a thread that
nobody waits for, and raises ``Undone`` with one sentence when it could not be done.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tornasole.errors import SMDebugValueError
from tornasole.rules.finding import Finding, Severity
from tornasole.selection.patterns import choose_from

_BACK_OFF = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)  # seconds before the next try


class Undone(Exception):
    """An action that was not done: why, and whether another try may help."""

    def __init__(self, why: str, again: bool = False) -> None:
        super().__init__(one_line(" ".join(why.split())))
        self.again = again


@dataclass(frozen=True)
class Occasion:
    """What an action acts on.

    Attributes:
        trial: Where the run is saved, if anywhere.
        pause: Waits some seconds, and says whether there is time for another try.
    """

    finding: Finding
    trial: str | None
    pause: Callable[[float], bool]

    @property
    def line(self) -> str:
        """The finding in one line, for people."""
        text = f"[{self.finding.severity.value}] {headline(self.finding)}: {self.finding.message}"
        return one_line(text)

    def to_json_dict(self) -> dict[str, Any]:
        """The finding, the trial, and the line for people as ``text``, as chat programs want it."""
        return {**self.finding.to_json_dict(), "trial": self.trial, "text": self.line}


def headline(finding: Finding) -> str:
    """Which rule, and where: ``vanishing_gradient at step 40 (TRAIN 20)``."""
    mode = f"{finding.mode.name} {finding.mode_step}"
    worker = f", {finding.worker}" if finding.worker else ""
    return f"{finding.rule} at step {finding.step} ({mode}{worker})"


def one_line(text: str) -> str:
    """The text without what could end a line, or act on who reads it: names can hold anything."""
    if text.isprintable():
        return text
    escaped = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return "".join(escaped)


@dataclass(frozen=True)
class Action:
    """What every action is.

    Attributes:
        at: The least severity of findings that it is for.
    """

    at: Severity = field(default=Severity.WARNING, kw_only=True)

    @property
    def identity(self) -> str:
        """The same for the same action in another process; it gives nothing secret away."""
        return f"{type(self).__name__}-{zlib.crc32(repr(self).encode()):08x}"

    def __post_init__(self) -> None:
        object.__setattr__(self, "at", severity(self.at))

    def perform(self, occasion: Occasion) -> None:
        """Does it.

        Raises:
            Undone: It could not be done.
        """
        raise NotImplementedError

    def obstacle(self) -> str:
        """Why it cannot be done here, as far as can be seen beforehand; empty: it can."""
        return ""


def severity(text: str) -> Severity:
    """The severity of that name.

    Raises:
        SMDebugValueError: There is none.
    """
    known = [each.value for each in Severity]
    if text not in known:
        raise SMDebugValueError(f"There is no severity {text!r}: {choose_from(text, known)}")
    return Severity(text)


def persist(attempt: Callable[[], None], attempts: int, occasion: Occasion) -> None:
    """Tries again and again, with longer and longer pauses.

    Raises:
        Undone: As the last attempt.
    """
    for number in range(attempts - 1):
        try:
            return attempt()
        except Undone as failure:
            wait = _BACK_OFF[min(number, len(_BACK_OFF) - 1)]
            if not failure.again or not occasion.pause(wait):
                raise
    return attempt()


def number_at_least(least: float, **given: float) -> None:
    """Raises an error for a number that is too small, or none."""
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= least:
            raise SMDebugValueError(f"{name} must be a number from {least:g} on, not {value!r}.")
