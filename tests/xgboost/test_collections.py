"""What is saved by default and what when asked, and which tensor is in which collection."""

import numpy as np
import pytest

xgb = pytest.importorskip("xgboost")

import tornasole.xgboost as smd  # noqa: E402
from tornasole.types import Role  # noqa: E402

BINARY = {"objective": "binary:logistic"}


@pytest.fixture
def saved(new_hook, read, matrix, train):
    """Trains with a hook of these options, and returns the trial."""

    def run(params=(), rounds=3, classes=None, **options):
        data = matrix(classes=classes)
        hook = new_hook(train_data=data, validation_data=data, **options)
        train(data, hook, rounds=rounds, params=params)
        hook.close()
        return read()

    return run


@pytest.fixture
def roles_of(saved):
    """Trains with some metrics, and tells the role of each."""

    def run(metrics, params=(), **options):
        trial = saved({**dict(params), "eval_metric": metrics}, rounds=1, **options)
        return {name: trial.tensor(name).role for name in trial.tensor_names()}

    return run


# -- defaults --------------------------------------------------------------------------------------


def test_by_default_metrics_are_saved_every_tenth_round(out_dir, read, matrix, train):
    with smd.Hook(out_dir) as hook:
        train(matrix(), hook, rounds=21)
    assert read().steps() == [0, 10, 20]
    assert read().tensor_names() == ["train-rmse"]


def test_a_hook_has_the_collections_of_xgboost(new_hook):
    assert set(new_hook().get_collections()) == {
        "all",
        "default",
        "metrics",
        "losses",
        "hyperparameters",
        "predictions",
        "labels",
        "feature_importance",
        "average_shap",
        "full_shap",
        "trees",
    }


@pytest.mark.parametrize(
    ("collection", "names"),
    [
        ("predictions", r"^predictions$"),
        ("labels", r"^labels$"),
        ("feature_importance", r"^feature_importance/(total_)?(weight|gain|cover)/f\d$"),
        ("average_shap", r"^average_shap/f\d$"),
        ("full_shap", r"^full_shap/f\d$"),
        ("trees", r"^trees/\w+$"),
        ("hyperparameters", r"^hyperparameters/\w+$"),
    ],
)
def test_a_collection_asked_for_is_saved_beside_the_metrics_and_nothing_else(
    saved, collection, names
):
    trial = saved(include_collections=[collection])
    members = trial.tensor_names(collection=collection)
    assert members
    assert members == trial.tensor_names(regex=names)
    assert set(trial.tensor_names()) == {*members, "train-rmse"}


def test_a_regex_asks_for_single_tensors(saved):
    names = ["feature_importance/gain/f0", "full_shap/f1", "trees/Gain"]
    trial = saved(include_regex=[f"^{name}$" for name in names])
    assert trial.tensor_names(collection="default") == names


def test_save_all_is_the_collection_all(saved):
    trial = saved(save_all=True)
    assert trial.tensor_names(collection="all") == trial.tensor_names()


def test_each_collection_has_its_own_schedule(new_hook, read, matrix, train):
    data = matrix()
    hook = new_hook(include_collections=["predictions"], validation_data=data)
    hook.get_collection("predictions").save_config = smd.SaveConfig(save_interval=3)
    train(data, hook, rounds=5)
    assert read().tensor("predictions").steps() == [0, 3]
    assert read().tensor("train-rmse").steps() == [0, 1, 2, 3, 4]


# -- losses and metrics ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "params"),
    [
        ("rmse", {}),
        ("mae", {}),
        ("mape", {}),
        ("logloss", BINARY),
        ("error", BINARY),
        ("error@0.3", BINARY),
        ("poisson-nloglik", {"objective": "count:poisson"}),
        ("tweedie-nloglik@1.5", {"objective": "reg:tweedie"}),
    ],
)
def test_a_metric_of_which_less_is_better_is_a_loss_and_a_metric(saved, metric, params):
    trial = saved({**params, "eval_metric": metric}, classes=2)
    assert trial.tensor(f"train-{metric}").role is Role.LOSS
    assert trial.tensor_names(collection="losses") == [f"train-{metric}"]
    assert trial.tensor_names(collection="metrics") == [f"train-{metric}"]


