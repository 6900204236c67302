"""Sigmoids and tanhs that are stuck at their ends."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from tornasole.errors import SMDebugValueError
from tornasole.rules.contract import Explanation, StepRule, Symptom, parameter
from tornasole.rules.finding import Severity
from tornasole.rules.needs import Need
from tornasole.rules.parameters import Numbers, Texts
from tornasole.rules.sentences import count, number, percent
from tornasole.rules.units import (
    WINDOW,
    Idle,
    activity,
    channels_last,
    least_inactive_share,
    passes_on,
    sums_to_one,
    unit_axis,
)
from tornasole.rules.view import Array, Floats, Mask, StepView
from tornasole.selection.patterns import compiled
from tornasole.types import Role


class Kind(Enum):
    """An activation that has ends."""

    TANH = "tanh"
    SIGMOID = "sigmoid"
    EITHER = "tanh or sigmoid"


_SAYS = {kind: re.compile(kind.value, re.IGNORECASE) for kind in (Kind.TANH, Kind.SIGMOID)}


class Range(NamedTuple):
    """The values between which an activation is not saturated."""

    low: float
    high: float


@dataclass(frozen=True)
class SaturatedActivation(StepRule):
    """Sigmoids and tanhs that are stuck at their ends, where their slope is practically 0.

    Looks at the inputs of layers with "tanh" or "sigmoid" in their names, if those were saved, and
    otherwise at the outputs of layers that act like one: all values between -1 and 1, or between 0
    and 1, and some at the very end. A value is saturated when the input is outside
    ``threshold_tanh`` or ``threshold_sigmoid`` (slope below about 1e-7), or the output as near to
    its end as such an input brings it. A unit is saturated when fewer than
    ``threshold_inactivity`` per cent of the samples of the batch are not. The rule fires when more
    than ``threshold_layer`` per cent of the units of a layer were saturated over the whole of the
    last 3 saved steps, and over at least 20 samples. (Of a layer whose name says what it is, fewer
    steps do while there are no more.) Axis 0 is the batch. A unit is a neuron, or a channel, which
    is saturated on a sample if it is so everywhere in it.

    Where only statistics were saved, units cannot be seen: it fires only where the layer as a whole
    leaves no doubt, and for outputs only if the name says what they are or they reach below 0.

    A softmax is no fault when it is sure, and is left out. Wrong about gates that are meant to be
    open or closed, and about outputs that are data rather than activations.
    """

    name = "saturated_activation"
    collection_names: Texts | None = parameter(
        None, "collections of inputs or outputs to look at; default: what acts like one"
    )
    tensor_regex: Texts | None = parameter(None, "regexes for their names, likewise")
    threshold_tanh: Numbers = parameter(
        (-9.4999, 9.4999), "inputs between which tanh is not saturated"
    )
    threshold_sigmoid: Numbers = parameter(
        (-23.0, 16.99999), "inputs between which the sigmoid is not saturated"
    )
    threshold_tanh_min: float | None = parameter(None, "the first of threshold_tanh alone")
    threshold_tanh_max: float | None = parameter(None, "the second of threshold_tanh alone")
    threshold_sigmoid_min: float | None = parameter(None, "the first of threshold_sigmoid alone")
    threshold_sigmoid_max: float | None = parameter(None, "the second of threshold_sigmoid alone")
    threshold_inactivity: float = parameter(
        1.0, "a unit that is not saturated on fewer samples than this is saturated, in per cent"
    )
    threshold_layer: float = parameter(
        50.0, "a layer with more saturated units than this is reported, in per cent"
    )

    def __post_init__(self) -> None:
        compiled("tensor_regex", self.tensor_regex)
        for kind in (Kind.TANH, Kind.SIGMOID):
            both = getattr(self, f"threshold_{kind.value}")
            if len(both) != 2:
                raise SMDebugValueError(
                    f"threshold_{kind.value} takes two numbers, the lower and the upper, not "
                    f"{both!r}."
                )
            low, high = self._range(kind)
            if not low < high:
                raise SMDebugValueError(
                    f"threshold_{kind.value}: {low!r} must be below {high!r}: between them the "
                    "activation is not saturated."
                )
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

    def _range(self, kind: Kind) -> Range:
        """The inputs between which it is not saturated."""
        if kind is Kind.EITHER:
            tanh, sigmoid = self._range(Kind.TANH), self._range(Kind.SIGMOID)
            return Range(min(tanh.low, sigmoid.low), max(tanh.high, sigmoid.high))
        word = kind.value
        low, high = getattr(self, f"threshold_{word}")
        own = getattr(self, f"threshold_{word}_min"), getattr(self, f"threshold_{word}_max")
        return Range(low if own[0] is None else own[0], high if own[1] is None else own[1])

    def needs(self) -> Mapping[str, Need]:
        values = Need(
            "inputs and outputs of layers",
            roles=frozenset({Role.LAYER_INPUT, Role.LAYER_OUTPUT}),
            statistics=frozenset({"min", "max", "abs_min", "mean", "l2", "count"}),
            raw=True,
            save=("layers",),
        )
        outputs = Need(
            "outputs of layers",
            roles=frozenset({Role.LAYER_OUTPUT}),
            save=("layers",),
            required=False,
        )
        return {
            "values": values.chosen_by(self.tensor_regex, self.collection_names),
            "outputs": outputs,
        }

    def symptoms(self, step: StepView, memory: dict[str, Any]) -> Iterable[Symptom]:
        values = step["values"]
        idle: dict[str, Idle] = memory.setdefault("idle", {})
        steps = memory["steps"] = memory.get("steps", 0) + 1
        least = None
        for seen in self._activations(step, memory.setdefault("says", {})):
            name, array = values.names[seen.i], values.array(seen.i)
            axis = None if array is None else unit_axis(name, array.ndim)
            window = min(WINDOW, steps) if seen.says_so else WINDOW
            between = self._range(seen.kind)
            if seen.is_output:
                between = outputs_of(seen.kind, between)
            if array is None or axis is None or array.dtype.kind != "f" or not array.size:
                if not seen.says_so and seen.kind is not Kind.TANH:
                    continue  # it may be a softmax
                least = _Least(step) if least is None else least
                share, units = least.share(seen, self), None
                stuck = np.array([share > self.threshold_layer / 100])
                lasts = idle.setdefault(name, Idle()).units(stuck, window)
                share = share if lasts[0] else 0.0
            elif seen.is_output and not seen.says_so and sums_to_one(array, axis):
                continue
            else:
                inactive = saturated_units(array, axis, between, self.threshold_inactivity / 100)
                lasting = idle.setdefault(name, Idle()).units(inactive, window, array.shape[0])
                share, units = float(lasting.mean()), len(lasting)
            if share > self.threshold_layer / 100:
                numbers = {"saturated share": share, "units": units, "kind": seen.kind.value}
                yield Symptom(name, {**numbers, "from": low_high(between)})

    def _activations(self, step: StepView, says: dict[str, Kind | None]) -> Iterator[_Activation]:
        """What is to be looked at, and as what."""
        values, outputs = step["values"], set(step["outputs"].names)
        chosen = bool(self.tensor_regex or self.collection_names)
        for name in values.names:
            if name not in says:
                says[name] = kind_by_name(name)
        lows, highs = values.statistic("min"), values.statistic("max")
        tanh, sigmoid = (outputs_of(kind, self._range(kind)) for kind in (Kind.TANH, Kind.SIGMOID))
        by_numbers = act_like(lows, highs, tanh, sigmoid)
        is_output = np.array([name in outputs for name in values.names], np.bool_)
        negative = np.flatnonzero((lows < 0) & is_output)
        first_negative = negative[0] if len(negative) else len(lows)
        named = np.array([says[name] is not None for name in values.names], np.bool_)
        inputs = {n for n in values.names if n not in outputs and (chosen or says[n] is not None)}
        looked_at = np.flatnonzero(named | (by_numbers != 0) | chosen)
        means, seen = values.statistic("mean"), set()
        for i in looked_at.tolist():
            name = values.names[i]
            if not is_output[i]:
                if name in inputs:
                    yield _Activation(i, says[name] or Kind.EITHER, False, True)
                continue
            numbers = float(lows[i]), float(highs[i]), float(means[i])
            is_copy = numbers in seen
            seen.add(numbers)
            if name.replace("output", "input") in inputs:
                continue  # its inputs say more
            if says[name] is not None:
                yield _Activation(i, says[name] or Kind.EITHER, True, True)
            elif by_numbers[i] and (
                # Before the first layer that computes anything, there is only data.
                chosen
                or not (
                    # What a layer returns may be what the last layer in it has returned.
                    is_copy or passes_on(name) or (i <= first_negative and not channels_last(name))
                )
            ):
                kind = Kind.TANH if by_numbers[i] < 0 else Kind.SIGMOID
                yield _Activation(i, kind, True, chosen)

    def explain(self, symptoms: Sequence[Symptom]) -> Explanation:
        worst = max(symptoms, key=lambda symptom: symptom.numbers["saturated share"])
        seen = worst.numbers
        share, units = seen["saturated share"], seen["units"]
        if units is None:
            amount = f"at least {percent(share)} of the units of {worst.tensor}"
            amount = f"all units of {worst.tensor}" if share >= 1 else amount
            amount += " (estimated, as only statistics were saved)"
        else:
            amount = f"{round(share * units)} of {units} units of {worst.tensor} ({percent(share)})"
        return Explanation(
            f"{count(symptoms, 'layer')} more than {number(self.threshold_layer)} % saturated: "
            f"{amount} {'is' if units == 1 else 'are'} at the ends of {seen['kind']} on the whole "
            "batch, where no gradient gets through.",
            Severity.CRITICAL if share >= 1 else Severity.WARNING,
            evidence={
                "threshold_inactivity": self.threshold_inactivity,
                "threshold_layer": self.threshold_layer,
                "estimated": units is None,
                "not saturated between": seen["from"],
                "saturated share": {s.tensor: s.numbers["saturated share"] for s in symptoms[:20]},
            },
            causes=(
                "inputs that are not scaled",
                "weights that were initialised too large",
                "a learning rate so high that the weights have grown",
            ),
            remedies=(
                "scale the inputs to mean 0 and standard deviation 1",
                "initialise by Glorot; add a normalisation layer before the activation",
                "lower the learning rate, clip gradients, or use ReLU-like activations",
            ),
        )


class _Activation(NamedTuple):
    """A tensor to look at.

    Attributes:
        says_so: Whether name or user said what it is.
    """

    i: int
    kind: Kind
    is_output: bool
    says_so: bool


class _Least:
    """The least share of saturated units that the statistics of a step admit."""

    def __init__(self, step: StepView) -> None:
        values = step["values"]
        self._lows, self._highs = values.statistic("min"), values.statistic("max")
        self._nearest = values.statistic("abs_min")
        self._means = values.statistic("mean")
        with np.errstate(all="ignore"):
            self._squares = values.statistic("l2") ** 2 / values.statistic("count")

    def share(self, seen: _Activation, rule: SaturatedActivation) -> float:
        i, between = seen.i, rule._range(seen.kind)
        low, high = float(self._lows[i]), float(self._highs[i])
        if seen.is_output:
            slope = mean_slope(seen.kind, float(self._means[i]), float(self._squares[i]))
            active = slope / least_slope(seen.kind, between)
            share = least_inactive_share(np.asarray(active), rule.threshold_inactivity / 100)
            between = outputs_of(seen.kind, between)
            if float(share) > 0:
                return min(float(share), 1.0)
        furthest = max(abs(between.low), abs(between.high))
        beyond = low >= between.high or high <= between.low or self._nearest[i] >= furthest
        return 1.0 if beyond else 0.0


def kind_by_name(name: str) -> Kind | None:
    """What a layer is by its name, if that says so."""
    found = [kind for kind, says in _SAYS.items() if says.search(name)]
    return None if not found else found[0] if len(found) == 1 else Kind.EITHER


def act_like(lows: Floats, highs: Floats, tanh: Range, sigmoid: Range) -> Floats:
    """-1 for outputs like those of tanh that reach its ends, 1 for the sigmoid, 0 for others.

    A sigmoid must reach its upper end: a value of 0 says little, as much is 0 for other reasons.

    Args:
        tanh: The outputs between which it is not saturated; so ``sigmoid``.
    """
    like_tanh = (lows >= -1) & (lows < 0) & (highs <= 1)
    like_tanh &= (highs >= tanh.high) | (lows <= tanh.low)
    like_sigmoid = (lows >= 0) & (highs <= 1) & (highs >= sigmoid.high)
    return np.where(like_tanh, -1.0, np.where(like_sigmoid, 1.0, 0.0))


def outputs_of(kind: Kind, inputs: Range) -> Range:
    """The outputs between which an activation is not saturated, by its inputs."""
    if kind is Kind.TANH:
        return Range(math.tanh(inputs.low), math.tanh(inputs.high))
    ends = [_sigmoid(each) for each in inputs]
    return Range(ends[0], ends[1]) if kind is Kind.SIGMOID else Range(-ends[1], ends[1])


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= -700 else 0.0


def mean_slope(kind: Kind, mean: float, mean_square: float) -> float:
    """The mean slope of an activation, by the mean of its outputs and of their squares."""
    slope = mean - mean_square if kind is Kind.SIGMOID else 1 - mean_square
    return max(slope, 0.0) if slope == slope else math.nan


def least_slope(kind: Kind, inputs: Range) -> float:
    """The least slope of an activation between these inputs."""
    if kind is Kind.SIGMOID:
        return min(_sigmoid(x) * _sigmoid(-x) for x in inputs)
    return min(1 / math.cosh(min(abs(x), 300.0)) ** 2 for x in inputs)


def saturated_units(values: Array, axis: int, between: Range, threshold: float) -> Mask:
    """Which units are between these values on less than that share of the samples; NaN is.

    Args:
        values: With the batch on axis 0.
        axis: That of the units.
    """
    return activity(~((values <= between.low) | (values >= between.high)), axis) < threshold


def low_high(between: Range) -> list[float]:
    """Plain numbers."""
    return [float(between.low), float(between.high)]
