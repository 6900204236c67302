"""What is saved is what MXNet computed, bit for bit, at the moment it is named after."""

import numpy as np
import pytest

mx = pytest.importorskip("mxnet")

from mxnet import autograd, gluon  # noqa: E402

import tornasole.mxnet as smd  # noqa: E402

nn, rnn = gluon.nn, gluon.rnn
PARAMETERS = ["weights", "biases", "buffers", "gradients"]


def assert_same(trial, name, value, step=0):
    found = trial.tensor(name).value(step)
    assert found.shape == value.shape
    np.testing.assert_array_equal(found, value, err_msg=f"{name} at step {step}")


def weights_of(net):
    return {name: p.data().asnumpy() for name, p in net.collect_params().items()}


def gradients_of(net):
    parameters = net.collect_params().items()
    return {name: p.grad().asnumpy() for name, p in parameters if p.grad_req != "null"}


# -- nets ------------------------------------------------------------------------------------------


def dense():
    net = nn.HybridSequential()
    net.add(nn.Dense(8, activation="relu"), nn.Dense(3))
    return net, mx.nd.random.normal(shape=(5, 4))


def convolutional():
    net = nn.HybridSequential()
    net.add(nn.Conv2D(4, 3), nn.BatchNorm(), nn.Activation("relu"), nn.GlobalAvgPool2D())
    net.add(nn.Flatten(), nn.Dense(3))
    return net, mx.nd.random.normal(shape=(5, 2, 8, 8))


def lstm():
    net = nn.HybridSequential()
    net.add(rnn.LSTM(6, num_layers=2, layout="NTC"), nn.Dense(3))
    return net, mx.nd.random.normal(shape=(5, 7, 4))


