"""Tensors whose values vary too much or too little."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tornasole.errors import SMDebugValueError
from tornasole.rules.contract import Explanation, StepRule, Symptom, parameter
from tornasole.rules.needs import Need
from tornasole.rules.parameters import Texts
from tornasole.rules.sentences import number
from tornasole.rules.view import Floats, Mask, StepView
from tornasole.types import Role

_ROLES = frozenset({
    Role.WEIGHT, Role.BIAS, Role.GRADIENT, Role.INPUT, Role.OUTPUT, Role.LAYER_INPUT,
    Role.LAYER_OUTPUT,
})  # fmt: skip


@dataclass(frozen=True)
class TensorVariance(StepRule):
    """Tensors whose values vary too much or too little.

    Looks at the tensors that you choose; without a choice, at weights, biases, gradients, inputs
    and outputs. Fires when the variance over all values of a tensor is above ``max_threshold`` or
    below ``min_threshold``; at least one of them must be given, as no value fits all models.
    Tensors with a single value are passed over.

    Wrong wherever the thresholds are: take them from a run that went well.
    """

    name = "tensor_variance"
    runs_by_default = False
    max_threshold: float | None = parameter(None, "variance above which a tensor varies too much")
    min_threshold: float | None = parameter(None, "variance below which it varies too little")
    collection_names: Texts | None = parameter(None, "collections to look at")
    tensor_regex: Texts | None = parameter(None, "regexes of tensors to look at")

    def __post_init__(self) -> None:
        low, high = self.min_threshold, self.max_threshold
        if low is None and high is None:
            raise SMDebugValueError("give max_threshold, min_threshold, or both.")
        if low is not None and high is not None and low > high:
            raise SMDebugValueError(
                f"min_threshold must not be above max_threshold, but {low} is above {high}."
            )

    def needs(self) -> Mapping[str, Need]:
        need = Need(
            "weights, gradients, inputs or outputs",
            roles=_ROLES,
            statistics=frozenset({"variance", "count"}),
            save=("weights", "gradients"),
        )
        return {"tensors": need.chosen_by(self.tensor_regex, self.collection_names)}

    def symptoms(self, step: StepView, memory: dict[str, Any]) -> Iterable[Symptom]:
        group = step["tensors"]
        variances = group.statistic("variance")
        sizes = group.statistic("count")
        high, low = out_of_range(variances, sizes, self.min_threshold, self.max_threshold)
        for i in np.flatnonzero(high | low).tolist():
            yield Symptom(group.names[i], {"variance": float(variances[i]), "high": bool(high[i])})

    def explain(self, symptoms: Sequence[Symptom]) -> Explanation:
        high = sorted(
            (s for s in symptoms if s.numbers["high"]), key=lambda s: -s.numbers["variance"]
        )
        low = sorted(
            (s for s in symptoms if not s.numbers["high"]), key=lambda s: s.numbers["variance"]
        )
        sentences = []
        causes: tuple[str, ...] = ()
        remedies: tuple[str, ...] = ()
        if high:
            sentences.append(_sentence(high, "above", self.max_threshold))
            causes += (
                "values that grow: a learning rate that is too high, or no normalisation",
                "inputs that were not scaled",
            )
            remedies += ("scale the inputs; add normalisation; lower the learning rate",)
        if low:
            sentences.append(_sentence(low, "below", self.min_threshold))
            causes += (
                "values that are all alike: dead or saturated units, or a constant initialisation",
                "inputs that are constant",
            )
            remedies += ("look at the layer before it; initialise by Glorot or He; check the data",)
        return Explanation(
            " ".join(sentences),
            evidence={
                "min_threshold": self.min_threshold,
                "max_threshold": self.max_threshold,
                "variance": {s.tensor: s.numbers["variance"] for s in (high + low)[:20]},
            },
            causes=causes,
            remedies=remedies,
        )


def out_of_range(
    variances: Floats, sizes: Floats, low: float | None, high: float | None
) -> tuple[Mask, Mask]:
    """Which tensors vary too much, and which too little; unknown and single values do not."""
    several = ~(sizes <= 1)
    none = np.zeros(len(variances), np.bool_)
    return (
        none if high is None else several & (variances > high),
        none if low is None else several & (variances < low),
    )


def _sentence(symptoms: Sequence[Symptom], side: str, threshold: float | None) -> str:
    worst = symptoms[0]
    limit, found = number(threshold or 0.0), number(worst.numbers["variance"])
    if len(symptoms) == 1:
        return f"The variance of {worst.tensor} is {found}, {side} {limit}."
    return (
        f"The variance of {len(symptoms)} tensors is {side} {limit}; that of {worst.tensor} is "
        f"{found}."
    )
