"""Classes that the model takes for one another."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tornasole.errors import SMDebugValueError
from tornasole.rules.classes import (
    ENOUGH_PER_CLASS,
    LABELS,
    MOST_CLASSES,
    PREDICTIONS,
    Learning,
    compared,
    pairs,
)
from tornasole.rules.contract import Explanation, StepRule, Symptom, parameter
from tornasole.rules.finding import Severity
from tornasole.rules.needs import Need
from tornasole.rules.sentences import percent
from tornasole.rules.standing import Standing
from tornasole.rules.view import Floats, Ints, StepView

_KNOWS_CLASSES = 0.5  # from this accuracy on, single classes are spoken of before the end
_MOST_SHOWN = 10
_BY_CHANCE = 3.0  # standard deviations: what a share may be off by in so few samples
_LABELS, _PREDICTIONS = "labels", "predictions"


@dataclass(frozen=True)
class Confusion(StepRule):
    """Classes that the model takes for one another.

    Counts how often each class (by label) was predicted as each, and judges whenever 50 samples per
    class have come together. Fires when, of the samples or of the predictions of a class, a share
    below ``min_diag`` is right, or when more than ``max_off_diag`` is one other class, by more than
    chance makes of so few samples. A model that still learns, or gets no more than half of all
    samples right, is spoken of only when the run ends, and so are runs with fewer samples. It is
    worth knowing rather than a warning of few samples, or if the run ends too early. Wrong where
    classes cannot be told apart better than that.
    """

    name = "confusion"
    category_no: int | None = parameter(
        None, "how many classes there are; default: as many as seen"
    )
    labels: str = parameter(
        _LABELS, "the tensor of labels; the default means whichever tensors are labels by role"
    )
    predictions: str = parameter(
        _PREDICTIONS, "the tensor of predictions; the default means those that are so by role"
    )
    labels_collection: str = parameter(_LABELS, "the collection of labels")
    predictions_collection: str = parameter(_PREDICTIONS, "the collection of predictions")
    min_diag: float = parameter(0.9, "share of a class, from 0 to 1, that must be right")
    max_off_diag: float = parameter(
        0.1, "share of a class, from 0 to 1, that may be taken for one other"
    )

    def __post_init__(self) -> None:
        for given in ("min_diag", "max_off_diag"):
            if not 0 <= getattr(self, given) <= 1:
                raise SMDebugValueError(
                    f"{given} is a share from 0 to 1, not {getattr(self, given)}."
                )
        if self.category_no is not None and not 2 <= self.category_no <= MOST_CLASSES:
            raise SMDebugValueError(
                f"category_no is a number of classes from 2 to {MOST_CLASSES}, not "
                f"{self.category_no}."
            )

    def needs(self) -> Mapping[str, Need]:
        return {
            "labels": _need(LABELS, self.labels, self.labels_collection),
            "predictions": _need(PREDICTIONS, self.predictions, self.predictions_collection),
        }

    def symptoms(self, step: StepView, memory: dict[str, Any]) -> Iterable[Symptom]:
        labels, predictions = step["labels"], step["predictions"]
        standing: Standing = memory.setdefault("standing", Standing())
        seen: dict[Any, _Seen] = memory.setdefault("seen", {})
        for i, j in pairs(labels, predictions):
            true = labels.array(i)
            guessed = None if j is None else predictions.array(j)
            if true is None or j is None or guessed is None:
                continue
            found = compared(true, guessed)
            if found is None or found.predicted is None:
                continue
            of_this = seen.setdefault((step.mode, predictions.names[j]), _Seen())
            of_this.add(found.labels, found.predicted, self.category_no)
            if of_this.is_enough:
                of_this.judged, of_this.matrix = of_this.matrix, _nothing()
                wrong, accuracy = None, _accuracy(of_this.judged)
                learns = of_this.learning.goes_on(1 - accuracy)
                if accuracy > _KNOWS_CLASSES and not learns:
                    wrong = self._judged(of_this.judged)
                standing.set(predictions.names[j], step.mode, wrong)
        yield from standing.symptoms(predictions.names, step.mode)

    def at_end(self, memory: dict[str, Any]) -> Iterable[Symptom]:
        for (_, tensor), seen in memory.get("seen", {}).items():
            wrong = self._judged(seen.judged if seen.judged.size else seen.matrix)
            if wrong is not None:
                yield Symptom(tensor, {**wrong, "still learning": seen.learning.is_under_way})

    def _judged(self, matrix: Ints) -> Mapping[str, Any] | None:
        found = confused(matrix, self.min_diag, self.max_off_diag)
        if _is_enough(matrix):
            found = [each for each in found if each.is_certain]
        if not found:
            return None
        worst = [
            {"class": each.true, "taken for": each.taken_for, "share": each.share,
             "right": each.right}
            for each in found[:_MOST_SHOWN]
        ]  # fmt: skip
        return {
            "confused classes": len(found),
            "classes": int(np.count_nonzero(matrix.sum(axis=1) + matrix.sum(axis=0))),
            "samples": int(matrix.sum()),
            "accuracy": _accuracy(matrix),
            "worst": worst,
        }

    def explain(self, symptoms: Sequence[Symptom]) -> Explanation:
        symptom = max(symptoms, key=lambda each: int(each.numbers["confused classes"]))
        numbers = symptom.numbers
        worst = numbers["worst"][0]
        enough = numbers["samples"] >= ENOUGH_PER_CLASS * numbers["classes"]
        learns = bool(numbers.get("still learning"))
        return Explanation(
            f"{numbers['confused classes']} of {numbers['classes']} classes are confused in "
            f"{symptom.tensor}, over {numbers['samples']} samples with "
            f"{percent(numbers['accuracy'])} right: worst is class {worst['class']}, "
            f"{percent(worst['right'])} right, {percent(worst['share'])} mixed up with class "
            f"{worst['taken for']}.",
            severity=Severity.WARNING if enough and not learns else Severity.INFO,
            evidence={
                "min_diag": self.min_diag,
                "max_off_diag": self.max_off_diag,
                "tensors": {each.tensor: dict(each.numbers) for each in symptoms[:5]},
            },
            causes=(
                "classes that look alike, or of which there are few samples",
                "labels that are wrong or off by one",
                "a model that is too small, or has not been trained long enough",
            ),
            remedies=(
                "look at samples of the two classes side by side, and at their labels",
                "collect or weight up samples of the classes that are mixed up",
                "train on, if the share is still shrinking",
            ),
        )


def _nothing() -> Ints:
    return np.zeros((0, 0), np.int64)


@dataclass
class _Seen:
    """How often each class (rows) was predicted as each, since the last verdict and at it."""

    matrix: Ints = field(default_factory=_nothing)
    judged: Ints = field(default_factory=_nothing)
    learning: Learning = field(default_factory=Learning)

    def add(self, labels: Ints, predicted: Ints, classes: int | None) -> None:
        """Counts more samples; those of classes that there should not be are left out."""
        size = classes or len(self.matrix)
        if classes is None and len(labels):
            size = max(size, min(int(max(labels.max(), predicted.max())) + 1, MOST_CLASSES))
        inside = (labels < size) & (predicted < size)
        codes = labels[inside] * size + predicted[inside]
        fresh = np.bincount(codes, minlength=size * size).reshape(size, size)
        fresh[: len(self.matrix), : len(self.matrix)] += self.matrix
        self.matrix = fresh

    @property
    def is_enough(self) -> bool:
        return _is_enough(self.matrix)


@dataclass(frozen=True)
class Confused:
    """A class that is confused.

    Attributes:
        right: The share of it that is right: of its samples, or of its predictions if that is less.
        taken_for: The class that it is most often mixed up with; so ``share``.
        is_certain: Whether that is more than chance can make of so few samples.
    """

    true: int
    right: float
    taken_for: int
    share: float
    is_certain: bool


def confused(matrix: Ints, min_diag: float, max_off_diag: float) -> list[Confused]:
    """The classes that are confused, the worst first.

    Args:
        matrix: How often each class (rows) was predicted as each (columns).
        min_diag: The share of each row and column that must be on the diagonal.
        max_off_diag: The share of each that may be at one place beside it.
    """
    if not matrix.size:
        return []
    with np.errstate(invalid="ignore", divide="ignore"):
        by_label = matrix / matrix.sum(axis=1, keepdims=True)
        by_prediction = (matrix / matrix.sum(axis=0, keepdims=True)).T
    right = np.fmin(by_label.diagonal(), by_prediction.diagonal())  # NaN: none to look at
    mixed = np.fmax(by_label, by_prediction)
    np.fill_diagonal(mixed, -1)
    mixed = np.nan_to_num(mixed, nan=-1)
    other, share = mixed.argmax(axis=1), mixed.max(axis=1)
    bad = (right < min_diag) | (share > max_off_diag)
    certain = np.zeros(len(matrix), np.bool_)
    for shares, sizes in ((by_label, matrix.sum(axis=1)), (by_prediction, matrix.sum(axis=0))):
        certain |= shares.diagonal() < min_diag - _chance(min_diag, sizes)
        others = np.where(np.eye(len(matrix), dtype=np.bool_), -1, shares).max(axis=1)
        certain |= others > max_off_diag + _chance(max_off_diag, sizes)
    order = sorted(np.flatnonzero(bad).tolist(), key=lambda i: (right[i], -share[i]))
    return [
        Confused(i, float(right[i]), int(other[i]), max(float(share[i]), 0.0), bool(certain[i]))
        for i in order
    ]


def _chance(share: float, sizes: Ints) -> Floats:
    """By how much a share may be off in samples of these sizes."""
    return _BY_CHANCE * np.sqrt(share * (1 - share) / np.maximum(sizes, 1))


def _is_enough(matrix: Ints) -> bool:
    classes = int(np.count_nonzero(matrix.sum(axis=1)))
    return classes > 0 and int(matrix.sum()) >= ENOUGH_PER_CLASS * classes


def _accuracy(matrix: Ints) -> float:
    return float(matrix.trace() / max(1, matrix.sum()))


def _need(by_role: Need, tensor: str, collection: str) -> Need:
    """What the user named; by role, unless he did."""
    names = (rf"^{re.escape(tensor)}$",) if tensor != by_role.what else None
    collections = (collection,) if collection != by_role.what else None
    return by_role.chosen_by(names, collections)
