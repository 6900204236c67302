"""What is saved of a round is what XGBoost itself says after that round, for every kind of model.

Each model is trained once, with a hook that saves everything of every second round, and a callback
that asks XGBoost after every round.
"""

import json
from types import SimpleNamespace

import numpy as np
import pytest

xgb = pytest.importorskip("xgboost")

import tornasole.xgboost as smd  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:xgboost")

MAJOR = int(xgb.__version__.split(".")[0])
STEPS = [0, 2, 4]
FOREST = {"num_parallel_tree": 3, "subsample": 0.7}


def squared_error(predictions, data):
    return predictions - data.get_label(), np.ones_like(predictions)


def worst_error(predictions, data):
    return "worst@1-error", float(np.abs(predictions - data.get_label()).max())


def with_missing_values(rows):
    x, y = rows()
    x[::7, 0] = np.nan
    return xgb.DMatrix(x, label=y, weight=y - y.min(), base_margin=y / 2)


def with_categories(rows):
    pandas = pytest.importorskip("pandas")
    x, y = rows()
    frame = pandas.DataFrame(x, columns=["b", "i", "a", "s"])
    frame["kind"] = pandas.Categorical(np.array(["red", "green", "blue"])[(y * 2).astype(int) % 3])
    return xgb.DMatrix(frame, label=y, enable_categorical=True)


def with_groups(rows):
    x, y = rows()
    return xgb.DMatrix(x, label=(y * 2).astype(int).clip(0, 4), qid=np.repeat(np.arange(6), 10))


def with_two_targets(rows):
    x, y = rows()
    return xgb.DMatrix(x, label=np.stack([y, -(y**2)], axis=1))


def quantised(rows):
    x, y = rows()
    return xgb.QuantileDMatrix(x, label=y)


def model(params=(), data="matrix", classes=None, since=1, **options):
    marks = [pytest.mark.skipif(since > MAJOR, reason=f"needs XGBoost {since}")]
    return pytest.param((dict(params), data, classes, options), marks=marks)


MODELS = {
    "regression": model(),
    "missing values, weights, margins": model(data=with_missing_values),
    "binary": model(
        {"objective": "binary:logistic", "eval_metric": ["logloss", "error@0.3", "auc"]}, classes=2
    ),
    "softprob": model({"objective": "multi:softprob", "num_class": 3}, classes=3),
    "softmax": model({"objective": "multi:softmax", "num_class": 3}, classes=3),
    "quantile": model(
        {"objective": "reg:quantileerror", "quantile_alpha": [0.1, 0.5, 0.9]}, since=2
    ),
    "ranking": model({"objective": "rank:ndcg", "eval_metric": ["ndcg@3", "ndcg@2-"]}, with_groups),
    "custom": model(obj=squared_error, custom_metric=worst_error),
    "two targets": model({"tree_method": "hist"}, with_two_targets),
    "dart": model({"booster": "dart", "rate_drop": 0.5, "one_drop": 1}),
    "linear": model({"booster": "gblinear", "updater": "coord_descent"}),
    "linear classes": model(
        {
            "booster": "gblinear",
            "updater": "coord_descent",
            "objective": "multi:softprob",
            "num_class": 3,
        },
        classes=3,
    ),
    "forest": model(FOREST),
    "forests of classes": model(
        {**FOREST, "objective": "multi:softprob", "num_class": 3}, classes=3
    ),
    "categories": model({"tree_method": "hist", "max_cat_to_onehot": 1}, with_categories),
    "quantised": model({"tree_method": "hist"}, quantised),
    "stumps that do not split": model({"gamma": 1e9}),
}


@pytest.fixture(scope="module", params=MODELS.values(), ids=MODELS.keys())
def trained(request, tmp_path_factory, rows, matrix, train, look):
    """A trial of one kind of model, and what XGBoost said."""
    params, make_data, classes, options = request.param
    data = matrix(classes=classes) if make_data == "matrix" else make_data(rows)
    out_dir = tmp_path_factory.mktemp("model") / "trial"
    said, evaluated = look(data), {}
    with smd.Hook(
        out_dir,
        save_all=True,
        save_config=smd.SaveConfig(save_interval=2),
        train_data=data,
        validation_data=data,
    ) as hook:
        train(data, hook, said, rounds=6, params=params, evals_result=evaluated, **options)
    return SimpleNamespace(
        trial=smd.create_trial(str(out_dir)), said=said, evaluated=evaluated, data=data
    )


def values(trained, step, collection):
    trial = trained.trial
    names = trial.tensor_names(step=step, collection=collection)
    return {name: trial.tensor(name).value(step) for name in names}


def test_the_due_rounds_are_saved_and_no_other(trained):
    assert trained.trial.steps() == STEPS
    assert trained.trial.state == "finished"