@pytest.mark.parametrize(
    ("metric", "params"),
    [
        ("auc", BINARY),
        ("aucpr", BINARY),
        ("map", {"objective": "rank:pairwise"}),
        ("map@3", {"objective": "rank:pairwise"}),
        ("ndcg", {"objective": "rank:pairwise"}),
        ("ndcg@3-", {"objective": "rank:pairwise"}),
        ("pre@2", {"objective": "rank:pairwise"}),
    ],
)
def test_a_metric_of_which_more_is_better_is_no_loss(saved, metric, params):
    trial = saved({**params, "eval_metric": metric}, classes=2, include_collections=["losses"])
    assert trial.tensor(f"train-{metric}").role is Role.METRIC
    assert trial.tensor_names(collection="losses") == []
    assert trial.tensor_names(collection="metrics") == [f"train-{metric}"]


def test_many_metrics_of_one_round(roles_of):
    roles = roles_of(["auc", "error@0.3", "error@0.7", "logloss"], BINARY, classes=2)
    assert roles == {
        "train-auc": Role.METRIC,
        "train-error@0.3": Role.LOSS,
        "train-error@0.7": Role.LOSS,
        "train-logloss": Role.LOSS,
    }


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("my-metric@2", Role.LOSS),
        ("95%", Role.LOSS),
        ("größe", Role.LOSS),
        ("accuracy", Role.METRIC),
        ("f1_score", Role.METRIC),
    ],
)
def test_a_metric_of_the_users_may_have_any_name(new_hook, read, matrix, train, name, role):
    train(matrix(), new_hook(), custom_metric=lambda predictions, data: (name, 0.25))
    assert read().tensor(f"train-{name}").value(2) == 0.25
    assert read().tensor(f"train-{name}").role is role


def test_a_metric_that_is_nan_is_saved_as_nan(new_hook, read, matrix, train):
    train(matrix(), new_hook(), custom_metric=lambda predictions, data: ("bad", np.nan))
    assert np.isnan(read().tensor("train-bad").value(0))


def test_every_data_set_that_is_evaluated_has_its_metrics(new_hook, read, matrix, train):
    train(matrix(), new_hook(), evals=("train", "valid_1", "größe@2"))
    assert read().tensor_names() == ["größe@2-rmse", "train-rmse", "valid_1-rmse"]


# -- hyperparameters -------------------------------------------------------------------------------


def test_hyperparameters_are_by_default_those_of_the_booster(saved):
    trial = saved({"eta": 0.125, "max_depth": 2, "lambda": 2}, save_all=True)
    values = {
        name.partition("/")[2]: trial.tensor(name).value(0)
        for name in trial.tensor_names(collection="hyperparameters")
    }
    assert float(values["learning_rate"]) == 0.125
    assert float(values["max_depth"]) == 2
    assert float(values["reg_lambda"] if "reg_lambda" in values else values["lambda"]) == 2
    assert str(values["objective"]) == "reg:squarederror"
    assert str(values["booster"]) == "gbtree"


def test_hyperparameters_given_are_those_that_are_saved(saved):
    given = {"eta": 0.5, "objective": "mine", "seeds": [1, 2], "nothing": None, "flag": True}
    trial = saved(include_collections=["hyperparameters"], hyperparameters=given)
    values = {
        name.partition("/")[2]: trial.tensor(name).value(2)
        for name in trial.tensor_names(collection="hyperparameters")
    }
    assert values.keys() == given.keys()
    assert values["eta"] == 0.5
    assert values["flag"] == 1
    texts = {name: str(values[name]) for name in ("objective", "seeds", "nothing")}
    assert texts == {"objective": "mine", "seeds": "[1, 2]", "nothing": "None"}


def test_hyperparameters_may_be_pairs_as_for_train(new_hook):
    assert new_hook(hyperparameters=[("eta", 1)]).hyperparameters == {"eta": 1}


def test_hyperparameters_and_data_can_be_set_later(new_hook, read, matrix, train):
    data, hook = matrix(), new_hook(save_all=True)
    hook.hyperparameters = {"only": 7}
    hook.train_data = hook.validation_data = data
    assert hook.train_data is hook.validation_data is data
    train(data, hook)
    trial = read()
    assert trial.tensor_names(collection="hyperparameters") == ["hyperparameters/only"]
    assert {"predictions", "full_shap/f0"} <= set(trial.tensor_names())


