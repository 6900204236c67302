import math

import numpy as np
import pytest

from tornasole import Hook, SaveConfig
from tornasole.errors import SMDebugValueError
from tornasole.rules import check
from tornasole.rules.builtin.loss_not_decreasing import (
    LossNotDecreasing,
    change_in_percent,
    is_not_decreasing,
)
from tornasole.types import ModeKeys, Role


@pytest.mark.parametrize(
    ("loss", "before", "diff_percent", "expected"),
    [
        (0.3, 0.3, 0.0, True),
        (0.3, 0.3, 20.0, True),
        (0.2999, 0.3, 0.0, False),
        (0.2999, 0.3, 0.1, True),
        (0.29, 0.3, 0.1, False),
        (0.25, 0.3, 20.0, True),
        (0.24, 0.3, 20.0, False),
        (0.42, 0.3, 0.1, True),
        (-2.0, -1.0, 50.0, False),
        (-1.0, -2.0, 0.1, True),
        (0.0, 0.0, 0.1, False),
        (0.0, 1.0, 99.0, False),
        (math.nan, 1.0, 0.1, False),
    ],
)
def test_a_loss_must_fall_by_its_share(loss, before, diff_percent, expected):
    assert is_not_decreasing(loss, before, diff_percent) is expected


def test_a_change_is_relative_to_what_was_before():
    assert change_in_percent(0.42, 0.3) == pytest.approx(40)
    assert change_in_percent(-1.0, -2.0) == pytest.approx(50)
    assert change_in_percent(1.0, 0.0) == math.inf


