"""Statistics that follow from others: a rule need not care which of them were saved."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tornasole.rules.view import Block, Floats, Ints, Mask

_ROOT: Callable[[Floats], Floats] = lambda x: np.sqrt(np.maximum(x, 0))  # noqa: E731

# What -> ways to compute it: from which others, and how. Those are only looked up, not derived.
_WAYS: dict[str, list[tuple[tuple[str, ...], Callable[..., Floats]]]] = {
    "mean": [(("sum", "count"), lambda total, n: total / n)],
    "sum": [(("mean", "count"), lambda mean, n: mean * n)],
    "abs_mean": [
        (("l1", "count"), lambda l1, n: l1 / n),
        (("abs_sum", "count"), lambda total, n: total / n),
    ],
    "l1": [
        (("abs_sum",), lambda total: total),
        (("abs_mean", "count"), lambda mean, n: mean * n),
    ],
    "l2": [
        (("abs_l2",), lambda l2: l2),
        (("mean", "variance", "count"), lambda mean, v, n: _ROOT((v + mean**2) * n)),
        (("mean", "std", "count"), lambda mean, std, n: _ROOT((std**2 + mean**2) * n)),
    ],
    "abs_max": [(("min", "max"), lambda low, high: np.maximum(np.abs(low), np.abs(high)))],
    "variance": [
        (("std",), lambda std: std**2),
        (("mean", "l2", "count"), lambda mean, l2, n: np.maximum(l2**2 / n - mean**2, 0)),
    ],
    "std": [
        (("variance",), _ROOT),
        (("mean", "l2", "count"), lambda mean, l2, n: _ROOT(l2**2 / n - mean**2)),
    ],
}  # fmt: skip


def known(block: Block, statistic: str, positions: Ints) -> tuple[Floats, Mask]:
    """A statistic in rows, and where it is known: saved, or following from what was."""
    values, there = block.known(statistic, positions)
    for others, way in _WAYS.get(statistic, ()):
        if there.all():
            break
        missing = np.flatnonzero(~there)
        columns = [block.known(other, positions[missing]) for other in others]
        possible = np.logical_and.reduce([mask for _, mask in columns])
        if possible.any():
            with np.errstate(all="ignore"):
                found = way(*(column[possible] for column, _ in columns))
            values[missing[possible]] = found
            there[missing[possible]] = True
    return values, there
