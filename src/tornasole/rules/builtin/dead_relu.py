"""ReLUs that are off whatever comes in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tornasole.errors import SMDebugValueError
from tornasole.rules.contract import Explanation, StepRule, Symptom, parameter
from tornasole.rules.finding import Severity
from tornasole.rules.needs import Need
from tornasole.rules.parameters import Texts
from tornasole.rules.sentences import count, number, percent
from tornasole.rules.units import (
    WINDOW,
    Idle,
    activity,
    channels_last,
    least_inactive_share,
    passes_on,
    unit_axis,
)
from tornasole.rules.view import Array, Floats, Group, Mask, StepView
from tornasole.selection.patterns import compiled
from tornasole.types import Role

_SAYS_SO = re.compile("relu", re.IGNORECASE)


@dataclass(frozen=True)
class DeadRelu(StepRule):
    """ReLUs that are off whatever comes in: they pass no gradient, and seldom come back.

    Looks at the outputs of layers that act like ReLUs: their name contains "relu", or they are
    never negative, have exact zeros, and do not end at exactly 1. A unit counts as inactive when it
    is above 0 on fewer than ``threshold_inactivity`` per cent of the samples of the batch. The rule
    fires when more than ``threshold_layer`` per cent of the units of a layer were inactive over the
    whole of the last 3 saved steps, and over at least 20 samples. (Of a layer whose name contains
    "relu", fewer steps do while there are no more.) Axis 0 of an output is the batch. A unit is a
    neuron; in a convolution it is a channel, which is active on a sample if it is so anywhere in
    it.

    Where only statistics were saved, units cannot be seen. The share of zeros in the layer then
    says how many units are inactive at the very least: for a certain verdict nearly all must be
    zero, so a layer that is half dead goes unnoticed.

    Layers that pass on what they get (flatten, pooling, dropout, inputs, …) are left out by their
    names, and those that repeat an earlier output by their numbers. Wrong about a layer whose data
    is sparse by nature, such as one-hot words, if its name does not say so.
    """

    name = "dead_relu"
    tensor_regex: Texts | None = parameter(
        None, "regexes for the names of ReLU outputs; default: layer outputs that act like ReLUs"
    )
    threshold_inactivity: float = parameter(
        1.0, "a unit that is active on fewer samples than this is inactive, in per cent"
    )
    threshold_layer: float = parameter(
        50.0, "a layer with more inactive units than this is reported, in per cent"
    )

    def __post_init__(self) -> None:
        compiled("tensor_regex", self.tensor_regex)
        if not 0 < self.threshold_inactivity <= 100:
            raise SMDebugValueError(
                "threshold_inactivity is in per cent, above 0 and up to 100, not "
                f"{self.threshold_inactivity!r}."
            )
        if not 0 <= self.threshold_layer < 100:
            raise SMDebugValueError(
                "threshold_layer is in per cent, from 0 and below 100, not "
                f"{self.threshold_layer!r}."
            )

    def needs(self) -> Mapping[str, Need]:
        outputs = Need(
            "outputs of layers",
            roles=frozenset({Role.LAYER_OUTPUT}),
            statistics=frozenset({"min", "max", "mean", "count", "zero_count"}),
            raw=True,
            save=("layers",),
        )
        return {"outputs": outputs.chosen_by(self.tensor_regex, None)}

    def symptoms(self, step: StepView, memory: dict[str, Any]) -> Iterable[Symptom]:
        outputs = step["outputs"]
        idle: dict[str, Idle] = memory.setdefault("idle", {})
        steps = memory["steps"] = memory.get("steps", 0) + 1
        threshold, most = self.threshold_inactivity / 100, self.threshold_layer / 100
        with np.errstate(all="ignore"):
            active = 1 - outputs.statistic("zero_count") / outputs.statistic("count")
        may_be = may_be_dead(active, threshold, most)
        if idle:
            for i in np.flatnonzero(~may_be).tolist():
                idle.pop(outputs.names[i], None)
        least = least_inactive_share(active, threshold)
        for i, is_named in self._relus(outputs, may_be, memory.setdefault("is named", {})):
            name, array = outputs.names[i], outputs.array(i)
            axis = None if array is None else unit_axis(name, array.ndim)
            window = min(WINDOW, steps) if is_named else WINDOW
            if array is None or axis is None or array.dtype.kind != "f" or not array.size:
                share, units = float(least[i]), None
                if not share > most:
                    idle.pop(name, None)
                elif not idle.setdefault(name, Idle()).units(np.array([True]), window)[0]:
                    share = 0.0
            else:
                inactive = inactive_units(array, axis, threshold)
                lasting = idle.setdefault(name, Idle()).units(inactive, window, array.shape[0])
                share, units = float(lasting.mean()), len(lasting)
            if share > most:
                yield Symptom(name, {"inactive share": share, "units": units})

    def _relus(
        self, outputs: Group, may_be_dead: Mask, is_named: dict[str, bool]
    ) -> Iterator[tuple[int, bool]]:
        """The outputs that act like ReLUs and may be dead, and whether they are said to be one."""
        chosen = self.tensor_regex is not None
        lows, zeros = outputs.statistic("min"), outputs.statistic("zero_count")
        for name in outputs.names:
            if name not in is_named:
                is_named[name] = chosen or _SAYS_SO.search(name) is not None
        named = np.array([is_named[name] for name in outputs.names], np.bool_)
        highs, means = outputs.statistic("max"), outputs.statistic("mean")
        counts = outputs.statistic("count")
        negative = np.flatnonzero(lows < 0)
        first_negative = negative[0] if len(negative) else len(lows)
        seen = set()
        for i in np.flatnonzero(acts_like_relu(lows, highs, zeros, named) & may_be_dead).tolist():
            numbers = float(counts[i]), float(zeros[i]), float(highs[i]), float(means[i])
            is_copy = numbers in seen and highs[i] > 0
            seen.add(numbers)
            if not named[i]:
                name = outputs.names[i]
                # Before the first layer that computes anything, there is only data.
                if is_copy or passes_on(name) or (i < first_negative and not channels_last(name)):
                    continue
            yield i, bool(named[i])

    def explain(self, symptoms: Sequence[Symptom]) -> Explanation:
        worst = max(symptoms, key=lambda symptom: symptom.numbers["inactive share"])
        share, units = worst.numbers["inactive share"], worst.numbers["units"]
        if units is None:
            amount = f"at least {percent(share)} of the units of {worst.tensor}"
            amount = f"all units of {worst.tensor}" if share >= 1 else amount
            amount += " (estimated from "
            amount += "its share of zeros, as only statistics were saved)"
        else:
            amount = f"{round(share * units)} of {units} units of {worst.tensor} ({percent(share)})"
        return Explanation(
            f"{count(symptoms, 'ReLU layer')} more than {number(self.threshold_layer)} % dead: "
            f"{amount} {'is' if units == 1 else 'are'} off on the whole batch.",
            Severity.CRITICAL if share >= 1 else Severity.WARNING,
            evidence={
                "threshold_inactivity": self.threshold_inactivity,
                "threshold_layer": self.threshold_layer,
                "estimated": units is None,
                "inactive share": {s.tensor: s.numbers["inactive share"] for s in symptoms[:20]},
            },
            causes=(
                "a learning rate so high that a step pushed the biases far below 0",
                "weights or biases that were initialised so that most inputs end up below 0",
                "inputs that are not scaled",
            ),
            remedies=(
                "lower the learning rate, or warm it up; clip gradients",
                "use LeakyReLU, GELU or ELU, which let a gradient through below 0",
                "initialise weights by He and biases at 0; normalise inputs, or add a "
                "normalisation layer before the ReLU",
            ),
        )


def acts_like_relu(lows: Floats, highs: Floats, zero_counts: Floats, named: Mask) -> Mask:
    """Which outputs are never negative and have exact zeros, or are called ReLU.

    One with negative values is none, whatever its name; of those called so the rest may be unknown.
    What ends at exactly 1 is a sigmoid at its ends, a softmax that is sure, or a one-hot code.
    """
    return np.where(named, ~(lows < 0), (lows >= 0) & (zero_counts > 0) & (highs != 1))


def may_be_dead(active: Floats, threshold: float, most: float) -> Mask:
    """Which layers have zeros enough for so many inactive units; unknown ones may.

    Args:
        active: The share of values that are not 0; those of inactive units nearly all are.
        threshold: The activity below which a unit is inactive.
        most: The share of inactive units that is allowed.
    """
    return ~(1 - active <= most * (1 - threshold))


def inactive_units(outputs: Array, axis: int, threshold: float) -> Mask:
    """Which units are above 0 on less than that share of the samples; NaN is no zero.

    Args:
        outputs: With the batch on axis 0.
        axis: That of the units.
    """
    return activity(~(outputs <= 0), axis) < threshold
