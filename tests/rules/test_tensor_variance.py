"""tensor_variance: values that vary too much or too little."""

import numpy as np
import pytest

from tornasole import ReductionConfig
from tornasole.errors import SMDebugValueError
from tornasole.rules import check, load_rule
from tornasole.rules.builtin.tensor_variance import TensorVariance, out_of_range
from tornasole.testing.rule import RuleContract
from tornasole.types import Role

NARROW, WIDE = np.array([0.0, 0.0]), np.array([-10.0, 10.0])  # variance 0 and 100


@pytest.mark.parametrize(
    ("variance", "size", "low", "high", "expected"),
    [
        (5, 4, 1, 10, (False, False)),
        (11, 4, 1, 10, (True, False)),
        (0.5, 4, 1, 10, (False, True)),
        (11, 4, 1, None, (False, False)),
        (0.5, 4, None, 10, (False, False)),
        (0.0, 1, 1, None, (False, False)),
        (np.nan, 4, 1, 10, (False, False)),
        (np.inf, 4, 1, 10, (True, False)),
        (11, np.nan, 1, 10, (True, False)),
    ],
)
def test_the_variance_must_be_in_range(variance, size, low, high, expected):
    found = out_of_range(np.array([variance]), np.array([size]), low, high)
    assert tuple(bool(mask[0]) for mask in found) == expected


@pytest.mark.parametrize(
    "reduction",
    [
        None,
        ReductionConfig(reductions=["variance"]),
        ReductionConfig(reductions=["std"]),
        ReductionConfig(reductions=["mean"], norms=["l2"]),
    ],
)
def test_it_fires_above_and_below(save_run, reduction):
    steps = [
        [("a", Role.WEIGHT, np.array([0.0, 2.0])), ("b", Role.WEIGHT, np.array([0.0, 2.0]))],
        [("a", Role.WEIGHT, WIDE), ("b", Role.WEIGHT, NARROW)],
    ]
    rule = "tensor_variance:max_threshold=50;min_threshold=0.01"
    (finding,) = check(save_run(steps, reduction), rule).findings
    assert (finding.step, finding.tensors) == (1, ("a", "b"))
    assert finding.message == (
        "The variance of a is 100, above 50. The variance of b is 0, below 0.01."
    )


def test_it_is_silent_within_the_range_and_about_single_values(save_run):
    steps = [[("w", Role.WEIGHT, WIDE), ("s", Role.GRADIENT, np.array([3.0]))]] * 2
    path = save_run(steps)
    assert check(path, "tensor_variance:max_threshold=101;min_threshold=1").findings == []


def test_a_regex_decides_alone(save_run):
    path = save_run([[("a", Role.WEIGHT, WIDE), ("metric", Role.METRIC, WIDE)]])
    rule = "tensor_variance:max_threshold=1"
    assert check(path, rule).findings[0].tensors == ("a",)
    assert check(path, f"{rule};tensor_regex=metric").findings[0].tensors == ("metric",)


@pytest.mark.parametrize("bad", ["", "max_threshold=1;min_threshold=2", "max_threshold=high"])
def test_bad_thresholds_are_refused(bad):
    with pytest.raises(SMDebugValueError, match="threshold"):
        load_rule(f"tensor_variance:{bad}")


class TestContract(RuleContract):
    @pytest.fixture
    def rule(self):
        return TensorVariance(max_threshold=50.0, min_threshold=1.0)

    @pytest.fixture
    def faulty(self):
        return lambda hook: _job(hook, NARROW)

    @pytest.fixture
    def healthy(self):
        return lambda hook: _job(hook, WIDE / 2)


def _job(hook, value):
    hook.begin_step()
    hook._recorder.record("w", Role.WEIGHT, value)
