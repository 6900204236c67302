"""Classes that occur much more often than others, and classes that are mostly mispredicted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tornasole.errors import SMDebugValueError
from tornasole.rules.classes import (
    ENOUGH_PER_CLASS,
    LABELS,
    MOST_CLASSES,
    PREDICTIONS,
    Learning,
    compared,
    counted,
    pairs,
)
from tornasole.rules.contract import Explanation, StepRule, Symptom, parameter
from tornasole.rules.needs import Need
from tornasole.rules.parameters import Texts
from tornasole.rules.sentences import number, percent
from tornasole.rules.standing import Standing
from tornasole.rules.view import Array, Group, StepView
from tornasole.types import ModeKeys

_STATISTICS = frozenset({"min", "max", "sum", "count", "zero_count"})
_ENOUGH_TO_BE_WRONG = 10  # labels of a class before one speaks of how often it is mispredicted
_MOST_SHOWN = 20


@dataclass(frozen=True)
class ClassImbalance(StepRule):
    """Classes that occur much more often than others, or that the model hardly ever gets right.

    Counts the labels of all steps so far. From ``samples`` labels on (and 50 per class, if that is
    more) it fires when the most frequent class has more than ``threshold_imbalance`` times as many
    labels as the rarest, or when there is but one class though the model tells apart several. Where
    predictions were saved too, it fires on a class of which more than ``threshold_misprediction``
    is mispredicted, in the last ``samples`` labels, while the model gets more than the rest right;
    of a model that still learns, only when the run ends. Wrong about data that are meant to be so,
    such as characters and words, or ordered by class.
    From statistics alone it can tell only labels that are 0 and 1.
    """

    name = "class_imbalance"
    threshold_imbalance: float = parameter(
        10.0, "how many times as frequent as the rarest class the most frequent one may be"
    )
    threshold_misprediction: float = parameter(
        0.7, "share of a class, from 0 to 1, that may be mispredicted"
    )
    samples: int = parameter(500, "how many labels to see before judging; about 50 per class")
    argmax: bool = parameter(
        False, "whether predictions are scores by class; where shapes show it, that is seen anyway"
    )
    labels_regex: Texts | None = parameter(None, "which tensors are labels; default: by role")
    predictions_regex: Texts | None = parameter(
        None, "which tensors are predictions; default: by role"
    )

    def __post_init__(self) -> None:
        if not self.threshold_imbalance >= 1:
            raise SMDebugValueError(
                f"threshold_imbalance is a ratio of at least 1, not {self.threshold_imbalance}."
            )
        if not 0 <= self.threshold_misprediction <= 1:
            raise SMDebugValueError(
                "threshold_misprediction is a share from 0 to 1, not "
                f"{self.threshold_misprediction}."
            )
        if self.samples < 1:
            raise SMDebugValueError(f"samples must be at least 1, not {self.samples}.")

    def needs(self) -> Mapping[str, Need]:
        return {
            "labels": replace(LABELS, statistics=_STATISTICS).chosen_by(self.labels_regex, None),
            "predictions": replace(PREDICTIONS, required=False).chosen_by(
                self.predictions_regex, None
            ),
        }

    def symptoms(self, step: StepView, memory: dict[str, Any]) -> Iterable[Symptom]:
        labels, predictions = step["labels"], step["predictions"]
        standing: Standing = memory.setdefault("standing", Standing())
        all_seen: dict[tuple[ModeKeys, str], _Seen] = memory.setdefault("seen", {})
        for i, j in pairs(labels, predictions):
            seen = all_seen.setdefault((step.mode, labels.names[i]), _Seen())
            if not seen.are_classes:
                continue
            seen.are_classes = self._take_in(
                seen, labels, i, None if j is None else predictions.array(j)
            )
            if not seen.are_classes:
                standing.set(labels.names[i], step.mode, None)
                continue
            standing.set(labels.names[i], step.mode, self._imbalance(seen))
            if j is not None and sum(seen.asked.values()) >= self.samples:
                found = self._misprediction(seen)
                seen.latest = predictions.names[j], found
                errors = sum(seen.wrong.values()) / sum(seen.asked.values())
                learns = seen.learning.goes_on(errors)
                standing.set(predictions.names[j], step.mode, None if learns else found)
                seen.asked.clear()
                seen.wrong.clear()
        yield from standing.symptoms([*labels.names, *predictions.names], step.mode)

    def at_end(self, memory: dict[str, Any]) -> Iterable[Symptom]:
        for seen in memory.get("seen", {}).values():
            tensor, found = seen.latest
            if found is not None:
                yield Symptom(tensor, found)

    def _take_in(self, seen: _Seen, labels: Group, i: int, predictions: Array | None) -> bool:
        """Counts the labels of a step; returns whether they are classes at all."""
        raw = labels.array(i)
        if raw is None:
            fresh = zeros_and_ones(**{name: labels.statistic(name)[i] for name in _STATISTICS})
            seen.labels.update(fresh or {})
            return fresh is not None
        found = compared(raw, predictions, self.argmax)
        if found is None:
            return False
        seen.labels.update(counted(found.labels))
        seen.outputs = max(seen.outputs, found.outputs or 0)
        if found.predicted is not None:
            seen.asked.update(counted(found.labels))
            seen.wrong.update(counted(found.labels[found.labels != found.predicted]))
        return len(seen.labels) <= MOST_CLASSES

    def _imbalance(self, seen: _Seen) -> Mapping[str, Any] | None:
        ratio = imbalance(seen.labels, seen.outputs, self.samples)
        if ratio is None or not ratio > self.threshold_imbalance:
            return None
        return {"ratio": ratio, "labels by class": _most_frequent(seen.labels)}

    def _misprediction(self, seen: _Seen) -> Mapping[str, Any] | None:
        shares = mispredicted(seen.asked, seen.wrong, self.threshold_misprediction)
        if not shares:
            return None
        overall = sum(seen.wrong.values()) / sum(seen.asked.values())
        return {"mispredicted": _most_frequent(shares), "mispredicted overall": overall}

    def explain(self, symptoms: Sequence[Symptom]) -> Explanation:
        said = [self._about(symptom) for symptom in symptoms]
        evidence: dict[str, Any] = {
            "threshold imbalance": self.threshold_imbalance,
            "threshold misprediction": self.threshold_misprediction,
        }
        for symptom in reversed(symptoms):
            evidence.update(symptom.numbers)
        return Explanation(
            " ".join(dict.fromkeys(said)),
            evidence=evidence,
            causes=(
                "data that hold few samples of some classes",
                "data that come in the order of their classes, unshuffled",
                "labels that were mixed up or filtered when the data were prepared",
            ),
            remedies=(
                "count the labels of the whole data set: is it the data, or the order?",
                "shuffle; weight the loss by class, or draw rare classes more often",
                "judge by a metric per class: accuracy hides this",
            ),
        )

    def _about(self, symptom: Symptom) -> str:
        numbers = symptom.numbers
        if "ratio" not in numbers:
            worst, share = max(numbers["mispredicted"].items(), key=lambda item: item[1])
            many = len(numbers["mispredicted"])
            others = "" if many == 1 else f" ({many} classes are over the limit)"
            return (
                f"{percent(share)} of class {worst} is mispredicted in {symptom.tensor}, more than "
                f"{percent(self.threshold_misprediction)}, while over all classes it is "
                f"{percent(numbers['mispredicted overall'])}{others}."
            )
        counts = numbers["labels by class"]
        most, least = max(counts, key=counts.__getitem__), min(counts, key=counts.__getitem__)
        if len(counts) == 1:
            return f"All {counts[most]} labels in {symptom.tensor} so far are of class {most}."
        return (
            f"Class {most} has {counts[most]} labels in {symptom.tensor}, class {least} only "
            f"{counts[least]}: {number(numbers['ratio'])} times as many, more than "
            f"{number(self.threshold_imbalance)}."
        )


@dataclass
class _Seen:
    """What is known of one tensor of labels, in one mode.

    Attributes:
        labels: How many there were of each class, in all steps.
        asked: The same, since the last verdict and with predictions.
        wrong: How many of these were mispredicted.
        outputs: How many classes the model tells apart, as far as predictions show it.
        are_classes: Whether they are such that they can be counted.
        learning: Whether the model still learns to tell them apart.
        latest: The last verdict on predictions, and on which.
    """

    labels: Counter[int] = field(default_factory=Counter)
    asked: Counter[int] = field(default_factory=Counter)
    wrong: Counter[int] = field(default_factory=Counter)
    outputs: int = 0
    are_classes: bool = True
    learning: Learning = field(default_factory=Learning)
    latest: tuple[str, Mapping[str, Any] | None] = "", None


def imbalance(counts: Mapping[int, int], outputs: int, samples: int) -> float | None:
    """How many times as frequent as the rarest class the most frequent one is.

    Infinite if there is one class only; ``None`` if too few labels were seen to say, or if one
    class is all there can be.

    Args:
        counts: Labels by class.
        outputs: How many classes the model tells apart; 0 if that is not known.
        samples: How many labels it takes at least.
    """
    if sum(counts.values()) < max(samples, ENOUGH_PER_CLASS * len(counts)):
        return None
    if len(counts) == 1:
        return float("inf") if outputs > 1 else None
    return max(counts.values()) / min(counts.values())


def mispredicted(
    asked: Mapping[int, int], wrong: Mapping[int, int], threshold: float
) -> dict[int, float]:
    """The classes of which too large a share is mispredicted, and that share.

    None if that is so of all samples together: then the model has not learned to tell classes yet,
    which is no matter of one class. Classes with few samples are left out.
    """
    if sum(wrong.values()) > threshold * sum(asked.values()):
        return {}
    shares = {
        each: wrong.get(each, 0) / many
        for each, many in asked.items()
        if many >= _ENOUGH_TO_BE_WRONG
    }
    return {each: share for each, share in shares.items() if share > threshold}


def zeros_and_ones(
    min: float, max: float, sum: float, count: float, zero_count: float
) -> dict[int, int] | None:
    """Labels by class, from statistics: exact if all are 0 or 1, else ``None``.

    Of numbers from 0 to 1, the sum is the number of those that are not 0 only if those are all 1.
    """
    if not (min >= 0 and max <= 1 and count > 0 and zero_count >= 0):
        return None
    ones = count - zero_count
    if abs(sum - ones) > 1e-6 * count:
        return None
    return {each: int(many) for each, many in ((0, zero_count), (1, ones)) if many}


def _most_frequent(numbers: Mapping[int, Any]) -> dict[str, Any]:
    """The largest, and the smallest, if there are too many to show."""
    order = sorted(numbers, key=numbers.__getitem__, reverse=True)
    if len(order) > _MOST_SHOWN:
        order = order[: _MOST_SHOWN // 2] + order[-_MOST_SHOWN // 2 :]
    return {str(each): numbers[each] for each in order}
