"""The hook as an XGBoost script knows it: a callback of ``xgboost.train`` and its relatives."""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import xgboost
from xgboost import DMatrix, collective
from xgboost.callback import TrainingCallback
from xgboost.core import XGBoostError

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
        self._trainings: list[weakref.ref[Any]] = []
        self._round: _Round | None = None  # the one that is under way
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
        if self._closed:
            log.warning(
                "A hook that was closed, or is a copy of one (as clone and pickle make them), "
                "saves nothing of this training."
            )
        else:
            self._guard.run(self._begin_training, model)
        return model

    def before_iteration(self, model: Any, epoch: int, evals_log: EvalsLog) -> bool:
        """A round begins, and with it a step."""
        if not self._closed:
            self._guard.run(self._begin_round, model, evals_log)
        return False

    def after_iteration(self, model: Any, epoch: int, evals_log: EvalsLog) -> bool:
        """A round is over. It never asks to stop the training."""
        if not self._closed:
            self._guard.run(self._end_round, model, evals_log)
        return False

    def after_training(self, model: Any) -> Any:
        """The training is over: all of it can be read, even before the hook is closed."""
        if not self._closed:
            self._guard.run(self._end_training, model)
            self._guard.meet()
        return model

    def _begin_training(self, model: Any) -> None:
        if collective.is_distributed() and self._worker.count == 1:
            log.warning(
                "The hook was made before xgboost.collective began, so it takes this process for "
                "the only one. Make it within the context of the communicator."
            )
        self._trainings.append(weakref.ref(model))
        self._round = None
        self._adapter.begin_training()

    def _is_watched(self, model: Any) -> bool:
        """Whether it is the training that began last: one that goes on beside it is not saved."""
        if not self._trainings or self._trainings[-1]() in (model, None):
            return True
        self._recorder.note("a training", "another one began with this hook before it was over")
        return False

    def _begin_round(self, model: Any, evals_log: EvalsLog) -> None:
        if self._is_watched(model):
            self._begin_step()
            self._round = _Round(model, evals_log, _rounds(model))

    def _end_round(self, model: Any, evals_log: EvalsLog) -> None:
        if not self._is_watched(model):
            return
        if self._round is None:  # nothing was called before the round, or a training came between
            self._begin_step()
        self._round = None
        self._adapter.end_round(model, evals_log)

    def _end_training(self, model: Any) -> None:
        # XGBoost calls no callback behind one that stops the training: not even after the round.
        # And after the training it may show another model, cut to its best rounds.
        current = self._round
        if current is not None:
            if _rounds(current.model) == current.rounds_before:
                self._round = None
                self._recorder.take_back_step()  # it was stopped before the round
            else:
                self._end_round(current.model, current.evals_log)
        if self._trainings:
            self._trainings.pop()
        if self.step >= 0:
            self._flush()


class _Round(NamedTuple):
    """A round that is under way."""

    model: Any
    evals_log: EvalsLog
    rounds_before: int


def _rounds(model: Any) -> int:
    """How many rounds a model has; -1 if it cannot be trained, which XGBoost will say."""
    try:
        return int(model.num_boosted_rounds())
    except XGBoostError:
        return -1


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
