"""What every measurement shares: results with bounds, a clock, fair alternation, time in a hook."""

from __future__ import annotations

import math
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

_FEWEST, _MOST = 20, 60  # rounds
_PRECISE = 0.003  # standard error at which there is no need for more rounds


@dataclass(frozen=True)
class Result:
    """One number that was measured.

    Attributes:
        what: A phrase that says what the number is.
        sense: On which side of the bound it must lie; a result without a bound is for information.
        details: The numbers behind it.
    """

    what: str
    value: float
    unit: str = "×"
    bound: float | None = None
    sense: Literal["≤", "≥"] = "≤"
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def passed(self) -> bool | None:
        """Whether the bound holds; ``None`` if there is none."""
        if self.bound is None:
            return None
        return self.value <= self.bound if self.sense == "≤" else self.value >= self.bound


def clock() -> float:
    """Seconds, less those in which this thread could have run but others had all the cores.

    Waiting for a lock, for the interpreter or for the disk does count.
    """
    return time.perf_counter() - _seconds_without_core(threading.get_native_id())


def _seconds_without_core(thread: int) -> float:
    file = _scheduling(thread)
    return 0.0 if file is None else int(os.pread(file, 64, 0).split()[1]) * 1e-9


@cache
def _scheduling(thread: int) -> int | None:
    try:
        return os.open(f"/proc/self/task/{thread}/schedstat", os.O_RDONLY)
    except OSError:  # not Linux: then it is the wall clock, and wants a quiet machine
        return None


def seconds(run: Callable[[], object]) -> float:
    """How long one call takes, by ``clock``."""
    start = clock()
    run()
    return clock() - start


def alternate(rounds: int, *runs: Callable[[], None]) -> None:
    """Calls each in turn, many rounds, in changing order, so that other load hits all alike."""
    for number in range(rounds):
        shift = number % len(runs)
        for run in (*runs[shift:], *runs[:shift]):
            run()


def median_and_error(values: Sequence[float]) -> tuple[float, float]:
    """The median and its standard error, from the spread of the middle half."""
    ordered = sorted(values)
    middle = statistics.median(ordered)
    quarter = len(ordered) // 4
    spread = ordered[-1 - quarter] - ordered[quarter]
    return middle, 1.25 * spread / 1.35 / math.sqrt(len(ordered))


def step_time_with_idle_hook(
    with_hook: Callable[[int], list[float]], without: Callable[[], list[float]], bound: float
) -> Result:
    """Compares training steps with a hook that has nothing to save to those without one.

    Args:
        with_hook: Times the steps of a short block of training; given the number of the round.
        without: The same.
        bound: For the ratio.
    """
    ratios: list[float] = []
    plain: list[float] = []
    error = 1.0
    while len(ratios) < _FEWEST or (error > _PRECISE and len(ratios) < _MOST):
        if len(ratios) % 2:
            hooked, free = with_hook(len(ratios)), without()
        else:
            free, hooked = without(), with_hook(len(ratios))
        plain += free
        ratios.append(statistics.median(hooked) / statistics.median(free))
        ratio, error = median_and_error(ratios)
    return Result(
        "step time with a hook and nothing due, of the step time without a hook",
        round(ratio, 4),
        bound=bound,
        details={
            "rounds": len(ratios),
            "standard error": round(error, 4),
            "step without hook, ms": milliseconds(plain),
        },
    )


def milliseconds(values: Sequence[float]) -> float:
    """The median of times in seconds, in milliseconds."""
    return round(statistics.median(values) * 1e3, 4)


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder on the file system of the repository, removed at the end."""
    build = Path(__file__).parents[1] / "build"
    build.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=build))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class HookClock:
    """Counts the time that training spends in a hook: all callbacks go through its guard."""

    def __init__(self, hook: Any) -> None:
        self.total = 0.0
        self._run = hook._guard.run
        hook._guard.run = self._timed

    def _timed(self, function: Callable[..., Any], *args: Any) -> Any:
        start = clock()
        try:
            return self._run(function, *args)
        finally:
            self.total += clock() - start

    def take(self) -> float:
        """The time since the last call of this."""
        total, self.total = self.total, 0.0
        return total


def wait_until_written(hook: Any) -> None:
    """Waits until the writer thread has given all memory back."""
    hook.begin_step()  # which ends the one before
    while hook._recorder._pool._lent:
        time.sleep(0.01)
