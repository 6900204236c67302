"""Collections of inputs and outputs of chosen blocks, of parameters and of names."""

import pytest

mx = pytest.importorskip("mxnet")

from mxnet import gluon  # noqa: E402

import tornasole.mxnet as smd  # noqa: E402
from tornasole.errors import SMDebugTypeError  # noqa: E402

nn = gluon.nn


@pytest.fixture
def net():
    """Blocks whose names begin alike."""
    net = nn.HybridSequential(prefix="net_")
    for prefix in ("relu1_", "myrelu1_", "relu10_"):
        net.add(nn.Activation("relu", prefix=prefix))
    return net


@pytest.fixture
def run(new_hook, read):
    def training(net, fill, register_first=False):
        hook = new_hook(include_collections=["mine"])
        if register_first:
            hook.register_block(net)
        fill(hook.get_collection("mine"))
        if not register_first:
            hook.register_block(net)
        net(mx.nd.ones((2, 4)))
        hook.close()
        return read().tensor_names(collection="mine")

    return training


INPUT, OUTPUT = "relu1_input_0", "relu1_output_0"


@pytest.mark.parametrize("hybridised", [False, True])
@pytest.mark.parametrize("register_first", [True, False])
def test_outputs_of_that_block_alone_are_saved(run, net, register_first, hybridised):
    net.hybridize(hybridised)
    assert run(net, lambda mine: mine.add_block_tensors(net[0]), register_first) == [OUTPUT]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, [OUTPUT]),
        ({"inputs": True}, [INPUT, OUTPUT]),
        ({"inputs": True, "outputs": False}, [INPUT]),
        ({"outputs": True}, [OUTPUT]),
        ({"inputs": False, "outputs": False}, []),
        ({"input": True}, [INPUT]),
        ({"output": True}, [OUTPUT]),
        ({"input": True, "output": True}, [INPUT, OUTPUT]),
        ({"input": False, "output": False}, []),
        ({"input": True, "outputs": True}, [INPUT, OUTPUT]),
    ],
    ids=str,
)
def test_inputs_and_outputs_are_chosen_in_either_spelling(run, net, asked, expected):
    assert run(net, lambda mine: mine.add_block_tensors(net[0], **asked)) == expected


def test_inputs_and_outputs_may_be_given_by_position(run, net):
    assert run(net, lambda mine: mine.add_block_tensors(net[0], True, False)) == [INPUT]


def test_the_net_is_a_block_too(run, net):
    names = run(net, lambda mine: mine.add_block_tensors(net, inputs=True))
    assert names == ["net_input_0", "net_output_0"]


def test_a_loss_is_a_block_too(new_hook, read, net):
    loss = gluon.loss.L2Loss(prefix="loss_")
    hook = new_hook(include_collections=["mine"])
    hook.register_block(net)
    hook.register_loss(loss)
    hook.get_collection("mine").add_block_tensors(loss, inputs=True)
    loss(net(mx.nd.ones((2, 4))), mx.nd.ones((2, 4)))
    hook.close()
    names = read().tensor_names(collection="mine")
    assert names == ["loss_input_0", "loss_input_1", "loss_output_0"]


def test_names_with_special_characters_are_taken_literally(run):
    net = nn.HybridSequential(prefix="net_")
    net.add(nn.Activation("relu", prefix="a+b(c_"), nn.Activation("relu", prefix="aab(c_"))
    assert run(net, lambda mine: mine.add_block_tensors(net[0])) == ["a+b(c_output_0"]


def test_a_block_of_no_registered_net_is_noted(run, net, warnings_of):
    def fill(mine):
        mine.add_block_tensors(nn.Dense(2))
        mine.add_block_tensors(net[0])

    assert run(net, fill) == [OUTPUT]
    assert any("'mine'" in message and "Dense" in message for message in warnings_of())


def test_a_block_added_between_steps_is_saved_from_then_on(new_hook, read, net):
    hook = new_hook(include_collections=["mine"])
    hook.register_block(net)
    mine = hook.get_collection("mine")
    mine.add(net[0])
    net(mx.nd.ones(2))
    mine.add(net[1])
    net(mx.nd.ones(2))
    hook.close()
    assert read().tensor("relu1_output_0").steps() == [0, 1]
    assert read().tensor("myrelu1_output_0").steps() == [1]


# -- add -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        (lambda net: net[0], ["net_dense0_output_0"]),
        (lambda net: net[0].weight, ["net_dense0_weight"]),
        (lambda net: "net_dense0_bias", ["net_dense0_bias"]),
        (lambda net: [net[0].weight, "net_output_0"], ["net_dense0_weight", "net_output_0"]),
        (lambda net: ([net[0].bias], (net[2],)), ["net_dense0_bias", "net_dense1_output_0"]),
        (lambda net: {net[0].weight}, ["net_dense0_weight"]),
        (lambda net: [], []),
    ],
    ids=["block", "parameter", "name", "list", "nested", "set", "nothing"],
)
def test_blocks_parameters_names_and_lists_can_be_added(run, new_net, what, expected):
    net = new_net()
    assert run(net, lambda mine: mine.add(what(net)) or mine.include("^no such tensor$")) == (
        expected
    )


def test_a_name_that_is_added_is_no_pattern(run, new_net):
    assert run(new_net(), lambda mine: mine.add(["net_dense", "net_dense0_bias"])) == [
        "net_dense0_bias"
    ]


@pytest.mark.parametrize("bad", [3, None, nn.Dense, mx.nd.ones(1), ["name", 3]])
def test_nothing_else_can_be_added(bad):
    with pytest.raises(SMDebugTypeError, match="'mine'"):
        smd.Collection("mine").add(bad)


@pytest.mark.parametrize("bad", ["relu1", None, nn.Dense, [nn.Dense]])
def test_only_a_block_has_block_tensors(bad):
    with pytest.raises(SMDebugTypeError, match="add_block_tensors"):
        smd.Collection("mine").add_block_tensors(bad)


def test_a_collection_with_a_block_is_not_empty(net):
    mine = smd.Collection("mine")
    assert mine.is_empty
    mine.add(net)
    assert not mine.is_empty


# -- the collections of the process ----------------------------------------------------------------


def test_a_hook_of_the_original_kind_saves_the_collections_of_the_process(out_dir, read, net):
    smd.get_collection("mine").add_block_tensors(net[0], input=True, output=True)
    smd.add_to_collection("mine", net[2])
    hook = smd.TornasoleHook(
        str(out_dir), include_collections=["mine"], save_config=smd.SaveConfig(save_interval=1)
    )
    hook.register_hook(net)
    net(mx.nd.ones(2))
    hook.close()
    names = read().tensor_names(collection="mine")
    assert names == ["relu10_output_0", "relu1_input_0", "relu1_output_0"]


def test_the_default_collection_of_the_process_takes_what_add_takes(out_dir, read, new_net):
    net = new_net()
    smd.add_to_default_collection([net[0].weight, net[2]])
    hook = smd.TornasoleHook(str(out_dir), include_collections=["default"])
    hook.register_hook(net)
    net(mx.nd.ones((5, 4)))
    hook.close()
    assert read().tensor_names() == ["net_dense0_weight", "net_dense1_output_0"]
