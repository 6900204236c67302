"""One tensor of a trial: its values, statistics and shapes over the steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tornasole.errors import (
    InvalidWorker,
    ShapeUnavailableForStep,
    SMDebugNotImplementedError,
    SMDebugValueError,
    StepNotYetAvailable,
    StepUnavailable,
    TensorUnavailable,
    TensorUnavailableForStep,
)
from tornasole.stats.definition import COUNTS, NORMS, REDUCTIONS, STATISTICS
from tornasole.trial.hints import one_of
from tornasole.trial.index import Track
from tornasole.types import ModeKeys, Role, StepState

if TYPE_CHECKING:
    from tornasole.trial.trial import Trial

Array = npt.NDArray[Any]


class Tensor:
    """A tensor by name, as ``Trial.tensor`` gives it.

    Where a method takes ``mode``, step numbers are of that mode; in ``GLOBAL`` they are global. Where it takes ``worker``, none
    means the first one, by name, that wrote the step.
    """

    def __init__(self, name: str, trial: Trial) -> None:
        self.name = name
        self.trial = trial

    @property
    def original_name(self) -> str:
        """The name that the framework uses."""
        return self.name

    @property
    def role(self) -> Role:
        """What it is in its model."""
        return self.trial.index.role(self.name)

    def steps(
        self, mode: ModeKeys = ModeKeys.GLOBAL, show_incomplete_steps: bool = False
    ) -> list[int]:
        """The steps at which it was saved, ascending."""
        self.trial.maybe_refresh(self.name)
        track = self._track(mode, None)
        return (track.steps if show_incomplete_steps else self._complete(track).steps).tolist()

    def prev_steps(
        self, step: int, n: int | None = None, mode: ModeKeys = ModeKeys.GLOBAL
    ) -> list[int]:
        """The last ``n`` steps (all without ``n``) at which it was saved, up to and with ``step``."""
        if n is not None and n < 0:
            raise SMDebugValueError(f"n must be a number of steps or None, not {n}.")
        before = [each for each in self.steps(mode) if each <= step]
        return before[-n:] if n else before

    def workers(self, step_num: int, mode: ModeKeys = ModeKeys.GLOBAL) -> list[str]:
        """Who saved it at a step, sorted.

        Raises:
            TensorUnavailableForStep: Nobody.
        """
        self._row(step_num, mode, None)
        index = self.trial.index
        return list(self.trial.cells.workers(index.rows_at(self.name, mode, step_num)))

    # -- values -----------------------------------------------------------------------------------

    def value(
        self, step_num: int, mode: ModeKeys = ModeKeys.GLOBAL, worker: str | None = None
    ) -> Array:
        """Its value at a step. bfloat16 and 8-bit floats come as float32.

        Raises:
            StepUnavailable: Nothing was saved at the step.
            StepNotYetAvailable: The job has not come there.
            TensorUnavailableForStep: The tensor's value was not saved at the step.
            InvalidWorker: The worker did not save it.
        """
        row = self._row(step_num, mode, worker)
        array = self.trial.cells.array(row)
        if array is None:
            raise self._no_value(row, step_num, mode)
        return array

    def values(
        self, mode: ModeKeys = ModeKeys.GLOBAL, worker: str | None = None
    ) -> dict[int, Array]:
        """Its values at all complete steps.

        Raises:
            TensorUnavailableForStep: At one of them the value was not saved.
        """
        self.trial.maybe_refresh(self.name)
        track = self._complete(self._track(mode, worker))
        steps = track.steps.tolist()
        found = dict(zip(steps, self.trial.cells.arrays(track.rows), strict=True))
        if None in map(type(None).__instancecheck__, ()):  # pragma: no cover
            raise AssertionError
        return found

    def _no_value(self, row: int, step: int, mode: ModeKeys) -> TensorUnavailableForStep:
        cells = self.trial.cells
        reduced = cells.has_statistics(row)
        return TensorUnavailableForStep(self.name, step, mode, reduced, cells.lost(row))

    # -- statistics -------------------------------------------------------------------------------
