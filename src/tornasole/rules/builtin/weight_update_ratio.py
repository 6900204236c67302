"""Weights that change too much or too little from step to step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tornasole.errors import SMDebugValueError
from tornasole.rules.contract import Explanation, StepRule, Symptom, parameter
from tornasole.rules.needs import Need
from tornasole.rules.remembered import Numbers, Values
from tornasole.rules.sentences import number
from tornasole.rules.view import Array, Floats, Group, Ints, Mask, StepView
from tornasole.types import ModeKeys, Role

_STATISTICS = ("l2", "mean", "min", "max", "count")
# The columns of what is remembered: the weights to compare with; the latest comparison with them;
# and the comparison that holds until the next one is made.
_BASE = slice(0, len(_STATISTICS))
_BASE_STEP = len(_STATISTICS)
_LATEST = slice(_BASE_STEP + 1, _BASE_STEP + 5)  # ratio, is exact, from step, to step
_VERDICT = slice(_LATEST.stop, _LATEST.stop + 4)


@dataclass(frozen=True)
class WeightUpdateRatio(StepRule):
    """Weights that change too much or too little from step to step.

    Compares each weight with itself at the saved step before (or, with ``num_steps``, up to so many
    steps before), in training steps: the norm of the change, divided by the norm that the weight
    had. Fires when that is above ``large_threshold`` or below ``small_threshold``. From statistics
    alone only a lower bound of the change can be had: it can prove a change too large, never one
    too small. Weights that were all zero are passed over: any change of nothing is infinite.

    Wrong about layers that are frozen on purpose, about the first steps of a warm-up that starts at
    a learning rate of zero, and, for small changes, when gradients are accumulated over steps: then
    set ``num_steps`` to at least the number of steps between two updates. Changes over many
    steps are larger: save every step, or at least two in a row, to have it sharp.
    """

    name = "weight_update_ratio"
    num_steps: int | None = parameter(
        None, "compare with the weight up to so many steps before; None: with the saved step before"
    )
    large_threshold: float = parameter(10.0, "ratio above which a change is too large")
    small_threshold: float = parameter(1e-8, "ratio below which a change is too small")
    epsilon: float = parameter(1e-9, "what is added to the norm of the weight")

    def __post_init__(self) -> None:
        if self.num_steps is not None and self.num_steps < 1:
            raise SMDebugValueError(f"num_steps must be 1 or more, not {self.num_steps}.")
        if self.epsilon < 0:
            raise SMDebugValueError(f"epsilon must be 0 or more, not {self.epsilon}.")
        if not 0 <= self.small_threshold < self.large_threshold:
            raise SMDebugValueError(
                "small_threshold must be 0 or more and below large_threshold, but they are "
                f"{self.small_threshold} and {self.large_threshold}."
            )

    def needs(self) -> Mapping[str, Need]:
        return {
            "weights": Need(
                "weights",
                roles=frozenset({Role.WEIGHT}),
                statistics=frozenset(_STATISTICS),
                save=("weights",),
            )
        }

    def symptoms(self, step: StepView, memory: dict[str, Any]) -> Iterable[Symptom]:
        if step.mode in (ModeKeys.EVAL, ModeKeys.PREDICT):
            return
        if step.mode is ModeKeys.GLOBAL and ModeKeys.TRAIN.name in memory:
            return
        group = step["weights"]
        last: _Last = memory.setdefault(step.mode.name, _Last())
        rows = last.numbers.rows(group.names)
        self._compare(group, step.step, last, rows)
        ratios, exact, first, latest = last.numbers.table[rows, _VERDICT].T
        large, small = judged(ratios, exact == 1, self.small_threshold, self.large_threshold)
        for i in np.flatnonzero(large | small).tolist():
            numbers = {
                "ratio": float(ratios[i]), "large": bool(large[i]), "exact": bool(exact[i]),
                "from": int(first[i]), "to": int(latest[i]),
            }  # fmt: skip
            yield Symptom(group.names[i], numbers)

    def _compare(self, group: Group, step: int, last: _Last, rows: Ints) -> None:
        """Compares weights with what is remembered of them, and remembers what comes next."""
        table = last.numbers.table
        now = np.stack([group.statistic(name) for name in _STATISTICS], axis=1)
        before, bases = table[rows, _BASE], table[rows, _BASE_STEP]
        distance = step - bases  # NaN for a weight that was not seen before
        limit = np.inf if self.num_steps is None else self.num_steps
        in_reach = distance <= limit
        ratios, exact = update_bounds(before, now, self.epsilon), np.zeros(len(rows))
        renew = ~in_reach | (distance == limit) | (self.num_steps is None)
        for i, name in enumerate(group.names):
            if not last.values.may_have(name):
                continue
            array, base = group.array(i), last.values.get(name)
            if in_reach[i] and array is not None and base is not None:
                ratios[i] = update_ratio(base, array, before[i, 0], self.epsilon)
                exact[i] = 1
            if renew[i]:
                last.values.put(name, array)
        found = np.stack([ratios, exact, bases, np.full(len(rows), step)], axis=1)
        latest = np.where(in_reach[:, None], found, table[rows, _LATEST])
        table[rows, _VERDICT] = np.where(renew[:, None], latest, table[rows, _VERDICT])
        table[rows, _LATEST] = np.where(renew[:, None], np.nan, latest)
        table[rows, _BASE] = np.where(renew[:, None], now, before)
        table[rows, _BASE_STEP] = np.where(renew, step, bases)

    def explain(self, symptoms: Sequence[Symptom]) -> Explanation:
        large = sorted((s for s in symptoms if s.numbers["large"]), key=_ratio, reverse=True)
        small = sorted((s for s in symptoms if not s.numbers["large"]), key=_ratio)
        sentences: list[str] = []
        causes: tuple[str, ...] = ()
        remedies: tuple[str, ...] = ()
        if large:
            sentences.append(_sentence(large, "more", self.large_threshold))
            causes += ("a learning rate that is too high", "gradients that explode")
            remedies += ("lower the learning rate, warm up, clip gradients",)
        if small:
            sentences.append(_sentence(small, "less", self.small_threshold))
            causes += (
                "no gradient arrives: vanished, or a frozen or detached part",
                "the optimizer was not given these weights, or is never called",
                "a learning rate that is too low, or zero",
            )
            remedies += (
                "check that optimizer.step() is called, and with which parameters it was made",
                "look at the gradients of these weights (vanishing_gradient); raise the rate",
            )
        return Explanation(
            " ".join(sentences),
            evidence={
                "large_threshold": self.large_threshold,
                "small_threshold": self.small_threshold,
                "ratio": {s.tensor: s.numbers["ratio"] for s in (large + small)[:20]},
                "exact": all(s.numbers["exact"] for s in symptoms),
                "steps": [symptoms[0].numbers["from"], symptoms[0].numbers["to"]],
            },
            causes=causes,
            remedies=remedies,
        )


@dataclass
class _Last:
    """What is remembered of each weight."""

    numbers: Numbers = field(default_factory=lambda: Numbers(_VERDICT.stop))
    values: Values = field(default_factory=Values)


def update_ratio(before: Array, now: Array, norm: float, epsilon: float) -> float:
    """The norm of a change over the norm of what was changed; NaN if there was nothing.

    Args:
        norm: The norm before.
    """
    if before.shape != now.shape or not norm > 0 or before.dtype.kind not in "fiub":
        return np.nan
    with np.errstate(all="ignore"):
        change = np.subtract(now, before, dtype=np.float64).reshape(-1)
        return float(np.sqrt(np.dot(change, change)) / (norm + epsilon))


def update_bounds(before: Floats, now: Floats, epsilon: float) -> Floats:
    """What the ratios are at least, by what statistics tell; NaN if they tell nothing.

    The norm of a change is at least the change of the norm, and of each single value; and the
    mean of n values can move by no more than the norm over the root of n.

    Args:
        before: A row for each weight: its norm, mean, min, max and number of values.
        now: The same at a later step.
    """
    with np.errstate(all="ignore"):
        moved = np.abs(now - before)[:, :4]
        moved[:, 1] *= np.sqrt(now[:, 4])
        known = ~np.isnan(moved)
        change = np.where(known, moved, 0).max(axis=1)
        norms = before[:, 0]
        bounds: Floats = np.where(known.any(axis=1) & (norms > 0), change, np.nan)
        return bounds / (norms + epsilon)


def judged(ratios: Floats, exact: Mask, small: float, large: float) -> tuple[Mask, Mask]:
    """Which changes are too large, and which too small; a bound from below cannot show that."""
    return ratios > large, exact & (ratios < small)


def _ratio(symptom: Symptom) -> float:
    return float(symptom.numbers["ratio"])


def _sentence(symptoms: Sequence[Symptom], side: str, threshold: float) -> str:
    worst, numbers = symptoms[0], symptoms[0].numbers
    least = "" if numbers["exact"] else "at least "
    ratio, limit = f"{least}{number(numbers['ratio'])} times", number(threshold)
    steps = f"between steps {numbers['from']} and {numbers['to']}"
    if not numbers["ratio"]:
        what = f"{worst.tensor} has" if len(symptoms) == 1 else f"{len(symptoms)} weights have"
        most = "hardly" if symptoms[-1].numbers["ratio"] else "not"
        some = "" if len(symptoms) == 1 else f", {worst.tensor} among them"
        return f"{what} {most} changed {steps}{some}."
    if len(symptoms) == 1:
        too = "too much" if side == "more" else "too little"
        return f"{worst.tensor} changed by {ratio} its norm {steps}; {side} than {limit} is {too}."
    return (
        f"{len(symptoms)} weights changed by {side} than {limit} times their norm {steps}; "
        f"{worst.tensor} by {ratio}."
    )
