"""Weights that start where the network cannot learn well."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tornasole.errors import SMDebugValueError
from tornasole.rules.biases import is_of_bias
from tornasole.rules.contract import Explanation, StepRule, Symptom, parameter
from tornasole.rules.finding import Severity
from tornasole.rules.needs import Need
from tornasole.rules.parameters import Texts
from tornasole.rules.sentences import number
from tornasole.rules.view import Array, Floats, Group, StepView
from tornasole.types import ModeKeys, Role

# So many standard deviations hold the middle 90 % of any values: by Cantelli's inequality no more
# than 1 in 20 is more than the root of 19 above the mean, and no more than 1 in 20 below.
_WIDEST = 2 * np.sqrt(19)


@dataclass(frozen=True)
class PoorWeightInitialization(StepRule):
    """Weights that start where the network cannot learn well.

    Looks at the first ``steps`` saved training steps for three signs: the variance of what layers
    are fed with differs between layers by more than ``threshold`` times; the middle 90 % of some
    gradient, those of biases aside, lie within less than ``distribution_range``; the loss has not
    fallen for ``patience`` saved steps. Each alone is often harmless and only noted; a loss that
    does not fall together with one of the others is a warning. The width of a gradient needs its
    values; from statistics only a limit is known, and it counts when even that is below
    ``distribution_range``.

    Wrong about networks that are built of very different parts, losses on a scale that makes all
    gradients small, and learning rates so low that the loss falls slowly from a good start.
    """

    name = "poor_weight_initialization"
    activation_inputs_regex: Texts | None = parameter(
        None, "regexes of the inputs of activations; None: the inputs of all layers"
    )
    threshold: float = parameter(10.0, "ratio of the largest to the smallest variance of layers")
    distribution_range: float = parameter(
        0.001, "width of the middle 90 % of a gradient below which it is too narrow"
    )
    patience: int = parameter(5, "for how many saved steps the loss may fail to fall")
    steps: int = parameter(10, "how many saved steps to look at, from the first")

    def __post_init__(self) -> None:
        for name, least in (("threshold", 1), ("distribution_range", 0)):
            if getattr(self, name) < least:
                raise SMDebugValueError(
                    f"{name} must be {least} or more, not {getattr(self, name)}."
                )
        for name in ("patience", "steps"):
            if getattr(self, name) < 1:
                raise SMDebugValueError(f"{name} must be 1 or more, not {getattr(self, name)}.")

    def needs(self) -> Mapping[str, Need]:
        inputs = Need(
            "inputs of layers",
            roles=frozenset({Role.LAYER_INPUT}),
            statistics=frozenset({"variance", "count"}),
            save=("layers",),
            required=False,
        )
        return {
            "gradients": Need(
                "gradients",
                roles=frozenset({Role.GRADIENT}),
                statistics=frozenset({"min", "max", "std", "count"}),
                save=("gradients",),
                required=False,
            ),
            "inputs": inputs.chosen_by(self.activation_inputs_regex, None),
            "losses": Need(
                "losses",
                roles=frozenset({Role.LOSS}),
                statistics=frozenset({"mean"}),
                save=("losses",),
                required=False,
            ),
        }

    def symptoms(self, step: StepView, memory: dict[str, Any]) -> Iterable[Symptom]:
        seen = memory.get("steps", 0)
        if seen >= self.steps or step.mode in (ModeKeys.EVAL, ModeKeys.PREDICT):
            return
        memory["steps"] = seen + 1
        signs: dict[str, Symptom] = memory.setdefault("signs", {})
        for name, sign in self._signs(step, memory):
            # As it was at first, with the same tensor, so that what goes on is told once; but the
            # loss as it is now.
            if name not in signs or name == "loss":
                signs[name] = sign
            together = {each: {"tensor": one.tensor, **one.numbers} for each, one in signs.items()}
            yield Symptom(signs[name].tensor, {"signs": together})

    def _signs(self, step: StepView, memory: dict[str, Any]) -> Iterable[tuple[str, Symptom]]:
        inputs = step["inputs"]
        if len(inputs):
            several = inputs.statistic("count") > 1
            ratio, low, high = variance_ratio(
                np.where(several, inputs.statistic("variance"), np.nan)
            )
            if ratio > self.threshold:
                numbers = {"ratio": ratio, "smallest": inputs.names[low]}
                yield "variance", Symptom(inputs.names[high], numbers)
        gradients = step["gradients"]
        if len(gradients):
            widths, exact = self._widths(gradients)
            known = ~np.isnan(widths) & ~np.array([is_of_bias(name) for name in gradients.names])
            if known.any():
                i = int(np.argmin(np.where(known, widths, np.inf)))
                if widths[i] < self.distribution_range:
                    numbers = {"width": float(widths[i]), "exact": bool(exact[i])}
                    yield "gradient", Symptom(gradients.names[i], numbers)
        losses = step["losses"]
        if len(losses):
            history = memory.setdefault("losses", [])  # no longer than ``steps``
            history.append(float(np.mean(losses.statistic("mean"))))
            stalled = steps_without_fall(history)
            if stalled >= self.patience and not falls_on_average(history, self.patience):
                numbers = {"steps": stalled, "loss": history[-1], "first": history[0]}
                yield "loss", Symptom(losses.names[0], numbers)

    @staticmethod
    def _widths(gradients: Group) -> tuple[Floats, list[bool]]:
        """The widths of gradients, or limits above them; and which are exact."""
        statistics = (gradients.statistic(name) for name in ("min", "max", "std", "count"))
        widths = widest(*statistics)
        arrays = (gradients.array(i) for i in range(len(gradients)))
        exact = [array is not None and array.size > 1 for array in arrays]
        for i in np.flatnonzero(exact).tolist():
            array = gradients.array(i)
            if array is not None:
                widths[i] = width(array)
        return widths, exact

    def explain(self, symptoms: Sequence[Symptom]) -> Explanation:
        signs: dict[str, Any] = symptoms[-1].numbers["signs"]
        sentences = []
        if "loss" in signs:
            found = signs["loss"]
            sentences.append(
                f"the loss has not fallen for {found['steps']} saved steps since the start "
                f"({number(found['first'])} at first, {number(found['loss'])} now)"
            )
        if "variance" in signs:
            found = signs["variance"]
            sentences.append(
                f"what layers are fed with varies {number(found['ratio'])} times as much in "
                f"{found['tensor']} as in {found['smallest']}"
            )
        if "gradient" in signs:
            found = signs["gradient"]
            at_most = "" if found["exact"] else "at most "
            sentences.append(
                f"90 % of {found['tensor']} lie within {at_most}{number(found['width'])} "
                f"(less than {number(self.distribution_range)})"
            )
        fails = "loss" in signs and len(signs) > 1
        text = "; ".join(sentences)
        return Explanation(
            f"{text[0].upper()}{text[1:]}.",
            Severity.WARNING if fails else Severity.INFO,
            evidence={
                "signs": signs,
                "threshold": self.threshold,
                "distribution_range": self.distribution_range,
                "patience": self.patience,
            },
            causes=(
                "weights that start too small, too large, or all alike",
                "inputs that were not scaled",
                "no normalisation between many layers",
            ),
            remedies=(
                "initialise by He (ReLU) or Glorot (tanh, sigmoid), biases with zero",
                "scale the inputs to mean 0 and variance 1",
                "add normalisation layers; if the loss falls after all, there is nothing to mend",
            ),
        )


def variance_ratio(variances: Floats) -> tuple[float, int, int]:
    """The largest over the smallest variance, and which these are; 1 if there are not two."""
    known = np.flatnonzero(np.isfinite(variances))
    if len(known) < 2:
        return 1.0, 0, 0
    low, high = (int(known[pick(variances[known])]) for pick in (np.argmin, np.argmax))
    if variances[low] > 0:
        return float(variances[high] / variances[low]), low, high
    return (float("inf") if variances[high] > 0 else 1.0), low, high


def width(gradient: Array) -> float:
    """From the 5th to the 95th percentile; NaN if there are not two values, or some not finite."""
    if gradient.size < 2 or gradient.dtype.kind != "f":
        return float("nan")
    values = gradient.reshape(-1).astype(np.float64)
    if not np.isfinite(values).all():
        return float("nan")
    with np.errstate(over="ignore"):
        low, high = np.percentile(values, [5, 95])
        return float(high - low)


def widest(low: Floats, high: Floats, std: Floats, count: Floats) -> Floats:
    """How wide the middle 90 % of tensors can be at most, by what statistics tell."""
    with np.errstate(invalid="ignore", over="ignore"):
        limits: Floats = np.fmin(high - low, _WIDEST * std)
    limits[~(count > 1)] = np.nan
    return limits


def falls_on_average(losses: Sequence[float], patience: int) -> bool:
    """Whether the last losses are lower than those before them, though none need be the lowest.

    A loss that varies from batch to batch can fall without a new lowest one for a while.
    """
    before, last = losses[:-patience], losses[-patience:]
    return len(before) > 0 and float(np.mean(last)) < float(np.mean(before))


def steps_without_fall(losses: Sequence[float]) -> int:
    """How many steps ago the lowest loss was; one that is not finite is not lower than any."""
    best, since = np.inf, 0
    for i, loss in enumerate(losses):
        if loss < best or i == 0:
            best, since = (loss if np.isfinite(loss) else np.inf), 0
        else:
            since += 1
    return since
