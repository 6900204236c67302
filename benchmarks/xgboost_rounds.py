"""What a hook costs an XGBoost training: metrics of every round, and a round with SHAP values."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xgboost

from benchmarks.measuring import (
    HookClock,
    Result,
    median_and_error,
    milliseconds,
    scratch,
    seconds,
)
from tornasole import SaveConfig
from tornasole.xgboost import Hook

FRAMEWORKS = ("xgboost",)

_ROWS, _FEATURES, _ROUNDS = 100_000, 50, 200
_TRAININGS = 5
_EXPLAINED_ROWS, _EARLIER_ROUNDS, _LOOKS = 20_000, 50, 7
_PARAMETERS = {"objective": "binary:logistic", "tree_method": "hist", "seed": 0}


def measure() -> list[Result]:
    with scratch() as folder:
        return [_metrics(folder), *_shap(folder)]


def _data(rows: int, features: int = _FEATURES) -> xgboost.DMatrix:
    random = np.random.default_rng(0)
    values = random.normal(size=(rows, features)).astype(np.float32)
    score = values[:, 0] + values[:, 1] * values[:, 2] + random.normal(size=rows)
    return xgboost.DMatrix(values, label=score > 0)


def _train(
    data: xgboost.DMatrix, rounds: int, callbacks: Sequence[Any], depth: int = 6, **options: Any
) -> Any:
    return xgboost.train(
        {**_PARAMETERS, "max_depth": depth},
        data,
        rounds,
        evals=[(data, "train")],
        callbacks=callbacks,
        verbose_eval=False,
        **options,
    )


def _metrics(folder: Path) -> Result:
    data = _data(_ROWS)
    times: dict[bool, list[float]] = {True: [], False: []}
    _train(data, 20, [])
    for number in range(_TRAININGS):
        for hooked in (False, True) if number % 2 else (True, False):
            if hooked:
                every = SaveConfig(save_interval=1)
                with Hook(
                    folder / f"metrics-{number}", save_config=every, on_error="raise"
                ) as hook:
                    times[True].append(seconds(lambda hook=hook: _train(data, _ROUNDS, [hook])))
            else:
                times[False].append(seconds(lambda: _train(data, _ROUNDS, [])))
    ratio, error = median_and_error([a / b for a, b in zip(times[True], times[False], strict=True)])
    return Result(
        f"time of a training with metrics saved every round, of the same without a hook "
        f"({_ROUNDS} rounds, {_ROWS:,} × {_FEATURES})",
        round(ratio, 4),
        bound=1.03,
        details={
            "standard error": round(error, 4),
            "training without hook, s": round(statistics.median(times[False]), 2),
        },
    )


class _Look(xgboost.callback.TrainingCallback):
    """Beside a hook: the time that it took in each due round, and that of XGBoost's prediction."""

    def __init__(self, hook: Hook, data: xgboost.DMatrix, every: int) -> None:
        super().__init__()
        self._clock, self._data, self._every = HookClock(hook), data, every
        self.hook_times: list[float] = []
        self.own_times: list[float] = []

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        took = self._clock.take()
        if epoch % self._every == 0:
            self.hook_times.append(took)
            self.own_times.append(seconds(lambda: model.predict(self._data, pred_contribs=True)))
        return False


def _shap(folder: Path) -> list[Result]:
    data = _data(_EXPLAINED_ROWS)
    earlier = _train(data, _EARLIER_ROUNDS, [])
    whole: list[float] = []
    own: list[float] = []
    for number in range(_LOOKS):
        look = _looked(folder / f"whole-{number}", data, rounds=1, xgb_model=earlier)
        whole += look.hook_times
        own += look.own_times
    ratio, error = median_and_error([a / b for a, b in zip(whole, own, strict=True)])
    look = _looked(folder / "added", data, rounds=_EARLIER_ROUNDS)
    stumps = _looked(
        folder / "stumps", _data(_EXPLAINED_ROWS, 10 * _FEATURES), 5 * _EARLIER_ROUNDS, 50, depth=1
    )
    return [
        Result(
            f"first due round with average and full SHAP values, of XGBoost's own prediction of "
            f"them ({_EXPLAINED_ROWS:,} × {_FEATURES}, round {_EARLIER_ROUNDS})",
            round(ratio, 3),
            bound=1.10,
            details={
                "standard error": round(error, 3),
                "own prediction, ms": milliseconds(own),
            },
        ),
        Result(
            f"all due rounds (every 10th of {_EARLIER_ROUNDS}) with SHAP values, of XGBoost's own "
            "predictions of them",
            round(sum(look.hook_times) / sum(look.own_times), 3),
            bound=1.10,
        ),
        Result(
            f"the same for stumps ({_EXPLAINED_ROWS:,} × {10 * _FEATURES}, every 50th of "
            f"{5 * _EARLIER_ROUNDS})",
            round(sum(stumps.hook_times) / sum(stumps.own_times), 3),
            details={
                "of which the first two": round(
                    sum(stumps.hook_times[:2]) / sum(stumps.own_times[:2]), 3
                )
            },
        ),
    ]


def _looked(
    folder: Path, data: xgboost.DMatrix, rounds: int, every: int = 10, **options: Any
) -> _Look:
    with Hook(
        folder,
        save_config=SaveConfig(save_interval=every),
        include_collections=["average_shap", "full_shap"],
        train_data=data,
        on_error="raise",
    ) as hook:
        look = _Look(hook, data, every)
        _train(data, rounds, [hook, look], **options)
    return look
