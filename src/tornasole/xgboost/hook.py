"""The hook as an XGBoost script knows it: a callback of ``xgboost.train`` and its relatives."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from typing import Any

import xgboost
from xgboost import DMatrix, collective
from xgboost.callback import TrainingCallback

from tornasole.capture import Hook as CaptureHook
from tornasole.capture.hook import hook_of
from tornasole.capture.worker import Worker
from tornasole.errors import SMDebugTypeError
from tornasole.selection.save_config import checked_integer
from tornasole.xgboost.data import checked_data
from tornasole.xgboost.rounds import EvalsLog, Given, RoundAdapter

log = logging.getLogger("tornasole")

_MOST_SHAP_BYTES = 512 << 20


class Hook(CaptureHook, TrainingCallback):
    """Saves what an XGBoost training job knows after each round.

    Give it to ``xgboost.train``, ``xgboost.cv`` or an estimator as one of their ``callbacks``.
    A step is one boosting round; a hook that sees a second training goes on counting.

    Args:
        hyperparameters: What the collection ``hyperparameters`` holds; by default, all that the
            booster is trained with.
        train_data: The rows whose SHAP values are computed: an ``xgboost.DMatrix``, or a path and
            the format of that file, ``"csv"`` or ``"libsvm"``.
        validation_data: The rows whose predictions and labels are saved, likewise.
        most_shap_bytes: Beyond this size of the SHAP values of a round, they are computed for an
            even sample of the rows.
        options: The arguments of ``tornasole.Hook``.
    """

    framework = "xgboost"

    def __init__(
        self,
        *args: Any,
        hyperparameters: Mapping[str, Any] | None = None,
        train_data: DMatrix | tuple[str, str] | None = None,
        validation_data: DMatrix | tuple[str, str] | None = None,
        most_shap_bytes: int = _MOST_SHAP_BYTES,
        **options: Any,
    ) -> None:
        self._given = Given(
            _checked_parameters(hyperparameters),
            checked_data("train_data", train_data),
            checked_data("validation_data", validation_data),
            checked_integer("most_shap_bytes", most_shap_bytes, least=1),
        )
        self._evals_log: EvalsLog = {}
        self._booster: Any = None  # that of the round that is under way
        self._rounds_before = 0
        super().__init__(*args, **options)

    @classmethod
    def hook_from_config(cls, json_config_path: str | os.PathLike[str] | None = None) -> Hook:
        """The older name of ``create_from_json_file``."""
        return cls.create_from_json_file(json_config_path)

    def _connect(self) -> None:
        self._adapter = RoundAdapter(self._recorder, self._guard, self._given)

    def _find_worker(self) -> Worker:
        if collective.is_distributed():
            return Worker(collective.get_rank(), collective.get_world_size())
        return super()._find_worker()

    def _versions(self) -> dict[str, str]:
        return {"xgboost": xgboost.__version__}

    # -- what was given ----------------------------------------------------------------------------

    @property
    def hyperparameters(self) -> Mapping[str, Any] | None:
        """What the collection ``hyperparameters`` holds; none: what the booster says."""
        return self._given.hyperparameters

    @hyperparameters.setter
    def hyperparameters(self, value: Mapping[str, Any] | None) -> None:
        self._given.hyperparameters = _checked_parameters(value)

    @property
    def train_data(self) -> DMatrix | tuple[str, str] | None:
        """The rows whose SHAP values are computed."""
        data = self._given.train_data
        return None if data is None else data.given

    @train_data.setter
    def train_data(self, value: DMatrix | tuple[str, str] | None) -> None:
        self._given.train_data = checked_data("train_data", value)

    @property
    def validation_data(self) -> DMatrix | tuple[str, str] | None:
        """The rows whose predictions and labels are saved."""
        data = self._given.validation_data
        return None if data is None else data.given

    @validation_data.setter
    def validation_data(self, value: DMatrix | tuple[str, str] | None) -> None:
        self._given.validation_data = checked_data("validation_data", value)

    # -- what XGBoost calls ------------------------------------------------------------------------

    def before_training(self, model: Any) -> Any:
        """XGBoost begins to train a model."""
        if self._stands_aside:
            log.warning(
                "A hook that was closed, or is a copy of one (as clone and pickle make them), "
                "saves nothing of this training."
            )
        else:
            self._booster = None
            self._guard.run(self._adapter.begin_training)
        return model

    def before_iteration(self, model: Any, epoch: int, evals_log: EvalsLog) -> bool:
        """A round begins, and with it a step."""
        if not self._stands_aside:
            self._guard.run(self._begin_round, model, evals_log)
        return False

    def after_iteration(self, model: Any, epoch: int, evals_log: EvalsLog) -> bool:
        """A round is over. It never asks to stop the training."""
        if not self._stands_aside:
            self._guard.run(self._end_round)
        return False

    def after_training(self, model: Any) -> Any:
        """The training is over: all of it can be read, even before the hook is closed."""
        if not self._stands_aside:
            self._guard.run(self._end_training)
        return model

    def _begin_round(self, model: Any, evals_log: EvalsLog) -> None:
        self._begin_step()
        self._evals_log, self._rounds_before = evals_log, model.num_boosted_rounds()
        self._booster = model

    def _end_round(self) -> None:
        if self._booster is not None:
            booster, self._booster = self._booster, None
            self._adapter.end_round(booster, self._evals_log)

    def _end_training(self) -> None:
        # XGBoost calls no callback behind one that stops the training: not even after the round.
        # And after the training it may show a model that was cut to its best rounds.
        if self._booster is not None:
            if self._booster.num_boosted_rounds() == self._rounds_before:
                self._booster = None
                self._recorder.take_back_step()  # it was stopped before the round
            else:
                self._end_round()
        if self.step >= 0:
            self._flush()


def get_hook(
    json_config_path: str | os.PathLike[str] | None = None, create_if_not_exists: bool = True
) -> Hook | None:
    """This process's XGBoost hook, created from the configuration file if there is none.

    Args:
        json_config_path: The configuration file.
        create_if_not_exists: Whether to create it. ``USE_SMDEBUG=0`` in the environment switches
            this off, and without a configuration file there is still none.
    """
    return hook_of(Hook, json_config_path, create_if_not_exists)


def _checked_parameters(value: Any) -> Mapping[str, Any] | None:
    if value is None or isinstance(value, Mapping):
        return value
    if isinstance(value, Iterable):  # pairs, as xgboost.train takes them
        try:
            return dict(value)
        except (TypeError, ValueError):
            pass
    raise SMDebugTypeError(
        "hyperparameters must be a dictionary from names to values, or pairs of them, not "
        f"{type(value).__name__}."
    )
