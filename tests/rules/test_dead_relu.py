import numpy as np
import pytest

from tornasole import Hook, ReductionConfig, SaveConfig
from tornasole.errors import SMDebugValueError
from tornasole.rules import Severity, check
from tornasole.rules.builtin.dead_relu import (
    DeadRelu,
    acts_like_relu,
    inactive_units,
    may_be_dead,
)
from tornasole.rules.units import least_inactive_share, unit_axis
from tornasole.types import Role

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("outputs", "threshold", "expected"),
    [
        ([[0, 1], [0, 0]], 0.01, [True, False]),
        ([[0, 1], [0, 0]], 0.6, [True, True]),
        ([[-1, 1], [-2, 1]], 0.01, [True, False]),
        ([[np.nan, 0], [0, 0]], 0.01, [False, True]),
    ],
)
def test_a_unit_is_inactive_by_its_share_of_samples(outputs, threshold, expected):
    found = inactive_units(np.array(outputs, np.float32), 1, threshold)
    assert found.tolist() == expected


def test_a_channel_is_active_on_a_sample_if_it_is_so_anywhere():
    outputs = np.zeros((4, 2, 5, 5), np.float32)
    outputs[:, 1, 2, 2] = 1
    assert inactive_units(outputs, 1, 0.5).tolist() == [True, False]


@pytest.mark.parametrize(
    ("low", "high", "zeros", "named", "expected"),
    [
        (0.0, 2.0, 5.0, False, True),
        (0.1, 2.0, 0.0, False, False),
        (-0.1, 2.0, 5.0, False, False),
        (-0.1, 2.0, 5.0, True, False),  # a leaky one
        (0.1, 2.0, 0.0, True, True),
        (0.0, 0.0, 5.0, False, True),  # dead altogether
        (0.0, 1.0, 5.0, False, False),  # a sigmoid at its ends
        (0.0, 1.0, 5.0, True, True),
        (np.nan, np.nan, np.nan, False, False),
        (np.nan, np.nan, 5.0, True, True),
    ],
)
def test_what_acts_like_a_relu(low, high, zeros, named, expected):
    numbers = (np.array([each]) for each in (low, high, zeros))
    found = acts_like_relu(*numbers, np.array([named]))
    assert found.tolist() == [expected]


def test_a_layer_with_too_few_zeros_is_not_looked_at_unit_by_unit():
    found = may_be_dead(np.array([0.6, 0.5, 0.2, np.nan]), 0.01, 0.5)
    assert found.tolist() == [False, True, True, True]


def test_the_share_of_zeros_says_how_many_units_are_inactive_at_least():
    found = least_inactive_share(np.array([0.0, 0.002, 0.005, 0.5]), 0.01)
    assert found.tolist() == pytest.approx([1.0, 0.8, 0.5, -49.0])


@pytest.mark.parametrize(
    ("name", "dimensions", "axis"),
    [
        ("relu_output_0", 1, None),
        ("relu_output_0", 2, 1),
        ("relu_output_0", 3, 2),
        ("relu_output_0", 4, 1),
        ("conv2d/outputs", 4, 3),
    ],
)
def test_the_axis_of_units(name, dimensions, axis):
    assert unit_axis(name, dimensions) == axis


def relu(samples=32, units=40, dead=0, active=0.3):
    """Outputs of a ReLU layer some of whose units are dead."""
    values = RANDOM.random((samples, units), dtype=np.float32) + 0.1
    values[RANDOM.random((samples, units)) > active] = 0
    values[:, :dead] = 0
    return values


def linear(samples=32, units=40):
    return RANDOM.standard_normal((samples, units), dtype=np.float32)


def save(path, *steps, reduced=False):
    """Steps with outputs of layers by name."""
    form = ReductionConfig(reductions=["min", "max"]) if reduced else None
    with Hook(
        path,
        save_config=SaveConfig(save_interval=1),
        include_collections=["layers"],
        reduction_config=form,
    ) as hook:
        for outputs in steps:
            hook.begin_step()
            for name, value in outputs.items():
                hook._recorder.record(name, Role.LAYER_OUTPUT, value)
    return str(path)


def findings(path, rule="dead_relu"):
    return check(path, [rule], save=False).findings


def test_fires_on_a_layer_that_is_more_than_half_dead(tmp_path):
    path = save(tmp_path / "t", *[{"net.ReLU_output_0": relu(dead=30)} for _ in range(3)])
    (finding,) = findings(path)
    assert (finding.step, finding.severity) == (0, Severity.WARNING)
    assert finding.message == (
        "1 ReLU layer is more than 50 % dead: 30 of 40 units of net.ReLU_output_0 (75 %) are off "
        "on the whole batch."
    )
    assert not finding.evidence["estimated"]


