"""unchanged_tensor: tensors that stay the same from step to step."""

import numpy as np
import pytest

from tornasole import ReductionConfig
from tornasole.errors import SMDebugValueError
from tornasole.rules import check, load_rule
from tornasole.rules.builtin.unchanged_tensor import UnchangedTensor, close, equal_statistics
from tornasole.rules.remembered import Values
from tornasole.testing.rule import RuleContract
from tornasole.types import ModeKeys, Role

ONES = np.ones(3)


def weights(*values):
    return [[("w", Role.WEIGHT, value)] for value in values]


@pytest.mark.parametrize(
    ("before", "now", "options", "same"),
    [
        ([1.0, 2.0], [1.0, 2.0], {}, True),
        ([1.0, 2.0], [1.0, 2.1], {}, False),
        ([1.0, 2.0], [2.0, 1.0], {}, False),
        ([1.0, 2.0], [1.0, 2.1], {"rtol": 0.1}, True),
        ([0.0, 2.0], [0.05, 2.0], {"atol": 0.1}, True),
        ([1.0, np.nan], [1.0, np.nan], {}, False),
        ([1.0, np.nan], [1.0, np.nan], {"equal_nan": True}, True),
        ([1.0, np.inf], [1.0, np.inf], {}, True),
        ([1.0, np.inf], [1.0, -np.inf], {}, False),
        ([1.0, 2.0], [1.0, 2.0, 3.0], {}, False),
        ([1, 2], [1, 2], {}, True),
        (["a", "b"], ["a", "b"], {}, True),
        (["a", "b"], ["a", "c"], {}, False),
        ([], [], {}, True),
    ],
)
def test_values_are_the_same_up_to_the_tolerances(before, now, options, same):
    options = {"rtol": 1e-5, "atol": 1e-8, "equal_nan": False, **options}
    assert close(np.array(before), np.array(now), **options) is same


def test_a_change_at_the_end_of_a_large_tensor_is_seen():
    before = np.zeros(100_000, np.float32)
    now = before.copy()
    now[-1] = 1
    assert not close(before, now, 1e-5, 1e-8, False)
    assert close(before, before.copy(), 1e-5, 1e-8, False)


@pytest.mark.parametrize(
    ("before", "now", "same"),
    [
        ([1, 2, 3], [1, 2, 3], True),
        ([1, 2, 3], [1, 2, 4], False),
        ([1, 2, np.nan], [1, 2, np.nan], True),
        ([1, 2, np.nan], [1, 2, 3], False),
        ([1, np.nan, np.nan], [1, np.nan, np.nan], False),  # one number is too little to go by
        ([np.nan] * 3, [np.nan] * 3, False),
    ],
)
def test_statistics_are_the_same_if_all_that_are_known_are(before, now, same):
    assert equal_statistics(np.array([before]), np.array([now])).tolist() == [same]


def test_the_golden_case(save_run):
    # Equal tensors at steps 0, 1, 2: fires at step 2, and not at 3 to 5, where others are saved.
    steps = [[("x", Role.CUSTOM, ONES)] for _ in range(3)]
    steps += [[("y", Role.CUSTOM, ONES * i)] for i in range(3)]
    found = check(save_run(steps, name="all"), "unchanged_tensor:tensor_regex=.*").findings
    assert [(finding.step, finding.tensors) for finding in found] == [(2, ("x",))]
    path = save_run(steps[:2], name="first")
    assert check(path, "unchanged_tensor:tensor_regex=.*").findings == []


@pytest.mark.parametrize("reduced", [False, True])
def test_it_fires_after_num_steps_saved_steps(save_run, statistics, reduced):
    steps = weights(np.arange(3.0), ONES, ONES, ONES, ONES, ONES)
    path = save_run(steps, statistics if reduced else None)
    (finding,) = check(path, "unchanged_tensor").findings
    assert (finding.step, finding.tensors) == (3, ("w",))
    assert finding.message.startswith("w is the same at the last 3 saved steps")
    assert finding.evidence["compared by"] == ("statistics" if reduced else "values")
    (finding,) = check(path, "unchanged_tensor:num_steps=5").findings
    assert finding.step == 5


@pytest.mark.parametrize("reduced", [False, True])
def test_it_is_silent_while_values_change(save_run, statistics, reduced):
    steps = weights(*(ONES + 0.001 * i for i in range(6)))
    path = save_run(steps, statistics if reduced else None)
    assert check(path, "unchanged_tensor").findings == []


def test_values_are_compared_where_they_were_saved(save_run):
    turned = [np.array([1.0, 2.0]), np.array([2.0, 1.0])]  # the same statistics
    assert check(save_run(weights(*turned * 3)), "unchanged_tensor").findings == []


def test_one_statistic_is_too_little_to_go_by(save_run):
    path = save_run(weights(*[ONES] * 4), ReductionConfig(reductions=["mean"]))
    assert check(path, "unchanged_tensor").findings == []


def test_what_changes_and_stops_again_is_told_again(save_run):
    path = save_run(weights(ONES, ONES, ONES, ONES * 2, ONES * 2, ONES * 2))
    found = check(path, "unchanged_tensor").findings
    assert [finding.step for finding in found] == [2, 5]


def test_steps_that_were_not_saved_do_not_count(save_run):
    path = save_run([*weights(ONES), None, *weights(ONES), None, *weights(ONES)])
    assert [finding.step for finding in check(path, "unchanged_tensor").findings] == [4]


def test_weights_may_stay_in_evaluation(save_run):
    train, evaluate = ModeKeys.TRAIN, ModeKeys.EVAL
    steps = weights(ONES, ONES, ONES, ONES, ONES * 2, ONES * 2, ONES * 2)
    modes = [train, evaluate, evaluate, evaluate, train, evaluate, evaluate]
    path = save_run(steps, modes=modes)
    assert check(path, "unchanged_tensor").findings == []
    found = check(path, "unchanged_tensor:tensor_regex=w").findings
    assert [(finding.step, finding.mode) for finding in found] == [(3, evaluate)]


def test_nan_is_not_the_same_unless_asked(save_run):
    path = save_run(weights(*[ONES * np.nan] * 3))
    assert check(path, "unchanged_tensor").findings == []
    assert len(check(path, "unchanged_tensor:equal_nan=true").findings) == 1


def test_values_take_no_more_memory_than_there_is():
    values = Values(most_bytes=100)
    values.put("a", np.zeros(10))
    values.put("b", np.zeros(10))
    assert values.get("a") is not None
    assert (values.get("b"), values.may_have("b")) == (None, False)
    values.put("a", np.zeros(12))
    assert values.get("a").shape == (12,)


def test_values_are_copies():
    values, array = Values(), np.zeros(2)
    values.put("a", array)
    array[:] = 1
    assert values.get("a").tolist() == [0, 0]


@pytest.mark.parametrize("bad", ["num_steps=1", "rtol=-1", "atol=-1", "num_steps=some"])
def test_bad_parameters_are_refused(bad):
    with pytest.raises(SMDebugValueError, match=bad.partition("=")[0]):
        load_rule(f"unchanged_tensor:{bad}")


class TestContract(RuleContract):
    @pytest.fixture
    def rule(self):
        return UnchangedTensor()

    @pytest.fixture
    def faulty(self):
        return lambda hook: _job(hook, 0)

    @pytest.fixture
    def healthy(self):
        return lambda hook: _job(hook, 0.1)


def _job(hook, change):
    for i in range(5):
        hook.begin_step()
        hook._recorder.record("w", Role.WEIGHT, ONES + change * i)
