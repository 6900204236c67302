"""Losses: of Gluon's blocks, of one's own, inside the net and outside."""

import numpy as np
import pytest

mx = pytest.importorskip("mxnet")

from mxnet import autograd, gluon  # noqa: E402

import tornasole.mxnet as smd  # noqa: E402
from tornasole.errors import SMDebugTypeError, SMDebugValueError  # noqa: E402


@pytest.fixture
def model():
    net = gluon.nn.Dense(2, in_units=2, prefix="dense_")
    net.initialize()
    return net


def apply(model, loss):
    """A step; returns what the loss was."""
    with autograd.record():
        value = loss(model(mx.nd.random.normal(shape=(3, 2))), mx.nd.zeros((3, 2)))
    value.backward()
    return value.asnumpy()


@pytest.mark.parametrize("hybridised", [False, True])
@pytest.mark.parametrize("registered_as", ["register_loss", "register_block", "register_hook"])
def test_a_loss_is_saved_whole_one_number_for_each_sample(
    new_hook, read, model, hybridised, registered_as
):
    hook, loss = new_hook(), gluon.loss.L2Loss()
    loss.hybridize(hybridised)
    hook.register_block(model)
    getattr(hook, registered_as)(loss)
    seen = [apply(model, loss) for _ in range(3)]
    hook.close()
    trial = read()
    assert trial.tensor_names() == ["l2loss0_output_0"]
    assert trial.tensor_names(collection="losses") == ["l2loss0_output_0"]
    for step, value in enumerate(seen):
        assert value.shape == (3,)
        np.testing.assert_array_equal(trial.tensor("l2loss0_output_0").value(step), value)


@pytest.mark.parametrize("hybridised", [False, True])
def test_a_loss_has_a_prediction_a_label_and_the_rest(record, model, hybridised):
    loss = gluon.loss.L2Loss(prefix="loss_")
    loss.hybridize(hybridised)

    def work(hook):
        loss(model(mx.nd.ones((3, 2))), mx.nd.zeros((3, 2)), mx.nd.full((3, 1), 2))

    trial = record(model, work, loss)
    assert trial.tensor_names(collection="predictions") == ["loss_input_0"]
    assert trial.tensor_names(collection="labels") == ["loss_input_1"]
    assert trial.tensor("loss_input_2").value(0).tolist() == [[2], [2], [2]]


def test_losses_are_whole_even_where_everything_else_is_reduced(record, model):
    loss = gluon.loss.L2Loss(prefix="loss_")
    config = smd.ReductionConfig(reductions=["mean"])
    trial = record(
        model, lambda hook: apply(model, loss), loss, save_all=False, reduction_config=config
    )
    assert trial.tensor("loss_output_0").value(0).shape == (3,)


class Mine(gluon.Block):
    """A loss that derives from nothing but Block, and returns two."""

    def forward(self, prediction, target):
        error = prediction - target
        return error.square().mean(), error.abs().mean()


def test_a_loss_of_ones_own_may_return_several(record, model):
    loss = Mine(prefix="mine_")

    def work(hook):
        work.result = loss(model(mx.nd.ones((3, 2))), mx.nd.zeros((3, 2)))

    trial = record(model, work, loss, save_all=False)
    assert trial.tensor_names(collection="losses") == ["mine_output_0", "mine_output_1"]
    for i, value in enumerate(work.result):
        assert trial.tensor(f"mine_output_{i}").value(0) == value.asscalar()


def test_a_loss_called_twice_in_a_step_counts_on(record, model):
    loss = gluon.loss.L1Loss(prefix="loss_")

    def work(hook):
        output = model(mx.nd.ones((3, 2)))
        loss(output, output)
        loss(output, output + 2)

    trial = record(model, work, loss)
    assert trial.tensor("loss_output_0").value(0).tolist() == [0, 0, 0]
    assert trial.tensor("loss_output_1").value(0).tolist() == [2, 2, 2]


def test_two_losses_with_one_prefix_keep_apart(new_hook, read, model):
    hook = new_hook()
    hook.register_block(model)
    losses = [gluon.loss.L1Loss(prefix="loss_"), gluon.loss.L2Loss(prefix="loss_")]
    for loss in losses:
        hook.register_loss(loss)
    output = model(mx.nd.ones((3, 2)))
    for loss in losses:
        loss(output, output + 4)
    hook.close()
    assert read().tensor("loss_output_0").value(0).tolist() == [4, 4, 4]
    assert read().tensor("loss_1_output_0").value(0).tolist() == [8, 8, 8]


# -- inside the net --------------------------------------------------------------------------------


class WithLoss(gluon.HybridBlock):
    def __init__(self, loss):
        super().__init__(prefix="net_")
        with self.name_scope():
            self.fc = gluon.nn.Dense(2, in_units=2)
        self.loss = loss

    def hybrid_forward(self, F, x, y):
        return self.loss(self.fc(x), y)


