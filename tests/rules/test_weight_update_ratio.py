"""weight_update_ratio: weights that change too much or too little from step to step."""

import numpy as np
import pytest

from tornasole.errors import SMDebugValueError
from tornasole.rules import check, load_rule
from tornasole.rules.builtin.weight_update_ratio import (
    WeightUpdateRatio,
    judged,
    update_bounds,
    update_ratio,
)
from tornasole.testing.rule import RuleContract
from tornasole.types import ModeKeys, Role

W = np.array([3.0, 4.0])  # of norm 5
TRAIN, EVAL, GLOBAL = ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.GLOBAL


def weights(*values):
    return [[("w", Role.WEIGHT, value)] for value in values]


@pytest.mark.parametrize(
    ("before", "now", "ratio"),
    [
        (W, W, 0.0),
        (W, 2 * W, 1.0),
        (W, -W, 2.0),
        (0 * W, W, np.nan),
        (W, W[:1], np.nan),
        (W, W * np.nan, np.nan),
    ],
)
def test_the_ratio_is_the_norm_of_the_change_over_the_norm(before, now, ratio):
    found = update_ratio(before, now, float(np.linalg.norm(before)), 0.0)
    np.testing.assert_allclose(found, ratio)


def statistics_of(array):
    return [np.linalg.norm(array), array.mean(), array.min(), array.max(), array.size]


@pytest.mark.parametrize("seed", range(5))
def test_what_statistics_tell_is_never_more_than_the_ratio(seed):
    random = np.random.default_rng(seed)
    before, now = random.normal(size=(2, 50))
    now *= random.choice([0.01, 1, 100])
    bound = update_bounds(np.array([statistics_of(before)]), np.array([statistics_of(now)]), 0.0)[0]
    ratio = update_ratio(before, now, float(np.linalg.norm(before)), 0.0)
    assert 0 < bound <= ratio


def test_statistics_that_are_not_known_tell_nothing():
    unknown = np.full((1, 5), np.nan)
    assert np.isnan(update_bounds(unknown, unknown, 1e-9)).all()


@pytest.mark.parametrize(
    ("ratio", "exact", "expected"),
    [
        (11.0, True, (True, False)),
        (11.0, False, (True, False)),
        (1e-9, True, (False, True)),
        (1e-9, False, (False, False)),
        (1.0, True, (False, False)),
        (np.nan, True, (False, False)),
    ],
)
def test_a_bound_from_below_shows_what_is_large_and_not_what_is_small(ratio, exact, expected):
    found = judged(np.array([ratio]), np.array([exact]), 1e-8, 10.0)
    assert tuple(bool(mask[0]) for mask in found) == expected


@pytest.mark.parametrize("reduced", [False, True])
def test_it_fires_on_a_large_change(save_run, statistics, reduced):
    path = save_run(weights(W, 1.1 * W, 33 * W), statistics if reduced else None)
    (finding,) = check(path, "weight_update_ratio").findings
    assert (finding.step, finding.tensors) == (2, ("w",))
    assert finding.evidence["exact"] is not reduced
    words = "at least 29 times" if reduced else "29 times"
    assert finding.message == (
        f"w changed by {words} its norm between steps 1 and 2; more than 10 is too much."
    )


def test_it_fires_on_a_small_change_only_if_values_were_saved(save_run, statistics):
    steps = weights(W, 1.1 * W, 1.1 * W)
    (finding,) = check(save_run(steps, name="raw"), "weight_update_ratio").findings
    assert finding.step == 2
    assert finding.message == "w has not changed between steps 1 and 2."
    path = save_run(steps, statistics, name="statistics")
    assert check(path, "weight_update_ratio").findings == []


def test_it_is_silent_on_ordinary_updates(save_run):
    path = save_run(weights(*(W * 1.01**i for i in range(5))))
    assert check(path, "weight_update_ratio").findings == []


def test_weights_that_start_at_zero_may_become_anything(save_run):
    assert check(save_run(weights(0 * W, W, 1.1 * W)), "weight_update_ratio").findings == []


def test_only_training_counts(save_run):
    steps = weights(W, W, W, 1.1 * W, 1.1 * W)
    path = save_run(steps, modes=[TRAIN, EVAL, EVAL, TRAIN, EVAL])
    assert check(path, "weight_update_ratio").findings == []


def test_without_a_mode_every_step_counts_unless_training_has_begun(save_run):
    path = save_run(weights(W, W), name="a")
    assert [f.step for f in check(path, "weight_update_ratio").findings] == [1]
    path = save_run(weights(W, 2 * W, 2 * W), modes=[TRAIN, GLOBAL, GLOBAL], name="b")
    assert check(path, "weight_update_ratio").findings == []


def test_with_num_steps_weights_are_compared_over_so_many(save_run):
    accumulated = [W * 1.1 ** (i // 4) for i in range(12)]  # an update at every fourth step
    path = save_run(weights(*accumulated))
    assert len(check(path, "weight_update_ratio").findings) > 0
    assert check(path, "weight_update_ratio:num_steps=4").findings == []
    frozen = save_run(weights(*[W] * 12), name="frozen")
    (finding,) = check(frozen, "weight_update_ratio:num_steps=4").findings
    assert finding.step == 4
    assert finding.evidence["steps"] == [0, 4]


def test_steps_further_apart_than_num_steps_are_not_compared(save_run):
    path = save_run([*weights(W), None, None, *weights(W)])
    assert check(path, "weight_update_ratio:num_steps=2").findings == []
    assert len(check(path, "weight_update_ratio:num_steps=3").findings) == 1


def test_with_num_steps_the_widest_saved_pair_is_judged(save_run):
    # Saved at 0, 3, 6, ...: within 4 steps lie 0 and 3, then 6 and 9.
    steps = [None if i % 3 else weights(W)[0] for i in range(10)]
    (finding,) = check(save_run(steps), "weight_update_ratio:num_steps=4").findings
    assert finding.step == 6
    assert finding.evidence["steps"] == [0, 3]


@pytest.mark.parametrize(
    "bad",
    ["num_steps=0", "epsilon=-1", "small_threshold=-1", "large_threshold=1e-9", "epsilon=tiny"],
)
def test_bad_parameters_are_refused(bad):
    with pytest.raises(SMDebugValueError, match=bad.partition("=")[0]):
        load_rule(f"weight_update_ratio:{bad}")


class TestContract(RuleContract):
    @pytest.fixture
    def rule(self):
        return WeightUpdateRatio()

    @pytest.fixture
    def faulty(self):
        return lambda hook: _job(hook, 100)

    @pytest.fixture
    def healthy(self):
        return lambda hook: _job(hook, 1.1)


def _job(hook, factor):
    for i in range(4):
        hook.begin_step()
        hook._recorder.record("w", Role.WEIGHT, W * factor**i)
