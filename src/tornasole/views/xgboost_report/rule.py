"""The report as a rule: written when a run ends, and told about as a finding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tornasole.errors import SMDebugValueError
from tornasole.rules import Explanation, Need, Severity, StepRule, Symptom, parameter
from tornasole.rules.view import StepView
from tornasole.types import Role
from tornasole.views.xgboost_report import create_xgboost_report

_ROLES = frozenset(
    {
        Role.METRIC, Role.LOSS, Role.HYPERPARAMETER, Role.FEATURE_IMPORTANCE, Role.PREDICTION,
        Role.LABEL, Role.AVERAGE_SHAP, Role.TREE,
    }
)  # fmt: skip


@dataclass(frozen=True)
class CreateXgboostReport(StepRule):
    """Writes a report on an XGBoost training when it ends.

    Judges nothing: its finding says where the report is, one HTML page with metrics, feature
    importance, errors made and trees, as far as they were saved. Only runs when asked for by name.
    """

    name = "create_xgboost_report"
    runs_by_default = False
    out: str | None = parameter(
        None, "the file to write; default: xgboost_report.html in the trial's folder"
    )

    def needs(self) -> Mapping[str, Need]:
        return {
            "anything": Need(
                "tensors of an XGBoost training",
                roles=_ROLES,
                save=("metrics", "feature_importance", "predictions", "labels", "hyperparameters"),
            )
        }

    def symptoms(self, step: StepView, memory: dict[str, Any]) -> Iterable[Symptom]:
        memory["trial"] = step.trial
        return ()

    def at_end(self, memory: dict[str, Any]) -> Iterable[Symptom]:
        if "trial" not in memory:
            return
        if memory["trial"] is None:
            raise SMDebugValueError("It is not known where the run is saved: no report is written.")
        yield Symptom("", {"report": create_xgboost_report(memory["trial"], self.out)})

    def explain(self, symptoms: Sequence[Symptom]) -> Explanation:
        path = symptoms[0].numbers["report"]
        return Explanation(
            f"The report on this training is written: {path}",
            severity=Severity.INFO,
            evidence={"report": path},
            remedies=("open it in a browser",),
        )
