"""Many steps at once, in the order of execution: what rules read.

A block holds row numbers, so it is good until the trial's next refresh.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tornasole.trial.source import Source
from tornasole.types import ModeKeys, Role

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


class StepRows(NamedTuple):
    """One step of a block: which it is, when it was written, and which rows are its own."""

    step: int
    mode: ModeKeys
    mode_step: int
    time: float
    first: int
    stop: int


class Block:
    """The rows of consecutive complete steps.

    Attributes:
        steps: The steps, in order.
        names: Tensor names, by code.
        codes: The code of each row's tensor.
        workers: The number of the worker that wrote each row.
        worker_names: Their names, by number.
    """

    def __init__(self, source: Source, after: int, last: int, most_rows: int) -> None:
        reader, index = source.reader, source.index
        steps = reader.column("step")
        rows = index.rows
        rows = rows[(steps[rows] > after) & (steps[rows] <= last)]
        keys = [reader.column(name)[rows] for name in ("order", "worker", "step")]
        rows = rows[np.lexsort(keys)]
        if len(rows) > most_rows:  # whole steps, and at least one
            cut = max(int(steps[rows[most_rows]]) - 1, int(steps[rows[0]]))
            rows = rows[steps[rows] <= cut]
        self._source, self._rows = source, rows
        self.names = reader.names
        self.codes: Ints = reader.column("name")[rows]
        self.workers: Ints = reader.column("worker")[rows]
        self.worker_names = list(reader.workers)
        self.steps = self._bounds(steps[rows])

    def _bounds(self, steps: Ints) -> list[StepRows]:
        reader, rows = self._source.reader, self._rows
        if not len(steps):
            return []
        firsts = np.flatnonzero(np.r_[True, steps[1:] != steps[:-1]])
        stops = [*firsts[1:].tolist(), len(steps)]
        modes = reader.column("mode")[rows[firsts]].tolist()
        mode_steps = reader.column("mode_step")[rows[firsts]].tolist()
        times = (reader.column("time")[rows[firsts]] / 1e6).tolist()
        return [
            StepRows(step, ModeKeys(mode), mode_step, time, first, stop)
            for step, mode, mode_step, time, first, stop in zip(
                steps[firsts].tolist(), modes, mode_steps, times, firsts.tolist(), stops,
                strict=True,
            )
        ]  # fmt: skip

    def role(self, name: str) -> Role:
        """The role of a tensor."""
        return self._source.index.roles[name]

    def members(self, collection: str) -> Collection[str]:
        """The tensors that were saved under a collection."""
        return self._source.reader.members.get(collection, ())

    def known(self, statistic: str, positions: Ints) -> tuple[Floats, Mask]:
        """A statistic, or ``value``, in rows, and where it is known without reading raw values."""
        return self._source.cells.known_numbers(statistic, self._rows[positions])

    def has_array(self, positions: Ints) -> Mask:
        """In which rows the value was saved."""
        return self._source.cells.has_value(self._rows[positions])

    def array(self, position: int) -> npt.NDArray[Any] | None:
        """The value in a row, if it was saved."""
        return self._source.cells.array(int(self._rows[position]))

    def shape(self, position: int) -> tuple[int, ...]:
        """The shape of the tensor in a row."""
        return self._source.reader.shape(int(self._rows[position]))
