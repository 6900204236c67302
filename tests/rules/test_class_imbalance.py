"""class_imbalance: what it counts, when it fires, and on which labels it stays silent."""

import numpy as np
import pytest

from tornasole import Hook, ReductionConfig, SaveConfig
from tornasole.errors import SMDebugValueError
from tornasole.rules import check
from tornasole.rules.builtin.class_imbalance import imbalance, mispredicted, zeros_and_ones
from tornasole.rules.classes import compared
from tornasole.types import Role

STATISTICS = ReductionConfig(reductions=["min", "max", "mean"])


@pytest.fixture
def run(tmp_path):
    """Saves labels, and maybe predictions, step by step; returns what the rule says of them."""

    def make(steps, rule="class_imbalance", reduction=None):
        every = SaveConfig(save_interval=1)
        hook = Hook(tmp_path / "t", save_all=True, save_config=every, reduction_config=reduction)
        for labels, *predictions in steps:
            hook.begin_step()
            for each in predictions:
                hook._recorder.record("Loss_input_0", Role.PREDICTION, np.asarray(each))
            hook._recorder.record("Loss_input_1", Role.LABEL, np.asarray(labels))
        hook.close()
        return check(tmp_path / "t", [rule])

    return make


def spread(*counts):
    """Labels with so many of each class, in an order that looks random."""
    labels = np.repeat(np.arange(len(counts)), counts)
    return np.random.RandomState(0).permutation(labels)


# -- the judgements


@pytest.mark.parametrize(
    ("counts", "outputs", "samples", "expected"),
    [
        ({0: 990, 1: 10}, 0, 500, 99),
        ({0: 500, 1: 500}, 0, 500, 1),
        ({0: 490, 1: 9}, 0, 500, None),  # too few labels
        (dict.fromkeys(range(100), 5), 0, 500, None),  # too few of each class
        ({3: 600}, 10, 500, float("inf")),
        ({3: 600}, 0, 500, None),  # there may be no other class
        ({}, 0, 500, None),
    ],
)
def test_how_many_times_as_frequent(counts, outputs, samples, expected):
    assert imbalance(counts, outputs, samples) == expected


@pytest.mark.parametrize(
    ("asked", "wrong", "expected"),
    [
        ({0: 100, 1: 100}, {1: 80}, {1: 0.8}),
        ({0: 100, 1: 100}, {1: 70}, {}),
        ({0: 100, 1: 9}, {1: 9}, {}),  # too few to say
        ({0: 50, 1: 50}, {0: 50, 1: 50}, {}),  # not a matter of one class
        ({}, {}, {}),
    ],
)
def test_which_classes_are_mispredicted(asked, wrong, expected):
    assert mispredicted(asked, wrong, 0.7) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0, 0, 0, 1], {0: 3, 1: 1}),
        ([0, 0], {0: 2}),
        ([0, 0.5, 1, 1], None),
        ([0, 1, 2], None),
        ([-1, 1], None),
    ],
)
def test_zeros_and_ones_follow_from_statistics(values, expected):
    array = np.array(values)
    found = zeros_and_ones(array.min(), array.max(), array.sum(), array.size, (array == 0).sum())
    assert found == expected


def test_statistics_that_are_not_known_say_nothing():
    assert zeros_and_ones(*[np.nan] * 5) is None


@pytest.mark.parametrize(
    ("labels", "predictions", "classes", "guessed"),
    [
        ([0, 2, 1], None, [0, 2, 1], None),
        ([0.0, 2.0], None, [0, 2], None),
        ([[0], [2]], None, [0, 2], None),
        ([[0, 0, 1], [1, 0, 0]], [[0.1, 0.2, 0.7], [0.1, 0.9, 0.0]], [2, 0], [2, 1]),
        ([0, 1], [[0.9, 0.1], [0.8, 0.2]], [0, 1], [0, 0]),
        ([0.0, 1.0], [0.2, 0.9], [0, 1], [0, 1]),  # probabilities
        ([0.0, 1.0], [-3.0, 0.1], [0, 1], [0, 1]),  # logits
        ([-1, 1], [-0.5, 0.2], [0, 1], [0, 1]),
        ([0, -100, 1], [[1.0, 0.0]] * 3, [0, 1], [0, 0]),  # -100: ignore
        ([3, 4], [3, 5], [3, 4], [3, 5]),
        ([0, 1], [[np.nan, 1.0], [0.0, 1.0]], [1], [1]),
    ],
)
def test_labels_and_predictions_become_classes(labels, predictions, classes, guessed):
    given = None if predictions is None else np.array(predictions)
    found = compared(np.array(labels), given)
    assert found.labels.tolist() == classes
    assert (None if found.predicted is None else found.predicted.tolist()) == guessed


def test_segmentation_has_its_classes_in_the_second_dimension():
    labels, scores = np.zeros((2, 4, 5), int), np.zeros((2, 3, 4, 5))
    scores[:, 2] = 1
    assert set(compared(labels, scores).predicted.tolist()) == {2}


