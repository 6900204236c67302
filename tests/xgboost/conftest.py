"""What tests of the XGBoost room may ask for: a place, hooks, a trial, rows, a look at XGBoost.

Without xgboost this file must still load: the tests skip themselves.
"""

import json
import logging
from pathlib import Path

import numpy as np
import pytest

try:
    import xgboost as xgb

    import tornasole.xgboost as smd
except ModuleNotFoundError as error:
    if error.name != "xgboost":
        raise
else:
    IMPORTANCES = ("weight", "gain", "cover", "total_gain", "total_cover")

    class Look(xgb.callback.TrainingCallback):
        """After each round it asks XGBoost itself what a hook may save."""

        def __init__(self, data, trees_before=0):
            self._data, self._trees = data, trees_before
            self.scores, self.predictions, self.contributions, self.trees = [], [], [], []

        def after_iteration(self, model, epoch, evals_log):
            self.predictions.append(model.predict(self._data))
            linear = json.loads(model.save_config())["learner"]["gradient_booster"]["name"]
            kinds = IMPORTANCES[:1] if linear == "gblinear" else IMPORTANCES
            self.scores.append({kind: model.get_score(importance_type=kind) for kind in kinds})
            try:
                self.contributions.append(model.predict(self._data, pred_contribs=True))
            except xgb.core.XGBoostError:
                self.contributions.append(None)
            if linear != "gblinear":
                frame = model.trees_to_dataframe()
                self.trees.append(frame[frame["Tree"] >= self._trees])
                self._trees = frame["Tree"].nunique()
            return False


@pytest.fixture(autouse=True)
def alone():
    """No hook from another test."""
    smd.del_hook()
    yield
    smd.del_hook()


@pytest.fixture
def out_dir(tmp_path) -> Path:
    return tmp_path / "trial"


@pytest.fixture
def new_hook(out_dir):
    """Makes hooks that save at every round and raise their faults, and closes them at the end."""
    hooks = []

    def make(path=out_dir, **options):
        options = {"on_error": "raise", "save_config": smd.SaveConfig(save_interval=1), **options}
        hooks.append(smd.Hook(path, **options))
        return hooks[-1]

    yield make
    for hook in hooks:
        hook.close()


@pytest.fixture
def read(out_dir):
    return lambda path=out_dir: smd.create_trial(str(path))


@pytest.fixture(scope="session")
def look():
    """Makes a callback that keeps, round by round, what XGBoost itself says."""
    return lambda data, **options: Look(data, **options)


@pytest.fixture(scope="session")
def rows():
    """Makes features and targets; the same for the same arguments."""

    def make(count=60, features=4, seed=0):
        random = np.random.RandomState(seed)
        x = random.rand(count, features).astype(np.float32)
        return x, (3 * x[:, 0] - x[:, 1] ** 2 + 0.3 * random.rand(count)).astype(np.float32)

    return make


@pytest.fixture(scope="session")
def matrix(rows):
    """Makes a matrix of features and targets, for regression or for classes."""

    def make(count=60, features=4, seed=0, classes=None, **options):
        x, y = rows(count, features, seed)
        if classes:
            y = np.digitize(y, np.quantile(y, np.arange(1, classes) / classes))
        return xgb.DMatrix(x, label=y, **options)

    return make


@pytest.fixture(scope="session")
def train():
    """Trains on a matrix, evaluates on it, and returns the booster."""

    def run(data, *callbacks, rounds=3, evals=("train",), params=(), **options):
        params = {"nthread": 1, "max_depth": 3, "verbosity": 0, **dict(params)}
        return xgb.train(
            params,
            data,
            rounds,
            evals=[(data, name) for name in evals],
            callbacks=list(callbacks),
            verbose_eval=False,
            **options,
        )

    return run


@pytest.fixture
def count_predictions(monkeypatch):
    """The predictions that XGBoost makes from now on: their options, and how many trees made it."""
    calls = []
    predict = xgb.Booster.predict

    def counting(booster, data, **options):
        calls.append((bool(options.get("pred_contribs")), booster.num_boosted_rounds()))
        return predict(booster, data, **options)

    monkeypatch.setattr(xgb.Booster, "predict", counting)
    return calls


@pytest.fixture
def warnings_of(caplog):
    """The messages logged so far."""
    caplog.set_level(logging.WARNING, "tornasole")
    return lambda: [record.getMessage() for record in caplog.records]
