"""The units of a layer, from the values of its outputs or inputs: which of them do nothing."""

from __future__ import annotations

import math
import re
from functools import lru_cache

import numpy as np

from tornasole.rules.view import Array, Floats, Ints, Mask

WINDOW = 3
"""How many saved steps in a row a unit must do nothing, if there are as many."""

_FEWEST_SAMPLES = 20  # that a unit is judged by: in a small batch a healthy one may do nothing

# Layers that pass on what they get, or sort it: what is zero there was zero before.
_PASSES_ON = re.compile(
    r"flatten|reshape|permute|pool|drop|pad|crop|concat|identity|input|rescal|resiz|normaliz"
    r"|embed|encod|vectoriz|hashing|softmax",
    re.IGNORECASE,
)


@lru_cache(maxsize=1 << 14)
def passes_on(name: str) -> bool:
    """Whether a layer computes nothing of its own, as far as its name says."""
    return _PASSES_ON.search(name) is not None


def channels_last(name: str) -> bool:
    """Whether the tensor has the units on its last axis whatever its shape, as in Keras."""
    return "/outputs" in name or "/inputs" in name


def unit_axis(name: str, dimensions: int) -> int | None:
    """The axis that counts the units; ``None`` if there is none.

    Axis 0 is the batch. Two dimensions: the last. Three: the last, as sequences of features have
    it. More: the channels of a convolution, which are at axis 1, and in Keras the last.
    """
    if dimensions < 2:
        return None
    return 1 if dimensions > 3 and not channels_last(name) else dimensions - 1


def activity(active: Mask, axis: int) -> Floats:
    """For each unit, the share of samples on which it is active.

    A unit with many places (a channel, a feature of a sequence) is active on a sample if it is so
    at any of them.
    """
    places = tuple(i for i in range(1, active.ndim) if i != axis)
    share: Floats = active.any(axis=places).mean(axis=0)
    return share


def least_inactive_share(active_share: Floats, threshold: float) -> Floats:
    """The least share of units with an activity below the threshold (both from 0 to 1).

    ``active_share`` is that of all values of the layer together. Units that are active have at
    least ``threshold`` of theirs, so there can be no more than ``active_share / threshold``.
    """
    return 1 - active_share / threshold


class Idle:
    """For how many saved steps in a row each unit of a layer has done nothing."""

    def __init__(self) -> None:
        self._steps: Ints = np.zeros(0, np.int64)

    def units(self, inactive: Mask, window: int, samples: int | None = None) -> Mask:
        """Takes which units do nothing at a step; gives those for which that has lasted.

        Args:
            window: For how many steps it must last.
            samples: In the batch, if known: a small one counts less.
        """
        if len(self._steps) != len(inactive):
            self._steps = np.zeros(len(inactive), np.int64)
        self._steps = np.where(inactive, self._steps + 1, 0)
        if samples is not None:
            window = max(window, math.ceil(_FEWEST_SAMPLES / max(samples, 1)))
        lasting: Mask = self._steps >= window
        return lasting


def sums_to_one(values: Array, axis: int) -> bool:
    """Whether the units of each sample are shares of a whole: a softmax."""
    with np.errstate(all="ignore"):
        total = values.sum(axis=axis, dtype=np.float64)
    return values.shape[axis] > 1 and bool(np.all(np.abs(total - 1) < 1e-3))
