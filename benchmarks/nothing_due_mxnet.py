"""A hook with nothing to save on a hybridised ResNet-18: a training step as fast as without it."""

from __future__ import annotations

from pathlib import Path

import mxnet as mx
from mxnet import autograd, gluon
from mxnet.gluon.model_zoo import vision

from benchmarks.measuring import Result, clock, scratch, step_time_with_idle_hook
from tornasole.mxnet import Hook, SaveConfig

_STEPS = 3  # in a block, after one that is not counted
_IMAGES, _SIZE, _CLASSES = 8, 96, 10


class _Training:
    """ResNet-18 as the model zoo has it (11 million parameters), on random images."""

    def __init__(self) -> None:
        self.net = vision.resnet18_v1(classes=_CLASSES)
        self.net.initialize()
        self.net.hybridize()
        self.loss = gluon.loss.SoftmaxCrossEntropyLoss()
        self._trainer = gluon.Trainer(self.net.collect_params(), "sgd", {"learning_rate": 0.01})
        self._images = mx.nd.random.normal(shape=(_IMAGES, 3, _SIZE, _SIZE))
        self._labels = mx.nd.arange(_IMAGES) % _CLASSES

    def timed_steps(self, count: int) -> list[float]:
        times = []
        for _ in range(count):
            start = clock()
            with autograd.record():
                loss = self.loss(self.net(self._images), self._labels)
            loss.backward()
            self._trainer.step(_IMAGES)
            mx.nd.waitall()  # MXNet only queues the work; a step is over when its results are there
            times.append(clock() - start)
        return times


def measure() -> list[Result]:
    training = _Training()
    training.timed_steps(3)
    with scratch() as folder:

        def with_hook(number: int) -> list[float]:
            with _idle_hook(folder / str(number)) as hook:
                hook.register_block(training.net)
                hook.register_block(training.loss)
                return training.timed_steps(1 + _STEPS)[1:]

        return [
            step_time_with_idle_hook(
                with_hook, lambda: training.timed_steps(1 + _STEPS)[1:], bound=1.02
            )
        ]


def _idle_hook(folder: Path) -> Hook:
    return Hook(
        folder,
        save_config=SaveConfig(start_step=10**9),
        include_collections=["weights", "biases", "gradients", "outputs"],
        save_all=True,
        on_error="raise",
    )
