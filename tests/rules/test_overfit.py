import math

import numpy as np
import pytest

from tornasole import Hook, SaveConfig
from tornasole.errors import SMDebugValueError
from tornasole.rules import check
from tornasole.rules.builtin.overfit import Overfit, excess_of
from tornasole.types import ModeKeys, Role


@pytest.mark.parametrize(
    ("validation", "training", "expected"),
    [
        (1.0, 1.0, 0.0),
        (1.5, 1.0, 0.5),
        (0.5, 1.0, -0.5),
        (-1.0, -2.0, 0.5),
        (0.0, 0.0, 0.0),
        (1.0, 0.0, math.inf),
    ],
)
def test_the_excess_is_a_share_of_the_training_loss(validation, training, expected):
    assert excess_of(validation, training) == expected


def save(path, *steps):
    """Steps of a mode, each with losses by name."""
    with Hook(
        path, save_config=SaveConfig(save_interval=1), include_collections=["losses"]
    ) as hook:
        for mode, losses in steps:
            hook.set_mode(mode)
            hook.begin_step()
            for name, loss in losses.items():
                hook._recorder.record(name, Role.LOSS, loss)
    return str(path)


def by_mode(path, *pairs, batches=2):
    """Some steps of training and of validation, with one mean each; again and again."""
    steps = []
    for training, validation in pairs:
        for mode, mean in ((ModeKeys.TRAIN, training), (ModeKeys.EVAL, validation)):
            steps += [
                (mode, {"CrossEntropyLoss_output_0": mean + (batch - (batches - 1) / 2)})
                for batch in range(batches)
            ]
    return save(path, *steps)


def findings(path, rule="overfit"):
    return check(path, [rule], save=False).findings


def test_fires_when_validation_is_far_above_training(tmp_path):
    path = by_mode(tmp_path / "t", (2.0, 2.0), (1.5, 1.6), (1.0, 1.5), (1.0, 1.0))
    (finding,) = findings(path)
    assert finding.step == 12  # when training went on: then the validation was complete
    assert finding.tensors == ("CrossEntropyLoss_output_0",)
    assert finding.message == (
        "The validation loss CrossEntropyLoss_output_0 is 50 % above the training loss at step 11 "
        "(1.5 against 1); up to 10 % is allowed."
    )


def test_silent_when_both_fall_together(tmp_path):
    assert findings(by_mode(tmp_path / "t", (3.0, 3.1), (2.0, 2.1), (1.0, 0.9))) == []


def test_the_last_validation_counts(tmp_path):
    (finding,) = findings(by_mode(tmp_path / "t", (2.0, 2.0), (1.0, 1.5)))
    assert finding.step == 7


def test_patience_asks_for_validations_in_a_row(tmp_path):
    path = by_mode(tmp_path / "t", (1.0, 2.0), (1.0, 1.0), (1.0, 2.0), (1.0, 2.0), (1.0, 2.0))
    (finding,) = findings(path, "overfit:patience=2")
    assert finding.evidence["validations in a row"] == 2
    assert finding.evidence["step"] == 15
    assert "2 validations in a row" in finding.message


def test_validations_before_the_first_step_to_judge_do_not_count(tmp_path):
    path = by_mode(tmp_path / "t", (1.0, 2.0), (1.0, 1.0))
    assert len(findings(path)) == 1
    assert findings(path, "overfit:start_step=4") == []


def test_a_loss_per_sample_counts_by_its_mean(tmp_path):
    path = save(
        tmp_path / "t",
        (ModeKeys.TRAIN, {"loss": np.array([0.0, 2.0])}),
        (ModeKeys.EVAL, {"loss": np.array([1.0, 2.0])}),
    )
    (finding,) = findings(path)
    assert finding.evidence["excess"] == pytest.approx(0.5)


def test_keras_losses_belong_together_by_name(tmp_path):
    def run(path, validation):
        return save(
            path,
            (ModeKeys.TRAIN, {"loss": 1.0}),
            (ModeKeys.EVAL, {"loss": 9.0}),  # a batch of the validation that val_loss sums up
            (ModeKeys.EVAL, {"loss": 5.0, "val_loss": validation}),
            (ModeKeys.TRAIN, {"loss": 1.0}),
        )

    (finding,) = findings(run(tmp_path / "overfit", 1.5))
    assert (finding.step, finding.tensors) == (2, ("val_loss",))
    assert findings(run(tmp_path / "healthy", 1.0)) == []


@pytest.mark.parametrize("train", ["train", "Training", "train_set"])
def test_xgboost_metrics_belong_together_by_evaluation_set(tmp_path, train):
    path = save(
        tmp_path / "t",
        (ModeKeys.GLOBAL, {f"{train}-rmse": 1.0, "test-rmse": 1.0, "eval-set-rmse": 1.0}),
        (ModeKeys.GLOBAL, {f"{train}-rmse": 0.5, "test-rmse": 0.5, "eval-set-rmse": 0.8}),
        (ModeKeys.GLOBAL, {f"{train}-rmse": 0.4, "test-rmse": 0.4, "eval-set-rmse": 0.7}),
    )
    (finding,) = findings(path)
    assert (finding.step, finding.tensors) == (1, ("eval-set-rmse",))
    assert finding.evidence["training loss"] == 0.5


def test_without_a_training_set_nothing_is_said(tmp_path):
    losses = {"validation_0-rmse": 0.1, "validation_1-rmse": 1.0}
    assert findings(save(tmp_path / "t", (ModeKeys.GLOBAL, losses))) == []


def test_a_regex_decides_which_losses(tmp_path):
    path = by_mode(tmp_path / "t", (1.0, 2.0))
    assert len(findings(path, "overfit:tensor_regex=CrossEntropy")) == 1
    report = check(path, ["overfit:tensor_regex=^nothing$"], save=False)
    assert "'^nothing$'" in report.not_applicable["overfit"]


def test_what_is_not_finite_is_passed_over(tmp_path):
    path = save(
        tmp_path / "t",
        (ModeKeys.TRAIN, {"loss": 1.0}),
        (ModeKeys.TRAIN, {"loss": math.nan}),
        (ModeKeys.EVAL, {"loss": math.inf}),
        (ModeKeys.EVAL, {"loss": 1.0}),
    )
    assert findings(path) == []


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"start_step": -1}, "start_step must be 0 or more, not -1"),
        ({"patience": 0}, "patience must be 1 or more, not 0"),
        ({"ratio_threshold": -0.1}, "ratio_threshold must be 0 or more, not -0.1"),
        ({"tensor_regex": "["}, "not a valid regular expression"),
    ],
)
def test_bad_parameters_are_refused(parameters, words):
    with pytest.raises(SMDebugValueError) as error:
        Overfit.configured(**parameters)
    assert words in str(error.value)


@pytest.mark.parametrize("rule", ["overfit", "overtraining"])
def test_without_a_validation_there_is_nothing_to_say_and_that_is_said(tmp_path, rule):
    with Hook(tmp_path / "t", save_all=True, save_config=SaveConfig(save_interval=1)) as hook:
        for step in range(5):
            hook.begin_step()
            hook._recorder.record("loss", Role.LOSS, 1 / (step + 1))
    report = check(tmp_path / "t", [rule])
    assert "validation" in report.not_applicable[rule]
