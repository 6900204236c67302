"""poor_weight_initialization: signs of a bad start in the first steps."""

import numpy as np
import pytest

from tornasole.errors import SMDebugValueError
from tornasole.rules import Severity, check, load_rule
from tornasole.rules.builtin.poor_weight_initialization import (
    PoorWeightInitialization,
    falls_on_average,
    steps_without_fall,
    variance_ratio,
    widest,
    width,
)
from tornasole.testing.rule import RuleContract
from tornasole.types import ModeKeys, Role

RANDOM = np.random.default_rng(0)
VALUES = RANDOM.normal(size=500)


@pytest.mark.parametrize(
    ("variances", "expected"),
    [
        ([1.0, 2.0, 4.0], (4.0, 0, 2)),
        ([1.0, np.nan, 0.5], (2.0, 2, 0)),
        ([1.0, 0.0], (np.inf, 1, 0)),
        ([0.0, 0.0], (1.0, 0, 0)),
        ([1.0], (1.0, 0, 0)),
        ([np.nan, np.inf], (1.0, 0, 0)),
    ],
)
def test_the_ratio_of_variances(variances, expected):
    assert variance_ratio(np.array(variances)) == expected


def test_the_width_is_from_the_5th_to_the_95th_percentile():
    assert width(np.arange(101.0)) == pytest.approx(90)
    assert np.isnan(width(np.array([1.0])))
    assert np.isnan(width(np.array([1.0, np.nan])))


@pytest.mark.parametrize("values", [VALUES, VALUES**3, np.r_[np.zeros(90), np.ones(10)]])
def test_statistics_tell_how_wide_it_can_be_at_most(values):
    numbers = (values.min(), values.max(), values.std(), float(values.size))
    assert widest(*(np.array([n]) for n in numbers))[0] >= width(values)


@pytest.mark.parametrize(
    ("losses", "steps"),
    [
        ([3, 2, 1], 0),
        ([1, 1, 1], 2),
        ([1, 0.5, 0.6, 0.7], 2),
        ([1, np.nan, np.nan], 2),
        ([np.nan, np.nan, 1], 0),
        ([], 0),
    ],
)
def test_how_long_the_loss_has_not_fallen(losses, steps):
    assert steps_without_fall(losses) == steps


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ([1, 1, 1, 1], False),
        ([1, 0.8, 0.85, 0.9], True),
        ([1, 2, 3], False),
        ([3, np.nan, np.nan], False),
        ([1, 2], False),
    ],
)
def test_a_loss_that_varies_can_fall_without_a_new_lowest_one(losses, expected):
    assert falls_on_average(losses, 2) == expected


def run(scale=1.0, gradient=1.0, losses=None, steps=8):
    losses = losses or [1 / (i + 1) for i in range(steps)]
    return [
        [
            ("fc1_input_0", Role.LAYER_INPUT, VALUES),
            ("fc2_input_0", Role.LAYER_INPUT, VALUES * scale),
            ("loss", Role.LOSS, losses[i]),
            ("gradient/fc1", Role.GRADIENT, VALUES),
            ("gradient/fc2", Role.GRADIENT, VALUES * gradient),
        ]
        for i in range(steps)
    ]


FLAT = [1.0] * 8


@pytest.mark.parametrize("reduced", [False, True])
def test_a_good_start_is_silent(save_run, statistics, reduced):
    path = save_run(run(), statistics if reduced else None)
    report = check(path, "poor_weight_initialization")
    assert (report.findings, report.not_applicable) == ([], {})


@pytest.mark.parametrize("reduced", [False, True])
def test_one_sign_alone_is_worth_knowing(save_run, statistics, reduced):
    path = save_run(run(scale=10.0), statistics if reduced else None)
    (finding,) = check(path, "poor_weight_initialization").findings
    assert (finding.step, finding.severity) == (0, Severity.INFO)
    assert finding.message == (
        "What layers are fed with varies 100 times as much in fc2_input_0 as in fc1_input_0."
    )


@pytest.mark.parametrize("reduced", [False, True])
def test_a_loss_that_does_not_fall_together_with_a_sign_is_a_warning(save_run, statistics, reduced):
    path = save_run(run(gradient=1e-5, losses=FLAT), statistics if reduced else None)
    first, second = check(path, "poor_weight_initialization").findings
    assert (first.step, first.severity) == (0, Severity.INFO)
    assert first.tensors == ("gradient/fc2",)
    assert (second.step, second.severity) == (5, Severity.WARNING)
    assert second.message.startswith("The loss has not fallen for 5 saved steps since the start")
    assert ("at most" in second.message) is reduced


def test_only_the_first_steps_are_looked_at(save_run):
    steps = run(steps=4) + run(scale=10.0, gradient=1e-5, steps=4)
    path = save_run(steps)
    assert check(path, "poor_weight_initialization:steps=4").findings == []
    assert len(check(path, "poor_weight_initialization:steps=5").findings) > 0


def test_evaluation_is_not_looked_at(save_run):
    path = save_run(run(scale=10.0), modes=[ModeKeys.EVAL] * 8)
    assert check(path, "poor_weight_initialization").findings == []


def test_a_regex_chooses_the_inputs_of_activations(save_run):
    path = save_run(run(scale=10.0))
    rule = "poor_weight_initialization:activation_inputs_regex"
    assert check(path, f"{rule}=fc1_input").findings == []
    assert len(check(path, f"{rule}=fc._input").findings) == 1


def test_it_says_that_it_needs_something(save_run):
    report = check(save_run([[("w", Role.WEIGHT, VALUES)]]), "poor_weight_initialization")
    assert "no gradients were saved" in report.not_applicable["poor_weight_initialization"]


@pytest.mark.parametrize(
    "bad", ["threshold=0.5", "distribution_range=-1", "patience=0", "steps=0", "steps=few"]
)
def test_bad_parameters_are_refused(bad):
    with pytest.raises(SMDebugValueError, match=bad.partition("=")[0]):
        load_rule(f"poor_weight_initialization:{bad}")


class TestContract(RuleContract):
    @pytest.fixture
    def rule(self):
        return PoorWeightInitialization()

    @pytest.fixture
    def faulty(self):
        return lambda hook: _job(hook, run(scale=10.0, losses=FLAT))

    @pytest.fixture
    def healthy(self):
        return lambda hook: _job(hook, run())


def _job(hook, steps):
    for tensors in steps:
        hook.begin_step()
        hook._recorder.record_many([(name, role, np.asarray(v)) for name, role, v in tensors])
