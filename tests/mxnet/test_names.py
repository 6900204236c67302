"""Tensors have the names that regexes and rules depend on; their roles make collections."""

import pytest

mx = pytest.importorskip("mxnet")

from mxnet import autograd, gluon  # noqa: E402

nn = gluon.nn

BLOCKS = ("net_dense0", "net_batchnorm0", "net_dense1")
TRAINED = {
    "net_dense0_weight", "net_dense0_bias", "net_batchnorm0_gamma", "net_batchnorm0_beta",
    "net_dense1_weight", "net_dense1_bias",
}  # fmt: skip


def names_at(trial, step=0):
    return set(trial.tensor_names(step=step))


@pytest.fixture
def trial(record, net, train):
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    return record(net, lambda hook: train(net, 2, loss), loss)


@pytest.mark.parametrize(
    ("collection", "names"),
    [
        ("weights", {"net_dense0_weight", "net_batchnorm0_gamma", "net_dense1_weight"}),
        ("biases", {"net_dense0_bias", "net_batchnorm0_beta", "net_dense1_bias"}),
        ("buffers", {"net_batchnorm0_running_mean", "net_batchnorm0_running_var"}),
        ("gradients", {f"gradient/{name}" for name in TRAINED}),
        ("losses", {"softmaxcrossentropyloss0_output_0"}),
        ("predictions", {"softmaxcrossentropyloss0_input_0"}),
        ("labels", {"softmaxcrossentropyloss0_input_1"}),
        (
            "inputs",
            {"net_input_0", "net_dense0_relu_input_0", *(f"{name}_input_0" for name in BLOCKS)},
        ),
        (
            "outputs",
            {"net_output_0", "net_dense0_relu_output_0", *(f"{name}_output_0" for name in BLOCKS)},
        ),
    ],
)
def test_a_collection_holds_the_tensors_of_its_role(trial, collection, names):
    assert set(trial.tensor_names(collection=collection)) == names


def test_everything_is_in_all(trial):
    assert set(trial.tensor_names(collection="all")) == set(trial.tensor_names())


def test_layers_are_inputs_and_outputs_of_inner_blocks_but_not_of_the_net(trial):
    names = set(trial.tensor_names(collection="layers"))
    assert "net_dense0_output_0" in names
    assert "net_output_0" not in names


def test_blocks_without_a_prefix_have_the_names_that_gluon_gives(record):
    net = nn.Sequential()
    net.add(nn.Dense(2, in_units=2), nn.Dense(2, in_units=2))
    net.initialize()
    names = names_at(record(net, lambda hook: net(mx.nd.ones((1, 2)))))
    assert names == {
        *(f"{block}_{kind}_0" for block in ("sequential0", "dense0", "dense1")
          for kind in ("input", "output")),
        *(f"{block}_{kind}" for block in ("dense0", "dense1") for kind in ("weight", "bias")),
    }  # fmt: skip


def test_a_net_with_an_empty_prefix_goes_by_its_class(record):
    net = nn.Dense(2, in_units=2, prefix="")
    net.initialize()
    names = names_at(record(net, lambda hook: net(mx.nd.ones((1, 2)))))
    assert names == {"dense_input_0", "dense_output_0", "weight", "bias"}


@pytest.mark.parametrize("prefix", ["two words_", "a/b_", "a:0_", "ünï_", "a+(b_", "x" * 300])
def test_a_net_may_have_any_name(record, prefix):
    net = nn.Dense(2, in_units=2, prefix=prefix)
    net.initialize()
    trial = record(net, lambda hook: net(mx.nd.ones((1, 2))))
    assert trial.tensor(f"{prefix}weight").value(0).shape == (2, 2)
    assert trial.tensor(f"{net.name}_output_0").value(0).shape == (1, 2)


