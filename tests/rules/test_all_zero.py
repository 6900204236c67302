"""all_zero: tensors of nothing but zeros."""

import numpy as np
import pytest

from tornasole.errors import SMDebugValueError
from tornasole.rules import check, load_rule
from tornasole.rules.builtin.all_zero import AllZero, all_zero
from tornasole.testing.rule import RuleContract
from tornasole.types import ModeKeys, Role

ZEROS = np.zeros((3, 4))
HALF = np.array([0.0, 1.0, 0.0, 2.0])
ONES = np.ones((3, 4))


@pytest.mark.parametrize(
    ("share", "threshold", "fires"),
    [(1.0, 100, True), (0.99, 100, False), (0.5, 50, True), (0.49, 50, False), (np.nan, 50, False)],
)
def test_enough_zeros_count_as_all(share, threshold, fires):
    assert all_zero(np.array([share]), threshold).tolist() == [fires]


@pytest.mark.parametrize("reduced", [False, True])
def test_it_fires_at_the_second_step_in_a_row(save_run, statistics, reduced):
    steps = [[("w", Role.WEIGHT, value)] for value in (ONES, ZEROS, ZEROS, ZEROS)]
    (finding,) = check(save_run(steps, statistics if reduced else None), "all_zero").findings
    assert (finding.step, finding.tensors) == (2, ("w",))
    assert finding.message == "w is nothing but zeros."
    assert finding.evidence["zeros"] == {"w": 100.0}


def test_weights_that_start_at_zero_and_move_are_fine(save_run):
    steps = [[("w", Role.WEIGHT, ZEROS + i)] for i in range(4)]
    assert check(save_run(steps), "all_zero").findings == []


def test_biases_and_evaluation_are_not_looked_at_by_itself(save_run):
    tensors = [("b", Role.BIAS, ZEROS), ("w", Role.WEIGHT, ONES)]
    assert check(save_run([tensors] * 3, name="a"), "all_zero").findings == []
    steps = [[("w", Role.WEIGHT, ZEROS)]] * 3
    path = save_run(steps, modes=[ModeKeys.EVAL] * 3, name="b")
    assert check(path, "all_zero").findings == []


@pytest.mark.parametrize("choice", ["tensor_regex=^b", "collection_names=all"])
def test_what_the_user_chose_is_told_at_once(save_run, choice):
    path = save_run([[("b", Role.BIAS, ZEROS)]])
    (finding,) = check(path, f"all_zero:{choice}").findings
    assert (finding.step, finding.tensors) == (0, ("b",))


def test_a_lower_threshold_is_in_per_cent(save_run):
    path = save_run([[("x", Role.CUSTOM, HALF)]])
    assert check(path, "all_zero:tensor_regex=x;threshold=51").findings == []
    (finding,) = check(path, "all_zero:tensor_regex=x;threshold=50").findings
    assert finding.message == "x is at least 50 % zeros (50 %)."


def test_empty_and_nan_tensors_are_not_zero(save_run):
    tensors = [("x", Role.CUSTOM, np.zeros((0, 3))), ("y", Role.CUSTOM, np.full(3, np.nan))]
    assert check(save_run([tensors] * 2), "all_zero:tensor_regex=.").findings == []


@pytest.mark.parametrize("threshold", ["0", "-1", "101", "many"])
def test_bad_thresholds_are_refused(threshold):
    with pytest.raises(SMDebugValueError, match="threshold"):
        load_rule(f"all_zero:threshold={threshold}")


class TestContract(RuleContract):
    @pytest.fixture
    def rule(self):
        return AllZero()

    @pytest.fixture
    def faulty(self):
        return lambda hook: _job(hook, ZEROS)

    @pytest.fixture
    def healthy(self):
        return lambda hook: _job(hook, ONES)


def _job(hook, value):
    for _ in range(3):
        hook.begin_step()
        hook._recorder.record("gradient/w", Role.GRADIENT, value)
