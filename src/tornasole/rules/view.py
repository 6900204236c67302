"""What a rule sees of a step: the numbers of the tensors that it needs, and nothing else."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tornasole.stats.numpy import statistics
from tornasole.types import COUNTS, ModeKeys, Role

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


class StepRows(Protocol):
    """One step of a block, and which of the rows are its own."""

    @property
    def step(self) -> int: ...
    @property
    def mode(self) -> ModeKeys: ...
    @property
    def mode_step(self) -> int: ...
    @property
    def time(self) -> float: ...
    @property
    def first(self) -> int: ...
    @property
    def stop(self) -> int: ...


class Block(Protocol):
    """The rows of some steps, in the order of execution; a trial's, or a running hook's."""

    @property
    def steps(self) -> Sequence[StepRows]: ...
    @property
    def names(self) -> Sequence[str]: ...
    @property
    def codes(self) -> Ints: ...
    @property
    def workers(self) -> Ints: ...
    @property
    def worker_names(self) -> Sequence[str]: ...
    def role(self, name: str) -> Role: ...
    def members(self, collection: str) -> Collection[str]: ...
    def known(self, statistic: str, positions: Ints) -> tuple[Floats, Mask]: ...
    def has_array(self, positions: Ints) -> Mask: ...
    def array(self, position: int) -> Array | None: ...
    def shape(self, position: int) -> tuple[int, ...]: ...


class Reading:
    """The raw values of one step at a time, each read once, however many rules look at it.

    Args:
        statistics: All that any rule asks for, computed in one pass over each value.
    """

    def __init__(self, block: Block, statistics: frozenset[str]) -> None:
        self._block, self._statistics = block, statistics
        self._arrays: dict[int, Array | None] = {}
        self._numbers: dict[int, dict[str, float]] = {}

    def begin_step(self) -> None:
        """Forgets the step before."""
        self._arrays.clear()
        self._numbers.clear()

    def role(self, name: str) -> Role:
        """The role of a tensor."""
        return self._block.role(name)

    def has_array(self, positions: Ints) -> Mask:
        """In which rows the value was saved; cheaper than to ask for each."""
        return self._block.has_array(positions)

    def array(self, position: int) -> Array | None:
        """The value in a row, if it was saved."""
        if position not in self._arrays:
            array = self._block.array(position)
            if array is not None:
                array = array.view()
                array.flags.writeable = False  # other rules see it, too
            self._arrays[position] = array
        return self._arrays[position]

    def shape(self, position: int) -> tuple[int, ...]:
        """The shape of the tensor in a row, whether its value was saved or not."""
        return self._block.shape(position)

    def number(self, statistic: str, position: int) -> float | None:
        """A statistic of the value in a row, if that was saved and has any."""
        if position not in self._numbers:
            array = self.array(position)
            if array is None or array.dtype.kind not in "biufc":
                self._numbers[position] = {}
            else:
                names = self._statistics - set(COUNTS) - {"value"}
                self._numbers[position] = statistics([array], names)[0]
        return self._numbers[position].get(statistic)


class Group:
    """The tensors of one need at one step, in the order of execution.

    Attributes:
        names: Their names.
        workers: Who wrote them.
    """

    def __init__(
        self,
        names: Sequence[str],
        workers: Sequence[str],
        positions: Ints,
        known: Mapping[str, tuple[Floats, Mask]],
        reading: Reading,
    ) -> None:
        self.names, self.workers = names, workers
        self._positions, self._known, self._reading = positions, known, reading

    def __len__(self) -> int:
        return len(self.names)

    def statistic(self, name: str) -> Floats:
        """A statistic of each, or ``value``; NaN where it cannot be known, or is NaN."""
        values, known = self._known[name]
        if not known.all():
            missing = np.flatnonzero(~known)
            values[missing] = np.nan
            for i in missing[self._reading.has_array(self._positions[missing])].tolist():
                found = self._reading.number(name, int(self._positions[i]))
                values[i] = np.nan if found is None else found
        return values

    def role(self, i: int) -> Role:
        """The role of the i-th."""
        return self._reading.role(self.names[i])

    def array(self, i: int) -> Array | None:
        """The value of the i-th, if it was saved."""
        return self._reading.array(int(self._positions[i]))

    def shape(self, i: int) -> tuple[int, ...]:
        """The shape of the i-th, whether its value was saved or not."""
        return self._reading.shape(int(self._positions[i]))


class StepView:
    """One step, as one rule sees it.

    Attributes:
        step: The global step.
        mode_step: Its number in its mode.
        time: When it was written, in seconds since the epoch.
        trial: Where the run is saved, if that is known.
    """

    def __init__(
        self, rows: StepRows, groups: Mapping[str, Group], trial: str | None = None
    ) -> None:
        self.step, self.mode, self.mode_step = rows.step, rows.mode, rows.mode_step
        self.time, self.trial = rows.time, trial
        self._groups = groups

    def __getitem__(self, need: str) -> Group:
        return self._groups[need]