@pytest.mark.parametrize(
    ("hybridised", "registered"),
    [(False, False), (False, True), (True, False), (True, True)],
)
def test_a_loss_inside_the_net_is_a_loss(record, hybridised, registered):
    net = WithLoss(gluon.loss.L2Loss(prefix="loss_"))
    net.initialize()
    net.hybridize(hybridised)
    seen = []

    def work(hook):
        for _ in range(2):
            with autograd.record():
                value = net(mx.nd.ones((3, 2)), mx.nd.zeros((3, 2)))
            value.backward()
            seen.append(value.asnumpy())

    trial = record(net, work, net.loss if registered else None, save_all=False)
    assert trial.tensor_names(collection="losses") == ["loss_output_0"]
    for step, value in enumerate(seen):
        np.testing.assert_array_equal(trial.tensor("loss_output_0").value(step), value)


def test_a_block_inside_the_net_may_be_registered_as_its_loss(record):
    class Squares(gluon.HybridBlock):
        def hybrid_forward(self, F, x, y):
            return (x - y).square()

    net = WithLoss(Squares(prefix="squares_"))
    net.initialize()
    trial = record(
        net, lambda hook: net(mx.nd.ones((3, 2)), mx.nd.ones((3, 2))), net.loss, save_all=False
    )
    assert trial.tensor_names() == ["squares_output_0"]


# -- steps -----------------------------------------------------------------------------------------


def test_a_loss_follows_the_schedule(record, model):
    loss = gluon.loss.L2Loss(prefix="loss_")
    config = smd.SaveConfig(save_interval=2)
    trial = record(
        model, lambda hook: [apply(model, loss) for _ in range(5)], loss, save_config=config
    )
    assert trial.tensor("loss_output_0").steps() == [0, 2, 4]


def test_one_backward_pass_after_two_calls_is_that_of_the_step_that_is_due(record, model):
    loss, seen = gluon.loss.L2Loss(prefix="loss_"), []

    def work(hook):
        for _ in range(2):
            with autograd.record():
                first, second = (model(mx.nd.random.normal(shape=(3, 2))) for _ in range(2))
                value = loss(first, second)
            value.backward()
            seen.append((value.asnumpy(), model.weight.grad().asnumpy()))

    trial = record(model, work, loss, save_config=smd.SaveConfig(save_interval=2))
    assert trial.tensor("loss_output_0").steps() == [0, 2]
    assert trial.tensor("gradient/dense_weight").steps() == [0, 2]
    for step, (value, gradient) in zip((0, 2), seen, strict=True):
        np.testing.assert_array_equal(trial.tensor("loss_output_0").value(step), value)
        np.testing.assert_array_equal(trial.tensor("gradient/dense_weight").value(step), gradient)


def test_a_backward_pass_that_never_comes_does_not_pass_for_a_later_one(record, model):
    def work(hook):
        with autograd.record():
            model(mx.nd.ones((3, 2)))
        for _ in range(40):
            with autograd.record():
                value = model(mx.nd.ones((3, 2))).sum()
        value.backward()

    trial = record(model, work, save_config=smd.SaveConfig(save_interval=100))
    assert trial.steps() == [0]
    assert trial.tensor_names(collection="gradients") == []


def test_a_loss_before_the_first_step_is_no_trouble(new_hook, read, model):
    hook, loss = new_hook(), gluon.loss.L2Loss()
    hook.register_block(model)
    hook.register_loss(loss)
    loss(mx.nd.ones((3, 2)), mx.nd.ones((3, 2)))
    hook.close()
    assert read().tensor_names() == []


def test_a_loss_handed_over_by_hand_is_a_loss(record, model):
    def work(hook):
        for _ in range(2):
            value = model(mx.nd.ones((3, 2))).sum()
            hook.save_tensor("mine", value, "losses")
            work.last = value.asscalar()

    trial = record(model, work, save_all=False)
    assert trial.tensor_names(collection="losses") == ["mine"]
    assert trial.tensor("mine").value(1) == work.last


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [gluon.loss.L2Loss, None, mx.nd.ones(1), lambda x, y: x - y])
def test_only_a_block_can_be_registered_as_loss(new_hook, bad):
    with pytest.raises(SMDebugTypeError, match="register_loss"):
        new_hook().register_loss(bad)


@pytest.mark.parametrize("again", ["register_loss", "register_block"])
def test_a_loss_is_registered_once(new_hook, again):
    hook, loss = new_hook(), gluon.loss.L2Loss()
    hook.register_loss(loss)
    with pytest.raises(SMDebugValueError, match="l2loss0"):
        getattr(hook, again)(loss)
