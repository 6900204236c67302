"""What cannot work is refused with a clear error, or gives MXNet's own; training can go on."""

import pytest

mx = pytest.importorskip("mxnet")

from mxnet import gluon  # noqa: E402

from tornasole.errors import SMDebugTypeError, SMDebugValueError  # noqa: E402

nn = gluon.nn


@pytest.fixture
def raw_net():
    """Makes nets that are not initialised."""

    def make(hybridised=False, in_units=4):
        net = nn.HybridSequential(prefix="net_")
        with net.name_scope():
            net.add(nn.Dense(8, in_units=in_units), nn.Dense(3, in_units=8))
        net.hybridize(hybridised)
        return net

    return make


@pytest.mark.parametrize("register", ["register_block", "register_hook"])
@pytest.mark.parametrize("bad", [None, 3, "net", nn.Dense, mx.nd.ones(1), mx.sym.var("x")])
def test_only_a_block_can_be_registered(new_hook, register, bad):
    with pytest.raises(SMDebugTypeError, match="register_block takes a Gluon block"):
        getattr(new_hook(), register)(bad)


def test_a_net_is_registered_once(new_hook, net):
    hook = new_hook()
    hook.register_block(net)
    with pytest.raises(SMDebugValueError, match="net is registered already"):
        hook.register_block(net)


def test_a_block_of_a_registered_net_is_not_registered_too(new_hook, net):
    hook = new_hook()
    hook.register_block(net)
    with pytest.raises(SMDebugValueError, match="net_dense0 is registered already"):
        hook.register_block(net[0])


def test_a_net_around_a_registered_one_is_not_registered_too(new_hook, net):
    hook, outer = new_hook(), nn.Sequential(prefix="outer_")
    outer.add(net)
    hook.register_block(net)
    with pytest.raises(SMDebugValueError, match="registered already"):
        hook.register_block(outer)


def test_after_a_refusal_the_net_is_saved_as_before(record, net, train):
    def work(hook):
        with pytest.raises(SMDebugValueError):
            hook.register_block(net)
        train(net, 2)

    assert record(net, work).steps() == [0, 1]


# -- nets that cannot run yet ----------------------------------------------------------------------


@pytest.mark.parametrize("hybridised", [False, True])
@pytest.mark.parametrize("in_units", [4, 0], ids=["known", "deferred"])
def test_a_net_that_is_not_initialised_gives_the_error_of_mxnet_and_counts_no_step(
    record, train, raw_net, warnings_of, hybridised, in_units
):
    net = raw_net(hybridised, in_units)

    def work(hook):
        with pytest.raises(RuntimeError, match="has not been initialized"):
            net(mx.nd.ones((5, 4)))
        assert hook.step == -1
        net.initialize()
        train(net, 2)

    trial = record(net, work)
    assert trial.steps() == [0, 1]
    assert trial.tensor("net_dense0_weight").steps() == [0, 1]
    assert trial.tensor("net_dense0_output_0").steps() == [0, 1]
    [message] = warnings_of()
    assert "net_dense0_weight" in message
    assert "initialize()" in message


def test_a_net_that_is_initialised_later_on_another_context_counts_its_first_step(record, raw_net):
    net = raw_net()

    def work(hook):
        with pytest.raises(RuntimeError, match="has not been initialized"):
            net(mx.nd.ones((5, 4)))
        net.initialize(ctx=mx.cpu(1))
        net(mx.nd.ones((5, 4), ctx=mx.cpu(1)))
        assert hook.step == 0

    record(net, work)


@pytest.mark.skipif("mx.context.num_gpus() > 0", reason="this MXNet has a GPU")
@pytest.mark.parametrize("hybridised", [False, True])
def test_a_context_that_is_not_there_gives_the_error_of_mxnet_and_training_can_go_on(
    record, train, hybridised
):
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(3, use_bias=False))
    net.initialize(ctx=mx.gpu(0))  # deferred: the first call makes the weights
    net.hybridize(hybridised)

    def work(hook):
        with pytest.raises(mx.MXNetError, match="GPU is not enabled"):
            net(mx.nd.ones((5, 4)))
        net.initialize(ctx=mx.cpu(), force_reinit=True)
        train(net, 2)

    trial = record(net, work)
    assert trial.tensor("net_dense0_output_0").steps() == [1, 2]
    assert trial.tensor("gradient/net_dense0_weight").steps() == [1, 2]


@pytest.mark.parametrize("hybridised", [False, True])
@pytest.mark.parametrize(
    "args",
    [(), (None,), ("x",), (3,), (mx.nd.ones((5, 4), ctx=mx.cpu(1)),), (mx.nd.ones((5, 7)),)],
    ids=["nothing", "None", "str", "int", "context", "shape"],
)
def test_a_wrong_call_gives_the_error_it_gives_without_a_hook(
    record, new_net, train, args, hybridised
):
    with pytest.raises(Exception, match=r".") as without:
        new_net(hybridised)(*args)
    net = new_net(hybridised)

    def work(hook):
        with pytest.raises(type(without.value)) as raised:
            net(*args)
        assert str(raised.value) == str(without.value)
        train(net, 2)

    trial = record(net, work)
    assert trial.tensor("net_dense0_output_0").steps() == [1, 2]
