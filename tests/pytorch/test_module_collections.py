"""Collections of inputs and outputs of chosen modules."""

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn

import tornasole.pytorch as smd  # noqa: E402
from tornasole.errors import SMDebugTypeError  # noqa: E402


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.relu1, self.myrelu1, self.relu10 = nn.ReLU(), nn.ReLU(), nn.ReLU()

    def forward(self, x):
        return self.relu10(self.myrelu1(self.relu1(x)))


@pytest.fixture
def run(new_hook, read):
    def training(model, fill, register_first=False):
        hook = new_hook(include_collections=["mine"])
        if register_first:
            hook.register_module(model)
        fill(hook.get_collection("mine"))
        if not register_first:
            hook.register_module(model)
        model(torch.ones(2, 2))
        hook.close()
        return read().tensor_names(collection="mine")

    return training


@pytest.mark.parametrize("register_first", [True, False])
def test_outputs_of_that_module_alone_are_saved(run, register_first):
    model = Net()
    names = run(model, lambda mine: mine.add_module_tensors(model.relu1), register_first)
    assert names == ["relu1_output_0"]


@pytest.mark.parametrize(
    ("inputs", "outputs", "expected"),
    [
        (True, True, ["relu1_input_0", "relu1_output_0"]),
        (True, False, ["relu1_input_0"]),
        (False, False, []),
    ],
)
def test_inputs_and_outputs_are_chosen(run, inputs, outputs, expected):
    model = Net()
    assert run(model, lambda m: m.add_module_tensors(model.relu1, inputs, outputs)) == expected


def test_the_root_is_a_module_too(run):
    model = Net()
    names = run(model, lambda mine: mine.add_module_tensors(model, inputs=True))
    assert names == ["Net_input_0", "Net_output_0"]


def test_several_modules_may_be_added(run):
    model = Net()

    def fill(mine):
        mine.add_module_tensors(model.relu1)
        mine.add_module_tensors(model.relu10)

    assert run(model, fill) == ["relu10_output_0", "relu1_output_0"]


def test_names_with_special_characters_are_taken_literally(run):
    model = nn.Sequential()
    model.add_module("a+b(c", nn.ReLU())
    model.add_module("aab(c", nn.ReLU())
    assert run(model, lambda mine: mine.add_module_tensors(model[0])) == ["a+b(c_output_0"]


def test_a_module_of_no_registered_model_is_noted(run, warnings_of):
    model, other = Net(), nn.Linear(2, 2)

    def fill(mine):
        mine.add_module_tensors(other)
        mine.add_module_tensors(model.relu1)

    assert run(model, fill) == ["relu1_output_0"]
    assert any("'mine'" in message and "Linear" in message for message in warnings_of())


def test_a_module_added_between_steps_is_saved_from_then_on(new_hook, read):
    model = Net()
    hook = new_hook(include_collections=["mine"])
    hook.register_module(model)
    mine = hook.get_collection("mine")
    mine.add_module_tensors(model.relu1)
    model(torch.ones(2))
    mine.add_module_tensors(model.myrelu1)
    model(torch.ones(2))
    hook.close()
    assert read().tensor("relu1_output_0").steps() == [0, 1]
    assert read().tensor("myrelu1_output_0").steps() == [1]


@pytest.mark.parametrize("bad", ["relu1", None, nn.ReLU])
def test_only_a_module_can_be_added(bad):
    with pytest.raises(SMDebugTypeError, match="add_module_tensors"):
        smd.Collection("mine").add_module_tensors(bad)


def test_the_modules_of_a_collection_are_known():
    module, mine = nn.ReLU(), smd.Collection("mine")
    mine.add_module_tensors(module, inputs=True)
    assert module in mine.modules
    assert not mine.is_empty


def test_only_what_is_asked_of_modules_is_saved(record, net, train):
    trial = record(net, lambda hook: train(net), save_all=False, include_regex="fc2_output")
    assert trial.tensor_names() == ["fc2_output_0"]