def test_a_layer_that_is_dead_altogether_is_critical(tmp_path):
    (finding,) = findings(save(tmp_path / "t", {"relu_output_0": relu(dead=40)}))
    assert finding.severity is Severity.CRITICAL


@pytest.mark.parametrize("active", [0.1, 0.3, 0.5])
def test_a_healthy_layer_is_fine_however_small_its_batches(tmp_path, active):
    steps = [{"relu_output_0": relu(samples=2, dead=4, active=active)} for _ in range(10)]
    assert findings(save(tmp_path / "t", *steps)) == []


def test_units_that_were_off_in_one_batch_only_are_not_dead(tmp_path):
    steps = [{"relu_output_0": relu(dead=30 if step == 5 else 0)} for step in range(8)]
    assert findings(save(tmp_path / "t", *steps)) == []


def test_units_that_die_are_found_after_the_window(tmp_path):
    steps = [{"relu_output_0": relu(dead=30 if step >= 5 else 0)} for step in range(10)]
    assert [finding.step for finding in findings(save(tmp_path / "t", *steps))] == [7]


def test_a_layer_without_a_telling_name_is_known_by_its_numbers(tmp_path):
    steps = [
        {"0_output_0": linear(), "1_output_0": (out := relu(dead=30)), "net_output_0": out}
        for _ in range(4)
    ]
    (finding,) = findings(save(tmp_path / "t", *steps))
    assert (finding.step, finding.tensors) == (2, ("1_output_0",))  # not its copy


def test_data_that_is_passed_on_is_not_taken_for_a_relu(tmp_path):
    steps = [
        {"0_output_0": relu(dead=30), "1_output_0": linear(), "flatten_output_0": relu(dead=30)}
        for _ in range(4)
    ]
    assert findings(save(tmp_path / "t", *steps)) == []


def test_channels_are_the_units_of_a_convolution(tmp_path):
    first, last = np.zeros((16, 6, 4, 4), np.float32), np.zeros((16, 4, 4, 6), np.float32)
    first[:, :2, 1, 1] = 1
    last[:, 1, 1, :2] = 2
    path = save(tmp_path / "t", *[{"relu_output_0": first, "conv2d/outputs": last}] * 3)
    assert [(finding.step, finding.tensors) for finding in findings(path)] == [
        (1, ("relu_output_0",)),  # after 20 samples
        (2, ("conv2d/outputs",)),
    ]
    assert findings(path, "dead_relu:threshold_layer=70") == []


def test_from_statistics_alone_it_is_an_estimate(tmp_path):
    dead, half = relu(samples=200, dead=40), relu(samples=200, dead=30)
    dead[0, 0] = 1
    path = save(tmp_path / "t", {"a_relu_output_0": dead, "b_relu_output_0": half}, reduced=True)
    (finding,) = findings(path)
    assert finding.tensors == ("a_relu_output_0",)
    assert finding.evidence["estimated"]
    assert finding.message == (
        "1 ReLU layer is more than 50 % dead: at least 98.7 % of the units of a_relu_output_0 "
        "(estimated from its share of zeros, as only statistics were saved) are off on the whole "
        "batch."
    )


def test_healthy_statistics_are_fine(tmp_path):
    steps = [{"0_output_0": linear(), "relu_output_0": relu(active=0.1)}] * 3
    assert findings(save(tmp_path / "t", *steps, reduced=True)) == []


def test_a_regex_decides_alone(tmp_path):
    steps = [{"relu_output_0": relu(dead=40), "mine": relu(dead=30)}] * 3
    (finding,) = findings(save(tmp_path / "t", *steps), "dead_relu:tensor_regex=^mine$")
    assert finding.tensors == ("mine",)


def test_nan_is_not_dead(tmp_path):
    values = np.full((32, 8), np.nan, np.float32)
    steps = [{"relu_output_0": values, "one_relu_output_0": np.zeros(3, np.float32)[:0]}] * 3
    assert findings(save(tmp_path / "t", *steps)) == []


def test_says_what_to_save(tmp_path):
    with Hook(tmp_path / "t", save_config=SaveConfig(save_interval=1)) as hook:
        hook.begin_step()
        hook.save_scalar("lr", 0.1)
    assert check(tmp_path / "t", ["dead_relu"]).not_applicable == {
        "dead_relu": "no outputs of layers were saved; add include_collections=['layers']"
    }


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"threshold_inactivity": 0}, "above 0 and up to 100, not 0"),
        ({"threshold_layer": 100}, "below 100, not 100"),
        ({"tensor_regex": "("}, "not a valid regular expression"),
    ],
)
def test_bad_parameters_are_refused(parameters, words):
    with pytest.raises(SMDebugValueError) as error:
        DeadRelu.configured(**parameters)
    assert words in str(error.value)
