"""Which errors were made: confusion of classes, residuals of numbers, and loss by label."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tornasole.views.charts import number
from tornasole.views.xgboost_report.outcome import CLASSIFICATIONS, Compared, Task, log_loss
from tornasole.views.xgboost_report.reading import Array, Floats, Ints

MOST_CLASSES = 20
_DENSE = 10_000  # classes from 0 to here are counted without sorting
_GROUPS = 5
_BINS = 36
_CELLS = 44
_TAIL = 0.005


# -- classes


@dataclass(frozen=True)
class Confusion:
    """How often each class was taken for each.

    Attributes:
        names: The most frequent classes, and ``other`` if there are more.
        counts: By true class (rows) and predicted class.
        support: How many samples are of each class; so ``predicted``, ``hits``, of that class.
        classes: How many classes there are.
        largest: How many samples the most frequent of them has.
    """

    names: list[str]
    counts: Ints
    support: Ints
    predicted: Ints
    hits: Ints
    samples: int
    right: int
    classes: int
    largest: int

    @property
    def recall(self) -> Floats:
        """The share of each class that was found; NaN for one without samples."""
        return _share(self.hits, self.support)

    @property
    def precision(self) -> Floats:
        """The share of each prediction that was right; NaN for one never made."""
        return _share(self.hits, self.predicted)

    @property
    def shades(self) -> Floats:
        """The counts as shares of their rows; 0 in a row without samples."""
        return np.nan_to_num(_share(self.counts, self.counts.sum(axis=1, keepdims=True)))

    @property
    def worst(self) -> tuple[str, str, int] | None:
        """Which class was most often taken for which other, and how often."""
        known = self.counts[:MOST_CLASSES, :MOST_CLASSES].copy()
        np.fill_diagonal(known, 0)
        i, j = np.unravel_index(int(np.argmax(known)), known.shape)
        return (self.names[i], self.names[j], int(known[i, j])) if known[i, j] else None


def confusion(labels: Ints, predicted: Ints) -> Confusion:
    """Counts classes; of many, the most frequent (by label) and the rest together."""
    classes, true, guessed = _codes(labels, predicted)
    size = len(classes)
    support = np.bincount(true, minlength=size)
    guesses = np.bincount(guessed, minlength=size)
    hits = np.bincount(true[true == guessed], minlength=size)
    right, largest = int(hits.sum()), int(support.max())
    shown = np.sort(np.argsort(-support, kind="stable")[:MOST_CLASSES])
    small = np.full(size, len(shown))
    small[shown] = np.arange(len(shown))
    width = len(shown) + (size > len(shown))
    counts = np.bincount(small[true] * width + small[guessed], minlength=width * width)
    names = [str(each) for each in classes[shown].tolist()]
    if width > len(shown):
        names.append("other")
        rest = np.setdiff1d(np.arange(size), shown)
        support, guesses, hits = (
            np.append(each[shown], each[rest].sum()) for each in (support, guesses, hits)
        )
    else:
        support, guesses, hits = support[shown], guesses[shown], hits[shown]
    return Confusion(
        names=names,
        counts=counts.reshape(width, width),
        support=support,
        predicted=guesses,
        hits=hits,
        samples=len(labels),
        right=right,
        classes=size,
        largest=largest,
    )


def _codes(labels: Ints, predicted: Ints) -> tuple[Ints, Ints, Ints]:
    """The classes that occur, and labels and predictions as places in them."""
    low = min(int(labels.min()), int(predicted.min()))
    high = max(int(labels.max()), int(predicted.max()))
    if low >= 0 and high < _DENSE:
        there = np.bincount(labels, minlength=high + 1) + np.bincount(predicted, minlength=high + 1)
        classes = np.flatnonzero(there)
        places = np.zeros(high + 1, np.int64)
        places[classes] = np.arange(len(classes))
        return classes, places[labels], places[predicted]
    classes, codes = np.unique(np.concatenate([labels, predicted]), return_inverse=True)
    codes = codes.reshape(-1)
    return classes, codes[: len(labels)], codes[len(labels) :]


def _share(part: Ints, whole: Ints) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        share: Floats = np.true_divide(part, whole)
    return np.where(np.isfinite(share), share, np.nan)


# -- numbers


@dataclass(frozen=True)
class Residuals:
    """Predicted minus actual.

    Attributes:
        spread: The standard deviation of the labels: the error of always predicting their mean.
        counts: How many residuals lie between each two of ``edges``; those beyond are in the
            first and last.
        beyond: How many lie before the first edge and after the last.
        field: Samples by predicted (rows) and actual, in cells from ``low`` to ``high``.
        coverage: The share of labels that are at most what was predicted.
    """

    samples: int
    rmse: float
    mae: float
    bias: float
    spread: float
    counts: Ints
    edges: Floats
    beyond: tuple[int, int]
    field: Ints
    low: float
    high: float
    coverage: float


def residuals(labels: Floats, predicted: Floats) -> Residuals:
    """The residuals in numbers, as a histogram, and as a field of predicted by actual."""
    rest = predicted - labels
    first, last = float(rest.min()), float(rest.max())
    if len(rest) >= 200:
        first, last = (float(each) for each in np.quantile(rest, [_TAIL, 1 - _TAIL]))
    if not last > first:
        first, last = first - 0.5, last + 0.5
    bins = int(np.clip(2 * len(rest) ** (1 / 3), 5, _BINS))
    edges = np.linspace(first, last, bins + 1)
    places = ((rest - first) * (bins / (last - first))).astype(np.int64)
    low = min(float(labels.min()), float(predicted.min()))
    high = max(float(labels.max()), float(predicted.max()))
    if not high > low:
        low, high = low - 0.5, high + 0.5
    rows, columns = (_cells(each, low, high) for each in (predicted, labels))
    return Residuals(
        samples=len(rest),
        rmse=float(np.sqrt(np.mean(rest * rest))),
        mae=float(np.mean(np.abs(rest))),
        bias=float(np.mean(rest)),
        spread=float(labels.std()),
        counts=np.bincount(np.clip(places, 0, bins - 1), minlength=bins),
        edges=edges,
        beyond=(int((rest < first).sum()), int((rest > last).sum())),
        field=np.bincount(rows * _CELLS + columns, minlength=_CELLS**2).reshape(_CELLS, _CELLS),
        low=low,
        high=high,
        coverage=float(np.mean(labels <= predicted)),
    )


def _cells(values: Floats, low: float, high: float) -> Ints:
    places = ((values - low) * (_CELLS / (high - low))).astype(np.int64)
    return np.clip(places, 0, _CELLS - 1)


def coverage(labels: Array, predictions: Array) -> Floats:
    """The share of labels at or below each column of predictions."""
    known = np.isfinite(predictions).all(axis=1) & np.isfinite(labels.reshape(-1))
    shares: Floats = np.mean(labels.reshape(-1)[known, None] <= predictions[known], axis=0)
    return shares


# -- by label


@dataclass(frozen=True)
class Group:
    """Samples with the same label, or with labels next to each other."""

    name: str
    samples: int
    loss: float


def loss_name(task: Task, has_likelihood: bool) -> str:
    """What the loss of a group is called."""
    if task in CLASSIFICATIONS:
        return "log loss" if has_likelihood else "error rate"
    return "pinball loss" if task is Task.QUANTILE else "mean squared error"


def label_edges(labels: Floats) -> Floats:
    """Where to part the labels of a regression into groups of about the same size."""
    wanted = min(_GROUPS, max(1, len(labels) // 4))
    return np.unique(np.quantile(labels, np.linspace(0, 1, wanted + 1)))


def losses(found: Compared, edges: Floats | None = None) -> list[Group]:
    """The loss of each class, the lowest first, or of each group of labels between edges."""
    if found.task in CLASSIFICATIONS:
        labels = found.labels.astype(np.int64)
        classes, codes, _ = _codes(labels, labels)
        names = [str(each) for each in classes.tolist()]
        if found.likelihood is not None:
            costs = log_loss(found.likelihood)
        else:
            costs = (found.labels != found.predicted).astype(np.float64)
    else:
        edges = label_edges(found.labels.astype(np.float64)) if edges is None else edges
        names = [
            f"{number(a)} to {number(b)}"
            for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
        ] or [number(float(edges[0]))]
        codes = np.clip(np.searchsorted(edges, found.labels, side="right") - 1, 0, len(names) - 1)
        rest = found.labels - found.predicted
        if found.task is Task.QUANTILE:
            level = 0.5 if found.level is None else found.level
            costs = np.maximum(level * rest, (level - 1) * rest)
        else:
            costs = rest * rest
    counts = np.bincount(codes, minlength=len(names))
    sums = np.bincount(codes, weights=costs, minlength=len(names))
    return [
        Group(name, count, total / count)
        for name, count, total in zip(names, counts.tolist(), sums.tolist(), strict=True)
        if count
    ]


# -- scores


@dataclass(frozen=True)
class Grade:
    """The scores that a ranking gave to samples with the same label."""

    name: str
    samples: int
    mean: float
    quartiles: tuple[float, float, float]


def grades(labels: Floats, scores: Floats) -> list[Grade]:
    """Scores by label, of labels that are few."""
    found = []
    for label in np.unique(labels)[:MOST_CLASSES].tolist():
        part = scores[labels == label]
        low, middle, high = np.quantile(part, [0.25, 0.5, 0.75]).tolist()
        found.append(Grade(number(label), len(part), float(part.mean()), (low, middle, high)))
    return found
