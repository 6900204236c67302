"""The first NaN or infinity of a run, in the order in which tensors came into being."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tornasole.format import TrialReader
from tornasole.trial.cells import Cells
from tornasole.types import ModeKeys

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class NonFinite:
    """A tensor that is not finite.

    Attributes:
        order: Its place among the tensors of its worker at that step.
    """

    name: str
    step: int
    mode: ModeKeys
    mode_step: int
    worker: str
    nan_count: int
    inf_count: int
    order: int
    role: str


def first_nonfinite(reader: TrialReader, cells: Cells, rows: Ints) -> NonFinite | None:
    """Finds the first of the rows, by step, order and worker, whose tensor is not finite.

    Saved counts and single values answer for themselves; raw values without counts are read, in
    order, up to the first that is known to be bad.
    """
    bad = (reader.column("nan_count")[rows] > 0) | (reader.column("inf_count")[rows] > 0)
    single = reader.present("value")[rows]
    bad |= single & ~np.isfinite(reader.column("value")[rows])
    unknown = (
        ~single & (reader.column("nan_count")[rows] < 0) & (reader.column("payload")[rows] >= 0)
    )
    known, doubtful = rows[bad], rows[unknown]
    if len(known):
        steps = reader.column("step")
        known = _in_order(reader, known[steps[known] == steps[known].min()])[:1]
        doubtful = doubtful[steps[doubtful] <= steps[known[0]]]
    for row in _in_order(reader, np.concatenate([known, doubtful])).tolist():
        if found := _inspect(reader, cells, row):
            return found
    return None


def _in_order(reader: TrialReader, rows: Ints) -> Ints:
    """The rows in the order of execution."""
    keys = [reader.column(name)[rows] for name in ("worker", "order", "step")]
    return rows[np.lexsort(keys)]


def _inspect(reader: TrialReader, cells: Cells, row: int) -> NonFinite | None:
    """Describes the tensor of a row if it is not finite; integers and strings always are."""
    nan, infinite = (int(reader.column(name)[row]) for name in ("nan_count", "inf_count"))
    if nan < 0 or infinite < 0:
        array = cells.array(row)
        if array is None or array.dtype.kind not in "fc":
            return None
        nan, infinite = int(np.isnan(array).sum()), int(np.isinf(array).sum())
    if not nan and not infinite:
        return None
    return NonFinite(
        name=reader.names[reader.column("name")[row]],
        step=int(reader.column("step")[row]),
        mode=ModeKeys(int(reader.column("mode")[row])),
        mode_step=int(reader.column("mode_step")[row]),
        worker=reader.workers[reader.column("worker")[row]],
        nan_count=nan,
        inf_count=infinite,
        order=int(reader.column("order")[row]),
        role=str(reader.column("role")[row]),
    )
