"""The statistics of NumPy arrays: in blocks that stay in the cache, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tornasole.stats.moments import Moments, Summary
from tornasole.types import STATISTICS

Floats = npt.NDArray[np.float64]

# What a complex tensor has: the statistics that look at absolute values only.
_OF_MAGNITUDES = frozenset({"l1", "l2"} | {n for n in STATISTICS if n.startswith("abs_")})
_BLOCK = 1 << 16  # elements: half a megabyte as float64
_ROW = 1 << 10


def statistics(arrays: Sequence[npt.NDArray[Any]], names: frozenset[str]) -> list[dict[str, float]]:
    """The named statistics of each array, and always its four counts."""
    with np.errstate(all="ignore"):  # infinities and NaN are data
        return [_statistics(np.asarray(array), names) for array in arrays]


def _statistics(array: npt.NDArray[Any], names: frozenset[str]) -> dict[str, float]:
    if array.dtype.kind != "c":
        return of_flat(array.reshape(-1), names)
    # A complex number is as large as its magnitude, and has no order.
    magnitudes = np.abs(array.reshape(-1))
    parts = (array.real, array.imag)
    found = of_flat(magnitudes, names & _OF_MAGNITUDES)
    found |= dict.fromkeys(names - _OF_MAGNITUDES, math.nan)
    nan = np.isnan(parts[0]) | np.isnan(parts[1])
    inf = (np.isinf(parts[0]) | np.isinf(parts[1])) & ~nan
    return found | {"nan_count": int(nan.sum()), "inf_count": int(inf.sum())}


def of_flat(array: npt.NDArray[Any], names: frozenset[str]) -> dict[str, float]:
    """The statistics of a one-dimensional array of real numbers."""
    summary = Summary(Moments(), Moments())
    for start in range(0, array.size, _BLOCK):
        summary.add(summarise(array[start : start + _BLOCK].astype(np.float64, copy=False), names))
    return summary.statistics(names) | unfused(array, names)


def unfused(array: npt.NDArray[Any], names: frozenset[str]) -> dict[str, float]:
    """Those of the names that need all elements of a one-dimensional array at once."""
    return {name: function(array) for name, function in _UNFUSED.items() if name in names}


def summarise(block: Floats, names: frozenset[str]) -> Summary:
    """One pass over one block."""
    magnitudes = np.abs(block)
    total_magnitude = float(np.add.reduce(magnitudes))
    summary = Summary(
        _moments(block, names, ""),
        _moments(magnitudes, names, "abs_", total_magnitude),
        squares=_sum_of_squares(block),
        zero_count=block.size - int(np.count_nonzero(block)),
    )
    if not math.isfinite(total_magnitude):
        summary.nan_count = int(np.count_nonzero(np.isnan(block)))
        summary.inf_count = int(np.count_nonzero(np.isinf(block)))
    return summary


def _moments(
    block: Floats, names: frozenset[str], prefix: str, total: float | None = None
) -> Moments:
    moments = Moments(block.size, float(np.add.reduce(block)) if total is None else total)
    if not names.isdisjoint((f"{prefix}std", f"{prefix}variance")):
        distances = block - moments.total / moments.count
        moments.spread = _sum_of_squares(distances)
    if f"{prefix}min" in names:
        moments.low = float(np.minimum.reduce(block))
    if f"{prefix}max" in names:
        moments.high = float(np.maximum.reduce(block))
    return moments


def _sum_of_squares(block: Floats) -> float:
    # In rows: on a whole block BLAS would start threads, which fight torch's for the cores.
    rows = block.size // _ROW
    body, rest = block[: rows * _ROW], block[rows * _ROW :]
    squares = np.matmul(body.reshape(rows, 1, _ROW), body.reshape(rows, _ROW, 1))
    return float(np.add.reduce(squares, axis=None) + np.add.reduce(rest * rest))


def _median(array: npt.NDArray[Any]) -> float:
    return float(np.median(array.astype(np.float64, copy=False))) if array.size else math.nan


def _prod(array: npt.NDArray[Any]) -> float:
    return float(np.multiply.reduce(array, dtype=np.float64))


# They need all elements at once, and go their own way, only when asked for.
_UNFUSED: dict[str, Callable[[npt.NDArray[Any]], float]] = {
    "median": _median,
    "abs_median": lambda array: _median(np.abs(array.astype(np.float64))),
    "prod": _prod,
    "abs_prod": lambda array: abs(_prod(array)),
}