# -- forms and watches -----------------------------------------------------------------------------


def test_statistics_of_predictions(saved, look, matrix, train):
    reduction = smd.ReductionConfig(reductions=["mean", "max"], norms=["l2"])
    trial = saved(include_collections=["predictions"], reduction_config=reduction)
    data = matrix()
    said = look(data)
    train(data, said)
    predictions, tensor = said.predictions[2].astype(np.float64), trial.tensor("predictions")
    assert tensor.reduction_value(2, "max") == predictions.max()
    np.testing.assert_allclose(tensor.reduction_value(2, "mean"), predictions.mean())
    np.testing.assert_allclose(tensor.reduction_value(2, "l2"), np.sqrt((predictions**2).sum()))
    assert set(tensor.reduction_values(2)) == {("mean", False), ("max", False), ("l2", False)}


def test_metrics_and_importance_are_saved_whole_whatever_the_reductions(saved):
    trial = saved(save_all=True, reduction_config=smd.ReductionConfig(reductions=["mean"]))
    for name in ("train-rmse", "feature_importance/gain/f0", "average_shap/f0"):
        assert trial.tensor(name).value(2) > 0


def test_when_nan_saves_everything_of_the_round_in_which_a_metric_is_nan(
    new_hook, read, matrix, train
):
    def metric(predictions, data):
        metric.calls += 1
        return "own", np.nan if metric.calls == 4 else 1.0

    metric.calls = 0
    data = matrix()
    watch = smd.SaveConfig(start_step=10**9, when_nan=["train-own"])
    hook = new_hook(save_config=watch, save_all=True, train_data=data, validation_data=data)
    train(data, hook, rounds=6, custom_metric=metric)
    trial = read()
    assert trial.steps() == [3]
    assert {"predictions", "full_shap/f0", "trees/Gain"} <= set(trial.tensor_names())


# -- names of features -----------------------------------------------------------------------------

ODD_NAMES = [
    "b", "i", "a", "s", "x/", "bias", "f/bias", "größe", "two words", " ", "f0", "0", "a-b@c.d",
    "full_shap", "日本", "\\d+", "x=1,y", "(1)",
]  # fmt: skip


@pytest.fixture(scope="module")
def odd(tmp_path_factory, rows, train, look):
    """A trial of features with odd names, each of which matters, and what XGBoost said."""
    x, _ = rows(200, len(ODD_NAMES))
    data = xgb.DMatrix(x, label=x.sum(axis=1), feature_names=ODD_NAMES)
    out_dir, said = tmp_path_factory.mktemp("odd") / "trial", look(data)
    every = smd.SaveConfig(save_interval=1)
    with smd.Hook(out_dir, save_all=True, train_data=data, save_config=every) as hook:
        train(data, hook, said, rounds=15, params={"max_depth": 4})
    return smd.create_trial(str(out_dir)), said


@pytest.mark.parametrize("stem", ["average_shap", "full_shap"])
def test_no_feature_is_lost_by_its_name(odd, stem):
    trial, said = odd
    names = trial.tensor_names(collection=stem)
    assert sorted(names) == sorted(f"{stem}/{name}" for name in ODD_NAMES)
    for i, name in enumerate(ODD_NAMES):
        expected = said.contributions[14][:, i]
        expected = np.abs(expected).mean() if stem == "average_shap" else expected
        found = trial.tensor(f"{stem}/{name}").value(14)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_importance_has_every_name(odd):
    trial, said = odd
    assert set(said.scores[14]["gain"]) == set(ODD_NAMES)
    for kind, scores in said.scores[14].items():
        for name, score in scores.items():
            assert trial.tensor(f"feature_importance/{kind}/{name}").value(14) == score


def test_trees_have_every_name(odd):
    trial, said = odd
    for step in (0, 14):
        expected = said.trees[step]["Feature"].tolist()
        assert trial.tensor("trees/Feature").value(step).tolist() == expected


def test_features_without_names_are_numbered(saved):
    trial = saved(include_collections=["full_shap"])
    assert trial.tensor_names(collection="full_shap") == [f"full_shap/f{i}" for i in range(4)]