def test_metrics_are_those_that_xgboost_returns(trained):
    for step in STEPS:
        expected = {
            f"{data}-{metric}": history[step]
            for data, log in trained.evaluated.items()
            for metric, history in log.items()
        }
        assert expected
        assert values(trained, step, "metrics") == expected


def test_feature_importance_is_get_score(trained):
    for step in STEPS:
        expected = {
            f"feature_importance/{kind}/{feature}": score
            for kind, scores in trained.said.scores[step].items()
            for feature, score in scores.items()
        }
        found = values(trained, step, "feature_importance")
        assert found.keys() == expected.keys()
        for name, score in expected.items():
            np.testing.assert_array_equal(found[name], score, err_msg=name)


def test_predictions_are_predict(trained):
    for step in STEPS:
        found = trained.trial.tensor("predictions").value(step)
        np.testing.assert_array_equal(found, trained.said.predictions[step])
        assert found.dtype == trained.said.predictions[step].dtype


def test_labels_are_those_of_the_matrix(trained):
    for step in STEPS:
        found = trained.trial.tensor("labels").value(step)
        np.testing.assert_array_equal(found.ravel(), trained.data.get_label().ravel())
        assert len(found) == trained.data.num_row()


def contributions(trained, step):
    """XGBoost's, less the bias; within a round of several trees ours are summed up first."""
    expected = trained.said.contributions[step]
    if expected is None:
        pytest.skip("this XGBoost explains no predictions on such a matrix")
    names = trained.data.feature_names or [f"f{i}" for i in range(trained.data.num_col())]
    return names, expected[..., :-1]


def test_full_shap_of_a_feature_is_its_column_of_pred_contribs(trained):
    for step in STEPS:
        names, expected = contributions(trained, step)
        found = values(trained, step, "full_shap")
        assert found.keys() == {f"full_shap/{name}" for name in names}
        for i, name in enumerate(names):
            column = found[f"full_shap/{name}"]
            assert column.shape == expected[..., i].shape
            np.testing.assert_allclose(column, expected[..., i], rtol=1e-5, atol=1e-6)


def test_average_shap_of_a_feature_is_the_mean_of_magnitudes(trained):
    for step in STEPS:
        names, expected = contributions(trained, step)
        found = values(trained, step, "average_shap")
        assert found.keys() == {f"average_shap/{name}" for name in names}
        for i, name in enumerate(names):
            mean = np.abs(expected[..., i]).mean(dtype=np.float64)
            np.testing.assert_allclose(found[f"average_shap/{name}"], mean, rtol=1e-5, atol=1e-7)


def test_trees_are_the_rows_of_trees_to_dataframe_that_the_round_added(trained):
    if not trained.said.trees:
        assert trained.trial.tensor_names(collection="trees") == []
        pytest.skip("a linear model has no trees")
    for step in STEPS:
        frame = trained.said.trees[step]
        found = values(trained, step, "trees")
        assert found.keys() == {f"trees/{column}" for column in frame}
        for column in frame:
            tensor, expected = found[f"trees/{column}"], list(frame[column])
            if tensor.dtype.kind in "if":
                np.testing.assert_array_equal(tensor, np.array(expected, float), err_msg=column)
            else:
                assert tensor.tolist() == [_text(value) for value in expected], column


def _text(value):
    """Lists as JSON, and nothing for what is missing, as there are no missing strings."""
    if isinstance(value, list):
        return json.dumps(value)
    return value if isinstance(value, str) else ""


@pytest.mark.parametrize(
    "column",
    ["ID", "Feature", "Yes", "No", "Missing"],
)
def test_columns_of_strings_are_strings_even_if_no_tree_splits(
    new_hook, read, matrix, train, column
):
    train(matrix(), new_hook(include_collections=["trees"]), params={"gamma": 1e9})
    assert read().tensor(f"trees/{column}").dtype(0) == "string"


def test_sums_of_rounds_are_equal_to_pred_contribs_to_the_last_bit(
    new_hook, read, matrix, train, look
):
    data = matrix()
    hook, said = new_hook(include_collections=["full_shap"], train_data=data), look(data)
    train(data, hook, said, rounds=12)
    for step in range(12):
        found = [read().tensor(f"full_shap/f{i}").value(step) for i in range(4)]
        np.testing.assert_array_equal(np.stack(found, axis=1), said.contributions[step][:, :-1])


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"objective": "binary:logistic"},
        {"booster": "dart", "rate_drop": 0.5},
        {"booster": "gblinear", "updater": "coord_descent"},
        {**FOREST, "colsample_bytree": 0.5},
        {"tree_method": "approx"},
    ],
    ids=["regression", "binary", "dart", "linear", "forest", "approx"],
)
def test_the_model_is_byte_for_byte_the_one_without_a_hook(new_hook, matrix, train, params):
    data = matrix(classes=2)
    hook = new_hook(save_all=True, train_data=data, validation_data=data)
    watched = train(data, hook, rounds=8, params=params)
    assert watched.save_raw() == train(data, rounds=8, params=params).save_raw()
