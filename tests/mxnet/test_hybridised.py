"""A hybridised net runs compiled wherever it can, and inner blocks are saved where they are due."""

import numpy as np
import pytest

mx = pytest.importorskip("mxnet")

from mxnet import autograd, gluon  # noqa: E402

import tornasole.mxnet as smd  # noqa: E402

nn = gluon.nn


class Eager(gluon.HybridBlock):
    """Counts the calls that are not compiled."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.calls = 0

    def hybrid_forward(self, F, x):
        self.calls += F is mx.nd
        return x * 1


@pytest.fixture
def counted():
    """A hybridised net, compiled already, with a block in it that counts."""
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(3, in_units=4), Eager())
    net.initialize()
    net.hybridize()
    net(mx.nd.ones((5, 4)))
    return net


# -- inner blocks ----------------------------------------------------------------------------------


def test_inner_blocks_are_saved_on_the_steps_that_are_due(record, counted, train):
    config = smd.SaveConfig(save_interval=2)
    trial = record(counted, lambda hook: train(counted, 5), save_config=config)
    assert trial.tensor("net_dense0_output_0").steps() == [0, 2, 4]
    assert counted[1].calls == 3


def test_inner_blocks_are_as_the_compiled_graph_would_have_them(record, new_net):
    net, x = new_net(hybridised=True), mx.nd.random.normal(shape=(5, 4))
    compiled = net(x).asnumpy()
    trial = record(net, lambda hook: net(x))
    np.testing.assert_allclose(trial.tensor("net_output_0").value(0), compiled, rtol=1e-5)
    np.testing.assert_array_equal(
        trial.tensor("net_dense1_output_0").value(0), trial.tensor("net_output_0").value(0)
    )


def test_the_compiled_graph_is_the_same_one_after(record, counted, train):
    graph, op = counted._cached_graph, counted._cached_op

    def work(hook):
        train(counted)
        assert counted._active
        train(counted, 2)

    record(counted, work, save_config=smd.SaveConfig(save_interval=2))
    assert counted._cached_graph is graph
    assert counted._cached_op is op
    assert op is not None
    train(counted)
    assert counted[1].calls == 2


def test_every_block_is_active_again_and_no_other(record):
    net = nn.Sequential(prefix="net_")
    net.add(nn.Dense(2, in_units=2), nn.Dense(2, in_units=2), nn.HybridSequential())
    net[2].add(nn.Dense(2, in_units=2))
    net.initialize()
    net[0].hybridize()
    net[2].hybridize()
    trial = record(net, lambda hook: net(mx.nd.ones((1, 2))))
    assert [net[0]._active, net[1]._active, net[2]._active, net[2][0]._active] == [
        True, False, True, True
    ]  # fmt: skip
    assert len(trial.tensor_names(collection="outputs")) == 5


@pytest.mark.parametrize(
    "options",
    [
        {"include_collections": ["weights"]},
        {"include_collections": ["weights", "biases", "gradients", "losses", "buffers"]},
        {"include_collections": ["labels", "predictions"]},
        {},
    ],
)
def test_what_needs_no_inner_block_leaves_the_net_compiled(record, counted, train, options):
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    trial = record(
        counted, lambda hook: train(counted, 3, loss), loss, **{"save_all": False, **options}
    )
    assert trial.steps() == [0, 1, 2]
    assert counted[1].calls == 0


def test_a_watched_loss_leaves_the_net_compiled(record, counted, train):
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    config = smd.SaveConfig(start_step=10**9, when_nan=["loss"])
    work = lambda hook: train(counted, 3, loss)  # noqa: E731
    options = {"save_all": False, "include_collections": ["losses"], "save_config": config}
    assert record(counted, work, loss, **options).steps() == []


def test_the_net_is_hybridised_before_or_after_it_is_registered(record, new_net, train):
    net = new_net()

    def work(hook):
        train(net)
        with pytest.warns(UserWarning, match="hybridized while still having forward"):
            net.hybridize()
        train(net)
        hook.close()
        train(net)
        assert net._cached_op is not None

    trial = record(net, work)
    assert trial.tensor("net_dense0_output_0").steps() == [0, 1]


@pytest.mark.parametrize("flags", [
    {"static_alloc": True}, {"static_alloc": True, "static_shape": True}, {"inline_limit": 0},
])  # fmt: skip
def test_flags_of_the_compiled_graph_make_no_difference(record, new_net, train, flags):
    net, gradients = new_net(True, **flags), []
    config = smd.SaveConfig(save_interval=2)
    trial = record(
        net,
        lambda hook: train(net, 4, after=lambda: gradients.append(net[0].weight.grad().asnumpy())),
        save_config=config,
    )
    assert dict(net._flags).items() >= flags.items()
    assert trial.tensor("net_dense0_output_0").steps() == [0, 2]
    for step in (0, 2):
        found = trial.tensor("gradient/net_dense0_weight").value(step)
        np.testing.assert_array_equal(found, gradients[step])


# -- initialisation --------------------------------------------------------------------------------


@pytest.mark.parametrize("hybridised", [False, True])
@pytest.mark.parametrize("options", [{}, {"save_all": False, "include_collections": ["weights"]}])
def test_weights_that_the_first_call_initialises_are_in_the_first_step(
    record, train, hybridised, options
):
    net, weights = nn.HybridSequential(prefix="net_"), []
    with net.name_scope():
        net.add(nn.Dense(4, activation="relu"), nn.Dense(3))
    net.initialize()
    net.hybridize(hybridised)

    def work(hook):
        for _ in range(2):
            train(net, after=lambda: weights.append(net[0].weight.data().asnumpy()))

    trial = record(net, work, **options)
    assert trial.steps() == [0, 1]
    for step, value in enumerate(weights):
        np.testing.assert_array_equal(trial.tensor("net_dense0_weight").value(step), value)


# -- other blocks ----------------------------------------------------------------------------------


@pytest.mark.parametrize("hybridised", [False, True])
def test_a_symbol_block_is_a_net(record, train, hybridised):
    data = mx.sym.var("data")
    hidden = mx.sym.FullyConnected(data, name="fc1", num_hidden=6)
    output = mx.sym.FullyConnected(hidden, name="fc2", num_hidden=3)
    net = gluon.SymbolBlock(output, data)
    net.initialize()
    net.hybridize(hybridised)
    trial = record(net, lambda hook: train(net, 2))
    for name in ("fc1_weight", "gradient/fc2_bias", f"{net.name}_output_0"):
        assert trial.tensor(name).steps() == [0, 1]
    gradient = trial.tensor("gradient/fc1_weight").value(1)
    np.testing.assert_array_equal(gradient, net.params["fc1_weight"].grad().asnumpy())


def test_a_net_exported_and_loaded_again_is_saved(record, new_net, train, tmp_path):
    net = new_net(hybridised=True)
    net(mx.nd.ones((5, 4)))
    net.export(str(tmp_path / "net"))
    loaded = gluon.SymbolBlock.imports(
        str(tmp_path / "net-symbol.json"), ["data"], str(tmp_path / "net-0000.params")
    )
    trial = record(loaded, lambda hook: train(loaded))
    weight = net[0].weight.data().asnumpy()
    np.testing.assert_array_equal(trial.tensor("net_dense0_weight").value(0), weight)


def test_a_net_inside_another_that_is_compiled_takes_no_step_while_it_is_traced(record, new_net):
    outer, net = nn.HybridSequential(), new_net()
    outer.add(net)
    outer.hybridize()

    def work(hook):
        outer(mx.nd.ones((5, 4)))
        assert hook.step == -1
        net(mx.nd.ones((5, 4)))
        assert hook.step == 0

    assert "net_dense0_output_0" in record(net, work).tensor_names()


# -- nets that run only hybridised -----------------------------------------------------------------


class OnlySymbols(gluon.HybridBlock):
    attempts = 0

    def hybrid_forward(self, F, x):
        if F is mx.nd:
            self.attempts += 1
            raise NotImplementedError("only with symbols")
        return x * 2


@pytest.fixture
def symbolic():
    def make():
        net = nn.HybridSequential(prefix="net_")
        with net.name_scope():
            net.add(nn.Dense(4, in_units=4), OnlySymbols(), nn.Dense(3, in_units=4))
        mx.random.seed(0)
        net.initialize()
        net.hybridize()
        return net

    return make


def test_a_net_that_runs_only_hybridised_is_saved_from_outside_and_said_once(
    record, symbolic, train, warnings_of
):
    net = symbolic()
    trial = record(net, lambda hook: train(net, 3))
    for name in ("net_dense0_weight", "gradient/net_dense0_weight", "net_output_0", "net_input_0"):
        assert trial.tensor(name).steps() == [0, 1, 2]
    assert "net_dense1_output_0" not in trial.tensor_names()
    assert net[1].attempts == 1
    [message] = warnings_of()
    assert "only with symbols" in message
    assert "net, inner blocks" in message


def test_training_of_a_net_that_runs_only_hybridised_is_unharmed(new_hook, symbolic, train):
    def final(hook):
        net = symbolic()
        if hook is not None:
            hook.register_block(net)
        train(net, 3)
        return net[0].weight.data().asnumpy()

    np.testing.assert_array_equal(final(new_hook(save_all=True)), final(None))


# -- the user's own errors -------------------------------------------------------------------------


class Mine(Exception):
    pass


class Broken(gluon.HybridBlock):
    broken = True

    def __init__(self):
        super().__init__(prefix="net_")
        with self.name_scope():
            self.fc = nn.Dense(3, in_units=4)

    def forward(self, x):
        if self.broken:
            raise error
        return super().forward(x)

    def hybrid_forward(self, F, x):
        return self.fc(x)


error = Mine("the user's own")


@pytest.mark.parametrize("hybridised", [False, True])
def test_an_error_of_the_user_is_the_same_error_and_training_can_go_on(
    record, train, warnings_of, hybridised
):
    net = Broken()
    net.initialize()
    net.hybridize(hybridised)

    def work(hook):
        with pytest.raises(Mine) as raised:
            net(mx.nd.ones((5, 4)))
        assert raised.value is error
        net.broken = False
        train(net, 2)

    trial = record(net, work)
    assert trial.tensor("net_dense0_output_0").steps() == [1, 2]
    assert warnings_of() == []


class Cholesky(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return F.linalg.potrf(x)


@pytest.mark.parametrize("hybridised", [False, True])
@pytest.mark.parametrize("on_error", ["warn", "raise"])
def test_an_error_that_mxnet_raises_late_reaches_the_user(new_hook, hybridised, on_error):
    net = Cholesky()
    net.hybridize(hybridised)
    new_hook(save_all=True, on_error=on_error).register_block(net)
    with pytest.raises(mx.MXNetError, match="potrf"):
        net(-mx.nd.ones((2, 2))).wait_to_read()


@pytest.mark.parametrize(
    "hybridised",
    [
        False,
        True,
    ],
)
def test_after_an_error_that_mxnet_raises_late_inner_blocks_are_still_saved(
    record, warnings_of, hybridised
):
    net = nn.HybridSequential(prefix="net_")
    net.add(Cholesky(prefix="cholesky_"))
    net.hybridize(hybridised)

    def work(hook):
        with pytest.raises(mx.MXNetError, match="potrf"):
            net(-mx.nd.ones((2, 2))).wait_to_read()
        net(mx.nd.array([[2, 0], [0, 2]]))

    trial = record(net, work)
    assert trial.tensor("cholesky_output_0").steps() == [1]
    assert warnings_of() == []


def test_an_error_in_a_backward_pass_is_that_of_mxnet(record, net, train):
    def work(hook):
        with autograd.record():
            output = net(mx.nd.ones((5, 4)))
        output.backward()
        with pytest.raises(mx.MXNetError):
            output.backward()
        train(net)

    trial = record(net, work)
    assert trial.tensor("gradient/net_dense0_weight").steps() == [0, 1]
