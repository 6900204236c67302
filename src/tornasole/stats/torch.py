"""The statistics of torch tensors: as near to one pass over memory as Python comes.

Large tensors are walked in blocks that stay in the cache, with a few NumPy calls on each, by as
many threads as torch uses itself (NumPy lets other threads run meanwhile). Small ones, of which
models have hundreds, are laid end to end and reduced together. 32-bit and narrower floats are
summed in float32 over a few hundred elements at a time and in float64 from there; a block in which
that could lose precision (huge, tiny or infinite values, a mean far from zero) is done again in
float64.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tornasole.stats import numpy as exact
from tornasole.stats.moments import Moments, Summary

_BLOCK = 1 << 16  # elements: a quarter of a megabyte, and its absolute values beside it
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
        small = [
            i for i, t in enumerate(flat) if 0 < t.numel() <= _SMALL and not t.dtype.is_complex
        ]
        together = small if len(small) > 1 and not names & _UNFUSED else []
        for i, result in zip(together, _of_small([flat[i] for i in together], names), strict=True):
            found[i] = result
        alone = set(range(len(flat))) - set(together)
        for i, result in zip(alone, _of_large([flat[i] for i in alone], names), strict=True):
            found[i] = result
        return found


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """One dimension, in the order of memory if that saves a copy: no statistic depends on order."""
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    return tensor.permute(order).reshape(-1)


def _of_small(tensors: list[torch.Tensor], names: frozenset[str]) -> list[dict[str, float]]:
    """The statistics of non-empty tensors that fit into the cache together, or nearly."""
    if not tensors:
        return []
    values: npt.NDArray[np.float64] = torch.cat([t.to(torch.float64) for t in tensors]).numpy()
    counts = np.array([t.numel() for t in tensors])
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    magnitudes = np.abs(values)
    plain, absolute = (
        _moments_of_parts(numbers, starts, counts, names, prefix)
        for numbers, prefix in ((values, ""), (magnitudes, "abs_"))
    )
    squares = np.add.reduceat(values * values, starts)
    nan, inf, zero = (
        np.add.reduceat(test(values), starts, dtype=np.int64)
        for test in (np.isnan, np.isinf, np.logical_not)
    )
    rows = zip(plain, absolute, *(c.tolist() for c in (squares, nan, inf, zero)), strict=True)
    return [Summary(*row).statistics(names) for row in rows]


def _moments_of_parts(
    values: npt.NDArray[np.float64],
    starts: npt.NDArray[np.int64],
    counts: npt.NDArray[np.int64],
    names: frozenset[str],
    prefix: str,
) -> list[Moments]:
    totals = np.add.reduceat(values, starts)
    spreads, lows, highs = np.full((3, len(starts)), math.nan)
    if not names.isdisjoint((f"{prefix}std", f"{prefix}variance")):
        spreads = np.add.reduceat((values - np.repeat(totals / counts, counts)) ** 2, starts)
    if f"{prefix}min" in names:
        lows = np.minimum.reduceat(values, starts)
    if f"{prefix}max" in names:
        highs = np.maximum.reduceat(values, starts)
    columns = (counts, totals, spreads, lows, highs)
    return [Moments(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]


def _of_large(tensors: list[torch.Tensor], names: frozenset[str]) -> list[dict[str, float]]:
    """The statistics of tensors one by one, their blocks shared among threads."""
    jobs: deque[tuple[torch.Tensor, Summary]] = deque()
    summaries = []
    for tensor in tensors:
        summary = Summary(Moments(), Moments())
        summaries.append(summary)
        if not tensor.dtype.is_complex:
            blocks = -(-tensor.numel() // _BLOCK)
            jobs.extend((tensor[n * _BLOCK : (n + 1) * _BLOCK], summary) for n in range(blocks))
    _do(jobs, names, sum(tensor.numel() for tensor in tensors))
    found = []
    for tensor, summary in zip(tensors, summaries, strict=True):
        if tensor.dtype.is_complex:
            found += exact.statistics([tensor.resolve_conj().resolve_neg().numpy()], names)
            continue
        result = summary.statistics(names)
        if names & _UNFUSED:
            numbers = tensor.to(torch.float64).numpy()
            result |= exact.of_flat(numbers, names & _UNFUSED)
        found.append(result)
    return found


def _do(jobs: deque[tuple[torch.Tensor, Summary]], names: frozenset[str], elements: int) -> None:
    """Summarises the blocks; threads live only as long as the call, so a fork finds none."""
    lock = threading.Lock()

    def work() -> None:
        walker = _Walker(names)
        with np.errstate(all="ignore"):
            while True:
                try:
                    block, summary = jobs.popleft()
                except IndexError:
                    return
                part = walker.summarise(block)
                with lock:
                    summary.add(part)

    helpers = min(torch.get_num_threads() - 1, elements // _MANY)
    threads = [threading.Thread(target=work, daemon=True) for _ in range(helpers)]
    for thread in threads:
        thread.start()
    work()
    for thread in threads:
        thread.join()


class _Walker:
    """Summarises blocks, with memory of its own that it uses again."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self._magnitudes = np.empty(_BLOCK, np.float32)
        self._zeros = np.empty(_BLOCK, np.bool_)
        self._spreads = not names.isdisjoint(("std", "variance"))
        self._magnitude_spreads = not names.isdisjoint(("abs_std", "abs_variance"))
        self._least_magnitude = "abs_min" in names

    def summarise(self, block: torch.Tensor) -> Summary:
        if block.dtype in _NARROW:
            summary = self._summarise_narrow(block.to(torch.float32).numpy())
            if summary is not None:
                return summary
        return exact.summarise(block.to(torch.float64).numpy(), self._names)

    def _summarise_narrow(self, block: Floats) -> Summary | None:
        """In float32; ``None`` if that could lose precision."""
        count = block.size
        low, high = float(np.minimum.reduce(block)), float(np.maximum.reduce(block))
        largest = max(-low, high)
        if not (largest == 0 or _TINY < largest < _HUGE):  # NaN too
            return None
        magnitudes = np.abs(block, out=self._magnitudes[:count])
        total, total_magnitude = _sum(block), _sum(magnitudes)
        squares = _sum_of_squares(block)
        zeros = 0
        if low <= 0 <= high:
            zeros = int(np.count_nonzero(np.equal(block, 0, out=self._zeros[:count])))
        plain = Moments(count, total, squares - total * total / count, low, high)
        spread = squares - total_magnitude * total_magnitude / count
        magnitude = Moments(count, total_magnitude, spread, math.nan, largest)
        least = _LEAST_SPREAD * squares
        if (self._spreads and plain.spread < least) or (
            self._magnitude_spreads and magnitude.spread < least
        ):
            return None
        if self._least_magnitude:
            magnitude.low = float(np.minimum.reduce(magnitudes))
        return Summary(plain, magnitude, squares, zero_count=zeros)


def _sum(block: Floats) -> float:
    rows = block.size // _ROW
    body = block[: rows * _ROW].reshape(rows, 1, _ROW)
    rest = block[rows * _ROW :]
    return _total(np.matmul(body, _ONES)) + _total(rest)


def _sum_of_squares(block: Floats) -> float:
    rows = block.size // _ROW
    body = block[: rows * _ROW]
    rest = block[rows * _ROW :]
    products = np.matmul(body.reshape(rows, 1, _ROW), body.reshape(rows, _ROW, 1))
    return _total(products) + _total(rest * rest)


def _total(numbers: npt.NDArray[Any]) -> float:
    return float(np.add.reduce(numbers, axis=None, dtype=np.float64))
