"""Gradients that are too small to learn from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tornasole.rules.biases import is_of_bias
from tornasole.rules.contract import Explanation, StepRule, Symptom, parameter
from tornasole.rules.needs import Need
from tornasole.rules.sentences import count, number
from tornasole.rules.view import Floats, Mask, StepView
from tornasole.types import Role


@dataclass(frozen=True)
class VanishingGradient(StepRule):
    """Gradients that are too small to learn from.

    Fires when the mean magnitude of a gradient is below ``threshold``: the parameters behind it
    practically stop changing, while those nearer to the loss may still learn. Gradients of biases
    are passed over: before a normalisation they are zero by design. Wrong about models that are
    meant to have such gradients: frozen parts, or a training that has converged.
    """

    name = "vanishing_gradient"
    threshold: float = parameter(1e-7, "mean magnitude below which a gradient is too small")

    def needs(self) -> Mapping[str, Need]:
        return {
            "gradients": Need(
                "gradients",
                roles=frozenset({Role.GRADIENT}),
                statistics=frozenset({"abs_mean"}),
                save=("gradients",),
            )
        }

    def symptoms(self, step: StepView, memory: dict[str, Any]) -> Iterable[Symptom]:
        gradients = step["gradients"]
        magnitudes = gradients.statistic("abs_mean")
        for i in np.flatnonzero(vanished(magnitudes, self.threshold)).tolist():
            if not is_of_bias(gradients.names[i]):
                yield Symptom(gradients.names[i], {"mean magnitude": magnitudes[i]})

    def explain(self, symptoms: Sequence[Symptom]) -> Explanation:
        worst = min(symptoms, key=lambda symptom: symptom.numbers["mean magnitude"])
        smallest = worst.numbers["mean magnitude"]
        return Explanation(
            f"{count(symptoms, 'gradient')} below {number(self.threshold)} in mean magnitude; the "
            f"smallest, {worst.tensor}, is {number(smallest)}.",
            evidence={
                "threshold": self.threshold,
                "mean magnitude": {s.tensor: s.numbers["mean magnitude"] for s in symptoms[:20]},
            },
            causes=(
                "saturating activations (sigmoid, tanh) in a deep network",
                "weights that were initialised too small",
                "a loss or an activation that is flat where the outputs are",
            ),
            remedies=(
                "use ReLU-like activations, normalisation layers or residual connections",
                "initialise by Glorot or He",
                "look at the gradients layer by layer: the first that is small is where it starts",
            ),
        )


def vanished(mean_magnitudes: Floats, threshold: float) -> Mask:
    """Which gradients are too small; one that is not known, or is NaN, is not."""
    return mean_magnitudes < threshold
