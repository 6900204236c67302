"""The hook as a Keras script knows it: a callback for ``fit``, ``evaluate`` and ``predict``."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import keras

from tornasole.capture.layers import LayerHook
from tornasole.capture.recorder import asked_for
from tornasole.errors import SMDebugRuntimeError
from tornasole.selection import CollectionKeys
from tornasole.tensorflow.collection import Collection
from tornasole.tensorflow.fitting import FitAdapter, items_of_logs
from tornasole.tensorflow.models import replicas_of
from tornasole.tensorflow.replicas import ReplicaHook
from tornasole.tensorflow.tensors import BACKEND, KerasTensors
from tornasole.types import ModeKeys, Role

_COLLECTIONS = {Role.LOSS: CollectionKeys.LOSSES, Role.METRIC: CollectionKeys.METRICS}


class KerasHook(LayerHook, keras.callbacks.Callback):  # type: ignore[misc]
    """Saves tensors of Keras models, on any backend of Keras: pass it as a callback.

    A step is one batch of ``fit``, ``evaluate`` or ``predict``, each in its mode. Weights are saved
    as the batch finds them.

    Takes the arguments of ``tornasole.Hook``.
    """

    framework = "tensorflow"
    collection_class = Collection
    _adapter: FitAdapter

    def __init__(self, out_dir: str | os.PathLike[str], *args: Any, **kwargs: Any) -> None:
        keras.callbacks.Callback.__init__(self)
        self._supports_tf_logs = True  # Keras 2 need not convert its logs for us on every batch
        super().__init__(out_dir, *args, **kwargs)

    def _connect(self) -> None:
        self._adapter = FitAdapter(self._recorder, self._guard, self._begin_step)
        self._replicas: list[ReplicaHook] = []
        self._tapes: Any = None
        if BACKEND == "tensorflow":
            from tornasole.tensorflow.tape import TapeAdapter

            self._tapes = TapeAdapter(self._recorder, self._guard, self._begin_step)
            self._adapter.others_find = self._find_elsewhere

    def _find_elsewhere(self, layer: Any, inputs: bool, outputs: bool) -> list[str] | None:
        found: list[str] | None = self._tapes.patterns(layer, inputs, outputs)
        return found

    def _detach(self) -> None:
        super()._detach()
        if self._tapes is not None:
            self._tapes.detach()

    # -- loops written by hand ---------------------------------------------------------------------

    def wrap_tape(self, tape: Any) -> Any:
        """Makes each entering of a ``tf.GradientTape`` a step; returns the tape.

        In a ``train_step`` that ``fit`` runs, the batch is the step already.
        """
        if not (self._stands_aside or self._adapter.batch_runs):
            self._with_tapes("wrap_tape").wrap_tape(tape)
        return tape

    def wrap_optimizer(self, optimizer: Any) -> Any:
        """Watches an optimizer's variables, and gradients that no tape shows; returns it.

        ``fit`` needs none of this: there a model's own optimizer is watched.
        """
        if not self._stands_aside and (
            BACKEND == "tensorflow" or not isinstance(optimizer, keras.optimizers.Optimizer)
        ):
            self._with_tapes("wrap_optimizer").wrap_optimizer(optimizer)
        return optimizer

    def register_model(self, model: Any) -> None:
        """Watches a model's weights and layers in the steps of wrapped tapes."""
        if not self._stands_aside:
            self._with_tapes("register_model").register_model(model)

    def add_to_collection(self, collection_name: str, variable: Any) -> None:
        """The same as ``get_collection(collection_name).add(variable)``."""
        self.get_collection(collection_name).add(variable)

    def record_tensor_value(self, tensor_name: str, tensor_value: Any) -> None:
        """The older name of ``save_tensor``."""
        self.save_tensor(tensor_name, tensor_value)

    def _with_tapes(self, asked: str) -> Any:
        if self._tapes is None:
            raise SMDebugRuntimeError(
                f"{asked} is for loops with tf.GradientTape, and Keras runs on {BACKEND} here; "
                "pass the hook to fit as a callback."
            )
        return self._tapes

    def _tensors(self) -> tuple[KerasTensors, ...]:
        return (KerasTensors(),)

    def _versions(self) -> dict[str, str]:
        return {"keras": keras.__version__, "backend": BACKEND}

    # -- what Keras calls --------------------------------------------------------------------------

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        if not self._stands_aside:
            self._guard.run(self._watch, model)

    def _watch(self, model: Any) -> None:
        self._adapter.watch(model)
        count = replicas_of(model)
        if count > 1 and self.include_workers == "all" and not self._replicas:
            self._worker = dataclasses.replace(self._worker, count=count)
            if self._writer is not None:
                self._writer.amend(self._about())
            self._replicas = [ReplicaHook(self, rank, count) for rank in range(1, count)]
            self._adapter.replicas = self._replicas

    def _close(self, error: BaseException | None) -> None:
        super()._close(error)
        for replica in self._replicas:
            replica._close(error)

    def _current_model(self) -> Any:
        return self.model  # on JAX this brings the model's variables up to date: not for nothing

    def _begin(self, kind: Any) -> None:
        if not self._closed:
            self._guard.run(self._adapter.begin, kind)

    def _begin_batch(self, kind: Any) -> None:
        if not self._closed:
            self._guard.run(self._adapter.begin_batch, kind, self._current_model)

    def _end_batch(self, kind: Any, logs: Mapping[str, Any] | None) -> None:
        if not self._closed:
            self._guard.run(self._adapter.end_batch, kind, self._current_model, logs or {})

    def _end(self, *args: Any) -> None:
        if not self._closed:
            self._guard.run(self._adapter.end)

    def on_train_begin(self, logs: Any = None) -> None:
        self._begin("train")

    def on_test_begin(self, logs: Any = None) -> None:
        self._begin("test")

    def on_predict_begin(self, logs: Any = None) -> None:
        self._begin("predict")

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._begin_batch("train")

    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._begin_batch("test")

    def on_predict_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._begin_batch("predict")

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._end_batch("train", logs)

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self._end_batch("test", logs)

    def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
        self._end_batch("predict", None)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """What Keras reports of a whole epoch is saved at its last step, due or not.

        If that is one of validation, only what belongs to validation.
        """
        self._end()
        if not self._closed:
            self._guard.run(self._save_logs, logs)

    def on_test_end(self, logs: Any = None) -> None:
        self._end()

    def on_predict_end(self, logs: Any = None) -> None:
        self._end()

    def on_train_end(self, logs: Any = None) -> None:
        self._end()

    def _save_logs(self, logs: Mapping[str, Any] | None) -> None:
        validated = self.mode is not ModeKeys.TRAIN  # the open step is one of validation
        for name, role, value in items_of_logs(logs):
            if validated and not name.startswith("val_"):
                continue
            collection = _COLLECTIONS[role]
            if self._is_saved_ever(collection):
                form = asked_for(self._and_all([collection]), True, frozenset())
                for hook in (self, *self._replicas):
                    hook._recorder.save(name, role, value, form)

    def _is_saved_ever(self, name: str) -> bool:
        if not self._included & {name, CollectionKeys.ALL}:
            return False
        config = self._plan.save_config_of(self._collections[name])
        mode = config.get_save_config(self.mode)
        return mode.end_step != 0 or bool(mode.save_steps)