@pytest.mark.parametrize(
    ("labels", "predictions"),
    [
        ([0.5, 1.2], None),
        ([np.nan, 1.0], None),
        ([3.0, 17.0, 40.0], [3.2, 16.1, 44.7]),  # ages, say
        ([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]], [[0.2, 0.1, 0.9]] * 2),  # yes or no to each
        (["cat", "dog"], None),
        ([0, 1], np.zeros((2, 30_000))),  # words
        ([], None),
    ],
)
def test_labels_that_are_no_classes_are_seen(labels, predictions):
    given = None if predictions is None else np.array(predictions)
    assert compared(np.array(labels), given) is None


# -- trials


def test_990_to_10_in_1000_labels_fires_at_once(run):
    [finding] = run([[spread(990, 10)]]).findings
    assert finding.step == 0
    assert finding.tensors == ("Loss_input_1",)
    assert finding.evidence["ratio"] == 99
    assert finding.message == (
        "Class 0 has 990 labels in Loss_input_1, class 1 only 10: 99 times as many, more than 10."
    )


def test_it_waits_for_enough_labels_and_tells_once(run):
    [finding] = run([[spread(99, 1)]] * 10).findings
    assert finding.step == 4


@pytest.mark.parametrize("reduction", [None, STATISTICS])
def test_two_classes_are_counted_from_statistics_too(run, reduction):
    [finding] = run([[spread(990, 10)]], reduction=reduction).findings
    assert finding.evidence["labels by class"] == {"0": 990, "1": 10}


def test_many_classes_cannot_be_counted_from_statistics(run):
    assert not run([[spread(990, 5, 5)]], reduction=STATISTICS).findings


def test_balanced_labels_are_silent(run):
    assert not run([[spread(*[100] * 10)]] * 3).findings


def test_one_class_only_fires_if_the_model_tells_apart_more(run):
    labels = np.full(600, 3)
    scores = np.eye(10)[labels]
    [finding] = run([[labels, scores]]).findings
    assert finding.message == "All 600 labels in Loss_input_1 so far are of class 3."


def test_a_class_that_is_never_predicted_fires(run):
    labels = spread(400, 100)
    [finding] = run([[labels, np.tile([0.9, 0.1], (500, 1))]]).findings
    assert finding.tensors == ("Loss_input_0",)
    assert finding.evidence["mispredicted"] == {"1": 1.0}
    assert "100 % of class 1 is mispredicted" in finding.message


def test_a_class_that_is_learned_later_than_others_is_fine(run):
    labels = spread(*[60] * 10)
    halfway = np.where(labels < 6, labels, 0)
    assert not run([[labels, np.eye(10)[halfway]], [labels, np.eye(10)[labels]]]).findings


def test_a_class_that_is_not_learned_though_others_are_fires(run):
    labels = spread(*[60] * 10)
    halfway = np.where(labels < 6, labels, 0)
    [finding] = run([[labels, np.eye(10)[halfway]]] * 7).findings
    assert finding.step == 4


def test_right_predictions_and_untrained_ones_are_silent(run):
    labels = spread(*[60] * 10)
    untrained = np.tile(np.eye(10)[0], (600, 1))
    assert not run([[labels, untrained], [labels, np.eye(10)[labels]]]).findings


def test_numbers_that_are_no_classes_are_silent(run):
    labels = np.random.RandomState(0).exponential(size=1000)
    assert not run([[labels, labels + 0.1]]).findings


def test_what_a_user_saved_as_labels_is_found(tmp_path):
    hook = Hook(tmp_path / "t", save_config=SaveConfig(save_interval=1))
    hook.begin_step()
    hook.save_tensor("labels", spread(990, 10))
    hook.close()
    assert len(check(tmp_path / "t", ["class_imbalance"]).findings) == 1


def test_a_regex_decides_alone(run):
    report = run([[spread(990, 10)]], "class_imbalance:labels_regex=^nothing$")
    assert not report.findings
    assert "'^nothing$'" in report.not_applicable["class_imbalance"]


def test_without_labels_it_says_what_to_save(tmp_path):
    hook = Hook(tmp_path / "t", save_all=True, save_config=SaveConfig(save_interval=1))
    hook.begin_step()
    hook._recorder.record("loss", Role.LOSS, np.array(1.0))
    hook.close()
    reasons = check(tmp_path / "t", ["class_imbalance"]).not_applicable
    assert "include_collections=['labels']" in reasons["class_imbalance"]


@pytest.mark.parametrize(
    "given", ["threshold_imbalance=0.5", "threshold_misprediction=70", "samples=0"]
)
def test_a_parameter_that_makes_no_sense_is_refused(run, given):
    with pytest.raises(SMDebugValueError, match=given.partition("=")[0]):
        run([[[0, 1]]], f"class_imbalance:{given}")
