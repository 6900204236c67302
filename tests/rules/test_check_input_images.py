"""check_input_images: the mean of each channel, over enough images."""

import numpy as np
import pytest

from tornasole import Hook, ReductionConfig, SaveConfig, modes
from tornasole.errors import SMDebugValueError
from tornasole.rules import Severity, check
from tornasole.rules.builtin.check_input_images import (
    channel_axis,
    channel_means,
    mixed,
    off_centre,
)
from tornasole.types import Role

STATISTICS = ReductionConfig(reductions=["mean"])


@pytest.fixture
def run(tmp_path):
    """Saves batches of images, one per step; returns what the rule says of them."""

    def make(batches, rule="check_input_images", reduction=None, mode=None):
        hook = Hook(
            tmp_path / "t",
            save_all=True,
            save_config=SaveConfig(save_interval=1),
            reduction_config=reduction,
        )
        if mode is not None:
            hook.set_mode(mode)
        for batch in batches:
            hook.begin_step()
            hook._recorder.record("Net_input_0", Role.INPUT, batch)
        hook.close()
        return check(tmp_path / "t", [rule])

    return make


def images(mean=0.0, count=100, shape=(3, 4, 4)):
    values = np.random.RandomState(0).randn(count, *shape)
    return (values - values.mean() + mean).astype(np.float32)


# -- the judgements


@pytest.mark.parametrize(
    ("shape", "channel", "expected"),
    [
        ((8, 3, 32, 32), 1, 1),
        ((8, 32, 32, 3), 1, 3),  # Keras
        ((8, 32, 32, 3), -1, 3),
        ((8, 1, 28, 28), 1, 1),
        ((8, 12, 32, 32), 1, 1),  # more than colours
        ((8, 300, 32, 32), 1, None),
        ((8, 64), 1, None),
    ],
)
def test_where_the_channels_are(shape, channel, expected):
    assert channel_axis(shape, channel) == expected


def test_means_by_channel_leave_out_what_is_not_finite():
    batch = np.zeros((2, 3, 2, 2))
    batch[:, 1] = 4
    batch[0, 1, 0, 0] = np.nan
    assert channel_means(batch, 1).tolist() == [0, 4, 0]


def test_means_are_weighted_by_samples():
    samples, means = mixed((1, np.array([0.0])), (3, np.array([4.0])))
    assert (samples, means.tolist()) == (4, [3.0])


@pytest.mark.parametrize(
    ("means", "expected"), [([0.1, -0.2], None), ([0.1, -0.3], -0.3), ([0.5], 0.5)]
)
def test_what_is_off_centre(means, expected):
    assert off_centre(np.array(means), 0.2) == expected


# -- trials


def test_images_that_are_not_centred_fire_once_there_are_enough(run):
    batch = images()
    batch[:, 1] += 0.45 - batch[:, 1].mean()
    [finding] = run([batch] * 12).findings
    assert finding.step == 4
    assert finding.severity is Severity.INFO
    assert finding.message == (
        "Images that enter as Net_input_0 are not centred: the mean in channel 1 is 0.45 over 500 "
        "images, further than 0.2 from zero."
    )


def test_pixels_from_0_to_255_are_a_warning(run):
    [finding] = run([images(120)] * 5).findings
    assert finding.severity is Severity.WARNING


def test_the_mean_of_all_follows_from_statistics(run):
    [finding] = run([images(0.5)] * 5, reduction=STATISTICS).findings
    assert finding.evidence["from statistics"]
    assert finding.evidence["mean by channel"]["Net_input_0"] == pytest.approx([0.5], abs=1e-5)
    assert "estimate" in finding.message


@pytest.mark.parametrize("reduction", [None, STATISTICS])
def test_centred_images_are_silent(run, reduction):
    assert not run([images()] * 12, reduction=reduction).findings


def test_too_few_images_are_silent(run):
    assert not run([images(5)] * 4).findings


@pytest.mark.parametrize("shape", [(), (7,), (7, 8)])
def test_inputs_that_are_no_images_are_silent(run, shape):
    assert not run([images(5, shape=shape)] * 6).findings


def test_images_that_are_nan_are_silent(run):
    assert not run([images(np.nan)] * 6).findings


def test_a_regex_decides_alone(run):
    rule = "check_input_images:regex=^Net_input;threshold_samples=100"
    assert len(run([images(5, shape=(7,))], rule).findings) == 1


def test_other_modes_are_counted_apart(run):
    [finding] = run([images(1)] * 5, mode=modes.EVAL).findings
    assert finding.mode is modes.EVAL


@pytest.mark.parametrize("given", ["threshold_mean=-1", "threshold_samples=0", "channel=0"])
def test_a_parameter_that_makes_no_sense_is_refused(run, given):
    with pytest.raises(SMDebugValueError, match=given.partition("=")[0]):
        run([images()], f"check_input_images:{given}")
