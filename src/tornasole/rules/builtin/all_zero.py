"""Tensors of nothing but zeros."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tornasole.errors import SMDebugValueError
from tornasole.rules.biases import is_of_bias
from tornasole.rules.contract import Explanation, StepRule, Symptom, parameter
from tornasole.rules.needs import Need
from tornasole.rules.parameters import Texts
from tornasole.rules.sentences import count, number, percent
from tornasole.rules.view import Floats, Mask, StepView
from tornasole.types import ModeKeys, Role

_ROLES = frozenset({Role.WEIGHT, Role.GRADIENT, Role.LAYER_OUTPUT, Role.OUTPUT})


@dataclass(frozen=True)
class AllZero(StepRule):
    """Tensors of nothing but zeros.

    Looks at the tensors that you choose; without a choice, at weights, gradients and outputs of
    layers in training steps. Fires when at least ``threshold`` per cent of a tensor's values are
    exactly zero. Of a tensor that you did not choose it must be so at two saved steps in a row:
    some weights start at zero on purpose, and move at the first update.

    Wrong about tensors that are meant to be empty: parts that are frozen at zero or switched off,
    experts that got no input, a loss that has reached its minimum.
    """

    name = "all_zero"
    threshold: float = parameter(100.0, "per cent of zeros from which a tensor counts as all zero")
    collection_names: Texts | None = parameter(None, "collections to look at")
    tensor_regex: Texts | None = parameter(None, "regexes of tensors to look at")

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 100:
            raise SMDebugValueError(
                f"threshold is in per cent, above 0 and up to 100, not {self.threshold}."
            )

    def needs(self) -> Mapping[str, Need]:
        need = Need(
            "weights, gradients or outputs of layers",
            roles=_ROLES,
            statistics=frozenset({"count", "zero_count"}),
            save=("weights", "gradients"),
        )
        return {"tensors": need.chosen_by(self.tensor_regex, self.collection_names)}

    def symptoms(self, step: StepView, memory: dict[str, Any]) -> Iterable[Symptom]:
        chosen = bool(self.tensor_regex or self.collection_names)
        if not chosen and step.mode in (ModeKeys.EVAL, ModeKeys.PREDICT):
            return
        group = step["tensors"]
        with np.errstate(invalid="ignore"):  # a tensor without elements has no share
            shares = group.statistic("zero_count") / group.statistic("count")
        found = np.flatnonzero(all_zero(shares, self.threshold)).tolist()
        before: set[str] = memory.get(step.mode.name, set())
        if found or before:
            now = {group.names[i] for i in found}
            memory[step.mode.name] = now | before.difference(group.names)
        for i in found:
            name = group.names[i]
            by_design = group.role(i) is Role.GRADIENT and is_of_bias(name)
            if chosen or (name in before and not by_design):
                yield Symptom(name, {"zeros": float(shares[i])})

    def explain(self, symptoms: Sequence[Symptom]) -> Explanation:
        first = symptoms[0]
        if self.threshold == 100:
            what = "nothing but zeros"
        else:
            what = f"at least {number(self.threshold)} % zeros"
        if len(symptoms) == 1:
            message = f"{first.tensor} is {what}"
        else:
            message = f"{count(symptoms, 'tensor')} {what}, {first.tensor} the first of them"
        if self.threshold < 100:
            message += f" ({percent(first.numbers['zeros'])})"
        return Explanation(
            f"{message}.",
            evidence={
                "threshold": self.threshold,
                "zeros": {s.tensor: 100 * s.numbers["zeros"] for s in symptoms[:20]},
            },
            causes=(
                "dead units: activations that are zero for every input pass no gradient on",
                "weights that were initialised to zero: then all units learn the same, or nothing",
                "gradients that do not arrive: a detached or frozen part, or underflow in float16",
            ),
            remedies=(
                "look at the layers before it: the first that is all zero is where it starts",
                "initialise weights by Glorot or He; try leaky ReLU and a lower learning rate",
                "for float16 gradients use a gradient scaler, or bfloat16",
            ),
        )


def all_zero(shares: Floats, threshold: float) -> Mask:
    """Which tensors count as all zero, by their shares of zeros; unknown ones do not."""
    return shares * 100 >= threshold
