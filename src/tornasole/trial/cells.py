"""What stands in rows: from row numbers to arrays and numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from tornasole.errors import CorruptTrial
from tornasole.format import TrialReader
from tornasole.format.payload import DTYPES
from tornasole.stats.numpy import statistics
from tornasole.types import COUNTS, STATISTICS

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

_ABSOLUTE = ("abs_", "l1", "l2")
_SPREAD = ("std", "variance")
_NOTHING = np.empty(0)  # stands where a value will be put


class Cells:
    """The values and statistics of rows.

    Args:
        keep: Whether raw values, once read, stay in memory.
    """

    def __init__(self, reader: TrialReader, keep: bool) -> None:
        self._reader = reader
        self._kept: dict[tuple[str, str, int], Array] | None = {} if keep else None

    # -- values -----------------------------------------------------------------------------------

    def has_value(self, rows: Ints) -> Mask:
        """In which rows the value was saved."""
        single = self._reader.present("value")[rows]
        return single if single.all() else single | (self._reader.column("payload")[rows] >= 0)

    def array(self, row: int) -> Array | None:
        """The value in a row, if it was saved."""
        rows = np.array([row])
        return next(iter(self.arrays(rows))) if self.has_value(rows)[0] else None

    def arrays(self, rows: Ints) -> Iterable[Array]:
        """The values in rows that have one: numbers from their column, others from payloads."""
        scalar = self._reader.present("value")[rows]
        if scalar.all():
            return self._scalars(rows)
        found: list[Array] = [_NOTHING] * len(rows)
        positions = np.flatnonzero(scalar)
        for position, array in zip(positions.tolist(), self._scalars(rows[positions]), strict=True):
            found[position] = array
        for position in np.flatnonzero(~scalar).tolist():
            found[position] = self._raw(int(rows[position]))
        return found

    def _scalars(self, rows: Ints) -> Iterable[Array]:
        if not len(rows):
            return []
        values = self._reader.column("value")[rows]
        dtypes, dimensions = self._reader.column("dtype")[rows], self._reader.dimensions[rows]
        alike = (dtypes == dtypes[0]) & (dimensions == dimensions[0])
        if alike.all():
            return self._shaped(values, dtypes[0], int(dimensions[0]))
        found: list[Array] = [_NOTHING] * len(rows)
        left = np.arange(len(rows))
        while len(left):
            alike = (dtypes[left] == dtypes[left[0]]) & (dimensions[left] == dimensions[left[0]])
            these = left[alike]
            arrays = self._shaped(values[these], dtypes[these[0]], int(dimensions[these[0]]))
            for position, array in zip(these.tolist(), arrays, strict=True):
                found[position] = array
            left = left[~alike]
        return found

    def _shaped(self, values: Floats, dtype: str, dimensions: int) -> Iterable[Array]:
        if dtype not in DTYPES or dimensions > 32:
            raise CorruptTrial(
                f"{self._reader.url} is damaged: a row says that its value is of dtype {dtype!r} "
                f"with {dimensions} dimensions."
            )
        with np.errstate(invalid="ignore", over="ignore"):
            typed = values.astype(_numpy_dtype(dtype))
        if dimensions:
            return list(typed.reshape(-1, *[1] * dimensions))
        return map(np.asarray, typed)

    def _raw(self, row: int) -> Array:
        if self._kept is None:
            return self._read(row)
        reader = self._reader
        worker = reader.workers[reader.column("worker")[row]]
        key = worker, reader.names[reader.column("name")[row]], int(reader.column("step")[row])
        if key not in self._kept:
            self._kept[key] = self._read(row)
            self._kept[key].flags.writeable = False
        return self._kept[key]

    def _read(self, row: int) -> Array:
        array = self._reader.raw(row)
        if array is None:
            raise CorruptTrial(f"{self._reader.url} is damaged: a value has moved out of its rows.")
        return array

    # -- statistics -------------------------------------------------------------------------------

    def numbers(self, statistic: str, rows: Ints) -> tuple[Floats, Mask]:
        """A statistic (or ``value``) in rows, and where it could be had.

        What was saved is read; what was not is computed from the value, if that was.
        """
        values, known = self.known_numbers(statistic, rows)
        if known.all():
            return values, known
        for position in np.flatnonzero(
            ~known & (self._reader.column("payload")[rows] >= 0)
        ).tolist():
            number = _of_many(statistic, self._raw(int(rows[position])))
            if number is not None:
                values[position], known[position] = number, True
        return values, known

    def known_numbers(self, statistic: str, rows: Ints) -> tuple[Floats, Mask]:
        """A statistic (or ``value``) in rows, and where it is known without reading raw values."""
        values, known = self._saved_numbers(statistic, rows)
        if known.all():
            return values, known
        single = self._reader.present("value")[rows] & ~known
        if single.any():
            values[single] = _of_one(statistic, self._reader.column("value")[rows[single]])
            known |= single
        return values, known

    def _saved_numbers(self, statistic: str, rows: Ints) -> tuple[Floats, Mask]:
        values = self._reader.column(statistic)[rows].astype(np.float64)
        if statistic in COUNTS:
            return values, values >= 0
        known = ~np.isnan(values)
        if not known.all():  # a NaN may be missing or may be data
            known |= self._reader.present(statistic)[rows]
        return values, known

    def saved(self, row: int) -> dict[str, float]:
        """Every statistic and count that was saved in a row."""
        cells = ((name, self._reader.cell(name, row)) for name in (*STATISTICS, *COUNTS))
        return {name: number.item() for name, number in cells if number is not None}

    # -- words ------------------------------------------------------------------------------------

    def dtype(self, row: int) -> str:
        """The dtype of the tensor in a row."""
        return str(self._reader.cell("dtype", row))

    def lost(self, row: int) -> str:
        """Why a value that was asked for is not there; empty if none was."""
        return self._reader.cell("lost", row) or ""

    def workers(self, rows: Ints) -> list[str]:
        """Who wrote the rows, sorted."""
        return [
            self._reader.workers[code] for code in np.unique(self._reader.column("worker")[rows])
        ]


def _numpy_dtype(dtype: str) -> np.dtype[Any]:
    """The NumPy dtype of a value; types that NumPy lacks come as float32."""
    foreign = dtype == "bfloat16" or dtype.startswith("float8")
    return np.dtype(np.float32) if foreign else np.dtype("U" if dtype == "string" else dtype)


def _of_one(statistic: str, values: Floats) -> Array:
    """A statistic of tensors with one element each."""
    if statistic == "count":
        return np.ones(len(values))
    if statistic in COUNTS:
        test = {"nan_count": np.isnan, "inf_count": np.isinf, "zero_count": np.logical_not}
        return np.asarray(test[statistic](values))
    if statistic.endswith(_SPREAD):
        return np.where(np.isfinite(values), 0.0, np.nan)
    return np.abs(values) if statistic.startswith(_ABSOLUTE) else values


def _of_many(statistic: str, array: Array) -> float | None:
    """A statistic of one tensor, by the definitions that hold when saving."""
    if array.dtype.kind not in "biufc":
        return None
    if statistic == "value":
        return float(array.reshape(-1)[0].real) if array.size == 1 else None
    names = frozenset({statistic} - set(COUNTS))  # counts always come along
    return float(statistics([array], names)[0][statistic])
