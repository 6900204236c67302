"""A hook with nothing to save as a callback of ``fit``: batches as fast as without it."""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

from benchmarks.measuring import Result, clock, scratch, step_time_with_idle_hook
from tornasole.tensorflow import KerasHook, SaveConfig

FRAMEWORKS = ("keras", "tensorflow")

_LAYERS, _WIDTH, _BATCH, _BATCHES = 60, 256, 256, 8


class _Clock(keras.callbacks.Callback):
    """In both runs, so that both have a callback."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[float] = []

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        self.ends.append(clock())


class _Training:
    def __init__(self) -> None:
        layers = keras.layers
        self.model = keras.Sequential(
            [layers.Input((_WIDTH,))]
            + [layers.Dense(_WIDTH, activation="relu") for _ in range(_LAYERS - 1)]
            + [layers.Dense(10)]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self.model.compile("sgd", loss, metrics=["accuracy"])
        self._inputs = np.ones((_BATCH * _BATCHES, _WIDTH), np.float32)
        self._labels = np.zeros(_BATCH * _BATCHES, np.int32)

    def timed_steps(self, *callbacks: object) -> list[float]:
        times = _Clock()
        data = self._inputs, self._labels
        self.model.fit(*data, batch_size=_BATCH, verbose=0, callbacks=[*callbacks, times])
        return np.diff(times.ends).tolist()


def measure() -> list[Result]:
    training = _Training()
    training.timed_steps()
    with scratch() as folder:

        def with_hook(number: int) -> list[float]:
            with _idle_hook(folder / str(number)) as hook:
                return training.timed_steps(hook)

        return [step_time_with_idle_hook(with_hook, training.timed_steps, bound=1.02)]


def _idle_hook(folder: Path) -> KerasHook:
    return KerasHook(
        folder,
        save_config=SaveConfig(start_step=10**9),
        include_collections=["weights", "biases", "gradients", "layers"],
        save_all=True,
        on_error="raise",
    )
