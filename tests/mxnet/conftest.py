"""What tests of the MXNet room may ask for: a place, hooks, a trial, a net to train.

Without mxnet this file must still load: the tests skip themselves.
"""

import logging
from pathlib import Path

import pytest

try:
    import mxnet as mx
    import numpy as np
    from mxnet import autograd, gluon
    from mxnet.base import _LIB

    import tornasole.mxnet as smd

    BACKWARD = _LIB.MXAutogradBackwardEx
except ModuleNotFoundError as error:
    if error.name != "mxnet":
        raise


@pytest.fixture(autouse=True)
def alone():
    """No hook from another test, the same random numbers, and Gluon's names counted from 0."""
    smd.del_hook()
    smd.reset_collections()
    mx.random.seed(0)
    np.random.seed(0)  # Gluon's initialisers use it
    with mx.name.NameManager():
        yield
    smd.del_hook()
    left = _LIB.MXAutogradBackwardEx
    _LIB.MXAutogradBackwardEx = BACKWARD
    assert left is BACKWARD


@pytest.fixture
def out_dir(tmp_path) -> Path:
    return tmp_path / "trial"


@pytest.fixture
def new_hook(out_dir):
    """Makes hooks that save at every step and raise their faults, and closes them at the end."""
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


@pytest.fixture
def record(new_hook, read):
    """Calls a function with a hook that saves all of a net, and returns the trial."""

    def run(net, work, loss=None, **options):
        hook = new_hook(**{"save_all": True, **options})
        hook.register_block(net)
        if loss is not None:
            hook.register_loss(loss)
        work(hook)
        hook.close()
        return read()

    return run


@pytest.fixture
def new_net():
    """Makes nets with the names ``net_dense0``, ``net_batchnorm0``, ``net_dense1``."""

    def make(hybridised=False, **options):
        net = gluon.nn.HybridSequential(prefix="net_")
        with net.name_scope():
            net.add(gluon.nn.Dense(8, activation="relu", in_units=4))
            net.add(gluon.nn.BatchNorm(in_channels=8))
            net.add(gluon.nn.Dense(3, in_units=8))
        net.initialize(mx.init.Xavier())
        if hybridised:
            net.hybridize(**options)
        return net

    return make


@pytest.fixture
def net(new_net):
    return new_net()


@pytest.fixture
def train():
    """Trains a net for some steps; what it computes depends on nothing but the seed."""

    def run(net, steps=1, loss=None, trainer=None, x=None, after=lambda: None):
        loss = loss or gluon.loss.SoftmaxCrossEntropyLoss()
        for _ in range(steps):
            data = mx.nd.random.normal(shape=(5, 4)) if x is None else x
            label = mx.nd.random.randint(0, 3, shape=(len(data),))
            with autograd.record():
                value = loss(net(data), label)
            value.backward()
            after()
            if trainer is None:  # not sooner: nets may be initialised by their first call
                trainer = gluon.Trainer(
                    net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9}
                )
            trainer.step(len(data))

    return run


@pytest.fixture
def attached():
    """What of anybody's hangs on blocks and on MXNet's library, and does something."""

    def find(*nets):
        found = []

        def look(block):
            for kind in ("_forward_pre_hooks", "_forward_hooks"):
                callbacks = getattr(block, kind).values()
                alive = [each for each in callbacks if not getattr(each, "silenced", False)]
                found.extend([f"{block.name}: {kind}"] * len(alive))
            if "forward" in block.__dict__:
                found.append(f"{block.name}: forward")

        for net in nets:
            net.apply(look)
        return found + ["backward"] * (_LIB.MXAutogradBackwardEx is not BACKWARD)

    return find


@pytest.fixture
def warnings_of(caplog):
    """The messages logged so far."""
    caplog.set_level(logging.WARNING, "tornasole")
    return lambda: [record.getMessage() for record in caplog.records]
