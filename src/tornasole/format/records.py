"""What the write side hands over: the records of one step, complete."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tornasole.types import ModeKeys


@dataclass(slots=True)
class Record:
    """One tensor at one step.

    Attributes:
        value: The value of a tensor with one element, if a float holds it exactly.
        raw: The value's bytes, little-endian, in C order.
        statistics: Statistics and counts by the names of ``types.STATISTICS``.
        lost: Why a raw value that was asked for is not there.
    """

    name: str
    role: str
    collections: tuple[str, ...]
    dtype: str
    shape: tuple[int, ...]
    time: float
    value: float | None = None
    raw: memoryview | None = None
    statistics: dict[str, float] | None = None
    lost: str | None = None


@dataclass(slots=True)
class StepRecords:
    """The records of one step of one worker, in the order in which the tensors appeared.

    Attributes:
        release: Called once the bytes behind ``Record.raw`` are no longer needed.
    """

    step: int
    mode: ModeKeys
    mode_step: int
    records: list[Record] = field(default_factory=list)
    release: Callable[[], None] = lambda: None
