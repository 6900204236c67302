"""Predictions beside labels: what kind of task it is, and both made comparable.

task_of   ─▶ what the numbers mean: from the objective, or else from the numbers
compared  ─▶ classes beside classes, or numbers beside numbers, without what is NaN
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from tornasole.views.charts import number
from tornasole.views.xgboost_report.reading import Array, Floats, Ints

_SAMPLE = 100_000  # rows looked at to learn what predictions are
_LEAST = 1e-15  # a probability of zero would cost infinitely much


class Task(Enum):
    """What the predictions are."""

    PROBABILITY = "binary classification"
    PROBABILITIES = "multi-class classification"
    CLASSES = "classification by class"
    REGRESSION = "regression"
    QUANTILE = "quantile regression"
    RANKING = "ranking"
    SURVIVAL = "survival analysis"


CLASSIFICATIONS = (Task.PROBABILITY, Task.PROBABILITIES, Task.CLASSES)

_OBJECTIVES = (
    ("binary:hinge", Task.CLASSES),
    ("binary:", Task.PROBABILITY),
    ("multi:softmax", Task.CLASSES),
    ("multi:", Task.PROBABILITIES),
    ("rank:", Task.RANKING),
    ("survival:", Task.SURVIVAL),
    ("reg:quantile", Task.QUANTILE),
    ("reg:expectile", Task.QUANTILE),
    ("reg:", Task.REGRESSION),
    ("count:", Task.REGRESSION),
)


@dataclass(frozen=True)
class Judgement:
    """A task, and where that is known from."""

    task: Task
    because: str


@dataclass(frozen=True)
class Compared:
    """Labels and predictions of the same samples, comparable one by one.

    Attributes:
        labels: Classes, or numbers in a regression.
        predicted: Likewise.
        likelihood: The probability that was given to the true class, where there are any.
        level: In a quantile regression, the quantile that is predicted.
        notes: What was left out or taken for something, in sentences.
    """

    task: Task
    labels: Ints | Floats
    predicted: Ints | Floats
    likelihood: Floats | None = None
    level: float | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Incomparable:
    """Why predictions and labels cannot be compared."""

    reason: str


def task_of(objective: str | None, predictions: Array, labels: Array) -> Judgement:
    """The task by its objective, or else by the look of the numbers."""
    numbers_too = _are_numbers(predictions) and _are_numbers(labels)
    if objective:
        task = next((task for start, task in _OBJECTIVES if objective.startswith(start)), None)
        if task in CLASSIFICATIONS and numbers_too and not _whole(labels):
            return Judgement(
                Task.REGRESSION, f"of {objective} with labels that are not classes but numbers"
            )
        if task is not None:
            return Judgement(task, f"of the objective {objective}")
    start = f"of the objective {objective}, which is not known, and " if objective else ""
    looks = _by_look(predictions, labels) if numbers_too else Task.REGRESSION
    why = {
        Task.PROBABILITY: "predictions between 0 and 1 and labels 0 and 1",
        Task.PROBABILITIES: "rows of predictions that sum to 1 and whole labels",
        Task.CLASSES: "predictions and labels that are whole numbers",
    }.get(looks, "the numbers")
    hint = "" if objective else "; no objective was saved"
    return Judgement(looks, f"{start}of {why}{hint}")


def _by_look(predictions: Array, labels: Array) -> Task:
    some, true = predictions[:_SAMPLE], labels[:_SAMPLE]
    if not _whole(true):
        return Task.REGRESSION
    if some.ndim == 2 and some.shape[1] > 1:
        return Task.PROBABILITIES if true.ndim == 1 and _sum_to_one(some) else Task.REGRESSION
    known = some[np.isfinite(some)]
    classes = np.unique(true[np.isfinite(true)])
    if len(known) and ((known == 0) | (known == 1)).all() and np.isin(classes, [0, 1]).all():
        return Task.CLASSES
    if len(known) and known.min() >= 0 and known.max() <= 1 and np.isin(classes, [0, 1]).all():
        return Task.PROBABILITY
    return Task.CLASSES if len(known) and _whole(known) else Task.REGRESSION


def _are_numbers(values: Array) -> bool:
    return values.dtype.kind in "biuf" and values.ndim >= 1


def _whole(values: Array) -> bool:
    if values.dtype.kind in "biu":
        return True
    known = values[np.isfinite(values)]
    return bool((known == np.floor(known)).all()) and bool((np.abs(known) < 2**53).all())


def _sum_to_one(rows: Array) -> bool:
    known = rows[np.isfinite(rows).all(axis=1)]
    return bool(
        (np.abs(known.sum(axis=1, dtype=np.float64) - 1) < 1e-3).all() and (known >= 0).all()
    )


# -- made comparable


def compared(
    task: Task, predictions: Array, labels: Array, levels: tuple[float, ...] = ()
) -> Compared | Incomparable:
    """Labels and predictions of the same samples; or why there is no such thing.

    Args:
        levels: The quantiles that a quantile regression predicts, in order of column.
    """
    if not _are_numbers(predictions) or not _are_numbers(labels):
        kinds = f"predictions are {predictions.dtype}, labels {labels.dtype}"
        return Incomparable(f"Predictions and labels must be arrays of numbers; {kinds}.")
    if not predictions.size or not labels.size:
        return Incomparable("Predictions or labels are empty.")
    predictions, labels = _same_rows(task, predictions, labels)
    if len(predictions) != len(labels):
        return Incomparable(
            f"There are {len(predictions):,} predictions but {len(labels):,} labels: "
            "save both from the same validation data."
        )
    if predictions.ndim > 2 or labels.ndim > 2:
        return Incomparable(
            f"Predictions of shape {predictions.shape} and labels of shape {labels.shape} "
            "cannot be compared."
        )
    in_rows = task is Task.CLASSES and predictions.ndim == 2 and labels.ndim == 1
    if task is Task.PROBABILITIES or in_rows:
        return _by_rows(predictions, labels)
    if task is Task.QUANTILE:
        return _by_level(predictions, labels, levels)
    if predictions.shape != labels.shape:
        return Incomparable(
            f"Predictions of shape {predictions.shape} and labels of shape {labels.shape} "
            "cannot be compared."
        )
    notes: list[str] = []
    if predictions.ndim == 2:
        notes.append(f"All {predictions.shape[1]} outputs are taken together.")
    return _one_by_one(task, predictions.ravel(), labels.ravel(), notes)


def _same_rows(task: Task, predictions: Array, labels: Array) -> tuple[Array, Array]:
    """Without axes of length 1, and with a row for each label."""
    if predictions.ndim == 2 and predictions.shape[1] == 1:
        predictions = predictions[:, 0]
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    classes, rest = divmod(len(predictions), len(labels))
    if task is Task.PROBABILITIES and predictions.ndim == 1 and classes > 1 and not rest:
        predictions = predictions.reshape(len(labels), classes)
    return predictions, labels


def _one_by_one(
    task: Task, predictions: Array, labels: Array, notes: list[str]
) -> Compared | Incomparable:
    known = np.isfinite(predictions) & np.isfinite(labels)
    predictions, labels = _only(known, predictions, labels, notes)
    if not len(labels):
        return Incomparable("No sample has both a prediction and a label that are finite.")
    if task is Task.CLASSES:
        # A classifier may have predicted a score: the nearest class is what it means.
        return Compared(task, _ints(labels), _ints(np.round(predictions)), None, None, tuple(notes))
    chance = predictions.astype(np.float64)
    if task is not Task.PROBABILITY:
        return Compared(task, labels.astype(np.float64), chance, None, None, tuple(notes))
    if chance.min() < 0 or chance.max() > 1:
        notes.append("Predictions beyond 0 and 1 are taken as log odds.")
        chance = 1 / (1 + np.exp(-np.clip(chance, -700, 700)))
    if labels.min() < 0 or labels.max() > 1:
        return Incomparable(
            f"The labels of a binary classification are 0 and 1, not {number(float(labels.min()))} "
            f"to {number(float(labels.max()))}."
        )
    true = _ints(labels)
    likelihood = np.where(true == 1, chance, 1 - chance)
    return Compared(task, true, _ints(chance > 0.5), likelihood, None, tuple(notes))


def _by_rows(predictions: Array, labels: Array) -> Compared | Incomparable:
    if predictions.ndim == 1:
        return _one_by_one(Task.CLASSES, predictions, labels, [])
    notes: list[str] = []
    classes = predictions.shape[1]
    if labels.ndim == 2:
        if labels.shape[1] != classes:
            return Incomparable(f"Labels have {labels.shape[1]} columns, predictions {classes}.")
        notes.append("The class of a row of labels is its largest.")
        labels = labels.argmax(axis=1)
    if not _sum_to_one(predictions[:_SAMPLE]):
        notes.append("Predictions whose rows do not sum to 1 are taken as margins (softmax).")
        predictions = _softmax(predictions)
    known = np.isfinite(predictions).all(axis=1) & np.isfinite(labels)
    predictions, labels = _only(known, predictions, labels, notes)
    inside = (labels >= 0) & (labels < classes)
    if not inside.all():
        notes.append(
            f"{int((~inside).sum()):,} labels are none of the {classes} classes: left out."
        )
        predictions, labels = predictions[inside], labels[inside]
    if not len(labels):
        return Incomparable("No sample has both a prediction and a label that are finite.")
    true = _ints(labels)
    likelihood = predictions[np.arange(len(true)), true].astype(np.float64)
    chosen = _ints(predictions.argmax(axis=1))
    return Compared(Task.PROBABILITIES, true, chosen, likelihood, None, tuple(notes))


def _by_level(
    predictions: Array, labels: Array, levels: tuple[float, ...]
) -> Compared | Incomparable:
    """The column whose quantile lies nearest to the median."""
    notes: list[str] = []
    level = levels[0] if len(levels) == 1 else None
    if predictions.ndim == 2 and labels.ndim == 1:
        columns = predictions.shape[1]
        place = columns // 2
        if len(levels) == columns:
            place = int(np.argmin(np.abs(np.array(levels) - 0.5)))
            level = levels[place]
        which = f"quantile {number(level)}" if level is not None else f"column {place}"
        notes.append(f"Of the {columns} quantiles predicted, this is {which}.")
        predictions = predictions[:, place]
    if predictions.shape != labels.shape:
        return Incomparable(
            f"Predictions of shape {predictions.shape} and labels of shape {labels.shape} "
            "cannot be compared."
        )
    found = _one_by_one(Task.QUANTILE, predictions.ravel(), labels.ravel(), notes)
    return found if isinstance(found, Incomparable) else replace(found, level=level)


def _only(known: Array, predictions: Array, labels: Array, notes: list[str]) -> tuple[Array, Array]:
    if known.all():
        return predictions, labels
    lost = int((~known).sum())
    notes.append(
        f"{lost:,} of {len(known):,} samples have no finite label or prediction: left out."
    )
    return predictions[known], labels[known]


def _softmax(rows: Array) -> Floats:
    known = rows.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        powers: Floats = np.exp(known - known.max(axis=1, keepdims=True))
        powers /= powers.sum(axis=1, keepdims=True)
    return powers


def _ints(values: Array) -> Ints:
    ints: Ints = values.astype(np.int64)
    return ints


def levels_in(text: str) -> tuple[float, ...]:
    """The numbers in a hyperparameter such as ``[0.1, 0.5, 0.9]``."""
    return tuple(float(each) for each in re.findall(r"\d*\.?\d+(?:[eE][-+]?\d+)?", text))


def log_loss(likelihood: Floats) -> Floats:
    """What each sample costs by the probability that was given to its class."""
    loss: Floats = -np.log(np.clip(likelihood, _LEAST, 1.0))
    return loss