class Cells(gluon.Block):
    """Unrolls a cell by hand, as scripts do: not hybrid itself, but its parts are."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.cell, self.out = rnn.LSTMCell(6), nn.Dense(3)

    def forward(self, x):
        state = self.cell.begin_state(len(x))
        for t in range(x.shape[1]):
            y, state = self.cell(x[:, t], state)
        return self.out(y)


def cells():
    return Cells(), mx.nd.random.normal(shape=(5, 3, 4))


def embedding():
    net = nn.HybridSequential()
    net.add(nn.Embedding(11, 6), nn.Dense(3))
    return net, mx.nd.array([[1, 2], [3, 3], [10, 0], [1, 1], [5, 6]])


@pytest.fixture(params=[dense, convolutional, lstm, cells, embedding])
def made(request):
    net, x = request.param()
    net.initialize(mx.init.Xavier())
    net(x)  # finishes deferred initialisation, so that every weight can be looked at
    return net, x


@pytest.mark.parametrize("hybridised", [False, True])
@pytest.mark.parametrize("options", [{}, {"save_all": False, "include_collections": PARAMETERS}])
def test_parameters_are_those_of_the_forward_and_gradients_those_of_the_backward_pass(
    record, train, made, hybridised, options
):
    net, x = made
    weights, gradients = [], []
    if hybridised:
        net.hybridize()

    def work(hook):
        for _ in range(3):
            weights.append(weights_of(net))
            train(net, x=x, trainer=trainer, after=lambda: gradients.append(gradients_of(net)))

    trainer = gluon.Trainer(net.collect_params(), "adam")
    trial = record(net, work, **options)
    assert trial.steps() == [0, 1, 2]
    for step in range(3):
        for name, value in weights[step].items():
            assert_same(trial, name, value, step)
        for name, value in gradients[step].items():
            assert_same(trial, f"gradient/{name}", value, step)


@pytest.mark.parametrize("hybridised", [False, True])
def test_weights_changed_by_hand_are_followed(record, new_net, hybridised):
    net, weights, gradients = new_net(hybridised), [], []

    def work(hook):
        for _ in range(3):
            weights.append(weights_of(net))
            with autograd.record():
                loss = net(mx.nd.random.normal(shape=(5, 4))).square().sum()
            loss.backward()
            gradients.append(gradients_of(net))
            for p in net.collect_params().values():
                if p.grad_req != "null":
                    p.set_data(p.data() - 0.1 * p.grad())

    trial = record(net, work)
    for step in range(3):
        for name, value in weights[step].items():
            assert_same(trial, name, value, step)
        for name, value in gradients[step].items():
            assert_same(trial, f"gradient/{name}", value, step)


def test_inputs_outputs_and_losses_are_those_that_were_seen(record, net):
    loss, seen = gluon.loss.L2Loss(), []

    def work(hook):
        for _ in range(2):
            x = mx.nd.random.normal(shape=(5, 4))
            hidden = net[0](x)  # not the net: no step
            with autograd.record():
                y = net(x)
                value = loss(y, mx.nd.zeros((5, 3)))
            value.backward()
            seen.append({
                "net_input_0": x, "net_dense0_output_0": hidden, "net_batchnorm0_input_0": hidden,
                "net_output_0": y, "net_dense1_output_0": y, "l2loss0_output_0": value,
            })  # fmt: skip

    trial = record(net, work, loss)
    for step, tensors in enumerate(seen):
        for name, value in tensors.items():
            assert_same(trial, name, value.asnumpy(), step)


# -- backward passes -------------------------------------------------------------------------------


@pytest.mark.parametrize("zero", ["before forward", "before backward", "after step", "never"])
def test_gradients_that_accumulate_are_saved_as_they_add_up(record, net, zero):
    net.collect_params().setattr("grad_req", "add")
    seen = []

    def work(hook):
        for step in range(4):
            if zero == "before forward" and step % 2 == 0:
                net.collect_params().zero_grad()
            with autograd.record():
                loss = net(mx.nd.random.normal(shape=(5, 4))).square().sum()
            if zero == "before backward" and step % 2 == 0:
                net.collect_params().zero_grad()
            loss.backward()
            seen.append(gradients_of(net))
            if zero == "after step" and step % 2:
                net.collect_params().zero_grad()

    trial = record(net, work)
    for step, gradients in enumerate(seen):
        for name, value in gradients.items():
            assert_same(trial, f"gradient/{name}", value, step)


def by_the_loss(losses):
    for loss in losses:
        loss.backward()


@pytest.mark.parametrize("backward", [by_the_loss, autograd.backward])
def test_every_way_to_run_a_backward_pass_is_seen(record, net, backward):
    def work(hook):
        with autograd.record():
            loss = net(mx.nd.random.normal(shape=(5, 4))).square().sum()
        backward([loss])

    trial = record(net, work)
    for name, value in gradients_of(net).items():
        assert_same(trial, f"gradient/{name}", value)


def test_of_two_backward_passes_in_a_step_the_last_one_counts(record, net):
    def work(hook):
        with autograd.record():
            output = net(mx.nd.random.normal(shape=(5, 4)))
            first, second = output[0].sum(), output[1].sum()
        first.backward(retain_graph=True)
        second.backward()

    trial = record(net, work)
    assert_same(trial, "gradient/net_dense0_weight", net[0].weight.grad().asnumpy())


def test_autograd_grad_returns_the_same_and_saves_nothing(record, net):
    weight = net[0].weight.data()

    def taken():
        with autograd.record():
            loss = net(mx.nd.ones((5, 4))).square().sum()
        return autograd.grad(loss, [weight])[0].asnumpy()

    def work(hook):
        work.found = taken()

    trial = record(net, work)
    np.testing.assert_array_equal(work.found, taken())
    assert trial.tensor_names(collection="gradients") == []
    assert "net_output_0" in trial.tensor_names()


def test_autograd_grad_before_a_backward_pass_does_not_stand_in_for_it(record, net):
    def work(hook):
        with autograd.record():
            loss = net(mx.nd.ones((5, 4))).square().sum()
        autograd.grad(loss, [net[0].weight.data()], retain_graph=True)
        loss.backward()

    trial = record(net, work)
    assert_same(trial, "gradient/net_dense1_weight", net[2].weight.grad().asnumpy())


def test_a_frozen_parameter_is_saved_without_gradient(record, net, train):
    net[0].weight.grad_req = "null"
    trial = record(net, lambda hook: train(net, 2))
    assert trial.tensor("net_dense0_weight").steps() == [0, 1]
    assert "gradient/net_dense0_weight" not in trial.tensor_names()
    assert trial.tensor("gradient/net_dense0_bias").steps() == [0, 1]


def test_a_parameter_that_the_loss_does_not_reach_has_no_gradient(record, net):
    def work(hook):
        for whole in (True, False):
            with autograd.record():
                output = net(mx.nd.ones((5, 4)))
                loss = (output if whole else net[0](mx.nd.ones((5, 4)))).sum()
            loss.backward()

    trial = record(net, work)
    assert trial.tensor("gradient/net_dense0_bias").steps() == [0, 1]
    assert trial.tensor("gradient/net_dense1_bias").steps() == [0]


def test_the_backward_pass_of_something_else_is_not_saved(record, net):
    other = mx.nd.ones(3)
    other.attach_grad()

    def work(hook):
        with autograd.record():
            net(mx.nd.ones((5, 4)))
            loss = (other * 2).sum()
        loss.backward()

    trial = record(net, work)
    assert trial.tensor_names(collection="gradients") == []
    assert other.grad.asnumpy().tolist() == [2, 2, 2]


# -- Trainer's check of stale gradients ------------------------------------------------------------


def with_and_without(new_hook, new_net, work):
    """Runs work on a net of its own with and without a hook, and returns both results."""
    results = []
    for hook in (None, new_hook(save_all=True)):
        mx.random.seed(0)
        np.random.seed(0)
        net = new_net()
        if hook is not None:
            hook.register_block(net)
        results.append(work(net))
    return results


def test_a_stale_gradient_is_refused_as_without_a_hook(new_hook, new_net):
    def work(net):
        trainer = gluon.Trainer(net.collect_params(), "sgd")
        with autograd.record():
            loss = net(mx.nd.ones((5, 4))).sum()
        loss.backward()
        trainer.step(5)
        with pytest.raises(UserWarning, match="has not been updated by backward") as error:
            trainer.step(5)
        return str(error.value)

    without, with_hook = with_and_without(new_hook, new_net, work)
    assert with_hook == without


def test_with_stale_gradients_ignored_the_same_weights_change(new_hook, new_net):
    def work(net):
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5})
        before = weights_of(net)
        for reach in (net, net[0]):  # of the second pass, only the first layer has gradients
            with autograd.record():
                net(mx.nd.ones((5, 4)))
                loss = reach(mx.nd.ones((5, 4))).square().sum()
            loss.backward()
            trainer.step(5, ignore_stale_grad=True)
        after = weights_of(net)
        assert any((before[name] != after[name]).any() for name in before)
        return after

    without, with_hook = with_and_without(new_hook, new_net, work)
    for name, value in without.items():
        np.testing.assert_array_equal(with_hook[name], value)


def test_a_gradient_that_waits_for_the_trainer_stays_fresh_through_another_pass(new_hook, new_net):
    def work(net):
        for reach in (net, net[0]):
            with autograd.record():
                net(mx.nd.ones((5, 4)))
                loss = reach(mx.nd.ones((5, 4))).square().sum()
            loss.backward()
        return [bool(p.data()._fresh_grad) for p in net.collect_params().values()]

    without, with_hook = with_and_without(new_hook, new_net, work)
    assert with_hook == without
    assert any(with_hook)


# -- training is unchanged -------------------------------------------------------------------------


@pytest.mark.parametrize("hybridised", [False, True])
def test_training_ends_with_the_very_same_weights(new_hook, new_net, train, hybridised):
    def final(hook):
        mx.random.seed(3)
        np.random.seed(3)
        net, loss = new_net(hybridised), gluon.loss.SoftmaxCrossEntropyLoss()
        if hook is not None:
            hook.register_block(net)
            hook.register_loss(loss)
        train(net, 6, loss)
        return weights_of(net)

    with_hook = final(new_hook(include_collections=PARAMETERS))
    for name, value in final(None).items():
        np.testing.assert_array_equal(with_hook[name], value, err_msg=name)


def test_steps_between_saved_ones_save_nothing(record, net, train):
    config = smd.SaveConfig(save_interval=3)
    trial = record(net, lambda hook: train(net, 7), save_config=config)
    assert trial.steps() == [0, 3, 6]
    assert trial.tensor("gradient/net_dense0_weight").steps() == [0, 3, 6]
    assert trial.tensor("net_dense0_output_0").steps() == [0, 3, 6]
