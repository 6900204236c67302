"""Tensors have the names that regexes and rules depend on; their roles make collections."""

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn


def names_at(trial, step=0):
    return set(trial.tensor_names(step=step))


PARAMETERS = {f"{part}.{kind}" for part in ("fc1", "bn", "fc2") for kind in ("weight", "bias")}


@pytest.fixture
def trial(record, net, train):
    loss = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(net.parameters())
    return record(net, lambda hook: train(net, 2, loss, optimizer), loss)


@pytest.mark.parametrize(
    ("collection", "names"),
    [
        ("weights", {"Net_fc1.weight", "Net_bn.weight", "Net_fc2.weight"}),
        ("biases", {"Net_fc1.bias", "Net_bn.bias", "Net_fc2.bias"}),
        ("gradients", {f"gradient/Net_{path}" for path in PARAMETERS}),
        ("losses", {"CrossEntropyLoss_output_0"}),
        ("inputs", {"Net_input_0", "fc1_input_0", "bn_input_0", "relu_input_0", "fc2_input_0"}),
        (
            "outputs",
            {"Net_output_0", "fc1_output_0", "bn_output_0", "relu_output_0", "fc2_output_0"},
        ),
        ("predictions", {"CrossEntropyLoss_input_0"}),
        ("labels", {"CrossEntropyLoss_input_1"}),
        (
            "buffers",
            {"Net_bn.running_mean", "Net_bn.running_var", "Net_bn.num_batches_tracked"},
        ),
        (
            "optimizer_variables",
            {"optimizer/Adam/group_0/lr", "optimizer/Adam/group_0/eps"}
            | {
                f"optimizer/Adam/Net_{path}/{key}"
                for path in PARAMETERS
                for key in ("step", "exp_avg", "exp_avg_sq")
            },
        ),
    ],
)
def test_a_collection_holds_the_tensors_of_its_role(trial, collection, names):
    assert set(trial.tensor_names(collection=collection)) == names


def test_everything_is_in_all(trial):
    assert set(trial.tensor_names(collection="all")) == set(trial.tensor_names())


def test_layers_are_inputs_and_outputs_of_layers_but_not_of_the_model(trial):
    names = set(trial.tensor_names(collection="layers"))
    assert "fc1_output_0" in names
    assert "Net_output_0" not in names


def test_a_nested_module_has_its_dotted_path(record):
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 2)))
    trial = record(model, lambda hook: model(torch.ones(1, 2)))
    assert {"0.0_output_0", "0_output_0", "Sequential_output_0"} <= names_at(trial)
    assert "Sequential_0.0.weight" in names_at(trial)


def test_a_module_run_several_times_in_a_step_counts_on(record):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.act = nn.ReLU()

        def forward(self, x):
            return self.act(self.act(x) - 1)

    model = Twice()
    trial = record(model, lambda hook: [model(torch.full((2,), 3.0)) for _ in range(2)])
    for step in (0, 1):
        assert {"act_output_0", "act_output_1"} <= names_at(trial, step)
        assert "act_output_2" not in names_at(trial, step)
    assert trial.tensor("act_output_0").value(1).tolist() == [3, 3]
    assert trial.tensor("act_output_1").value(1).tolist() == [2, 2]


def test_an_lstm_has_three_outputs(record):
    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(3, 4)

        def forward(self, x):
            return self.rnn(x)[0]

    model = Reader()
    output, (h, c) = model.rnn(x := torch.randn(5, 2, 3))
    trial = record(model, lambda hook: model(x))
    assert trial.tensor_names(regex="^rnn_output") == [f"rnn_output_{i}" for i in range(3)]
    for i, value in enumerate((output, h, c)):
        assert trial.tensor(f"rnn_output_{i}").value(0).tolist() == value.tolist()
    assert "Reader_rnn.weight_ih_l0" in trial.tensor_names(collection="weights")
    assert "Reader_rnn.bias_ih_l0" in trial.tensor_names(collection="biases")


def test_data_parallel_is_the_root_with_the_model_within(record, net, train):
    model = nn.DataParallel(net)
    names = names_at(record(model, lambda hook: train(model)))
    assert {
        "DataParallel_module.fc1.weight",
        "gradient/DataParallel_module.fc1.weight",
        "module.fc1_input_0",
        "module_output_0",
        "DataParallel_output_0",
    } <= names


@pytest.mark.parametrize("name", ["two words", "a/b", "a:0", "x" * 300, "ünï"])
def test_a_module_may_have_any_name(record, name):
    model = nn.Sequential()
    model.add_module(name, nn.Linear(2, 2))
    trial = record(model, lambda hook: model(torch.ones(1, 2)).sum().backward())
    assert trial.tensor(f"{name}_output_0").value(0).shape == (1, 2)
    assert trial.tensor(f"Sequential_{name}.weight").value(0).shape == (2, 2)
    assert trial.tensor(f"gradient/Sequential_{name}.weight").value(0).shape == (2, 2)


def test_order_of_rows_is_the_order_of_execution(trial):
    rows = trial.to_arrow().filter(trial.to_arrow()["step"].to_numpy() == 1).to_pylist()
    names = [row["name"] for row in sorted(rows, key=lambda row: row["order"])]
    places = [
        names.index(name)
        for name in (
            "Net_fc1.weight",
            "Net_input_0",
            "fc1_output_0",
            "fc2_output_0",
            "Net_output_0",
            "CrossEntropyLoss_output_0",
            "gradient/Net_fc2.weight",
            "gradient/Net_fc1.weight",
            "optimizer/Adam/Net_fc1.weight/exp_avg",
        )
    ]
    assert places == sorted(places)
