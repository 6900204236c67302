"""Tensors are found in whatever a module takes and returns."""

import dataclasses
from collections import OrderedDict, namedtuple

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn

Pair = namedtuple("Pair", "first second")


@dataclasses.dataclass
class Result:
    logits: torch.Tensor
    note: str = "not a tensor"
    hidden: tuple = ()
    nothing: None = None


@dataclasses.dataclass
class ModelOutput(OrderedDict):
    """Like those of Hugging Face: an ordered dict that is a dataclass, and omits what is None."""

    loss: torch.Tensor = None
    logits: torch.Tensor = None
    past: tuple = None

    def __post_init__(self):
        for field in dataclasses.fields(self):
            if (value := getattr(self, field.name)) is not None:
                self[field.name] = value


class Returns(nn.Module):
    """Its layer takes anything and returns what the function makes of it."""

    class Layer(nn.Module):
        def __init__(self, function):
            super().__init__()
            self.function = function

        def forward(self, *args, **kwargs):
            return self.function(*args, **kwargs)

    def __init__(self, function):
        super().__init__()
        self.layer = self.Layer(function)

    def forward(self, *args, **kwargs):
        return self.layer(*args, **kwargs)


def tensor(value):
    return torch.full((2,), float(value))


def numbers(trial, kind):
    names = trial.tensor_names(regex=rf"^layer_{kind}_\d+$")
    assert names == [f"layer_{kind}_{i}" for i in range(len(names))]
    return [trial.tensor(name).value(0)[0] for name in names]


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (tensor(1), [1]),
        ((tensor(1), (tensor(2), [tensor(3)])), [1, 2, 3]),
        ({"b": tensor(1), "a": {"x": tensor(2)}}, [1, 2]),
        (Pair(tensor(1), tensor(2)), [1, 2]),
        (Result(tensor(1), hidden=(tensor(2), tensor(3))), [1, 2, 3]),
        (ModelOutput(tensor(1), tensor(2), (tensor(3),)), [1, 2, 3]),
        (ModelOutput(logits=tensor(2)), [2]),
        ([], []),
        (None, []),
        ("text", []),
        (3.0, []),
        (nn.Parameter(tensor(1)), [1]),
        ([tensor(1), None, "text", tensor(2)], [1, 2]),
        (Result, []),
    ],
    ids=lambda value: type(value).__name__,
)
def test_outputs_are_found(record, output, expected):
    model = Returns(lambda: output)
    trial = record(model, lambda hook: model())
    assert numbers(trial, "output") == expected
    assert len(trial.tensor_names(regex="^Returns_output_")) == len(expected)


def test_positional_and_keyword_inputs_are_found_in_order(record):
    model = Returns(lambda *args, **kwargs: None)
    inputs = {"mask": tensor(3), "more": {"deep": [tensor(4)]}, "flag": True}
    trial = record(model, lambda hook: model(tensor(1), (tensor(2),), **inputs))
    assert numbers(trial, "input") == [1, 2, 3, 4]
    assert len(trial.tensor_names(regex="^Returns_input_")) == 4


def test_a_module_without_tensors_is_no_trouble(record):
    model = Returns(lambda text: text.upper())
    trial = record(model, lambda hook: model("text"))
    assert trial.tensor_names() == []


def test_the_output_reaches_the_caller_untouched(record):
    output = ModelOutput(tensor(1))
    model = Returns(lambda: output)
    record(model, lambda hook: None if model() is output else pytest.fail("another object"))
