"""Importance and average SHAP of features: the largest, how many more, and how they moved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tornasole.views.xgboost_report.reading import Floats, Ints, Series

MOST_FEATURES = 20
MOST_MOVING = 6


@dataclass(frozen=True)
class Ranking:
    """The features with the largest numbers at the last saved round.

    Attributes:
        names: The largest first.
        values: Their numbers; what is not saved at the round counts as 0.
        count: How many features there are in all.
        total: The sum over all features.
        steps: All saved rounds.
        moved: The first few features over those rounds.
    """

    step: int
    names: list[str]
    values: Floats
    count: int
    total: float
    steps: Ints
    moved: dict[str, Floats]


def ranked(features: Mapping[str, Series]) -> Ranking | None:
    """The features by the size of their numbers at the last round that any of them has."""
    if not features:
        return None
    names = list(features)
    step = max(int(series.steps[-1]) for series in features.values())
    last = np.array(
        [s.values[-1] if s.steps[-1] == step else 0.0 for s in features.values()], np.float64
    )
    sizes = np.where(np.isnan(last), -1.0, np.abs(last))
    order = np.argsort(-sizes, kind="stable")[:MOST_FEATURES].tolist()
    steps = np.unique(np.concatenate([series.steps for series in features.values()]))
    moved = {}
    for place in order[:MOST_MOVING]:
        series = features[names[place]]
        values = np.zeros(len(steps))
        values[np.searchsorted(steps, series.steps)] = series.values
        moved[names[place]] = values
    return Ranking(
        step=step,
        names=[names[place] for place in order],
        values=last[order],
        count=len(names),
        total=float(last[np.isfinite(last)].sum()),
        steps=steps,
        moved=moved,
    )
