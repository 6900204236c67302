"""exploding_tensor: values that are not finite, in any tensor of any worker."""

import numpy as np
import pytest

from tornasole.errors import SMDebugValueError
from tornasole.format import Record, StepRecords, segment
from tornasole.format.writer import TrialWriter
from tornasole.rules import Severity, check, load_rule
from tornasole.rules.builtin.exploding_tensor import (
    ExplodingTensor,
    how_many,
    masks,
    nonfinite,
)
from tornasole.store import open_store
from tornasole.testing.rule import RuleContract
from tornasole.types import ModeKeys, Role

FINE = np.arange(4.0)
NAN = np.array([1.0, np.nan, 2.0, np.nan])
INF = np.array([1.0, np.inf, 2.0, 3.0])


@pytest.mark.parametrize(
    ("nan", "infinite", "only_nan", "bad"),
    [
        (0, 0, False, False),
        (1, 0, False, True),
        (0, 1, False, True),
        (0, 1, True, False),
        (1, 0, True, True),
        (np.nan, np.nan, False, False),
    ],
)
def test_nan_and_infinity_count_if_asked_for(nan, infinite, only_nan, bad):
    assert nonfinite(np.array([nan]), np.array([infinite]), only_nan).tolist() == [bad]


@pytest.mark.parametrize(
    ("values", "is_mask"),
    [
        ([0.0, -np.inf, 0.0], True),
        ([0.0, np.inf, 0.0], False),
        ([0.0, -np.inf, 1.0], False),
        ([0.0, -np.inf, np.nan], False),
        ([-np.inf, -np.inf], False),
    ],
)
def test_only_zeros_and_minus_infinity_make_a_mask(values, is_mask):
    array = np.array(values)
    numbers = [
        array.size, (array == 0).sum(), np.isnan(array).sum(), np.isinf(array).sum(), array.max()
    ]  # fmt: skip
    assert masks(*(np.array([float(n)]) for n in numbers)).tolist() == [is_mask]


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ((2, 0, 4), "2 of 4 values are NaN"),
        ((0, 1, 4), "1 of 4 values are infinite"),
        ((2, 1, 4000), "2 of 4,000 values are NaN and 1 infinite"),
        ((1, 0, 1), "its only value is NaN"),
        ((0, 1, 1), "its only value is infinite"),
    ],
)
def test_how_many_in_words(counts, words):
    assert how_many(*counts) == words


@pytest.mark.parametrize("reduced", [False, True])
def test_it_fires_when_nan_appears(save_run, statistics, reduced):
    steps = [[("w", Role.WEIGHT, value)] for value in (FINE, FINE, NAN, NAN)]
    (finding,) = check(
        save_run(steps, statistics if reduced else None), "exploding_tensor"
    ).findings
    assert (finding.step, finding.severity) == (2, Severity.CRITICAL)
    assert finding.tensors == ("w",)
    assert finding.message == "w holds NaN: 2 of 4 values are NaN."


def test_leaves_of_a_tree_have_no_threshold(save_run):
    path = save_run([[("trees/Split", Role.TREE, NAN)]])
    assert not check(path, "exploding_tensor").findings
    assert len(check(path, "exploding_tensor:tensor_regex=trees").findings) == 1


@pytest.mark.parametrize("role", sorted(set(Role) - {Role.TREE}))
def test_it_looks_at_every_role(save_run, role):
    path = save_run([[("x", role, FINE)], [("x", role, INF)]])
    (finding,) = check(path, "exploding_tensor").findings
    assert finding.step == 1


def test_it_is_silent_on_finite_values(save_run):
    steps = [[("w", Role.WEIGHT, FINE * i), ("n", Role.CUSTOM, np.arange(3))] for i in range(3)]
    report = check(save_run(steps), "exploding_tensor")
    assert report.findings == []
    assert report.not_applicable == {}


def test_nan_that_comes_again_is_told_again(save_run):
    # The golden case: NaN at steps 0 and 2 fires from step 0 and from step 1 on.
    steps = [[("x", Role.CUSTOM, value)] for value in (NAN, FINE, NAN)]
    found = check(save_run(steps), "exploding_tensor").findings
    assert [finding.step for finding in found] == [0, 2]


def test_only_nan_passes_over_infinities(save_run):
    path = save_run([[("x", Role.CUSTOM, INF)]])
    assert check(path, "exploding_tensor:only_nan=true").findings == []
    assert len(check(path, "exploding_tensor").findings) == 1


def test_attention_masks_are_passed_over_unless_chosen(save_run):
    mask = np.triu(np.full((4, 4), -np.inf), 1)
    path = save_run([[("mask", Role.BUFFER, mask)]])
    assert check(path, "exploding_tensor").findings == []
    assert len(check(path, "exploding_tensor:tensor_regex=mask").findings) == 1


def test_a_regex_or_collection_decides_alone(save_run):
    path = save_run([[("a", Role.WEIGHT, NAN), ("b", Role.GRADIENT, NAN)]])
    assert check(path, "exploding_tensor:tensor_regex=^a").findings[0].tensors == ("a",)
    assert check(path, "exploding_tensor:collection_names=all").findings[0].tensors == ("a", "b")


def test_each_worker_is_looked_at(tmp_path):
    store = open_store(str(tmp_path / "trial"))
    for worker, value in (("worker_0", 1.0), ("worker_1", np.nan)):
        writer = TrialWriter(store, worker)
        if worker == "worker_0":
            writer.claim({"workers": 2, "framework": "none"})
        record = Record("loss", Role.LOSS.value, ("losses",), "float64", (), 0.0, value=value)
        segment.write(store, worker, 0, [StepRecords(0, ModeKeys.GLOBAL, 0, [record])])
        writer.put_end({"clean": True, "reason": None, "last_step": 0, "lost": {}})
    (finding,) = check(str(tmp_path / "trial"), "exploding_tensor").findings
    assert finding.worker == "worker_1"


@pytest.mark.parametrize("bad", ["only_nan=maybe", "nan_only=true", "tensor_regex=("])
def test_bad_parameters_are_refused(bad):
    with pytest.raises(SMDebugValueError):
        load_rule(f"exploding_tensor:{bad}").needs()


class TestContract(RuleContract):
    @pytest.fixture
    def rule(self):
        return ExplodingTensor()

    @pytest.fixture
    def faulty(self):
        return lambda hook: _job(hook, [FINE, NAN])

    @pytest.fixture
    def healthy(self):
        return lambda hook: _job(hook, [FINE, FINE])


def _job(hook, values):
    for value in values:
        hook.begin_step()
        hook._recorder.record("w", Role.WEIGHT, value)