def save(path, losses, every=1, name="loss", by_hand=False):
    """A loss at every so many steps; one that is a list is a vector."""
    with Hook(
        path, save_config=SaveConfig(save_interval=every), include_collections=["losses"]
    ) as hook:
        for step in range(every * (len(losses) - 1) + 1):
            hook.begin_step()
            if step % every == 0 and by_hand:
                hook.save_tensor(name, losses[step // every], collections_to_write="losses")
            elif step % every == 0:
                hook._recorder.record(name, Role.LOSS, losses[step // every])
    return str(path)


def steps(path, rule="loss_not_decreasing"):
    return [finding.step for finding in check(path, [rule], save=False).findings]


@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize("diff_percent", ["0.0", "0.1"])
def test_fires_at_step_12_and_not_up_to_16(tmp_path, by_hand, diff_percent):
    path = save(tmp_path / "t", [0.3, 0.33, 0.31, 0.30, 0.28], every=4, by_hand=by_hand)
    assert steps(path, f"loss_not_decreasing:diff_percent={diff_percent}") == [12]


def test_a_flat_loss_fires_whatever_fall_is_asked_for(tmp_path):
    # An old version of the reference kept silent at 12 and fired at 24, against its own prose.
    path = save(tmp_path / "t", [0.3, 0.33, 0.31, 0.30, 0.28, 0.2, 0.42], every=4)
    findings = check(path, ["loss_not_decreasing:diff_percent=20"]).findings
    assert [finding.step for finding in findings] == [12]


def test_compares_with_the_newest_step_that_is_far_enough_back(tmp_path):
    losses = [10.0, 9.0, 8.0, 7.0, 6.0, 5.0, 6.5, 5.5, 7.5]  # at 0, 3, …, 24
    path = save(tmp_path / "t", losses, every=3)  # 12 with 0, 24 with 12
    (finding,) = check(path, ["loss_not_decreasing"]).findings
    assert finding.step == 24
    assert finding.evidence["step before"] == 12
    assert finding.message == (
        "Loss loss rose by 25 % from step 12 to step 24 (6 to 7.5); it should fall by at least "
        "0.1 % in 10 steps."
    )
    assert finding.evidence["diverges"]
    assert "learning rate that is too high" in finding.causes[0]


def test_a_falling_loss_is_fine(tmp_path):
    assert steps(save(tmp_path / "t", [1.0 / (step + 1) for step in range(100)])) == []


def test_a_loss_that_stays_flat_is_told_once(tmp_path):
    path = save(tmp_path / "t", [1.0] * 100)
    (finding,) = check(path, ["loss_not_decreasing"]).findings
    assert finding.step == 10
    assert "did not change from step 0 to step 10 (1 to 1)" in finding.message
    assert not finding.evidence["diverges"]


def test_a_loss_per_sample_counts_by_its_mean(tmp_path):
    losses = [np.array([2.0, 0.0], np.float32)] * 12
    assert steps(save(tmp_path / "t", losses)) == [10]


def test_a_loss_that_stays_nan_does_not_decrease(tmp_path):
    losses = [1.0 - step / 10 for step in range(5)] + [math.nan] * 20
    [finding] = check(save(tmp_path / "t", losses), ["loss_not_decreasing"]).findings
    assert finding.step == 14
    assert "became nan" in finding.message


def test_what_is_not_finite_is_passed_over(tmp_path):
    losses = [math.nan, 1.0, math.inf, *[0.9] * 8, math.nan, 0.5]
    assert steps(save(tmp_path / "t", losses)) == []


def alternate(path, training, validation, batches=3):
    """As many training steps as batches, then as many of validation; again and again."""
    with Hook(path, save_config=SaveConfig(save_interval=1), save_all=True) as hook:
        for train, evaluate in zip(training, validation, strict=True):
            for mode, loss in ((ModeKeys.TRAIN, train), (ModeKeys.EVAL, evaluate)):
                hook.set_mode(mode)
                for batch in range(batches):
                    hook.begin_step()
                    hook._recorder.record("loss", Role.LOSS, loss + 0.1 * batch)
    return str(path)


def test_batches_of_one_validation_are_not_compared_with_each_other(tmp_path):
    falling = [3.0, 2.0, 1.0]
    path = alternate(tmp_path / "t", falling, falling, batches=12)
    assert steps(path, "loss_not_decreasing:mode=EVAL") == []


def test_validation_counts_rather_than_training(tmp_path):
    falling, flat = [3.0, 2.0, 1.0, 0.5], [1.0, 1.0, 1.0, 1.0]
    path = alternate(tmp_path / "t", falling, flat)
    assert steps(path, "loss_not_decreasing:num_steps=3") == [12]  # once it was complete
    assert steps(path, "loss_not_decreasing:num_steps=3:mode=TRAIN") == []


def test_the_last_validation_is_judged_at_the_end(tmp_path):
    path = alternate(tmp_path / "t", [3.0, 2.0], [1.0, 1.0])
    assert steps(path, "loss_not_decreasing:num_steps=3:mode=modes.EVAL") == [11]


def test_keras_sum_of_a_validation_counts_rather_than_its_batches(tmp_path):
    with Hook(tmp_path / "t", save_config=SaveConfig(save_interval=1), save_all=True) as hook:
        for epoch in range(4):
            for mode in (ModeKeys.TRAIN, ModeKeys.EVAL):
                hook.set_mode(mode)
                for _ in range(6):
                    hook.begin_step()
                    hook._recorder.record("loss", Role.LOSS, 1.0)
            hook._recorder.record("val_loss", Role.LOSS, 1.0 if epoch == 3 else 3.0 - epoch)
    path = str(tmp_path / "t")
    (finding,) = check(path, ["loss_not_decreasing"], save=False).findings
    assert (finding.step, finding.tensors) == (47, ("val_loss",))
    findings = check(path, ["loss_not_decreasing:mode=TRAIN"], save=False).findings
    assert [finding.tensors for finding in findings] == [("loss",)]


def test_a_regex_decides_alone(tmp_path):
    with Hook(tmp_path / "t", save_config=SaveConfig(save_interval=1), save_all=True) as hook:
        for step in range(12):
            hook.begin_step()
            hook._recorder.record("loss", Role.LOSS, 1.0)
            hook.save_scalar("mine", 1.0 / (step + 1))
    assert steps(str(tmp_path / "t"), "loss_not_decreasing:tensor_regex=^scalar/") == []
    assert steps(str(tmp_path / "t"), "loss_not_decreasing:collection_names=all") == [10]
    assert steps(str(tmp_path / "t")) == [10]


def test_the_losses_collection_can_be_left_out(tmp_path):
    path = save(tmp_path / "t", [1.0] * 12, by_hand=True)
    report = check(path, ["loss_not_decreasing:use_losses_collection=false"])
    assert report.findings == []
    assert report.not_applicable == {"loss_not_decreasing": "no losses were saved"}


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"num_steps": 0}, "num_steps must be 1 or more, not 0"),
        ({"diff_percent": 100}, "below 100, not 100"),
        ({"diff_percent": -1}, "at least 0"),
        ({"increase_threshold_percent": -1}, "0 or more"),
        ({"mode": "evaluate"}, "mode 'evaluate': choose from TRAIN, EVAL"),
        ({"tensor_regex": "("}, "not a valid regular expression"),
    ],
)
def test_bad_parameters_are_refused(parameters, words):
    with pytest.raises(SMDebugValueError, match="loss_not_decreasing") as error:
        LossNotDecreasing.configured(**parameters)
    assert words in str(error.value)
