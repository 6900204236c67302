"""Models that rest on a few of their features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tornasole.errors import SMDebugValueError
from tornasole.rules.contract import Explanation, StepRule, Symptom, parameter
from tornasole.rules.finding import Severity
from tornasole.rules.needs import Need
from tornasole.rules.parameters import Texts
from tornasole.rules.sentences import percent
from tornasole.rules.view import Floats, StepView
from tornasole.types import Role

_KIND = "feature_importance/weight"


@dataclass(frozen=True)
class FeatureImportanceOverweight(StepRule):
    """A model that rests on a few of its features.

    Takes the importance of each feature as a share of all (``weight``: how often trees split by
    it; other kinds if that one was not saved) and fires when the first ``nfeatures`` together have
    more than ``threshold``. While the model uses no more features than that, it waits: if it still
    does so at the end, it fires when one feature alone has more. Wrong about data with few
    features, of which the first few always have most; then give a smaller ``nfeatures``.
    """

    name = "feature_importance_overweight"
    threshold: float = parameter(0.8, "share of all importance, from 0 to 1, that is too much")
    nfeatures: int = parameter(3, "how many features to add up, the most important ones")
    tensor_regex: Texts | None = parameter(
        None, "which tensors to look at; default: importance by weight"
    )

    def __post_init__(self) -> None:
        if not 0 <= self.threshold <= 1:
            raise SMDebugValueError(f"threshold is a share from 0 to 1, not {self.threshold}.")
        if self.nfeatures < 1:
            raise SMDebugValueError(f"nfeatures must be at least 1, not {self.nfeatures}.")

    def needs(self) -> Mapping[str, Need]:
        return {
            "importance": Need(
                "feature importances",
                roles=frozenset({Role.FEATURE_IMPORTANCE}),
                statistics=frozenset({"l1"}),
                save=("feature_importance",),
            ).chosen_by(self.tensor_regex, None)
        }

    def symptoms(self, step: StepView, memory: dict[str, Any]) -> Iterable[Symptom]:
        importance = step["importance"]
        sizes = importance.statistic("l1")  # of one number, how large it is
        kinds: dict[str, list[int]] = {}
        for i, name in enumerate(importance.names):
            kinds.setdefault(_parts(name)[0], []).append(i)
        chosen = [_KIND] if self.tensor_regex is None and _KIND in kinds else list(kinds)
        for kind in chosen:
            names = [_parts(importance.names[i])[1] for i in kinds[kind]]
            shares = ranked_shares(names, sizes[kinds[kind]])
            memory[kind] = importance.names[kinds[kind][0]], shares
            if len(shares) > self.nfeatures and self._total(shares) > self.threshold:
                yield self._symptom(importance.names[kinds[kind][0]], kind, shares)

    def at_end(self, memory: dict[str, Any]) -> Iterable[Symptom]:
        for kind, (tensor, shares) in memory.items():
            top = max(shares.values(), default=0.0)
            if len(shares) <= self.nfeatures and top > self.threshold:
                yield self._symptom(tensor, kind, shares)

    def _total(self, shares: Mapping[str, float]) -> float:
        return sum(list(shares.values())[: self.nfeatures])

    def _symptom(self, tensor: str, kind: str, shares: Mapping[str, float]) -> Symptom:
        return Symptom(
            tensor,
            {
                "kind": kind.rpartition("/")[2],
                "share": self._total(shares),
                "features": len(shares),
                "shares": dict(list(shares.items())[: max(10, self.nfeatures)]),
            },
        )

    def explain(self, symptoms: Sequence[Symptom]) -> Explanation:
        numbers = max(symptoms, key=lambda each: float(each.numbers["share"])).numbers
        first = list(numbers["shares"].items())[: self.nfeatures]
        named = ", ".join(f"{feature} {percent(share)}" for feature, share in first[:5])
        many = numbers["features"]
        top = f"The first {len(first)} of {many} features that the model uses have"
        if len(first) == 1:
            top = f"The first of {many} features that the model uses has"
        if many == 1:
            top = "The only feature that the model uses has"
        return Explanation(
            f"{top} "
            f"{percent(numbers['share'])} of all importance by {numbers['kind']}, more than "
            f"{percent(self.threshold)}: {named}.",
            severity=Severity.WARNING if first[0][1] > self.threshold else Severity.INFO,
            evidence={"threshold": self.threshold, "nfeatures": self.nfeatures, **numbers},
            causes=(
                "a feature that gives the target away: computed from it, or known only afterwards",
                "data with few features that say anything",
                "features with many different values, which trees can split by more often",
            ),
            remedies=(
                "make sure that these features are known at the time of prediction",
                "train without the first one: how much worse is the validation metric?",
                "let trees see a part of the features only (colsample_bytree)",
            ),
        )


def ranked_shares(features: Sequence[str], importances: Floats) -> dict[str, float]:
    """The share of each feature in the importance of all, the largest first.

    Features without any, or with one that is not known, are left out.
    """
    used = np.isfinite(importances) & (importances > 0)
    total = float(importances[used].sum())
    order = sorted(np.flatnonzero(used).tolist(), key=lambda i: (-importances[i], i))
    return {features[i]: float(importances[i] / total) for i in order}


def _parts(name: str) -> tuple[str, str]:
    """``feature_importance/<kind>``, and the feature, whose name may hold any sign."""
    words = name.split("/", 2)
    return "/".join(words[:-1]), words[-1]
