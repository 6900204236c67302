"""XGBoost keeps the contract of adapters."""

import numpy as np
import pytest

xgb = pytest.importorskip("xgboost")

import tornasole.xgboost as smd  # noqa: E402
from tornasole.testing import AdapterContract  # noqa: E402


class Job:
    def __init__(self, data, train, look):
        self._data, self._train, self._look = data, train, look
        self._callbacks, self._booster = [], None
        self._evaluated = {}

    def hook(self, out_dir, **options):
        hook = smd.Hook(out_dir, train_data=self._data, validation_data=self._data, **options)
        self._callbacks = [hook]
        return hook

    def train(self, steps):
        trees = 0 if self._booster is None else self._booster.num_boosted_rounds()
        self._last = self._look(self._data, trees_before=trees)
        self._booster = self._train(
            self._data,
            *self._callbacks,
            self._last,
            rounds=steps,
            evals_result=self._evaluated,
            xgb_model=self._booster,
        )

    def seen(self):
        scores = self._last.scores[-1]["gain"].items()
        contributions = np.abs(self._last.contributions[-1]).mean(axis=0, dtype=np.float64)
        return {
            "train-rmse": np.float64(self._evaluated["train"]["rmse"][-1]),
            "predictions": self._last.predictions[-1],
            "labels": self._data.get_label(),
            "full_shap/f0": self._last.contributions[-1][:, 0],
            "average_shap/f1": contributions[1],
            "trees/Gain": self._last.trees[-1]["Gain"].to_numpy(),
            **{f"feature_importance/gain/{name}": score for name, score in scores},
        }

    def result(self):
        return np.frombuffer(self._booster.save_raw(), np.uint8)

    def attached(self):
        inside = {**vars(self._booster), **self._booster.attributes()}
        return [name for name, value in inside.items() if "tornasole" in repr(value)]


class TestXGBoost(AdapterContract):
    @pytest.fixture
    def job(self, matrix, train, look):
        return lambda: Job(matrix(), train, look)
