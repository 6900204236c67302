"""feature_importance_overweight: shares of the first features, of raw numbers and of shares."""

import numpy as np
import pytest

from tornasole import Hook, SaveConfig
from tornasole.errors import SMDebugValueError
from tornasole.rules import Severity, check
from tornasole.rules.builtin.feature_importance_overweight import ranked_shares
from tornasole.types import Role

RULE = "feature_importance_overweight"


@pytest.fixture
def run(tmp_path):
    """Saves importances, step by step; returns what the rule says of them."""

    def make(steps, rule=RULE, kind="weight"):
        hook = Hook(tmp_path / "t", save_all=True, save_config=SaveConfig(save_interval=1))
        for importances in steps:
            hook.begin_step()
            for i, value in enumerate(importances):
                name = f"feature_importance/{kind}/f{i}"
                hook._recorder.record(name, Role.FEATURE_IMPORTANCE, np.asarray(value))
        hook.close()
        return check(tmp_path / "t", [rule])

    return make


@pytest.mark.parametrize(
    ("importances", "expected"),
    [
        ([1, 3], {"b": 0.75, "a": 0.25}),
        ([0.25, 0.75], {"b": 0.75, "a": 0.25}),
        ([0, 3], {"b": 1.0}),
        ([np.nan, 2], {"b": 1.0}),
        ([0, 0], {}),
    ],
)
def test_shares_are_ranked(importances, expected):
    found = ranked_shares(["a", "b"], np.array(importances, float))
    assert list(found.items()) == list(expected.items())


@pytest.mark.parametrize("scale", [1, 1 / 52])
def test_a_few_features_with_most_importance_fire(run, scale):
    even, odd = np.full(5, 10.0), np.array([2.0, 20, 18, 10, 2])
    [finding] = run([scale * even, scale * odd, scale * odd]).findings
    assert finding.step == 1
    assert finding.severity is Severity.INFO
    assert finding.evidence["share"] == pytest.approx(48 / 52)
    assert finding.message == (
        "The first 3 of 5 features that the model uses have 92.3 % of all importance by weight, "
        "more than 80 %: f1 38.5 %, f2 34.6 %, f3 19.2 %."
    )


def test_one_feature_with_most_importance_is_a_warning(run):
    [finding] = run([[90, 3, 3, 2, 2]]).findings
    assert finding.severity is Severity.WARNING


def test_importance_that_is_spread_is_silent(run):
    assert not run([np.full(5, 10.0)] * 3).findings


def test_few_features_are_judged_at_the_end_by_the_first_alone(run):
    assert not run([[5, 4, 4]] * 2).findings


def test_a_model_that_uses_one_feature_is_told_of_at_the_end(run):
    [finding] = run([[1], [9]]).findings
    assert finding.step == 1
    assert finding.message.startswith("The only feature that the model uses has 100 %")


def test_other_kinds_do_if_there_is_no_weight(run):
    [finding] = run([[90, 3, 3, 2, 2]], kind="total_gain").findings
    assert finding.evidence["kind"] == "total_gain"


def test_the_parameters_count(run):
    assert not run([[90, 3, 3, 2, 2]], f"{RULE}:nfeatures=1;threshold=0.95").findings


def test_negative_and_unknown_importances_are_no_fault_of_ours(run):
    assert len(run([[-90, 3, np.nan, 2, 2, 1]]).findings) == 1


def test_a_regex_decides_alone(run):
    assert RULE in run([[90, 3, 3, 2, 2]], f"{RULE}:tensor_regex=gain").not_applicable


def test_importance_in_xgboost(tmp_path):
    xgb = pytest.importorskip("xgboost")
    import tornasole.xgboost as smd

    x = np.random.RandomState(0).rand(400, 12)
    wanted = ["feature_importance"]
    for name, target, fires in (("one", x[:, 0], True), ("all", x.sum(axis=1), False)):
        every = smd.SaveConfig(save_interval=1)
        with smd.Hook(tmp_path / name, include_collections=wanted, save_config=every) as hook:
            data = xgb.DMatrix(x, label=target)
            xgb.train({"max_depth": 4, "nthread": 1, "gamma": 0.01}, data, 5, callbacks=[hook])
        assert bool(check(tmp_path / name, [RULE]).findings) is fires


@pytest.mark.parametrize("given", ["threshold=80", "nfeatures=0"])
def test_a_parameter_that_makes_no_sense_is_refused(run, given):
    with pytest.raises(SMDebugValueError, match=given.partition("=")[0]):
        run([], f"{RULE}:{given}")


def test_a_feature_may_have_any_name(tmp_path):
    hook = Hook(tmp_path / "t", save_all=True, save_config=SaveConfig(save_interval=1))
    hook.begin_step()
    for name, value in {"a/b": 90.0, "a/c": 4.0, "d": 3.0, "e/": 2.0, "f": 1.0}.items():
        tensor = f"feature_importance/weight/{name}"
        hook._recorder.record(tensor, Role.FEATURE_IMPORTANCE, np.asarray(value))
    hook.close()
    [finding] = check(tmp_path / "t", [f"{RULE}:nfeatures=1"]).findings
    assert "a/b" in finding.message
    assert "90 %" in finding.message
