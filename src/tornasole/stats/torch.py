"""The statistics of torch tensors: as near to one pass over memory as Python comes.

Large tensors are walked in blocks, with a few NumPy calls on each, by as many threads as torch uses
itself: NumPy lets other threads run meanwhile, and unlike torch's own operations its calls do not
wait for each other's threads, which is what stalls on a busy machine. Small tensors, of which
models have hundreds, are laid end to end and reduced together. 32-bit and narrower floats are
summed in float32 over a few hundred elements at a time and in float64 from there; a block in which
that could lose precision (huge, tiny or infinite values, a mean far from zero) is done again in
float64.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tornasole.stats import numpy as exact
from tornasole.stats.moments import Moments, Summary
from tornasole.types import COUNTS

# Elements. On fewer, NumPy's calls would be shorter than it takes to wake the thread that waits for
# the interpreter's lock: two threads are then slower than one.
_BLOCK = 1 << 20
_EXACT_BLOCK = 1 << 15  # elements that torch converts without starting threads
_ROW = 256  # elements summed in float32
_SMALL = 1 << 13  # elements up to which tensors are reduced together
_MANY = 1 << 21  # elements from which a second thread pays
_NARROW = frozenset(
    {torch.float32, torch.float16, torch.bfloat16}
    | {getattr(torch, name) for name in dir(torch) if name.startswith("float8")}
)
_UNFUSED = frozenset({"median", "prod", "abs_median", "abs_prod"})
_TINY, _HUGE = 1e-15, 1e15  # outside of which squares could leave the range of float32
_LEAST_SPREAD = 0.1  # of the sum of squares: below, their difference would lose digits
_ONES = np.ones((_ROW, 1), np.float32)

Floats = npt.NDArray[np.float32]


def statistics(tensors: Sequence[torch.Tensor], names: frozenset[str]) -> list[dict[str, float]]:
    """The named statistics of each tensor, and always its four counts.

    Tensors that are not in this machine's memory are copied there first.
    """
    with torch.no_grad(), np.errstate(all="ignore"):
        flat = [_flat(tensor.detach().cpu()) for tensor in tensors]
        found: list[dict[str, float]] = [{}] * len(flat)
        small: dict[torch.dtype, list[int]] = {}
        large: list[int] = []
        for i, tensor in enumerate(flat):
            if 0 < tensor.numel() <= _SMALL and not tensor.dtype.is_complex:
                small.setdefault(tensor.dtype, []).append(i)
            else:
                large.append(i)
        for alike in small.values():
            group = [flat[i] for i in alike]
            for i, result in zip(alike, _of_small(group, names - _UNFUSED), strict=True):
                found[i] = result
        walk = _Walk([flat[i] for i in large])
        for i, summary in zip(large, walk.summaries(names), strict=True):
            found[i] = summary.statistics(names)
        for i, tensor in enumerate(flat):
            if tensor.dtype.is_complex:
                numbers = tensor.resolve_conj().resolve_neg().numpy()
                found[i] = exact.statistics([numbers], names)[0]
            elif names & _UNFUSED:
                numbers = tensor.to(torch.float64).numpy()
                found[i] |= exact.unfused(numbers, names)
        return found


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """One dimension, in the order of memory if that saves a copy: no statistic depends on order."""
    if tensor.is_contiguous():
        return tensor.reshape(-1)
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    return tensor.permute(order).reshape(-1)


def _of_small(tensors: list[torch.Tensor], names: frozenset[str]) -> list[dict[str, float]]:
    """The statistics of non-empty tensors of one dtype, reduced by a handful of calls for all."""
    joined = tensors[0] if len(tensors) == 1 else torch.cat(tensors)
    values = joined.to(torch.float64).numpy()
    counts = np.array([tensor.numel() for tensor in tensors])
    starts = np.cumsum(counts) - counts
    magnitudes = np.abs(values)
    columns = {
        "count": counts,
        "nan_count": np.zeros_like(counts),
        "inf_count": np.zeros_like(counts),
        "zero_count": np.add.reduceat(values == 0, starts, dtype=np.int64),
    }
    if not math.isfinite(np.add.reduce(magnitudes)):
        columns["nan_count"] = np.add.reduceat(np.isnan(values), starts, dtype=np.int64)
        columns["inf_count"] = np.add.reduceat(np.isinf(values), starts, dtype=np.int64)
    for prefix, numbers in (("", values), ("abs_", magnitudes)):
        columns |= _of_parts(numbers, starts, counts, names, prefix)
    if not names.isdisjoint(("l2", "abs_l2")):
        norms = np.sqrt(np.add.reduceat(magnitudes * magnitudes, starts))
        columns |= {"l2": norms, "abs_l2": norms}
    if not names.isdisjoint(("l1", "abs_l1")):
        total = np.add.reduceat(magnitudes, starts)
        columns |= {"l1": total, "abs_l1": total}
    asked = [name for name in columns if name in names or name in COUNTS]
    rows = zip(*(columns[name].tolist() for name in asked), strict=True)
    return [dict(zip(asked, row, strict=True)) for row in rows]


def _of_parts(
    values: npt.NDArray[np.float64],
    starts: npt.NDArray[np.int64],
    counts: npt.NDArray[np.int64],
    names: frozenset[str],
    prefix: str,
) -> dict[str, npt.NDArray[Any]]:
    """Of the parts of an array that begin at the starts, what the names with the prefix need."""
    columns: dict[str, npt.NDArray[Any]] = {}
    if f"{prefix}min" in names:
        columns["min"] = np.minimum.reduceat(values, starts)
    if f"{prefix}max" in names:
        columns["max"] = np.maximum.reduceat(values, starts)
    if not names.isdisjoint(f"{prefix}{name}" for name in ("sum", "mean", "std", "variance")):
        columns["sum"] = np.add.reduceat(values, starts)
        columns["mean"] = columns["sum"] / counts
    if not names.isdisjoint((f"{prefix}std", f"{prefix}variance")):
        distances = values - np.repeat(columns["mean"], counts)
        columns["variance"] = np.add.reduceat(distances * distances, starts) / counts
        columns["std"] = np.sqrt(columns["variance"])
    return {f"{prefix}{name}": column for name, column in columns.items()}


class _Walk:
    """A pass over the blocks of large tensors, shared among threads.

    Helpers take the largest blocks, this thread the smallest: whoever makes short calls hinders
    the others, because the end of each call waits for the interpreter's lock. For the same reason
    threads do only what needs the block. They live only as long as the walk: a fork finds none.
    """

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self._blocks = [
            list(tensor.tensor_split(-(-tensor.numel() // _BLOCK)))
            if tensor.numel() and not tensor.dtype.is_complex
            else []
            for tensor in tensors
        ]
        narrow = [b for blocks in self._blocks for b in blocks if b.dtype in _NARROW]
        self._elements = sum(block.numel() for block in narrow)
        narrow.sort(key=torch.Tensor.numel, reverse=True)
        # As arrays already, where that is free: the threads then never call torch.
        self._to_do = deque((id(b), b.numpy() if b.dtype is torch.float32 else b) for b in narrow)
        self._sums: dict[int, _Sums | None] = {}

    def summaries(self, names: frozenset[str]) -> list[Summary]:
        """The summary of each tensor; of complex ones, of nothing."""
        helpers = [
            threading.Thread(target=self._work, args=(self._to_do.popleft,), daemon=True)
            for _ in range(min(torch.get_num_threads() - 1, self._elements // _MANY))
        ]
        for helper in helpers:
            helper.start()
        self._work(self._to_do.pop)
        for helper in helpers:
            helper.join()
        return [self._summary(blocks, names) for blocks in self._blocks]

    def _work(self, take: Callable[[], tuple[int, torch.Tensor | Floats]]) -> None:
        with np.errstate(all="ignore"):
            while True:
                try:
                    key, block = take()
                except IndexError:
                    return
                if isinstance(block, torch.Tensor):
                    block = block.to(torch.float32).numpy()
                self._sums[key] = _sums(block)

    def _summary(self, blocks: list[torch.Tensor], names: frozenset[str]) -> Summary:
        summary = Summary(Moments(), Moments())
        for block in blocks:
            sums = self._sums.get(id(block))
            part = sums.summary(names) if sums is not None else None
            if part is not None:
                summary.add(part)
                continue
            for few in block.tensor_split(-(-block.numel() // _EXACT_BLOCK)):
                summary.add(exact.summarise(few.to(torch.float64).numpy(), names))
        return summary


@dataclass(slots=True)
class _Sums:
    """What the threads leave of a block of 32-bit floats: as little as needs the block itself.

    Attributes:
        smallest: The least magnitude.
        totals: Of each row; ``magnitudes`` and ``squares`` likewise.
        rest: The elements after the last whole row.
    """

    count: int
    low: float
    high: float
    smallest: float
    zeros: int
    totals: Floats
    magnitudes: Floats
    squares: Floats
    rest: Floats

    def summary(self, names: frozenset[str]) -> Summary | None:
        """``None`` if float32 lost too much."""
        rest = self.rest.astype(np.float64)
        total = _total(self.totals) + _total(rest)
        total_magnitude = _total(self.magnitudes) + _total(np.abs(rest))
        squares = _total(self.squares) + _total(rest * rest)
        spread = squares - total * total / self.count
        spread_magnitude = squares - total_magnitude * total_magnitude / self.count
        least = _LEAST_SPREAD * squares
        if spread < least and not names.isdisjoint(("std", "variance")):
            return None
        if spread_magnitude < least and not names.isdisjoint(("abs_std", "abs_variance")):
            return None
        largest = max(-self.low, self.high)
        return Summary(
            Moments(self.count, total, spread, self.low, self.high),
            Moments(self.count, total_magnitude, spread_magnitude, self.smallest, largest),
            squares,
            zero_count=self.zeros,
        )


def _sums(block: Floats) -> _Sums | None:
    """One pass over a block; ``None`` where float32 will not do."""
    low, high = float(np.minimum.reduce(block)), float(np.maximum.reduce(block))
    largest = max(-low, high)
    if not (largest == 0 or _TINY < largest < _HUGE):  # NaN too
        return None
    magnitudes = np.abs(block)
    smallest = float(np.minimum.reduce(magnitudes))
    zeros = 0
    if smallest == 0:  # counted as integers: several times faster than as floats
        zeros = block.size - int(np.count_nonzero(magnitudes.view(np.int32)))
    rows = block.size // _ROW
    body = block[: rows * _ROW].reshape(rows, 1, _ROW)
    return _Sums(
        block.size,
        low,
        high,
        smallest,
        zeros,
        totals=np.matmul(body, _ONES),
        magnitudes=np.matmul(magnitudes[: rows * _ROW].reshape(body.shape), _ONES),
        squares=np.matmul(body, body.reshape(rows, _ROW, 1)),
        rest=block[rows * _ROW :].copy(),
    )


def _total(numbers: npt.NDArray[Any]) -> float:
    return float(np.add.reduce(numbers, axis=None, dtype=np.float64))