def test_of_the_model_zoo_blocks_with_the_name_of_the_root_go_by_their_path(record, train):
    net = gluon.model_zoo.vision.resnet18_v1(classes=10)
    net.initialize()
    assert net.features.name == net.name == "resnetv10"
    x = mx.nd.random.normal(shape=(2, 3, 32, 32))
    trial = record(net, lambda hook: train(net, x=x))
    assert trial.tensor("resnetv10_output_0").shape(0) == (2, 10)
    assert trial.tensor("resnetv10.features_output_0").shape(0) == (2, 512, 1, 1)
    assert trial.tensor("resnetv10_dense0_output_0").shape(0) == (2, 10)
    assert trial.tensor("resnetv10_conv0_output_0").shape(0) == (2, 64, 16, 16)
    assert set(net.collect_params()) <= names_at(trial)
    gradients = {f"gradient/{n}" for n, p in net.collect_params().items() if p.grad_req != "null"}
    assert gradients <= names_at(trial)


def blocks_of(net):
    found = []
    net.apply(found.append)
    return found


def test_of_the_model_zoo_every_block_has_an_output_of_its_own(record):
    net = gluon.model_zoo.vision.resnet18_v1(classes=10)
    net.initialize()
    trial = record(net, lambda hook: net(mx.nd.zeros((1, 3, 32, 32))))
    outputs = trial.tensor_names(collection="outputs")
    assert len(outputs) == len(set(blocks_of(net)))
    assert all(name.endswith("_output_0") for name in outputs)


def test_parameters_that_blocks_share_are_saved_once(record, train):
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(4, in_units=4))
        net.add(nn.Dense(4, in_units=4, params=net[0].params))
    net.initialize()
    names = names_at(record(net, lambda hook: train(net)))
    assert {n for n in names if n.endswith(("weight", "bias"))} == {
        "net_dense0_weight", "net_dense0_bias",
        "gradient/net_dense0_weight", "gradient/net_dense0_bias",
    }  # fmt: skip
    assert {"net_dense0_output_0", "net_dense1_output_0"} <= names


def test_two_nets_with_the_same_prefix_keep_apart(new_hook, read):
    hook = new_hook(save_all=True)
    nets = [nn.Dense(units, in_units=2, prefix="dense_") for units in (3, 4)]
    for net in nets:
        net.initialize()
        hook.register_block(net)
    for net in nets:
        with autograd.record():
            loss = net(mx.nd.ones((1, 2))).sum()
        loss.backward()
    hook.close()
    trial = read()
    assert trial.tensor("dense_output_0").shape(0) == (1, 3)
    assert trial.tensor("dense_1_output_0").shape(1) == (1, 4)
    assert trial.tensor("dense_weight").shape(0) == (3, 2)
    assert trial.tensor("dense_1.dense_weight").shape(1) == (4, 2)
    assert trial.tensor("gradient/dense_weight").shape(0) == (3, 2)
    assert trial.tensor("gradient/dense_1.dense_weight").shape(1) == (4, 2)


def test_inner_blocks_of_two_nets_with_the_same_prefix_keep_apart(new_hook, new_net, read):
    hook = new_hook(save_all=True)
    nets = [new_net(), new_net()]
    for net in nets:
        hook.register_block(net)
    for net in nets:
        net(mx.nd.ones((5, 4)))
    hook.close()
    assert read().tensor("net_dense0_output_0").steps() == [0]
    assert read().tensor("net_1.0_output_0").steps() == [1]


def test_parameters_that_two_nets_share_are_saved_once(new_hook, read):
    hook = new_hook(save_all=True)
    first = nn.Dense(2, in_units=2, prefix="a_")
    second = nn.Dense(2, in_units=2, prefix="b_", params=first.params)
    first.initialize()
    for net in (first, second):
        hook.register_block(net)
    second(mx.nd.ones((1, 2)))
    hook.close()
    assert sorted(n for n in read().tensor_names() if "weight" in n) == ["a_weight"]


class Twice(gluon.HybridBlock):
    def __init__(self):
        super().__init__(prefix="twice_")
        with self.name_scope():
            self.act = nn.Activation("relu", prefix="act_")

    def hybrid_forward(self, F, x):
        return self.act(self.act(x) - 1)


