"""Makes tests/data/mxnet anew: a small trial of a Gluon job, and what MXNet itself said it holds.

    .venv-legacy/bin/python tests/data/make_mxnet_trial.py

Both environments read it, so values saved under MXNet mean the same without MXNet.
"""

import shutil
from pathlib import Path

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon import nn

import tornasole.mxnet as smd

FOLDER = Path(__file__).parent / "mxnet"


class Net(gluon.Block):
    def __init__(self):
        super().__init__(prefix="net_")
        with self.name_scope():
            self.embedding = nn.Embedding(6, 3, sparse_grad=True)
            self.lstm = gluon.rnn.LSTM(4, layout="NTC")
            self.dense = nn.Dense(2)
            self.scale = self.params.get("scale", shape=(2,), dtype="float16", init="ones")

    def forward(self, words):
        hidden = self.dense(self.lstm(self.embedding(words))[:, -1])
        return hidden.astype("float16") * self.scale.data()


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    mx.random.seed(0)
    np.random.seed(0)
    net, loss = Net(), gluon.loss.SoftmaxCrossEntropyLoss()
    net.initialize(mx.init.Xavier())
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    save = smd.SaveConfig(save_interval=1)
    hook = smd.Hook(FOLDER / "trial", save_all=True, save_config=save, on_error="raise")
    hook.register_block(net)
    hook.register_block(loss)
    expected = {}
    words, labels = mx.nd.array([[1, 2, 5], [0, 3, 3]]), mx.nd.array([0, 1])
    for mode in (smd.modes.TRAIN, smd.modes.TRAIN, smd.modes.EVAL):
        hook.set_mode(mode)
        step = hook.step + 1
        for name, parameter in net.collect_params().items():
            if step:  # before the first step some are not initialised
                expected[f"{step} {name}"] = parameter.data().asnumpy()
        with autograd.record(train_mode=mode == smd.modes.TRAIN):
            output = net(words)
            value = loss(output, labels)
        expected[f"{step} net_output_0"] = output.asnumpy()
        expected[f"{step} {loss.name}_output_0"] = value.asnumpy()
        if mode == smd.modes.TRAIN:
            value.backward()
            for name, parameter in net.collect_params().items():
                expected[f"{step} gradient/{name}"] = parameter.grad().asnumpy()
            trainer.step(2)
    hook.close()
    np.savez(FOLDER / "expected.npz", **{key.replace("/", "|"): v for key, v in expected.items()})


if __name__ == "__main__":
    main()
