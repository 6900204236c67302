"""similar_across_runs: where two runs part, value by value or by statistics."""

import numpy as np
import pytest

from tornasole import Hook, ReductionConfig, SaveConfig, modes
from tornasole.errors import SMDebugValueError
from tornasole.rules import Severity, check
from tornasole.rules.builtin.similar_across_runs import apart, difference
from tornasole.types import Role

STATISTICS = ReductionConfig(reductions=["min", "max", "mean", "std"])


@pytest.fixture
def save(tmp_path):
    """Saves a run: at each step some tensors."""

    def make(name, steps, reduction=None, mode=None):
        hook = Hook(
            tmp_path / name,
            save_all=True,
            save_config=SaveConfig(save_interval=1),
            reduction_config=reduction,
        )
        if mode is not None:
            hook.set_mode(mode)
        for tensors in steps:
            hook.begin_step()
            for tensor, value in tensors.items():
                hook._recorder.record(tensor, Role.WEIGHT, np.asarray(value))
        hook.close()
        return tmp_path / name

    return make


def compare(one, *others, more=""):
    paths = ",".join(map(str, others))
    return check(one, [f"similar_across_runs:other_trials={paths}{more}"])


def steps(changed_from=None, by=0.5):
    """Five steps of three tensors; from some step on, one value of the second is another."""
    found = []
    for step in range(5):
        w = np.arange(12.0).reshape(3, 4) + step
        if changed_from is not None and step >= changed_from:
            w[1, 1] += by
        found.append({"a": np.ones(3), "w": w, "loss": 1.0 / (step + 1)})
    return found


@pytest.mark.parametrize(
    ("here", "there", "expected"),
    [
        ([1.0, 2.0], [1.0, 2.0], None),
        ([1.0, np.nan], [1.0, np.nan], None),
        ([np.inf], [np.inf], None),
        ([1.0], [1.0 + 1e-7], None),
        ([1, 5], [1, 2], 3),
        ([1.0, np.nan], [1.0, 2.0], np.inf),
        ([True], [False], 1),
    ],
)
def test_the_largest_difference(here, there, expected):
    found = difference(np.array(here), np.array(there), 1e-5, 1e-8)
    assert found.get("largest difference") == expected


def test_shapes_and_texts_differ_too():
    found = difference(np.zeros(3), np.zeros(4), 0, 0)
    assert found == {"shape here": [3], "shape there": [4]}
    assert difference(np.array(["a", "b"]), np.array(["a", "c"]), 0, 0) == {
        "here": "b", "there": "c",
    }  # fmt: skip
    assert not difference(np.array(["a"]), np.array(["a"]), 0, 0)


def test_statistics_that_are_not_known_do_not_differ():
    here, there = np.array([1.0, np.nan, 1.0]), np.array([2.0, 1.0, np.nan])
    assert apart(here, there, 1e-5, 1e-8).tolist() == [True, False, False]


def test_where_two_runs_part_is_told_once_with_numbers(save):
    other = save("other", steps())
    [finding] = compare(save("one", steps(changed_from=2)), other).findings
    assert finding.step == 2
    assert finding.tensors == ("w",)
    assert finding.message == (
        f"1 tensor differs from {other} at the same step; the first in the order of execution is "
        "w: 7.5 here and 7 there, where they are furthest apart (1 of 12 values)."
    )


@pytest.mark.parametrize("which", ["one", "other", "both"])
def test_statistics_do_where_values_were_not_saved(save, which):
    reductions = {"one": (STATISTICS, None), "other": (None, STATISTICS)}
    mine, theirs = reductions.get(which, (STATISTICS, STATISTICS))
    other = save("other", steps(), theirs)
    [finding] = compare(save("one", steps(3, by=100), mine), other).findings
    assert finding.step == 3
    assert "values not saved" in finding.message


@pytest.mark.parametrize("reduction", [None, STATISTICS])
def test_equal_runs_are_silent(save, reduction):
    assert not compare(save("one", steps(), reduction), save("two", steps(), reduction)).findings


def test_of_several_runs_each_is_compared(save):
    same, other = save("same", steps()), save("other", steps(changed_from=4))
    [finding] = compare(save("one", steps()), same, other).findings
    assert finding.step == 4
    assert finding.evidence["tensors"]["w"]["run"] == str(other)


def test_the_user_chooses_tensors_and_how_close(save):
    one, other = save("one", steps(2)), save("other", steps())
    assert not compare(one, other, more=";tensor_regex=^a$").findings
    assert not compare(one, other, more=";atol=1").findings


def test_what_one_run_alone_has_is_not_compared(save):
    one = save("one", [{"a": 1.0, "b": 1.0}, {"a": 1.0}])
    assert not compare(one, save("other", [{"a": 1.0, "c": 2.0}])).findings


def test_runs_with_nothing_in_common_are_told_of(save):
    other = save("other", steps(), mode=modes.EVAL)
    [finding] = compare(save("one", steps(), mode=modes.TRAIN), other).findings
    assert finding.severity is Severity.INFO
    assert finding.message.startswith("Nothing could be compared")


def test_a_run_that_is_not_there_is_a_finding_about_the_rule(save, tmp_path):
    [finding] = compare(save("one", steps()), tmp_path / "nowhere").findings
    assert "TrialNotFound" in finding.message


def test_it_is_not_among_all_rules(save):
    assert not [f for f in check(save("one", steps())).findings if "similar" in f.rule]


@pytest.mark.parametrize(
    "given", ["", ":other_trials=", ":other_trials=x;rtol=-1", ":other_trials=x;atol=-1"]
)
def test_parameters_that_make_no_sense_are_refused(save, given):
    with pytest.raises(SMDebugValueError, match=r"other_trials|rtol|atol"):
        check(save("one", steps()), [f"similar_across_runs{given}"])
