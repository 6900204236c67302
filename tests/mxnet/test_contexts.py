"""With several contexts a batch is still one step, and what is saved is the first context's."""

import numpy as np
import pytest

mx = pytest.importorskip("mxnet")

from mxnet import autograd, gluon  # noqa: E402
from mxnet.gluon.utils import split_and_load  # noqa: E402

import tornasole.mxnet as smd  # noqa: E402

CONTEXTS = [mx.cpu(0), mx.cpu(1)]


@pytest.fixture(params=[False, True], ids=["plain", "hybridised"])
def net(request):
    net = gluon.nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(gluon.nn.Dense(8, activation="relu", in_units=4), gluon.nn.Dense(3, in_units=8))
    net.initialize(mx.init.Xavier(), ctx=CONTEXTS)
    net.hybridize(request.param)
    return net


@pytest.fixture
def loss():
    return gluon.loss.SoftmaxCrossEntropyLoss(prefix="loss_")


def parts():
    x = mx.nd.random.normal(shape=(6, 4))
    y = mx.nd.random.randint(0, 3, shape=(6,))
    return split_and_load(x, CONTEXTS), split_and_load(y, CONTEXTS)


def forward_all_then_backward_all(net, loss, xs, ys):
    with autograd.record():
        losses = [loss(net(x), y) for x, y in zip(xs, ys, strict=True)]
    for each in losses:
        each.backward()


def backward_together(net, loss, xs, ys):
    with autograd.record():
        losses = [loss(net(x), y) for x, y in zip(xs, ys, strict=True)]
    autograd.backward(losses)


def forward_and_backward_in_turn(net, loss, xs, ys):
    for x, y in zip(xs, ys, strict=True):
        with autograd.record():
            each = loss(net(x), y)
        each.backward()


@pytest.fixture(
    params=[forward_all_then_backward_all, backward_together, forward_and_backward_in_turn]
)
def batch(request):
    return request.param


def test_a_batch_on_several_contexts_is_one_step(record, net, loss, batch):
    def work(hook):
        for _ in range(3):
            batch(net, loss, *parts())
        assert hook.step == 2

    trial = record(net, work, loss)
    assert trial.steps() == [0, 1, 2]


def test_each_context_has_its_inputs_outputs_and_losses(record, net, loss, batch):
    xs, ys = parts()
    trial = record(net, lambda hook: batch(net, loss, xs, ys), loss)
    for i, x in enumerate(xs):
        np.testing.assert_array_equal(trial.tensor(f"net_input_{i}").value(0), x.asnumpy())
    for name in ("net_output", "net_dense0_output", "net_dense1_input", "loss_output"):
        assert trial.tensor_names(regex=f"^{name}_") == [f"{name}_0", f"{name}_1"]
    assert len(trial.tensor_names(collection="predictions")) == 2
    assert len(trial.tensor_names(collection="labels")) == 2


def test_parameters_and_gradients_are_those_of_the_first_context(record, net, loss, batch):
    weights, gradients = [], []
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})

    def work(hook):
        for _ in range(3):
            weights.append(net[0].weight.data(CONTEXTS[0]).asnumpy())
            batch(net, loss, *parts())
            gradients.append(net[0].weight.grad(CONTEXTS[0]).asnumpy())
            trainer.step(6)

    trial = record(net, work, loss)
    for step in range(3):
        found = trial.tensor("net_dense0_weight").value(step)
        np.testing.assert_array_equal(found, weights[step])
        found = trial.tensor("gradient/net_dense0_weight").value(step)
        np.testing.assert_array_equal(found, gradients[step])


def test_a_step_between_saved_ones_is_one_step_too(record, net, loss, batch):
    def work(hook):
        for _ in range(5):
            batch(net, loss, *parts())

    trial = record(net, work, loss, save_config=smd.SaveConfig(save_interval=2))
    assert trial.steps() == [0, 2, 4]
    assert trial.tensor("gradient/net_dense0_weight").steps() == [0, 2, 4]
    assert trial.tensor("net_dense0_output_1").steps() == [0, 2, 4]


def test_training_ends_with_the_same_weights_as_without_a_hook(new_hook, net, loss, batch):
    net.initialize(mx.init.Constant(0.1), ctx=CONTEXTS, force_reinit=True)

    def final():
        mx.random.seed(1)
        for p in net.collect_params().values():
            p.set_data(mx.nd.random.normal(shape=p.shape))
        trainer = gluon.Trainer(net.collect_params(), "adam")
        for _ in range(3):
            batch(net, loss, *parts())
            trainer.step(6)
        return [net[0].weight.data(context).asnumpy() for context in CONTEXTS]

    with new_hook(include_collections=["weights", "gradients"]) as hook:
        hook.register_block(net)
        hook.register_loss(loss)
        with_hook = final()
    np.testing.assert_array_equal(with_hook, final())


def test_evaluation_after_training_takes_its_own_steps(record, net, loss, batch):
    def work(hook):
        hook.set_mode(smd.modes.TRAIN)
        batch(net, loss, *parts())
        hook.set_mode(smd.modes.EVAL)
        for _ in range(2):
            for x in parts()[0]:
                net(x)
        assert hook.mode_steps == {smd.modes.TRAIN: 0, smd.modes.EVAL: 1, smd.modes.GLOBAL: 2}

    trial = record(net, work, loss)
    assert trial.tensor("net_output_1").steps(mode=smd.modes.EVAL) == [0, 1]


def test_evaluation_on_another_context_is_a_new_step_even_without_modes(record, net, loss):
    def work(hook):
        x, y = mx.nd.ones((5, 4)), mx.nd.zeros(5)
        with autograd.record():
            value = loss(net(x), y)
        value.backward()
        net(x.as_in_context(CONTEXTS[1]))
        assert hook.step == 1

    trial = record(net, work, loss)
    assert trial.tensor("net_output_0").steps() == [0, 1]


def test_evaluation_on_one_context_between_batches_on_two(record, net, loss, batch):
    def work(hook):
        for _ in range(2):
            batch(net, loss, *parts())
            net(mx.nd.ones((5, 4)))
        assert hook.step == 3

    trial = record(net, work, loss)
    assert trial.tensor("net_output_1").steps() == [0, 2]
    assert trial.tensor("net_output_0").steps() == [0, 1, 2, 3]


def test_a_net_on_another_context_than_the_default_one_is_saved(record, train):
    net = gluon.nn.Dense(3, in_units=4, prefix="dense_")
    net.initialize(ctx=mx.cpu(1))
    x = mx.nd.ones((5, 4), ctx=mx.cpu(1))

    def work(hook):
        with mx.cpu(1):
            train(net, 2, x=x)

    trial = record(net, work)
    gradient = net.weight.grad(mx.cpu(1)).asnumpy()
    np.testing.assert_array_equal(trial.tensor("gradient/dense_weight").value(1), gradient)
