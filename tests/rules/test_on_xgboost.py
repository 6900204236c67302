"""The rules on trainings with XGBoost: each finds its fault, and all leave a sound run alone."""

import time
from pathlib import Path

import numpy as np
import pytest

xgb = pytest.importorskip("xgboost")

import tornasole.xgboost as smd  # noqa: E402
from tornasole import ReductionConfig  # noqa: E402
from tornasole.rules import Severity, check  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:xgboost")

ALL = [
    "metrics", "losses", "feature_importance", "trees", "labels", "predictions",
    "hyperparameters", "average_shap",
]  # fmt: skip
STATISTICS = ReductionConfig(
    reductions=["min", "max", "mean", "std"], abs_reductions=["min", "mean"], norms=["l1", "l2"]
)
FORMS = {"raw": None, "statistics": STATISTICS}
OF_NETS = {
    "all_zero", "check_input_images", "dead_relu", "nlp_sequence_ratio", "saturated_activation",
    "vanishing_gradient", "weight_update_ratio",
}  # fmt: skip


class Sleep(xgb.callback.TrainingCallback):
    """Pauses before a round."""

    def __init__(self, before, seconds):
        self._before, self._seconds = before, seconds

    def before_iteration(self, model, epoch, evals_log):
        if epoch == self._before:
            time.sleep(self._seconds)
        return False


@pytest.fixture(scope="module")
def boost(tmp_path_factory):
    """Trains with a hook that saves every round; returns where its trial is."""

    def run(data, more=None, params=(), rounds=12, callbacks=(), custom_metric=None, **options):
        path = str(tmp_path_factory.mktemp("run") / "trial")
        smd.del_hook()
        data = xgb.DMatrix(data[0], label=data[1])
        evals = [(data, "train")]
        if more is not None:
            more = xgb.DMatrix(more[0], label=more[1])
            evals.append((more, "validation"))
        options = {
            "include_collections": ALL,
            "save_config": smd.SaveConfig(save_interval=1),
            "on_error": "raise",
            "train_data": data,
            "validation_data": more,
            **options,
        }
        params = {"max_depth": 3, "nthread": 1, "verbosity": 0, "seed": 0, **dict(params)}
        with smd.Hook(path, **options) as hook:
            xgb.train(
                params,
                data,
                rounds,
                evals=evals,
                callbacks=[hook, *callbacks],
                custom_metric=custom_metric,
                verbose_eval=False,
            )
        smd.del_hook()
        return path

    return run


@pytest.fixture(scope="module")
def rows():
    """Makes six features and which of two classes follows from them; most of it can be learned."""

    def make(count, seed=0, noise=0.02):
        random = np.random.RandomState(seed)
        x = random.randn(count, 6).astype("float32")
        y = (x @ [1.0, -1.0, 0.9, 0.8, -0.7, 0.6] > 0).astype("float32")
        return x, np.where(random.rand(count) < noise, 1 - y, y)

    return make


BINARY = {"objective": "binary:logistic", "eval_metric": "logloss"}


def findings(path, rule):
    return check(path, [rule], save=False).findings


def only(path, rule):
    """The one finding of a rule."""
    (finding,) = findings(path, rule)
    return finding


# -- a sound run -----------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=FORMS)
def healthy(request, boost, rows):
    params = {**BINARY, "max_depth": 2}
    form = FORMS[request.param]
    return boost(rows(8000), rows(4000, seed=1), params, rounds=25, reduction_config=form)


def test_nothing_is_said_against_a_sound_run(healthy):
    report = check(healthy, save=False)
    assert [f for f in report.findings if f.severity is not Severity.INFO] == []
    assert set(report.not_applicable) >= OF_NETS
    trial = smd.create_trial(healthy)
    assert "trees/Split" in trial.tensor_names()  # in which leaves are NaN
    losses = [trial.tensor("validation-logloss").value(step) for step in (0, 24)]
    assert losses[1] < 0.6 * losses[0]


@pytest.mark.xfail(reason="overfit warns of the gap alone, whether validation falls or not")
def test_a_model_whose_validation_loss_still_falls_is_not_warned_of(boost, rows):
    path = boost(rows(1000), rows(1000, seed=1), {**BINARY, "max_depth": 2}, rounds=25)
    losses = list(smd.create_trial(path).tensor("validation-logloss").values().values())
    assert losses == sorted(losses, reverse=True)
    assert [f for f in findings(path, "overfit") if f.severity is not Severity.INFO] == []


# -- trees and features ----------------------------------------------------------------------------


@pytest.fixture(scope="module", params=FORMS)
def given_away(request, boost, rows):
    """Deep trees, and a feature that is the target but for a little noise."""
    x, y = rows(500)
    random = np.random.RandomState(0)
    x = np.round(x)  # so that the others split rarely
    x[:, 2] = y + 0.4 * random.randn(500)
    params = {**BINARY, "max_depth": 6}
    return boost((x, y), params=params, reduction_config=FORMS[request.param])


