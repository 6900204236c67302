"""The scikit-learn estimators, and the copies of a hook that scikit-learn makes."""

import copy
import pickle

import numpy as np
import pytest

xgb = pytest.importorskip("xgboost")
pytest.importorskip("sklearn")

from sklearn.base import clone  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_val_score  # noqa: E402

SMALL = {"n_estimators": 3, "max_depth": 2, "n_jobs": 1, "verbosity": 0}


@pytest.fixture
def xy(rows):
    """Features and targets; of classes, if asked."""

    def make(classes=None):
        x, y = rows()
        return x, y if classes is None else np.digitize(y, np.quantile(y, [1 / 3, 2 / 3]))

    return make


def check(trial, results):
    """The trial holds what the estimator itself remembers."""
    expected = {f"{d}-{m}": history for d, log in results.items() for m, history in log.items()}
    assert set(trial.tensor_names(collection="metrics")) == set(expected)
    for name, history in expected.items():
        saved = trial.tensor(name).values()
        assert [float(saved[step]) for step in sorted(saved)] == history


def test_a_regressor(new_hook, read, xy):
    x, y = xy()
    data = xgb.DMatrix(x, label=y)
    hook = new_hook(save_all=True, train_data=data, validation_data=data)
    model = xgb.XGBRegressor(**SMALL, callbacks=[hook])
    model.fit(x, y, eval_set=[(x, y)], verbose=False)
    check(read(), model.evals_result())
    np.testing.assert_array_equal(read().tensor("predictions").value(2), model.predict(x))
    saved = read().tensor_names(step=2, regex="^feature_importance/gain/")
    booster = model.get_booster()
    assert {name.rpartition("/")[2] for name in saved} == set(
        booster.get_score(importance_type="gain")
    )


def test_a_classifier(new_hook, read, xy):
    x, y = xy(classes=3)
    data = xgb.DMatrix(x, label=y)
    hook = new_hook(save_all=True, train_data=data, validation_data=data)
    model = xgb.XGBClassifier(**SMALL, callbacks=[hook], eval_metric=["mlogloss", "merror"])
    model.fit(x, y, eval_set=[(x, y), (x[:9], y[:9])], verbose=False)
    check(read(), model.evals_result())
    np.testing.assert_array_equal(read().tensor("predictions").value(2), model.predict_proba(x))
    assert read().tensor("full_shap/f0").value(2).shape == (60, 3)


def test_a_ranker(new_hook, read, xy):
    x, y = xy(classes=3)
    model = xgb.XGBRanker(
        **SMALL, callbacks=[new_hook()], objective="rank:ndcg", eval_metric=["ndcg@3"]
    )
    groups = np.repeat(np.arange(6), 10)
    model.fit(x, y, qid=groups, eval_set=[(x, y)], eval_qid=[groups], verbose=False)
    check(read(), model.evals_result())
    assert read().tensor_names() == ["validation_0-ndcg@3"]


def test_an_estimator_that_stops_early(new_hook, read, xy):
    x, y = xy()
    params = {**SMALL, "n_estimators": 50, "gamma": 2, "early_stopping_rounds": 2}
    model = xgb.XGBRegressor(**params, callbacks=[new_hook()])
    model.fit(x, y, eval_set=[(x, y)], verbose=False)
    assert len(model.evals_result()["validation_0"]["rmse"]) < 50
    check(read(), model.evals_result())


def test_fitting_twice_goes_on_counting(new_hook, read, xy):
    x, y = xy()
    model = xgb.XGBRegressor(**SMALL, callbacks=[new_hook()])
    model.fit(x, y, eval_set=[(x, y)], verbose=False)
    model.fit(x, y, eval_set=[(x, y)], verbose=False)
    assert read().steps() == [0, 1, 2, 3, 4, 5]


# -- copies ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "duplicate",
    [
        clone,
        copy.copy,
        copy.deepcopy,
        lambda model: pickle.loads(pickle.dumps(model)),
    ],
    ids=["clone", "copy", "deepcopy", "pickle"],
)
def test_a_copy_of_an_estimator_trains_the_same(new_hook, xy, duplicate):
    x, y = xy()
    model = xgb.XGBRegressor(**SMALL, callbacks=[new_hook(save_all=True)])
    other = duplicate(model).fit(x, y)
    plain = xgb.XGBRegressor(**SMALL).fit(x, y)
    assert other.get_booster().save_raw() == plain.get_booster().save_raw()


@pytest.mark.parametrize(
    "duplicate",
    [clone, copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))],
    ids=["clone", "deepcopy", "pickle"],
)
def test_a_copy_of_a_hook_saves_nothing_and_says_so(new_hook, read, xy, warnings_of, duplicate):
    x, y = xy()
    model = xgb.XGBRegressor(**SMALL, callbacks=[new_hook()])
    duplicate(model).fit(x, y, eval_set=[(x, y)], verbose=False)
    assert read().steps() == []
    [message] = warnings_of()
    assert "a copy of one" in message
    model.fit(x, y, eval_set=[(x, y)], verbose=False)
    assert read().steps() == [0, 1, 2]


def test_a_fitted_estimator_can_be_pickled(new_hook, xy):
    x, y = xy()
    model = xgb.XGBRegressor(**SMALL, callbacks=[new_hook()]).fit(x, y)
    loaded = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(loaded.predict(x), model.predict(x))


def test_a_copy_leaves_the_current_hook_in_place(new_hook, xy):
    import tornasole.xgboost as smd

    hook = new_hook()
    clone(xgb.XGBRegressor(**SMALL, callbacks=[hook]))
    assert smd.get_hook() is hook


def test_a_search_finds_what_it_finds_without_a_hook(new_hook, read, xy, warnings_of):
    x, y = xy()
    grid = {"max_depth": [1, 3]}
    found = GridSearchCV(xgb.XGBRegressor(**SMALL, callbacks=[new_hook()]), grid, cv=2).fit(x, y)
    plain = GridSearchCV(xgb.XGBRegressor(**SMALL), grid, cv=2).fit(x, y)
    assert found.best_params_ == plain.best_params_
    assert found.best_score_ == plain.best_score_
    assert read().steps() == []
    assert len(warnings_of()) == 5
    assert all("a copy of one" in message for message in warnings_of())


def test_cross_validation_of_an_estimator_with_a_hook(new_hook, xy):
    x, y = xy(classes=3)
    scores = cross_val_score(xgb.XGBClassifier(**SMALL, callbacks=[new_hook()]), x, y, cv=3)
    plain = cross_val_score(xgb.XGBClassifier(**SMALL), x, y, cv=3)
    np.testing.assert_array_equal(scores, plain)


def test_processes_of_a_search_do_not_write_into_the_trial(new_hook, read, xy):
    x, y = xy()
    model = xgb.XGBRegressor(**SMALL, callbacks=[new_hook()])
    scores = cross_val_score(model, x, y, cv=2, n_jobs=2)
    assert np.isfinite(scores).all()
    assert read().steps() == []
