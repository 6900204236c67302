"""MXNet keeps the contract of adapters."""

import numpy as np
import pytest

mx = pytest.importorskip("mxnet")

from mxnet import autograd, gluon  # noqa: E402

import tornasole.mxnet as smd  # noqa: E402
from tornasole.testing import AdapterContract  # noqa: E402


class Job:
    def __init__(self, attached, hybridised):
        self._random = np.random.RandomState(0)
        np.random.seed(0)
        mx.random.seed(0)
        self._net = gluon.nn.HybridSequential(prefix="net_")
        with self._net.name_scope():
            self._net.add(gluon.nn.Dense(8, activation="tanh", in_units=4))
            self._net.add(gluon.nn.Dense(3, in_units=8))
        self._net.initialize(mx.init.Xavier())
        self._loss = gluon.loss.SoftmaxCrossEntropyLoss(prefix="loss_")
        if hybridised:
            self._net.hybridize()
            self._loss.hybridize()
        self._trainer = gluon.Trainer(
            self._net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9}
        )
        self._attached = attached
        self._seen = {}

    def hook(self, out_dir, **options):
        hook = smd.Hook(out_dir, **options)
        hook.register_block(self._net)
        hook.register_loss(self._loss)
        return hook

    def train(self, steps):
        for _ in range(steps):
            x = mx.nd.array(self._random.randn(5, 4))
            y = mx.nd.array(self._random.randint(0, 3, 5))
            weight = self._net[0].weight
            self._seen = {"net_dense0_weight": weight.data().asnumpy(), "net_input_0": x.asnumpy()}
            with autograd.record():
                output = self._net(x)
                loss = self._loss(output, y)
            loss.backward()
            self._seen |= {
                "net_output_0": output.asnumpy(),
                "loss_output_0": loss.asnumpy(),
                "loss_input_1": y.asnumpy(),
                "gradient/net_dense0_weight": weight.grad().asnumpy(),
            }
            self._trainer.step(5)

    def seen(self):
        return self._seen

    def result(self):
        parameters = self._net.collect_params().values()
        return np.concatenate([p.data().asnumpy().ravel() for p in parameters])

    def attached(self):
        return self._attached(self._net, self._loss)


class TestMXNet(AdapterContract):
    @pytest.fixture(params=[False, True], ids=["plain", "hybridised"])
    def job(self, attached, request):
        return lambda: Job(attached, request.param)
