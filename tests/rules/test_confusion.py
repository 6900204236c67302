"""confusion: identity passes, one place off the diagonal does not."""

import numpy as np
import pytest

from tornasole import Hook, SaveConfig
from tornasole.errors import SMDebugValueError
from tornasole.rules import Severity, check
from tornasole.rules.builtin.confusion import confused
from tornasole.rules.classes import Learning
from tornasole.types import Role


@pytest.fixture
def run(tmp_path):
    """Saves labels and predictions step by step; returns what the rule says of them."""

    def make(steps, rule="confusion", names=("labels", "predictions"), by_user=False):
        hook = Hook(tmp_path / "t", save_all=True, save_config=SaveConfig(save_interval=1))
        for labels, predictions in steps:
            hook.begin_step()
            if by_user:
                hook.save_tensor(names[0], np.asarray(labels))
                hook.save_tensor(names[1], np.asarray(predictions))
            else:
                hook._recorder.record(names[0], Role.LABEL, np.asarray(labels))
                hook._recorder.record(names[1], Role.PREDICTION, np.asarray(predictions))
        hook.close()
        return check(tmp_path / "t", [rule])

    return make


def one_off(per_class=1):
    """Labels of ten classes, and predictions of which one class is taken for another."""
    labels = np.repeat(np.arange(10), per_class)
    return labels, np.where(labels == 3, 5, labels)


# -- the judgement


@pytest.mark.parametrize(
    ("matrix", "expected"),
    [
        (np.eye(10, dtype=int), []),
        (np.zeros((0, 0), int), []),
        (np.diag([5, 0, 7]), []),  # a class that does not occur
        ([[9, 1], [0, 10]], []),  # just enough
        ([[8, 2], [0, 10]], [(0, 1), (1, 0)]),
        ([[10, 0, 0], [0, 10, 0], [10, 0, 0]], [(2, 0), (0, 2)]),  # never predicted
    ],
)
def test_which_classes_are_confused_with_which(matrix, expected):
    found = confused(np.array(matrix), 0.9, 0.1)
    assert [(each.true, each.taken_for) for each in found] == expected


@pytest.mark.parametrize(
    ("right", "expected"),
    [(43, False), (36, True)],  # of 50: 86 % may be 90 % by chance, 72 % hardly
)
def test_a_few_samples_are_not_certain(right, expected):
    found = confused(np.array([[right, 50 - right], [0, 500]]), 0.9, 0.1)
    assert found[0].is_certain == expected


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ([0.9] * 6, [True] * 4 + [False] * 2),
        ([0.9, 0.6, 0.4, 0.2, 0.15, 0.1], [True] * 6),
        ([0.9, 0.7, 0.5, 0.49, 0.48, 0.49, 0.3], [True] * 5 + [False, True]),
        ([0.0] * 5, [True] * 4 + [False]),
    ],
)
def test_a_model_learns_until_it_has_stood_still_as_long_as_it_learned(errors, expected):
    learning = Learning()
    assert [learning.goes_on(each) for each in errors] == expected


# -- trials


@pytest.mark.parametrize("by_user", [True, False])
def test_one_place_off_the_diagonal_fires(run, by_user):
    [finding] = run([one_off()], by_user=by_user).findings
    assert finding.tensors == ("predictions",)
    assert finding.step == 0
    assert finding.severity is Severity.INFO  # ten samples
    assert finding.evidence["tensors"]["predictions"]["confused classes"] == 2


def test_identity_passes(run):
    assert not run([(np.arange(10), np.arange(10))]).findings


def test_it_judges_when_there_are_enough_samples(run):
    steps = [one_off(10)] * 32
    [finding] = run(steps).findings
    assert finding.step == 24  # 2,500 samples, and it becomes no better
    assert finding.severity is Severity.WARNING
    assert finding.message == (
        "2 of 10 classes are confused in predictions, over 500 samples with 90 % right: worst is "
        "class 3, 0 % right, 100 % mixed up with class 5."
    )


def test_a_model_that_learns_its_classes_is_silent(run):
    labels = np.repeat(np.arange(10), 50)
    untrained, trained = np.tile(np.eye(10)[0], (500, 1)), np.eye(10)[labels]
    assert not run([(labels, untrained), (labels, trained)]).findings


def test_what_a_model_still_confuses_while_it_learns_is_no_fault(run):
    labels = np.repeat(np.arange(10), 50)
    halfway = np.where(labels < 6, labels, 0)
    assert not run([(labels, halfway), (labels, labels)]).findings


def test_a_run_that_ends_while_the_model_still_learns_is_no_reason_to_warn(run):
    labels = np.repeat(np.arange(10), 50)
    guesses = [np.where(labels < known, labels, 0) for known in (2, 6, 8)]
    [finding] = run([(labels, each) for each in guesses]).findings
    assert (finding.step, finding.severity) == (2, Severity.INFO)


def test_a_model_that_never_learned_them_is_told_of_at_the_end(run):
    labels = np.repeat(np.arange(10), 50)
    [finding] = run([(labels, np.tile(np.eye(10)[0], (500, 1)))] * 3).findings
    assert finding.step == 2


def test_the_tensors_can_be_named(run):
    rule = "confusion:labels=y;predictions=p"
    [finding] = run([one_off()], rule, names=("y", "p"), by_user=True).findings
    assert finding.tensors == ("p",)


def test_a_name_decides_alone(run):
    report = run([one_off()], "confusion:labels=other")
    assert not report.findings
    assert "confusion" in report.not_applicable


def test_classes_beyond_category_no_are_left_out(run):
    assert not run([one_off()], "confusion:category_no=3").findings


@pytest.mark.parametrize("given", ["min_diag=2", "max_off_diag=-1", "category_no=1"])
def test_a_parameter_that_makes_no_sense_is_refused(run, given):
    with pytest.raises(SMDebugValueError, match=given.partition("=")[0]):
        run([one_off()], f"confusion:{given}")