@pytest.mark.parametrize("hybridised", [False, True])
def test_a_block_run_several_times_in_a_step_counts_on(record, hybridised):
    net = Twice()
    net.hybridize(hybridised)
    trial = record(net, lambda hook: [net(mx.nd.full((2,), 3)) for _ in range(2)])
    for step in (0, 1):
        assert {"twice_act_output_0", "twice_act_output_1"} <= names_at(trial, step)
        assert "twice_act_output_2" not in names_at(trial, step)
        assert trial.tensor("twice_act_output_0").value(step).tolist() == [3, 3]
        assert trial.tensor("twice_act_output_1").value(step).tolist() == [2, 2]


def test_a_block_in_two_places_counts_on(record):
    net, dense = nn.HybridSequential(prefix="net_"), nn.Dense(2, in_units=2, prefix="dense_")
    net.add(dense, dense)
    net.initialize()
    trial = record(net, lambda hook: net(mx.nd.ones((1, 2))))
    assert {"dense_output_0", "dense_output_1"} <= names_at(trial)
    assert "dense_output_2" not in names_at(trial)


class Nest(gluon.Block):
    def forward(self, x, pair):
        return x, (pair[0] * 2, [pair[1] * 3]), {"more": x + 1}


def test_nested_inputs_and_outputs_are_counted_in_order(record):
    net = Nest(prefix="nest_")
    x = mx.nd.ones(1)
    trial = record(net, lambda hook: net(x, (x + 1, x + 2)))
    assert [trial.tensor(f"nest_input_{i}").value(0) for i in range(3)] == [1, 2, 3]
    assert [trial.tensor(f"nest_output_{i}").value(0) for i in range(4)] == [1, 4, 9, 2]
    assert len(trial.tensor_names()) == 7


def test_an_lstm_with_states_has_three_inputs_and_three_outputs(record):
    net = gluon.rnn.LSTM(4, input_size=3, prefix="lstm_")
    net.initialize()
    x = mx.nd.random.normal(shape=(5, 2, 3))
    state = net.begin_state(2)
    output, (h, c) = net(x, state)
    trial = record(net, lambda hook: net(x, state))
    for i, value in enumerate((output, h, c)):
        assert trial.tensor(f"lstm_output_{i}").value(0).tolist() == value.asnumpy().tolist()
    assert len(trial.tensor_names(regex="^lstm_input")) == 3
    assert "lstm_l0_i2h_weight" in trial.tensor_names(collection="weights")
    assert "lstm_l0_h2h_bias" in trial.tensor_names(collection="biases")


def test_a_constant_is_a_buffer(record):
    class Shift(gluon.HybridBlock):
        def __init__(self):
            super().__init__(prefix="shift_")
            self.by = self.params.get_constant("by", mx.nd.array([1.0, 2.0]))

        def hybrid_forward(self, F, x, by):
            return x + by

    net = Shift()
    net.initialize()
    trial = record(net, lambda hook: net(mx.nd.ones(2)))
    assert trial.tensor_names(collection="buffers") == ["shift_by"]
    assert trial.tensor("shift_by").value(0).tolist() == [1, 2]


def test_a_layer_added_between_steps_is_followed(record, new_net):
    net = new_net()

    def work(hook):
        net(mx.nd.ones((5, 4)))
        with net.name_scope():
            net.add(nn.Dense(2, in_units=3))
        net[3].initialize()
        net(mx.nd.ones((5, 4)))

    trial = record(net, work)
    assert trial.tensor("net_dense2_weight").steps() == [1]
    assert trial.tensor("net_dense2_output_0").steps() == [1]


@pytest.mark.parametrize("hybridised", [False, True])
def test_order_of_rows_is_the_order_of_execution(record, new_net, train, hybridised):
    net, loss = new_net(hybridised), gluon.loss.SoftmaxCrossEntropyLoss()
    trial = record(net, lambda hook: train(net, 1, loss), loss)
    rows = sorted(trial.to_arrow().to_pylist(), key=lambda row: row["order"])
    names = [row["name"] for row in rows]
    places = [
        names.index(name)
        for name in (
            "net_dense0_weight",
            "net_input_0",
            "net_dense0_output_0",
            "net_dense1_output_0",
            "net_output_0",
            "softmaxcrossentropyloss0_output_0",
            "gradient/net_dense0_weight",
        )
    ]
    assert places == sorted(places)
