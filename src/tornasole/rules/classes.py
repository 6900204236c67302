"""From labels and predictions, in whatever form they come, to class numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tornasole.rules.needs import Need
from tornasole.rules.view import Array, Group, Ints
from tornasole.types import Role

MOST_CLASSES = 1000
"""Where there are more, labels are words of a vocabulary or numbers rather than classes."""

ENOUGH_PER_CLASS = 50
"""Samples for each class, on average, from which shares of classes say something."""

_NOT_NUMBERS = "cmMOSUV"
_FEWER = 0.9  # of the fewest errors so far: from there on a model is better than it was
_PATIENCE = 5  # shares of errors that are looked at before a model counts as done


@dataclass(frozen=True)
class NamedByUser(Need):
    """Tensors by role, and those that a user saved by himself under a name that says as much.

    Attributes:
        own_names: What such a tensor is called; only of those whose role nobody knows.
    """

    own_names: re.Pattern[str] = re.compile(r"(?!)")

    def matches(self, name: str, role: Role) -> bool:
        if super().matches(name, role):
            return True
        own = role is Role.CUSTOM and not self.is_chosen
        return own and self.own_names.search(name) is not None


LABELS = NamedByUser(
    "labels",
    roles=frozenset({Role.LABEL}),
    raw=True,
    save=("labels",),
    own_names=re.compile(r"labels(_\d+)?(:\d+)?$"),
)
PREDICTIONS = NamedByUser(
    "predictions",
    roles=frozenset({Role.PREDICTION}),
    raw=True,
    save=("predictions",),
    own_names=re.compile(r"predictions(_\d+)?(:\d+)?$"),
)


@dataclass(frozen=True)
class Compared:
    """Labels, and what was predicted for them; both as class numbers, one per sample.

    Attributes:
        predicted: Of the same length; none if nothing comparable was saved.
        outputs: How many classes the model tells apart, if that is to be seen.
    """

    labels: Ints
    predicted: Ints | None
    outputs: int | None = None


def pairs(labels: Group, predictions: Group) -> Iterator[tuple[int, int | None]]:
    """Which labels belong to which predictions, of one step: the first to the first, and so on."""
    for i in range(len(labels)):
        alike = len(labels) == len(predictions) or (i == 0 and len(predictions) > 0)
        yield i, (i if alike else None)


def compared(labels: Array, predictions: Array | None, argmax: bool = False) -> Compared | None:
    """Labels and predictions as class numbers; ``None`` if the labels name no classes.

    Labels are class numbers, or a one-hot code of them; -1 and 1 are two classes, other negative
    ones mean "ignore". Predictions are class numbers, or one score per class, or one score (a
    probability or a logit) where there are two classes.

    Args:
        argmax: Whether the last dimension of the predictions holds one score per class, though the
            labels look alike.
    """
    labels = _squeezed(labels)
    scores = None if predictions is None else _squeezed(predictions)
    if scores is not None and (scores.dtype.kind in _NOT_NUMBERS or not scores.size):
        scores = None
    if labels.dtype.kind in _NOT_NUMBERS or not labels.size:
        return None
    alike = scores is not None and scores.shape == labels.shape
    if _is_code(labels) or (argmax and alike and labels.ndim > 1):
        classes, outputs = labels.argmax(axis=-1), labels.shape[-1]
        guessed = _by_scores(scores, -1) if scores is not None and alike else None
    elif not _is_whole(labels):
        return None
    else:
        classes = labels.astype(np.int64)
        signed = bool((classes == -1).any() and np.isin(classes, (-1, 1)).all())
        if signed:
            classes = (classes > 0).astype(np.int64)
        axis = None if scores is None else _class_axis(scores.shape, classes.shape)
        outputs, guessed = 0, None
        if scores is not None and axis is not None:
            outputs, guessed = scores.shape[axis], _by_scores(scores, axis)
        elif labels.ndim > 1 and (labels.dtype.kind == "f" or (alike and _is_float(scores))):
            return None  # several numbers, or yes and no to several questions, per sample
        elif scores is not None and alike:
            outputs, guessed = 2, _of_two(scores, classes, signed)
            if guessed is None:
                return None  # the model predicts numbers
    if outputs > MOST_CLASSES:
        return None
    kept = classes >= 0
    if guessed is not None:
        kept &= guessed >= 0
        guessed = guessed[kept].astype(np.int64)
    return Compared(classes[kept].astype(np.int64), guessed, outputs or None)


@dataclass
class Learning:
    """Whether a model still learns, by its share of errors in samples that come one after another.

    Classes are learned one by one: until a model is done, what it confuses is no fault. It is done
    when it has had no fewer errors than at its best for as long as it took to get there.
    """

    times: int = 0
    best: float = math.inf
    best_at: int = 0

    def goes_on(self, errors: float) -> bool:
        """Takes the next share of errors; gives whether the model may become better still."""
        self.times += 1
        if errors < _FEWER * self.best:
            self.best, self.best_at = errors, self.times
        return self.times < max(_PATIENCE, 2 * self.best_at)

    @property
    def is_under_way(self) -> bool:
        """Whether it was seen to become better, and may do so still."""
        return self.best_at > 1 and self.times < max(_PATIENCE, 2 * self.best_at)


def counted(classes: Ints) -> dict[int, int]:
    """How many samples there are of each class that occurs."""
    if not len(classes):
        return {}
    if int(classes.max()) < 100_000:
        counts = np.bincount(classes)
        there = np.flatnonzero(counts)
        return dict(zip(there.tolist(), counts[there].tolist(), strict=True))
    found, numbers = np.unique(classes, return_counts=True)
    return dict(zip(found.tolist(), numbers.tolist(), strict=True))


def _squeezed(array: Array) -> Array:
    """One number per sample is the same, whether in a column or not."""
    return array.reshape(array.shape[:-1]) if array.ndim > 1 and array.shape[-1] == 1 else array


def _is_whole(array: Array) -> bool:
    if not _is_float(array):
        return True
    with np.errstate(invalid="ignore"):
        return bool((np.abs(array) < 2**53).all() and (array == np.rint(array)).all())


def _is_float(array: Array | None) -> bool:
    return array is not None and array.dtype.kind == "f"


def _is_code(labels: Array) -> bool:
    """Whether each row is a one-hot code, maybe a smoothed one."""
    if labels.ndim < 2 or labels.shape[-1] > 100_000 or (labels < 0).any():
        return False
    with np.errstate(invalid="ignore", over="ignore"):
        return bool(np.allclose(labels.sum(axis=-1, dtype=np.float64), 1, atol=1e-3))


def _class_axis(scores: tuple[int, ...], labels: tuple[int, ...]) -> int | None:
    """Along which dimension there is one score per class."""
    if len(scores) != len(labels) + 1:
        return None
    for axis in (1, len(scores) - 1):
        if scores[:axis] + scores[axis + 1 :] == labels:
            return axis
    return None


def _by_scores(scores: Array, axis: int) -> Ints:
    """The class with the highest score; -1 where one of them is NaN."""
    best: Ints = scores.argmax(axis=axis)
    if scores.dtype.kind == "f":
        best = np.where(np.isnan(scores).any(axis=axis), -1, best)
    return best


def _of_two(scores: Array, classes: Ints, signed: bool) -> Ints | None:
    """From one number per sample to a class; ``None`` if the numbers are no classes or scores."""
    if _is_whole(scores):
        whole = np.where(np.isfinite(scores), scores, -1).astype(np.int64)
        return (whole > 0).astype(np.int64) if signed else np.maximum(whole, -1)
    if int(classes.max()) > 1:
        return None
    known = scores[~np.isnan(scores)]
    likely = not signed and bool(((known >= 0) & (known <= 1)).all())
    with np.errstate(invalid="ignore"):
        guessed = scores > (0.5 if likely else 0)
    return np.where(np.isnan(scores), -1, guessed)
