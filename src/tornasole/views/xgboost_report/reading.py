"""From a trial to the plain values that the report is made of; the only part that knows trials."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tornasole.errors import MissingCollectionFiles, SMDebugValueError, TensorUnavailableForStep
from tornasole.selection import Collection, CollectionKeys
from tornasole.trial import Trial
from tornasole.types import Role

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

KINDS = ("weight", "gain", "cover", "total_gain", "total_cover")

_ROLES = {
    CollectionKeys.METRICS: (Role.METRIC, Role.LOSS),
    CollectionKeys.LOSSES: (Role.LOSS,),
    CollectionKeys.HYPERPARAMETERS: (Role.HYPERPARAMETER,),
    CollectionKeys.PREDICTIONS: (Role.PREDICTION,),
    CollectionKeys.LABELS: (Role.LABEL,),
    CollectionKeys.FEATURE_IMPORTANCE: (Role.FEATURE_IMPORTANCE,),
    CollectionKeys.AVERAGE_SHAP: (Role.AVERAGE_SHAP,),
    CollectionKeys.TREES: (Role.TREE,),
}
_ONLY_XGBOOST = (
    CollectionKeys.HYPERPARAMETERS,
    CollectionKeys.FEATURE_IMPORTANCE,
    CollectionKeys.AVERAGE_SHAP,
    CollectionKeys.TREES,
)
_OTHERS = ("pytorch", "tensorflow", "mxnet")
_MOST_TREES = 400  # rounds whose trees are measured
_MOST_COMPARED = 40  # rounds at which predictions are compared with labels
_MOST_ELEMENTS = 30_000_000  # predictions read for that


@dataclass(frozen=True)
class Series:
    """A number over the rounds."""

    steps: Ints
    values: Floats


@dataclass(frozen=True)
class About:
    """What a trial says about itself."""

    path: str
    name: str
    created: str
    framework: str
    versions: dict[str, str]
    state: str
    reason: str
    steps: list[int]
    tensors: int


@dataclass(frozen=True)
class Pair:
    """Predictions at a round, and the labels that they are compared with."""

    step: int
    labels_step: int
    predictions: Array
    labels: Array


@dataclass(frozen=True)
class TreeTable:
    """The nodes of the trees that one round added; a column that was not saved is empty."""

    step: int
    tree: Array
    node: Array
    feature: Array
    yes: Array
    no: Array


class Saved:
    """What a trial of an XGBoost training holds, by section of the report.

    The trial should not take in anything new meanwhile.

    Raises:
        SMDebugValueError: It is the trial of something else.
    """

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._names = {key: _names(trial, key) for key in _ROLES}
        _check_kind(trial, self._names)

    def about(self) -> About:
        """What the trial says about itself."""
        about, versions = self._trial.about, self._trial.about.get("versions")
        return About(
            path=self._trial.path,
            name=self._trial.name,
            created=str(about.get("created") or ""),
            framework=str(about.get("framework") or ""),
            versions={str(k): str(v) for k, v in versions.items()}
            if isinstance(versions, dict)
            else {},
            state=self._trial.state,
            reason=self._trial.state_reason,
            steps=self._trial.steps(),
            tensors=len(self._trial.tensor_names()),
        )

    def metrics(self) -> dict[str, Series]:
        """Every metric and loss over the rounds."""
        names = {*self._names[CollectionKeys.METRICS], *self._names[CollectionKeys.LOSSES]}
        return self._series(sorted(names))

    def importance(self) -> dict[str, dict[str, Series]]:
        """By kind and feature; the known kinds come first."""
        found: dict[str, dict[str, Series]] = {}
        for name, series in self._series(self._names[CollectionKeys.FEATURE_IMPORTANCE]).items():
            _, _, rest = name.partition("/")
            kind, slash, feature = rest.partition("/")
            if slash:
                found.setdefault(kind, {})[feature] = series
        order = [*(kind for kind in KINDS if kind in found), *sorted(set(found) - set(KINDS))]
        return {kind: found[kind] for kind in order}

    def shap(self) -> dict[str, Series]:
        """The average contribution of each feature."""
        series = self._series(self._names[CollectionKeys.AVERAGE_SHAP])
        return {name.partition("/")[2] or name: each for name, each in series.items()}

    def hyperparameters(self) -> dict[str, str]:
        """Each as text, as it was saved last."""
        found = {}
        for name in self._names[CollectionKeys.HYPERPARAMETERS]:
            value = self._last_value(name)
            if value is not None:
                found[name.partition("/")[2] or name] = _as_text(value)
        return found

    def _last_value(self, name: str) -> Array | None:
        steps = self._trial.tensor(name).steps()
        return self._value(name, steps[-1]) if steps else None

    def _value(self, name: str, step: int) -> Array | None:
        """A value, if it was saved whole."""
        try:
            return self._trial.tensor(name).value(step)
        except TensorUnavailableForStep:
            return None

    def _series(self, names: Iterable[str]) -> dict[str, Series]:
        found = {name: Series(*self._trial.tensor(name).series()) for name in names}
        return {name: series for name, series in found.items() if len(series.steps)}

    # -- predictions and labels

    def missing_for_comparison(self) -> list[str]:
        """Which of predictions and labels were not saved."""
        wanted = (CollectionKeys.PREDICTIONS, CollectionKeys.LABELS)
        return [key for key in wanted if not self._names[key]]

    def compared_steps(self) -> list[int]:
        """The rounds at which predictions can be compared, thinned out to what can be read."""
        if self.missing_for_comparison():
            return []
        tensor = self._trial.tensor(self._names[CollectionKeys.PREDICTIONS][0])
        steps = tensor.steps()
        if not steps:
            return []
        elements = int(np.prod(tensor.shape(steps[-1]), dtype=np.int64)) or 1
        return thinned(steps, max(1, min(_MOST_COMPARED, _MOST_ELEMENTS // elements)))

    def pair(self, step: int) -> Pair | None:
        """The predictions of a round, and the labels saved then, or else nearest before or after.

        Labels are those of the validation set: they do not change, and are often saved once.
        """
        label = self._names[CollectionKeys.LABELS][0]
        predictions = self._value(self._names[CollectionKeys.PREDICTIONS][0], step)
        steps = self._trial.tensor(label).steps()
        if predictions is None or not steps:
            return None
        before = [each for each in steps if each <= step]
        chosen = before[-1] if before else steps[0]
        labels = self._value(label, chosen)
        return None if labels is None else Pair(step, chosen, predictions, labels)

    # -- trees

    def trees(self) -> list[TreeTable]:
        """The trees of the saved rounds, thinned out if they are many."""
        columns = {name.rpartition("/")[2]: name for name in self._names[CollectionKeys.TREES]}
        if "Feature" not in columns:
            return []
        steps = thinned(self._trial.tensor(columns["Feature"]).steps(), _MOST_TREES)
        wanted = ("Tree", "ID", "Feature", "Yes", "No")
        chosen = [columns[key] for key in wanted if key in columns]
        values = self._trial.values(chosen, steps=steps)
        tables = []
        for step in steps:
            if step not in values[columns["Feature"]]:
                continue
            tree, node, feature, yes, no = (
                np.ravel(values.get(columns.get(key, ""), {}).get(step, np.zeros(0, "U1")))
                for key in wanted
            )
            tables.append(TreeTable(step, tree, node, feature, yes, no))
        return tables


def thinned(steps: Sequence[int], most: int) -> list[int]:
    """At most so many of the steps, evenly, the last one always."""
    if len(steps) <= most:
        return list(steps)
    places = np.linspace(len(steps) - 1, 0, most).round().astype(np.int64)[::-1]
    return [steps[place] for place in np.unique(places).tolist()]


def _names(trial: Trial, key: str) -> list[str]:
    """The tensors of a built-in collection: by role, or because they were saved under it."""
    by_role = trial.tensor_names(collection=Collection("by role", roles=_ROLES[key]))
    try:
        return sorted({*by_role, *trial.tensor_names(collection=key)})
    except MissingCollectionFiles:  # a run that died early; the rows still say their roles
        return by_role


def _check_kind(trial: Trial, names: dict[str, list[str]]) -> None:
    framework = str(trial.about.get("framework") or "")
    telling = any(names[key] for key in _ONLY_XGBOOST)
    anything = any(names.values())
    if framework == "xgboost" or telling or (anything and framework not in _OTHERS):
        return
    held = trial.tensor_names()
    such = (
        f"{len(held)} tensors, such as {held[0]!r}, which a report cannot be made of"
        if held
        else "no tensors so far"
    )
    of = f"of {framework}, " if framework and framework != "numpy" else ""
    raise SMDebugValueError(
        f"An XGBoost report needs the trial of an XGBoost training; {trial.path} is a trial {of}"
        f"with {such}. "
        f"To see what is in it: tornasole show {trial.path}"
    )


def _as_text(value: Array) -> str:
    if value.dtype.kind == "f" and value.size == 1:
        return f"{value.item():.10g}"
    if value.dtype.kind == "f":
        return ", ".join(f"{each:.6g}" for each in value.ravel()[:20].tolist())
    return (
        str(value.item()) if value.size == 1 else ", ".join(map(str, value.ravel()[:20].tolist()))
    )
