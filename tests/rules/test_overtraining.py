import math

import pytest

from tornasole import Hook, SaveConfig
from tornasole.errors import SMDebugValueError
from tornasole.rules import Severity, check
from tornasole.rules.builtin.overtraining import Overtraining, is_better
from tornasole.types import ModeKeys, Role


@pytest.mark.parametrize(
    ("loss", "best", "delta", "expected"),
    [
        (1.0, math.inf, 0.01, True),
        (0.98, 1.0, 0.01, True),
        (0.995, 1.0, 0.01, False),
        (0.000098, 0.0001, 0.01, True),
        (1.0, 1.0, 0.0, False),
        (-1.1, -1.0, 0.01, True),
        (-1.005, -1.0, 0.01, False),
        (math.nan, 1.0, 0.01, False),
    ],
)
def test_an_optimum_is_lower_by_its_share(loss, best, delta, expected):
    assert is_better(loss, best, delta) is expected


def save(path, training, validation):
    with Hook(
        path, save_config=SaveConfig(save_interval=1), include_collections=["losses"]
    ) as hook:
        for train, evaluate in zip(training, validation, strict=True):
            for mode, loss in ((ModeKeys.TRAIN, train), (ModeKeys.EVAL, evaluate)):
                hook.set_mode(mode)
                hook.begin_step()
                hook._recorder.record("loss", Role.LOSS, loss)
    return str(path)


def save_rounds(path, training, validation):
    with Hook(
        path, save_config=SaveConfig(save_interval=1), include_collections=["losses"]
    ) as hook:
        for train, evaluate in zip(training, validation, strict=True):
            hook.begin_step()
            hook._recorder.record("train-logloss", Role.LOSS, train)
            hook._recorder.record("test-logloss", Role.LOSS, evaluate)
    return str(path)


def findings(path, rule="overtraining"):
    return check(path, [rule], save=False).findings


def test_fires_when_neither_loss_gets_better_and_validation_rises(tmp_path):
    falling = [1.0, 0.8, 0.6]
    path = save(tmp_path / "t", falling + [0.5] * 12, falling + [0.55 + i / 50 for i in range(12)])
    (finding,) = findings(path)
    assert finding.severity is Severity.WARNING
    # The 14th validation, once it was complete; the 4th was the best.
    assert (finding.step, finding.evidence["step"]) == (28, 27)
    assert finding.message == (
        "Neither loss gets better: the best validation loss of loss, 0.55, was at step 7, 10 "
        "validations ago; now it is 0.75, and the training loss is 0.5 (best: 0.5)."
    )


def test_losses_that_rest_are_worth_knowing(tmp_path):
    (finding,) = findings(save_rounds(tmp_path / "t", [0.5] * 12, [0.6] * 12))
    assert finding.severity is Severity.INFO
    assert (finding.step, finding.tensors) == (10, ("test-logloss",))


def test_silent_while_the_training_loss_gets_better(tmp_path):
    falling = [0.95**i for i in range(20)]
    assert findings(save_rounds(tmp_path / "t", falling, [0.6] * 20)) == []


def test_silent_while_the_validation_loss_gets_better(tmp_path):
    falling = [0.95**i for i in range(20)]
    assert findings(save_rounds(tmp_path / "t", [0.6] * 20, falling)) == []


def test_a_slow_fall_adds_up_to_a_new_optimum(tmp_path):
    slow = [0.998**i for i in range(60)]  # 1 % in five or six rounds
    path = save_rounds(tmp_path / "t", slow, slow)
    assert findings(path, "overtraining:patience_train=8:patience_validation=8") == []


def test_patience_can_be_set(tmp_path):
    path = save_rounds(tmp_path / "t", [0.5] * 6, [0.6] * 6)
    assert findings(path) == []
    (finding,) = findings(path, "overtraining:patience_train=2:patience_validation=3")
    assert finding.step == 3


def test_silent_without_validation(tmp_path):
    with Hook(
        tmp_path / "t", save_config=SaveConfig(save_interval=1), include_collections=["losses"]
    ) as hook:
        for _ in range(30):
            hook.begin_step()
            hook._recorder.record("loss", Role.LOSS, 1.0)
    assert findings(tmp_path / "t") == []


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"patience_train": 0}, "patience_train must be 1 or more, not 0"),
        ({"patience_validation": -2}, "patience_validation must be 1 or more, not -2"),
        ({"delta": 1}, "delta must be at least 0 and below 1, not 1"),
    ],
)
def test_bad_parameters_are_refused(parameters, words):
    with pytest.raises(SMDebugValueError) as error:
        Overtraining.configured(**parameters)
    assert words in str(error.value)
