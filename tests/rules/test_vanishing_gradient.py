"""vanishing_gradient: gradients that are too small to learn from."""

import numpy as np
import pytest

from tornasole import ReductionConfig
from tornasole.errors import SMDebugValueError
from tornasole.rules import check, load_rule
from tornasole.rules.builtin.vanishing_gradient import VanishingGradient, vanished
from tornasole.testing.rule import RuleContract
from tornasole.types import Role

FINE, SMALL = np.array([0.1, -0.2]), np.array([1e-9, -3e-9])


@pytest.mark.parametrize(
    ("magnitude", "expected"),
    [(1e-8, True), (1e-7, False), (1.0, False), (0.0, True), (np.nan, False), (np.inf, False)],
)
def test_a_gradient_vanishes_below_the_threshold(magnitude, expected):
    assert vanished(np.array([magnitude]), 1e-7).tolist() == [expected]


@pytest.mark.parametrize(
    "reduction",
    [None, ReductionConfig(abs_reductions=["mean"]), ReductionConfig(norms=["l1"])],
)
def test_it_fires_when_a_gradient_becomes_small(save_run, reduction):
    steps = [
        [("gradient/a", Role.GRADIENT, value), ("gradient/b", Role.GRADIENT, FINE)]
        for value in (FINE, SMALL, SMALL)
    ]
    (finding,) = check(save_run(steps, reduction), "vanishing_gradient").findings
    assert (finding.step, finding.tensors) == (1, ("gradient/a",))
    assert finding.message == (
        "1 gradient is below 1.00e-07 in mean magnitude; the smallest, gradient/a, is 2.00e-09."
    )


def test_the_mean_alone_does_not_tell_the_magnitude(save_run):
    steps = [[("gradient/a", Role.GRADIENT, np.array([1.0, -1.0]))]] * 2
    path = save_run(steps, ReductionConfig(reductions=["mean"]))
    assert check(path, "vanishing_gradient").findings == []


def test_other_roles_and_nan_do_not_fire(save_run):
    steps = [[("w", Role.WEIGHT, SMALL), ("gradient/w", Role.GRADIENT, SMALL * np.nan)]] * 2
    assert check(save_run(steps), "vanishing_gradient").findings == []


@pytest.mark.parametrize(
    "name",
    [
        "gradient/Net_conv.bias",
        "gradient/LSTM_bias_ih_l0",
        "gradient/net_conv0_bias",
        "gradients/net/conv2d/biasGrad",
        "gradients/conv/bias:0",
    ],
)
def test_a_bias_before_a_normalisation_has_no_gradient_by_design(save_run, name):
    steps = [[(name, Role.GRADIENT, SMALL), ("gradient/w", Role.GRADIENT, FINE)]]
    assert check(save_run(steps), "vanishing_gradient").findings == []


def test_the_threshold_can_be_set(save_run):
    path = save_run([[("gradient/a", Role.GRADIENT, FINE)]])
    assert check(path, "vanishing_gradient:threshold=0.1").findings == []
    assert len(check(path, "vanishing_gradient:threshold=0.2").findings) == 1


def test_bad_parameters_are_refused():
    with pytest.raises(SMDebugValueError, match="threshold"):
        load_rule("vanishing_gradient:threshold=small")


class TestContract(RuleContract):
    @pytest.fixture
    def rule(self):
        return VanishingGradient()

    @pytest.fixture
    def faulty(self):
        return lambda hook: _job(hook, SMALL)

    @pytest.fixture
    def healthy(self):
        return lambda hook: _job(hook, FINE)


def _job(hook, value):
    hook.begin_step()
    hook._recorder.record("gradient/w", Role.GRADIENT, value)
