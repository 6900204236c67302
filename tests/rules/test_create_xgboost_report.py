"""create_xgboost_report: a rule that writes the report when the run ends."""

import numpy as np
import pytest

from tornasole import Hook, SaveConfig
from tornasole.rules import Severity, check
from tornasole.rules.engine import Engine
from tornasole.types import Role
from tornasole.views.xgboost_report.rule import CreateXgboostReport


@pytest.fixture
def trial(tmp_path):
    """A run that looks like one of XGBoost."""
    hook = Hook(tmp_path / "t", save_all=True, save_config=SaveConfig(save_interval=1))
    for step in range(3):
        hook.begin_step()
        hook._recorder.record("train-rmse", Role.LOSS, np.array(1.0 / (step + 1)))
        hook._recorder.record(
            "feature_importance/weight/f0", Role.FEATURE_IMPORTANCE, np.array(step + 1.0)
        )
    hook.close()
    return tmp_path / "t"


def test_the_report_lies_in_the_trial_and_a_finding_says_so(trial):
    [finding] = check(trial, ["create_xgboost_report"]).findings
    written = trial / "xgboost_report.html"
    assert "<html" in written.read_text("utf-8")
    assert (finding.severity, finding.step) == (Severity.INFO, 2)
    assert finding.message == f"The report on this training is written: {written}"


def test_the_file_can_be_chosen(trial, tmp_path):
    check(trial, [f"create_xgboost_report:out={tmp_path}/mine.html"])
    assert (tmp_path / "mine.html").is_file()
    assert not (trial / "xgboost_report.html").exists()


def test_it_is_not_among_all_rules(trial):
    check(trial)
    assert not (trial / "xgboost_report.html").exists()


def test_a_trial_without_such_tensors_is_not_applicable(tmp_path):
    hook = Hook(tmp_path / "t", save_all=True, save_config=SaveConfig(save_interval=1))
    hook.begin_step()
    hook._recorder.record("w", Role.WEIGHT, np.ones(3))
    hook.close()
    report = check(tmp_path / "t", ["create_xgboost_report"])
    assert not report.findings
    assert "create_xgboost_report" in report.not_applicable


def test_where_the_run_is_saved_must_be_known(trial):
    from tornasole.trial import create_trial

    engine = Engine([CreateXgboostReport()])
    assert not list(engine.judge(create_trial(trial).block()))
    [finding] = engine.end()
    assert "not known where" in finding.message
