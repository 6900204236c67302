"""One tensor of a trial: its values, statistics and shapes over the steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

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
from tornasole.trial.hints import nearest
from tornasole.trial.index import Track
from tornasole.trial.source import Source
from tornasole.types import COUNTS, NORMS, REDUCTIONS, STATISTICS, ModeKeys, Role, StepState

if TYPE_CHECKING:
    from tornasole.trial.trial import Trial

Array = npt.NDArray[Any]


class Tensor:
    """A tensor by name, as ``Trial.tensor`` gives it.

    Where a method takes ``mode``, its step numbers are of that mode; in ``GLOBAL`` they are global.
    Where it takes ``worker``, none means the first one, by name, that wrote the step.
    """

    def __init__(self, name: str, trial: Trial, source: Source) -> None:
        self.name = name
        self.trial = trial
        self._source = source

    @property
    def original_name(self) -> str:
        """The name that the framework uses."""
        return self.name

    @property
    def role(self) -> Role:
        """What it is in its model."""
        return self._source.index.roles[self.name]

    def steps(
        self, mode: ModeKeys = ModeKeys.GLOBAL, show_incomplete_steps: bool = False
    ) -> list[int]:
        """The steps at which it was saved, ascending."""
        self.trial.maybe_refresh(self.name)
        steps: list[int] = self._track(mode, None, show_incomplete_steps).steps.tolist()
        return steps

    def prev_steps(
        self, step: int, n: int | None = None, mode: ModeKeys = ModeKeys.GLOBAL
    ) -> list[int]:
        """The last ``n`` steps (all without ``n``) at which it was saved, ``step`` included."""
        if n is not None and n < 0:
            raise SMDebugValueError(f"n must be a number of steps or None, not {n}.")
        before = [each for each in self.steps(mode) if each <= step]
        return before[-n:] if n else before

    def workers(self, step_num: int, mode: ModeKeys = ModeKeys.GLOBAL) -> list[str]:
        """Who saved it at a step, sorted.

        Raises:
            TensorUnavailableForStep: Nobody did.
        """
        self._row(step_num, mode, None)
        rows = self._source.index.rows_at(self.name, mode, step_num)
        return self._source.cells.workers(rows)

    # -- values -----------------------------------------------------------------------------------

    def value(
        self, step_num: int, mode: ModeKeys = ModeKeys.GLOBAL, worker: str | None = None
    ) -> Array:
        """Its value at a step. bfloat16 and 8-bit floats come as float32 of the same value.

        Raises:
            StepUnavailable: Nothing was saved at the step.
            StepNotYetAvailable: The job has not come there.
            TensorUnavailableForStep: The tensor's value was not saved at the step.
            InvalidWorker: The worker did not save it.
        """
        row = self._row(step_num, mode, worker)
        array = self._source.cells.array(row)
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
        cells, track = self._source.cells, self._track(mode, worker)
        lacking = np.flatnonzero(~cells.has_value(track.rows))
        if len(lacking):
            first = int(lacking[0])
            raise self._no_value(int(track.rows[first]), int(track.steps[first]), mode)
        return dict(zip(track.steps.tolist(), cells.arrays(track.rows), strict=True))

    def values_at(
        self,
        steps: npt.NDArray[np.int64] | None,
        mode: ModeKeys = ModeKeys.GLOBAL,
        worker: str | None = None,
    ) -> dict[int, Array]:
        """Its values at those of the steps (all if ``None``) that are complete and have one."""
        cells, track = self._source.cells, self._track(mode, worker)
        if steps is not None:
            track = track.only(np.isin(track.steps, steps))
        track = track.only(cells.has_value(track.rows))
        return dict(zip(track.steps.tolist(), cells.arrays(track.rows), strict=True))

    def _no_value(self, row: int, step: int, mode: ModeKeys) -> TensorUnavailableForStep:
        cells = self._source.cells
        reduced = any(name not in COUNTS for name in cells.saved(row))
        return TensorUnavailableForStep(self.name, step, mode, reduced, cells.lost(row))

    # -- statistics -------------------------------------------------------------------------------

    def reduction_value(
        self,
        step_num: int,
        reduction_name: str,
        mode: ModeKeys = ModeKeys.GLOBAL,
        worker: str | None = None,
        abs: bool = False,
    ) -> np.float64:
        """A reduction at a step: as it was saved, or computed from the value if that was.

        Args:
            reduction_name: Such as ``mean``, ``l1`` or ``l1_norm``, ``abs_max``.
            abs: Whether it is that of the absolute values.

        Raises:
            TensorUnavailableForStep: Neither the reduction nor the value was saved.
        """
        statistic = _statistic(reduction_name, abs)
        row = self._row(step_num, mode, worker)
        numbers, known = self._source.cells.numbers(statistic, np.array([row]))
        if not known[0]:
            raise self._no_value(row, step_num, mode)
        number: np.float64 = numbers[0]
        return number

    def reduction_values(
        self, step_num: int, mode: ModeKeys = ModeKeys.GLOBAL, worker: str | None = None
    ) -> dict[tuple[str, bool], np.float64]:
        """The reductions that were saved at a step, by name and whether of absolute values."""
        return {
            (name.removeprefix("abs_"), name.startswith("abs_")): np.float64(number)
            for name, number in self.statistics(step_num, mode, worker).items()
            if name not in COUNTS
        }

    def statistics(
        self, step_num: int, mode: ModeKeys = ModeKeys.GLOBAL, worker: str | None = None
    ) -> dict[str, float]:
        """Every statistic and count that was saved at a step."""
        return self._source.cells.saved(self._row(step_num, mode, worker))

    def series(
        self,
        statistic: str = "value",
        mode: ModeKeys = ModeKeys.GLOBAL,
        worker: str | None = None,
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """A statistic over all complete steps that have it, as two columns: steps and numbers.

        Args:
            statistic: A reduction or count, or ``value`` for a tensor of one element. What was not
                saved is computed from the value, which for larger tensors reads them all.
        """
        if statistic != "value" and statistic not in COUNTS:
            statistic = _statistic(statistic, False)
        self.trial.maybe_refresh(self.name)
        track = self._track(mode, worker)
        numbers, known = self._source.cells.numbers(statistic, track.rows)
        return track.steps[known], numbers[known]

    # -- shapes -----------------------------------------------------------------------------------

    def shape(
        self, step_num: int, mode: ModeKeys = ModeKeys.GLOBAL, worker: str | None = None
    ) -> tuple[int, ...]:
        """Its shape at a step.

        Raises:
            ShapeUnavailableForStep: It was not saved at the step.
        """
        try:
            row = self._row(step_num, mode, worker)
        except TensorUnavailableForStep:
            raise ShapeUnavailableForStep(self.name, step_num, mode) from None
        return self._source.reader.shape(row)

    def shapes(
        self, mode: ModeKeys = ModeKeys.GLOBAL, worker: str | None = None
    ) -> dict[int, tuple[int, ...]]:
        """Its shapes at all complete steps."""
        self.trial.maybe_refresh(self.name)
        track = self._track(mode, worker)
        shapes = map(self._source.reader.shape, track.rows.tolist())
        return dict(zip(track.steps.tolist(), shapes, strict=True))

    def dtype(
        self, step_num: int, mode: ModeKeys = ModeKeys.GLOBAL, worker: str | None = None
    ) -> str:
        """The name of its element type at a step, such as ``bfloat16``."""
        return self._source.cells.dtype(self._row(step_num, mode, worker))

    # -- removed ----------------------------------------------------------------------------------

    def step(self, step_num: int, mode: ModeKeys = ModeKeys.GLOBAL) -> NoReturn:
        """Gone since long: ``value`` is what you want."""
        raise SMDebugNotImplementedError("Tensor.step() is no more; use value() or values().")

    # -- from steps to rows -----------------------------------------------------------------------

    def _track(self, mode: ModeKeys, worker: str | None, incomplete: bool = False) -> Track:
        """Its rows over the complete steps of a mode, or over all."""
        index = self._source.index
        if self.name not in index:  # a range of steps, moved away from it
            raise TensorUnavailable(self.name, nearest(self.name, index.names))
        if worker is not None:
            self._check_worker(worker)
        track = index.track(self.name, mode, worker)
        return track if incomplete else track.up_to(self.trial.last_complete_step)

    def _row(self, step: int, mode: ModeKeys, worker: str | None) -> int:
        """Its row at a step; looks for new data only if there is none."""
        row = self._track(mode, worker, incomplete=True).row(step)
        if row is None:
            self.trial.maybe_refresh(self.name)
            row = self._track(mode, worker, incomplete=True).row(step)
        if row is None:
            raise self._no_row(step, mode, worker)
        return row

    def _no_row(self, step: int, mode: ModeKeys, worker: str | None) -> Exception:
        if worker is not None:
            writers = self._source.index.rows_at(self.name, mode, step)
            if len(writers):
                names = ", ".join(self._source.cells.workers(writers))
                return InvalidWorker(worker, f"At step {step} these did: {names}.")
        state = self.trial.has_passed_step(step, mode)
        if state is StepState.UNAVAILABLE:
            return StepUnavailable(step, mode)
        if state is StepState.NOT_YET_AVAILABLE:
            return StepNotYetAvailable(step, mode)
        return TensorUnavailableForStep(self.name, step, mode)

    def _check_worker(self, worker: str) -> None:
        known = self._source.reader.workers
        if worker not in known:
            hint = nearest(worker, known) or f"There are: {', '.join(known[:10])}."
            raise InvalidWorker(worker, hint)

    def __repr__(self) -> str:
        return f"Tensor({self.name!r}, trial={self.trial.name!r})"


def _statistic(name: str, absolute: bool) -> str:
    """The statistic that a reduction's name means, in either spelling."""
    plain = name.removesuffix("_norm") if isinstance(name, str) else name
    statistic = f"abs_{plain}" if absolute and not str(plain).startswith("abs_") else plain
    if statistic not in STATISTICS:
        known = ", ".join((*REDUCTIONS, *NORMS))
        raise SMDebugValueError(
            f"There is no reduction {name!r}. Choose from {known}, each also with 'abs_' before it."
        )
    return str(statistic)
