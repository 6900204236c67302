"""When a step counts as complete: pure judgement on step numbers.

A step is complete once every worker has written it, once a later step is (it will not fill up any
more), or once the run is over. So one number says it all: the last complete step, and every step
up to it is complete.
"""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from tornasole.errors import SMDebugValueError
from tornasole.types import StepState

Ints = npt.NDArray[np.int64]

WINDOW_VARIABLE = "SMDEBUG_INCOMPLETE_STEP_WAIT_WINDOW"
_DEFAULT_WINDOW = 1000


def wait_window() -> int:
    """How many incomplete steps may wait for a worker that lags behind."""
    text = os.environ.get(WINDOW_VARIABLE, "").strip()
    if not text:
        return _DEFAULT_WINDOW
    if not text.isdecimal() or int(text) < 1:
        raise SMDebugValueError(f"{WINDOW_VARIABLE} must be a positive number, not {text!r}.")
    return int(text)


def last_complete(known: Ints, full: Ints, before: int, window: int) -> int:
    """The last complete step of a run that is not over; -1 if there is none.

    Args:
        known: Every step that some worker wrote, ascending.
        full: Those that all workers wrote, ascending.
        before: The last complete step as it was before.
        window: If more steps than this wait, half as many are given up waiting for.
    """
    last = max(before, int(full[-1])) if len(full) else before
    waiting = known[np.searchsorted(known, last, side="right") :]
    if len(waiting) > window:
        last = int(waiting[max(window // 2, 1) - 1])
    return last


def step_state(steps: Ints, at: Ints, step: int, last: int, over: bool) -> StepState:
    """Whether a step can be had now, later or never.

    Args:
        steps: The steps of a mode that some worker wrote, ascending.
        at: The global step of each.
        step: The step asked for, of that mode.
        last: The last complete global step.
        over: Whether nothing more will be written.
    """
    position = int(np.searchsorted(steps, step))
    if position == len(steps):
        return StepState.UNAVAILABLE if over else StepState.NOT_YET_AVAILABLE
    if last < at[position]:
        return StepState.NOT_YET_AVAILABLE
    return StepState.AVAILABLE if steps[position] == step else StepState.UNAVAILABLE