def test_trees_that_grow_deep(given_away):
    finding = findings(given_away, "tree_depth")[0]
    assert finding.tensors == ("trees/Node",)
    assert finding.evidence["depth"] >= 4


def test_a_feature_that_gives_the_target_away(boost):
    random = np.random.RandomState(0)
    x = random.rand(500, 6).astype("float32")
    x[:, [0, 1, 3, 4, 5]] = np.round(x[:, [0, 1, 3, 4, 5]])
    y = 10 * x[:, 2] + 0.1 * x[:, 0]
    for form in FORMS.values():
        path = boost((x, y), reduction_config=form)
        finding = findings(path, "feature_importance_overweight")[0]
        shares = finding.evidence["shares"]
        assert next(iter(shares)) == "f2"
        assert "more than 80 %" in finding.message


def test_the_report_is_written(healthy):
    finding = only(healthy, "create_xgboost_report")
    assert finding.severity is Severity.INFO
    assert Path(finding.evidence["report"]).read_text().startswith("<!")


# -- losses ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=FORMS)
def by_heart(request, boost, rows):
    """Labels without any sense, and trees enough to learn them by heart."""
    params = {**BINARY, "eta": 1, "max_depth": 8, "lambda": 0, "min_child_weight": 0}
    data, more = rows(100, noise=0.5), rows(300, seed=1, noise=0.5)
    return boost(data, more, params, rounds=40, reduction_config=FORMS[request.param])


def test_trees_that_learn_by_heart_overfit(by_heart):
    finding = only(by_heart, "overfit")
    assert finding.tensors == ("validation-logloss",)


def test_a_training_that_should_have_ended(by_heart):
    finding = only(by_heart, "overtraining")
    assert finding.severity is Severity.WARNING
    assert finding.tensors == ("validation-logloss",)


@pytest.fixture(scope="module", params=FORMS)
def standing(request, boost, rows):
    """A learning rate of zero; 99 of 100 labels of one class; a pause."""
    x, _ = rows(1000)
    y = (np.arange(1000) % 100 == 0).astype("float32")
    params = {**BINARY, "eta": 0, "base_score": 0.5}
    options = {"callbacks": [Sleep(4, 0.8)], "reduction_config": FORMS[request.param]}
    return boost((x, y), (x, y), params, rounds=25, **options)


def test_a_loss_that_does_not_fall(standing):
    found = findings(standing, "loss_not_decreasing")
    assert {name for f in found for name in f.tensors} >= {"validation-logloss"}


def test_what_does_not_change(standing):
    found = {name for f in findings(standing, "unchanged_tensor") for name in f.tensors}
    assert {"train-logloss", "validation-logloss"} <= found


def test_labels_that_are_not_balanced(standing):
    finding = findings(standing, "class_imbalance")[0]
    assert finding.tensors[0] == "labels"
    assert finding.evidence["labels by class"]["0"] > 50 * finding.evidence["labels by class"]["1"]


def test_a_training_that_stalls(standing):
    finding = findings(standing, "stalled_training_rule:threshold=0.7")[-1]
    assert "after step 3 until step 4" in finding.message


# -- the rest --------------------------------------------------------------------------------------


def test_two_classes_that_are_taken_for_one_another(boost):
    random = np.random.RandomState(0)
    y = random.randint(0, 4, 1200)
    x = (np.eye(4)[np.where(y == 3, 2, y)] + 0.1 * random.randn(1200, 4)).astype("float32")
    params = {"objective": "multi:softprob", "num_class": 4, "max_depth": 2}
    path = boost((x[:800], y[:800]), (x[800:], y[800:]), params)
    finding = findings(path, "confusion")[0]
    assert finding.severity is Severity.WARNING
    (about,) = finding.evidence["tensors"].values()
    assert {(each["class"], each["taken for"]) for each in about["worst"]} == {(2, 3), (3, 2)}


@pytest.mark.parametrize("form", FORMS)
def test_a_metric_that_is_not_finite(boost, rows, form):
    rounds = iter(range(100))

    def broken(predictions, data):
        return "own", float("nan") if next(rounds) >= 4 else 1.0

    path = boost(rows(100), reduction_config=FORMS[form], custom_metric=broken)
    for rule in ("exploding_tensor", "nan_source"):
        finding = only(path, rule)
        assert (finding.step, finding.tensors) == (4, ("train-own",))


@pytest.mark.parametrize("form", FORMS)
def test_runs_with_other_seeds_differ(boost, rows, form):
    def run(seed):
        params = {**BINARY, "seed": seed, "subsample": 0.5}
        return boost(rows(200), params=params, rounds=3, reduction_config=FORMS[form])

    first, again, other = run(1), run(1), run(2)
    assert findings(again, f"similar_across_runs:other_trials={first}") == []
    finding = findings(other, f"similar_across_runs:other_trials={first}")[0]
    assert finding.step == 0
    assert "labels" not in finding.tensors
