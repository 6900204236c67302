"""From a boosting round to its tensors: what XGBoost's callbacks show, under the names we know.

A step is one round. Whatever costs something is computed after a round only if the step keeps it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from xgboost import Booster, DMatrix

from tornasole.capture.guard import Guard
from tornasole.capture.recorder import Item, Recorder
from tornasole.errors import SMDebugValueError
from tornasole.types import Role, more_is_better
from tornasole.xgboost import model
from tornasole.xgboost.contributions import Contributions
from tornasole.xgboost.data import Data

EvalsLog = Mapping[str, Mapping[str, Any]]
"""Data set -> metric -> its value after each round; in cross-validation (mean, deviation)."""

_OF_ONE_MODEL = (
    Role.FEATURE_IMPORTANCE, Role.LABEL, Role.PREDICTION, Role.TREE,
    Role.AVERAGE_SHAP, Role.FULL_SHAP,
)  # fmt: skip
_IMPORTANCES = ("weight", "gain", "cover", "total_gain", "total_cover")


@dataclass
class Given:
    """What the user gave beside the training itself."""

    hyperparameters: Mapping[str, Any] | None
    train_data: Data | None
    validation_data: Data | None
    most_shap_bytes: int


class RoundAdapter:
    """Records the rounds of one training after the other."""

    def __init__(self, recorder: Recorder, guard: Guard, given: Given) -> None:
        self._recorder, self._guard, self._given = recorder, guard, given
        self.begin_training()

    def begin_training(self) -> None:
        """Forgets what belonged to the booster before."""
        self._contributions: Contributions | None = None
        self._given_up: set[tuple[str, Data | None]] = set()

    def end_round(self, booster: Any, evals_log: EvalsLog) -> None:
        """Keeps what is due of the round that is over.

        Args:
            booster: A ``Booster``, or what ``xgboost.cv`` has in its place.
            evals_log: XGBoost's history of the metrics.
        """
        if not self._recorder.active:
            return
        if not evals_log and self._recorder.wants_role(Role.METRIC):
            cure = "give train evals=[(data, 'name')], or fit eval_set=[(X, y)]"
            self._recorder.note("metrics", f"the training evaluates none ({cure})")
        self._record(metrics(evals_log))
        if not isinstance(booster, Booster):
            if any(map(self._recorder.wants_role, _OF_ONE_MODEL)):
                why = "cross-validation trains several models, and shows only their metrics"
                self._recorder.note("predictions, importance, trees and SHAP values", why)
            self._record(self._hyperparameters(booster.cvfolds[0].bst))  # the same in all folds
            return
        self._record(self._hyperparameters(booster))
        self._record(self._importance(booster))
        self._record(self._trees(booster))
        self._record(self._labels(booster))
        self._record(self._predictions(booster))
        self._record(self._shap(booster))

    def _record(self, items: Iterable[Item]) -> None:
        self._recorder.record_many(list(items))

    # -- what there is to keep ---------------------------------------------------------------------

    def _hyperparameters(self, booster: Booster) -> Iterator[Item]:
        role = Role.HYPERPARAMETER
        if self._recorder.wants_role(role):
            given = self._given.hyperparameters
            for name, value in (model.parameters(booster) if given is None else given).items():
                yield f"hyperparameters/{name}", role, value if _is_plain(value) else str(value)

    def _importance(self, booster: Booster) -> Iterator[Item]:
        role = Role.FEATURE_IMPORTANCE
        if not self._recorder.wants_role(role):
            return
        for kind in ("weight",) if model.kind(booster) == "gblinear" else _IMPORTANCES:
            stem = f"feature_importance/{kind}/"
            if self._wants_any(stem, role, booster):
                for feature, score in booster.get_score(importance_type=kind).items():
                    yield stem + feature, role, score

    def _trees(self, booster: Booster) -> Iterator[Item]:
        if ("trees", None) in self._given_up or not self._recorder.wants_role(Role.TREE):
            return
        try:
            columns = trees_of_last_round(booster)
        except (ImportError, ValueError) as error:  # no pandas, or no trees in this model
            self._given_up.add(("trees", None))
            self._recorder.note("trees", _reason(error))
            return
        for column, values in columns.items():
            yield f"trees/{column}", Role.TREE, values

    def _labels(self, booster: Booster) -> Iterator[Item]:
        if not self._recorder.wants("labels", Role.LABEL):
            return
        data = self._data("labels", "validation_data", booster)
        if data is None:
            return
        labels = data.get_label()
        if labels.size:
            several = labels.ndim == 1 and labels.size != data.num_row()  # XGBoost 1 flattens them
            shape = (data.num_row(), -1) if several else labels.shape
            yield "labels", Role.LABEL, labels.reshape(shape)
        else:
            self._give_up("labels", "validation_data", "it has none; DMatrix(X, label=y) has")

    def _predictions(self, booster: Booster) -> Iterator[Item]:
        if not self._recorder.wants("predictions", Role.PREDICTION):
            return
        data = self._data("predictions", "validation_data", booster)
        if data is None:
            return
        try:
            yield "predictions", Role.PREDICTION, model.predicted(booster, data)
        except ValueError as error:
            self._give_up("predictions", "validation_data", _reason(error))

    def _shap(self, booster: Booster) -> Iterator[Item]:
        average = self._wants_any("average_shap/", Role.AVERAGE_SHAP, booster)
        full = self._wants_any("full_shap/", Role.FULL_SHAP, booster)
        if not (average or full):
            return
        data = self._data("SHAP values", "train_data", booster)
        if data is None:
            return
        if self._contributions is None or self._contributions.data is not data:
            self._contributions = Contributions(data, self._given.most_shap_bytes)
        try:
            values = self._contributions.at_round_of(booster)
        except ValueError as error:
            self._give_up("SHAP values", "train_data", _reason(error))
            return
        names = model.feature_names(booster)
        if average:
            rows_and_outputs = tuple(range(values.ndim - 1))
            means = np.abs(values).mean(axis=rows_and_outputs, dtype=np.float64)
            for name, mean in zip(names, means, strict=True):
                yield f"average_shap/{name}", Role.AVERAGE_SHAP, mean
        if full:
            for i, name in enumerate(names):
                yield f"full_shap/{name}", Role.FULL_SHAP, values[..., i]

    # -- whether it can be had ---------------------------------------------------------------------

    def _wants_any(self, stem: str, role: Role, booster: Booster) -> bool:
        """Whether the step keeps a tensor of that stem, of whichever feature."""
        wants = self._recorder.wants
        return self._recorder.wants_role(role) and any(
            wants(stem + name, role) for name in model.feature_names(booster)
        )

    def _data(self, what: str, field: str, booster: Booster) -> DMatrix | None:
        """What to compute it on; none: that was said once."""
        data: Data | None = getattr(self._given, field)
        if (what, data) in self._given_up:
            return None
        if data is None:
            cure = f"hook.{field} = xgboost.DMatrix(…)"
            self._recorder.note(what, f"the hook was given no data for it ({cure})")
            return None
        try:
            matrix = data.matrix_for(booster)
            if not matrix.num_row():
                raise ValueError("it has no rows")
        except ValueError as error:
            self._give_up(what, field, _reason(error))
            return None
        return matrix

    def _give_up(self, what: str, field: str, reason: str) -> None:
        self._given_up.add((what, getattr(self._given, field)))
        self._guard.tell(SMDebugValueError(f"{what} cannot be had of {field}: {reason}."))


def metrics(evals_log: EvalsLog) -> Iterator[Item]:
    """The latest value of every metric; of cross-validation, under the names in its table."""
    for data, log in evals_log.items():
        for metric, history in log.items():
            name, value = f"{data}-{metric}", history[-1]
            # As XGBoost does, a metric that is not known counts as a loss.
            role = Role.METRIC if more_is_better(metric) else Role.LOSS
            if isinstance(value, tuple):
                yield f"{name}-mean", role, value[0]
                yield f"{name}-std", Role.METRIC, value[1]
            else:
                yield name, role, value


def trees_of_last_round(booster: Booster) -> dict[str, npt.NDArray[Any]]:
    """The columns of ``Booster.trees_to_dataframe``, those rows that the latest round added.

    Raises:
        ImportError: pandas is not installed.
        ValueError: The model has no trees, or none that XGBoost can show.
    """
    if model.kind(booster) == "gblinear":
        raise ValueError("a linear model has none")
    rounds = booster.num_boosted_rounds()
    last = model.one_round(booster, rounds - 1)  # takes no longer in later rounds
    if last is None:
        frame = booster.trees_to_dataframe()
        frame = frame[frame["Tree"] >= frame["Tree"].nunique() // rounds * (rounds - 1)]
        before = 0
    else:
        frame = last.trees_to_dataframe()
        before = frame["Tree"].nunique() * (rounds - 1)  # its trees are counted from zero
    columns = {}
    for name in frame:
        values = frame[name]
        if name == "Tree":
            columns[name] = values.to_numpy() + before
        elif name in ("ID", "Yes", "No", "Missing"):
            columns[name] = np.array([_renumbered(value, before) for value in values])
        elif values.dtype.kind in "biuf":
            columns[name] = values.to_numpy()
        else:
            columns[name] = np.array([_text(value) for value in values])
    return columns


def _is_plain(value: Any) -> bool:
    """Whether a value can be saved as it is; others are saved as text."""
    if isinstance(value, int) and not isinstance(value, bool):
        return -(2**63) <= value < 2**64
    kind = value.dtype.kind if isinstance(value, np.generic) else "f"
    return isinstance(value, (str, bool, float, np.generic)) and kind in "biufSU"


def _renumbered(node: Any, before: int) -> str:
    """``<tree>-<node>``, with the tree's place in the whole model; nothing: a leaf has none."""
    if not isinstance(node, str):
        return ""
    tree, _, number = node.partition("-")
    return f"{int(tree) + before}-{number}"


def _text(value: Any) -> str:
    if isinstance(value, list):  # the categories that go one way
        return json.dumps(value)
    return value if isinstance(value, str) else ""


def _reason(error: Exception) -> str:
    """What XGBoost says, without the time, the place in its source and the stack."""
    said = re.sub(r"\[\d\d:\d\d:\d\d\] \S+: ", "", str(error).partition("Stack trace:")[0])
    return "; ".join(line.strip() for line in said.splitlines() if line.strip()).rstrip(".")
