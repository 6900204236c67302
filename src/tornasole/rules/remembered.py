"""What rules remember of tensors from one step to the next, in bounded memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tornasole.rules.view import Array, Floats, Ints

_MOST_BYTES = 512 << 20


class Numbers:
    """Some numbers of each tensor, in one table, so that all can be compared at once.

    Args:
        columns: How many numbers of each.

    Attributes:
        table: A row for each tensor that was seen; NaN until something is written there.
    """

    def __init__(self, columns: int) -> None:
        self.table: Floats = np.full((0, columns), np.nan)
        self._row_of: dict[str, int] = {}
        self._latest: tuple[list[str], Ints] = [], np.zeros(0, np.int64)

    def rows(self, names: Sequence[str]) -> Ints:
        """The rows of tensors; new ones get new rows."""
        if names != self._latest[0]:  # else the same as at the step before, as nearly always
            row_of = self._row_of
            rows = [row_of.setdefault(name, len(row_of)) for name in names]
            new = len(row_of) - len(self.table)
            if new:
                more = np.full((new, self.table.shape[1]), np.nan)
                self.table = np.concatenate([self.table, more])
            self._latest = list(names), np.array(rows, np.int64)
        return self._latest[1]


class Values:
    """Copies of the values of tensors, one of each, until they take too much memory.

    A tensor whose value was not saved once is not asked for again: looking for values costs more
    than all else that rules do with statistics.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._left = most_bytes
        self._arrays: dict[str, Array] = {}
        self._without: set[str] = set()

    def may_have(self, name: str) -> bool:
        """Whether it makes sense to look for the value of a tensor."""
        return name not in self._without

    def get(self, name: str) -> Array | None:
        """The copy of the value of a tensor, if there is one."""
        return self._arrays.get(name)

    def put(self, name: str, array: Array | None) -> None:
        """Copies a value in place of the one before; there may be none, or no room for it."""
        kept = self._arrays.get(name)
        if kept is not None and array is not None and _alike(kept, array):
            np.copyto(kept, array)
            return
        if kept is not None:
            self._left += self._arrays.pop(name).nbytes
        if array is None or array.nbytes > self._left:
            self._without.add(name)
            return
        self._left -= array.nbytes
        self._arrays[name] = np.array(array)


def _alike(one: Array, other: Array) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype
