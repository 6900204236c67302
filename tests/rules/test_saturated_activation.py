import numpy as np
import pytest

from tornasole import Hook, ReductionConfig, SaveConfig
from tornasole.errors import SMDebugValueError
from tornasole.rules import Severity, check
from tornasole.rules.builtin.saturated_activation import (
    Kind,
    Range,
    SaturatedActivation,
    act_like,
    kind_by_name,
    least_slope,
    mean_slope,
    outputs_of,
    saturated_units,
)
from tornasole.types import Role

RANDOM = np.random.default_rng(0)
TANH, SIGMOID = Range(-9.4999, 9.4999), Range(-23.0, 16.99999)


@pytest.mark.parametrize(
    ("values", "between", "expected"),
    [
        ([[-10, 0], [10, 10]], TANH, [True, False]),
        ([[-22, -24], [16, 17]], SIGMOID, [False, True]),
        ([[np.nan, np.inf], [10, -np.inf]], TANH, [False, True]),
    ],
)
def test_a_unit_is_saturated_on_the_whole_batch(values, between, expected):
    assert saturated_units(np.array(values, np.float32), 1, between, 0.01).tolist() == expected


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (-1.0, 1.0, -1),
        (-0.5, 1.0, -1),
        (-0.9, 0.9, 0),
        (-1.1, 1.0, 0),
        (0.0, 1.0, 1),
        (0.2, 1.0, 1),
        (0.0, 0.9, 0),
        (0.0, 0.0, 0),
        (np.nan, 1.0, 0),
    ],
)
def test_what_acts_like_a_sigmoid_or_tanh(low, high, expected):
    tanh, sigmoid = outputs_of(Kind.TANH, TANH), outputs_of(Kind.SIGMOID, SIGMOID)
    assert act_like(np.array([low]), np.array([high]), tanh, sigmoid).tolist() == [expected]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("net.Tanh_input_0", Kind.TANH),
        ("sigmoid0_output_0", Kind.SIGMOID),
        ("tanh_or_sigmoid", Kind.EITHER),
        ("dense/outputs", None),
    ],
)
def test_a_name_may_say_what_a_layer_is(name, expected):
    assert kind_by_name(name) is expected


def test_slopes_follow_from_means():
    inputs = RANDOM.standard_normal(100)
    outputs = np.tanh(inputs)
    expected = (1 / np.cosh(inputs) ** 2).mean()
    assert mean_slope(Kind.TANH, outputs.mean(), (outputs**2).mean()) == pytest.approx(expected)
    outputs = 1 / (1 + np.exp(-inputs))
    expected = (outputs * (1 - outputs)).mean()
    assert mean_slope(Kind.SIGMOID, outputs.mean(), (outputs**2).mean()) == pytest.approx(expected)
    assert least_slope(Kind.TANH, TANH) == pytest.approx(2.24e-8, rel=0.01)
    assert least_slope(Kind.SIGMOID, SIGMOID) == pytest.approx(1.03e-10, rel=0.01)


def inputs(scale=1.0, samples=32, units=20, saturated=0):
    """Inputs of an activation, of both signs; those of some units are far out."""
    values = scale * RANDOM.standard_normal((samples, units), dtype=np.float32)
    values[:, :saturated] = np.where(values[:, :saturated] > 0, 30, -30)
    return values


def tanh(**arguments):
    return np.tanh(inputs(**arguments))


def sigmoid(**arguments):
    return 1 / (1 + np.exp(-inputs(**arguments)))


def save(path, *steps, reduced=False):
    """Steps with inputs and outputs of layers by name."""
    form = ReductionConfig(reductions=["min", "max", "mean"], norms=["l2"], abs_reductions=["min"])
    with Hook(
        path,
        save_config=SaveConfig(save_interval=1),
        include_collections=["layers"],
        reduction_config=form if reduced else None,
    ) as hook:
        for tensors in steps:
            hook.begin_step()
            for name, value in tensors.items():
                role = Role.LAYER_INPUT if "input" in name else Role.LAYER_OUTPUT
                hook._recorder.record(name, role, value)
    return str(path)


def findings(path, rule="saturated_activation"):
    return check(path, [rule], save=False).findings


@pytest.mark.parametrize("name", ["net.tanh_input_0", "Sigmoid_input_0"])
def test_fires_on_inputs_far_out(tmp_path, name):
    (finding,) = findings(save(tmp_path / "t", *[{name: inputs(saturated=15)}] * 3))
    kind = "tanh" if "tanh" in name else "sigmoid"
    assert (finding.step, finding.tensors) == (0, (name,))
    assert finding.severity is Severity.WARNING
    assert finding.message == (
        f"1 layer is more than 50 % saturated: 15 of 20 units of {name} (75 %) are at the ends of "
        f"{kind} on the whole batch, where no gradient gets through."
    )


@pytest.mark.parametrize("name", ["tanh_input_0", "sigmoid_input_0", "linear_input_0"])
def test_usual_inputs_are_fine(tmp_path, name):
    assert findings(save(tmp_path / "t", *[{name: inputs(scale=3, saturated=5)}] * 3)) == []


def test_inputs_of_other_layers_do_not_matter(tmp_path):
    assert findings(save(tmp_path / "t", *[{"relu_input_0": inputs(saturated=20)}] * 3)) == []


@pytest.mark.parametrize(
    ("outputs", "kind"), [(tanh, "tanh"), (sigmoid, "sigmoid")], ids=["tanh", "sigmoid"]
)
def test_outputs_without_a_telling_name_are_known_by_their_numbers(tmp_path, outputs, kind):
    def run(path, saturated):
        steps = [
            {"0_output_0": inputs(), "1_output_0": outputs(saturated=saturated)} for _ in range(4)
        ]
        return findings(save(path, *steps))

    (finding,) = run(tmp_path / "saturated", 15)
    assert (finding.step, finding.tensors) == (2, ("1_output_0",))
    assert f"the ends of {kind}" in finding.message
    assert run(tmp_path / "healthy", 5) == []


def test_inputs_say_more_than_outputs(tmp_path):
    steps = [{"tanh_input_0": inputs(), "tanh_output_0": tanh(saturated=20)}] * 3
    assert findings(save(tmp_path / "t", *steps)) == []


def test_a_softmax_that_is_sure_is_no_fault(tmp_path):
    sure = np.eye(10, dtype=np.float32)[RANDOM.integers(0, 10, 32)]
    steps = [{"0_output_0": inputs(), "1_output_0": sure, "dense/outputs": sure}] * 4
    assert findings(save(tmp_path / "t", *steps)) == []


def test_data_that_is_passed_on_is_no_activation(tmp_path):
    pixels = RANDOM.integers(0, 2, (32, 20)).astype(np.float32)
    steps = [{"0_output_0": pixels, "1_output_0": inputs(), "flatten/outputs": pixels}] * 4
    assert findings(save(tmp_path / "t", *steps)) == []


@pytest.mark.parametrize(
    "tensors",
    [
        {"tanh_input_0": np.abs(inputs(scale=0.1)) + 12},
        {"sigmoid_input_0": -np.abs(inputs(scale=0.1)) - 24},
        {"tanh_input_0": inputs(saturated=20)},
        {"tanh_output_0": tanh(saturated=20)},
        {"sigmoid_output_0": sigmoid(saturated=20)},
        {"0_output_0": inputs(), "1_output_0": tanh(saturated=20)},
    ],
    ids=["above", "below", "both sides", "tanh", "sigmoid", "no name"],
)
def test_from_statistics_alone_a_layer_that_is_saturated_altogether(tmp_path, tensors):
    (finding,) = findings(save(tmp_path / "t", *[tensors] * 3, reduced=True))
    assert finding.evidence["estimated"]
    assert "(estimated, as only statistics were saved)" in finding.message
    assert finding.severity is not Severity.INFO


def test_from_statistics_alone_no_doubt_is_needed(tmp_path):
    tensors = {
        "tanh_input_0": inputs(saturated=15),
        "a_tanh_output_0": tanh(saturated=15),
        "sigmoid_output_0": sigmoid(saturated=15),
        "softmax_output_0": np.eye(20, dtype=np.float32),
        "dense/outputs": np.eye(20, dtype=np.float32),
    }
    assert findings(save(tmp_path / "t", tensors, reduced=True)) == []


def test_thresholds_can_be_set_in_both_spellings(tmp_path):
    path = save(tmp_path / "t", {"tanh_input_0": np.full((32, 4), 5.0, np.float32)})
    assert findings(path) == []
    assert len(findings(path, "saturated_activation:threshold_tanh=-4,4")) == 1
    assert len(findings(path, "saturated_activation:threshold_tanh_max=4")) == 1
    assert findings(path, "saturated_activation:threshold_tanh_min=-4") == []


def test_a_regex_or_a_collection_decides_alone(tmp_path):
    path = save(
        tmp_path / "t", {"gate_input_0": inputs(saturated=20), "tanh_input_0": inputs(saturated=20)}
    )
    (finding,) = findings(path, "saturated_activation:tensor_regex=^gate")
    assert finding.tensors == ("gate_input_0",)
    (finding,) = findings(path, "saturated_activation:collection_names=layers")
    assert finding.tensors == ("gate_input_0", "tanh_input_0")


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"threshold_tanh": "1"}, "threshold_tanh takes two numbers"),
        ({"threshold_sigmoid": "5,-5"}, "5.0 must be below -5.0"),
        ({"threshold_sigmoid_min": 20}, "threshold_sigmoid: 20.0 must be below 16.99999"),
        ({"threshold_inactivity": 101}, "up to 100, not 101"),
        ({"threshold_layer": -1}, "below 100, not -1"),
    ],
)
def test_bad_parameters_are_refused(parameters, words):
    with pytest.raises(SMDebugValueError) as error:
        SaturatedActivation.configured(**parameters)
    assert words in str(error.value)
