"""Metrics over the rounds: which belong into one chart, where each was best, and what that says."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tornasole.types import more_is_better
from tornasole.views.charts import number, percent
from tornasole.views.xgboost_report.reading import Floats, Ints, Series

_SAME = 0.005  # changes smaller than this share are none
_TRAINING = re.compile(r"^d?train", re.IGNORECASE)


@dataclass(frozen=True)
class Curve:
    """One metric on one evaluation set.

    Attributes:
        spread: Its standard deviation over the folds of a cross-validation.
    """

    name: str
    of: str
    steps: Ints
    values: Floats
    spread: Floats | None = None

    @property
    def is_training(self) -> bool:
        return is_training(self.of)

    @property
    def gaps(self) -> Ints:
        """The rounds at which it is NaN or infinite."""
        gaps: Ints = self.steps[~np.isfinite(self.values)]
        return gaps


@dataclass(frozen=True)
class Chart:
    """The curves of one metric."""

    metric: str
    higher_is_better: bool
    curves: tuple[Curve, ...]


@dataclass(frozen=True)
class Best:
    """Where a curve was best, and how it ended.

    Attributes:
        worse: By what share the end is worse than the best; 0 if it is the best.
    """

    step: int
    value: float
    last_step: int
    last: float
    worse: float


def is_training(of: str) -> bool:
    """Whether an evaluation set is the training data, as far as its name tells."""
    return bool(_TRAINING.match(of))


def charts(metrics: Mapping[str, Series]) -> list[Chart]:
    """One chart for each metric, in order of name; curves of training sets come first in it."""
    whole, spreads = _folded(metrics)
    by_metric: dict[str, list[Curve]] = {}
    for name in whole:
        of, metric = parts_of(name)
        series = metrics[whole[name]]
        spread = None
        if name in spreads:
            known = metrics[spreads[name]]
            spread = np.full(len(series.steps), np.nan)
            _, here, there = np.intersect1d(
                series.steps, known.steps, assume_unique=True, return_indices=True
            )
            spread[here] = known.values[there]
        curve = Curve(name, of, series.steps, series.values, spread)
        by_metric.setdefault(metric, []).append(curve)
    return [
        Chart(
            metric,
            more_is_better(metric),
            tuple(sorted(curves, key=lambda curve: (not curve.is_training, curve.of))),
        )
        for metric, curves in sorted(by_metric.items())
    ]


def _folded(metrics: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Names without the ends of a cross-validation, and the tensors of values and of spreads."""
    names = set(metrics)
    whole, spreads = {}, {}
    for name in sorted(names):
        if name.endswith("-mean") and f"{name[:-5]}-std" in names:
            whole[name[:-5]] = name
            spreads[name[:-5]] = f"{name[:-5]}-std"
        elif not (name.endswith("-std") and f"{name[:-4]}-mean" in names):
            whole[name] = name
    return whole, spreads


def parts_of(name: str) -> tuple[str, str]:
    """Evaluation set and metric of a name: XGBoost takes no hyphen in the name of a set."""
    of, hyphen, metric = name.partition("-")
    return (of, metric) if hyphen else ("", name)


def best_of(curve: Curve, higher_is_better: bool) -> Best | None:
    """Where a curve was best: at the first round of those with the best value."""
    known = np.isfinite(curve.values)
    if not known.any():
        return None
    steps, values = curve.steps[known], curve.values[known]
    place = int(np.argmax(values) if higher_is_better else np.argmin(values))
    best, last = float(values[place]), float(values[-1])
    lost = best - last if higher_is_better else last - best
    worse = lost / abs(best) if best else (np.inf if lost > 0 else 0.0)
    return Best(int(steps[place]), best, int(steps[-1]), last, max(0.0, worse))


def verdict(chart: Chart, curve: Curve) -> str:
    """What one curve says, in a sentence."""
    best = best_of(curve, chart.higher_is_better)
    if best is None:
        return f"{curve.name} has no finite value."
    known = np.isfinite(curve.values)
    if known.sum() == 1:
        return f"{curve.name} was {number(best.value)} at round {best.step}, the only one saved."
    values = curve.values[known]
    if values.min() == values.max():
        return f"{curve.name} stayed at {number(best.value)}."
    if best.step == best.last_step:
        return (
            f"{curve.name} was best at the last saved round, {best.step} ({number(best.value)})"
            f"{_still_improving(values)}."
        )
    start = f"{curve.name} was best at round {best.step} ({number(best.value)})"
    if best.last == best.value:
        return f"{start} and is the same at the end."
    if best.worse < _SAME:
        return f"{start} and ended about there ({number(best.last)} at round {best.last_step})."
    by = f"{percent(best.worse)} worse" if np.isfinite(best.worse) else "worse"
    sentence = f"{start} and is {by} at the end ({number(best.last)} at round {best.last_step})"
    other = None if curve.is_training else _gone_on(chart, curve, best)
    return (
        f"{sentence}: overfitting since then, as {other} went on improving."
        if other
        else f"{sentence}."
    )


def _still_improving(values: Floats) -> str:
    tail = values[-max(2, len(values) // 10) :]
    change = abs(float(tail[-1] - tail[0]))
    size = max(abs(float(tail[0])), 1e-300)
    return ", and still improving" if change / size > _SAME else ", and hardly changes any more"


def _gone_on(chart: Chart, curve: Curve, best: Best) -> str | None:
    """The curve that improved while this one got worse, if there is one."""
    for other in chart.curves:
        later = np.isfinite(other.values) & (other.steps >= best.step)
        values = other.values[later]
        if other is curve or len(values) < 2:
            continue
        gain = float(values[-1] - values[0]) * (1 if chart.higher_is_better else -1)
        if gain > _SAME * abs(float(values[0])):
            return other.name
    return None


def gaps_in_words(curves: Sequence[Curve]) -> list[str]:
    """Where curves are NaN or infinite, one sentence for each that is."""
    sentences = []
    for curve in curves:
        gaps = curve.gaps
        if len(gaps):
            where = (
                f"at round {gaps[0]}"
                if len(gaps) == 1
                else f"at {len(gaps)} rounds, first {gaps[0]}"
            )
            sentences.append(f"{curve.name} is NaN or infinite {where}: a gap in its line.")
    return sentences
