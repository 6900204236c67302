import pytest

from tornasole import Hook, SaveConfig
from tornasole.errors import SMDebugValueError
from tornasole.rules import check
from tornasole.rules.builtin.stalled_training_rule import (
    StalledTrainingRule,
    duration,
    is_stalled,
)
from tornasole.rules.engine import Engine
from tornasole.trial import create_trial

START = 1_700_000_000.0


@pytest.mark.parametrize(
    ("seconds", "threshold", "expected"),
    [(1801.0, 1800.0, True), (1800.0, 1800.0, False), (-5.0, 1.0, False)],
)
def test_a_stall_is_longer_than_the_threshold(seconds, threshold, expected):
    assert is_stalled(seconds, threshold) is expected


@pytest.mark.parametrize(
    ("seconds", "words"), [(12.0, "12 s"), (1800.0, "30 min"), (12600.0, "3.5 h")]
)
def test_times_read_as_people_say_them(seconds, words):
    assert duration(seconds) == words


def save(path, times):
    with Hook(path, save_config=SaveConfig(save_interval=1)) as hook:
        for time in times:
            hook.begin_step()
            hook.save_scalar("lr", 0.1, timestamp=START + time)
    return str(path)


def test_a_gap_between_saved_steps_is_found_afterwards(tmp_path):
    path = save(tmp_path / "t", [0, 10, 20, 2000, 2010, 2020])
    (finding,) = check(path, ["stalled_training_rule"]).findings
    assert finding.step == 3
    assert finding.tensors == ()
    assert finding.message == (
        "Nothing was saved for 33 min after step 2 until step 3; the limit is 30 min. Usually it "
        "takes 10 s."
    )


def test_each_gap_is_told(tmp_path):
    path = save(tmp_path / "t", [0, 100, 110, 210])
    findings = check(path, ["stalled_training_rule:threshold=60"]).findings
    assert [finding.step for finding in findings] == [1, 3]


def test_steady_steps_are_fine(tmp_path):
    path = save(tmp_path / "t", range(0, 10_000, 1000))
    assert check(path, ["stalled_training_rule"]).findings == []


def test_times_that_go_back_are_no_stall(tmp_path):
    path = save(tmp_path / "t", [5000, 0, 5010])
    assert check(path, ["stalled_training_rule"]).findings == []


def test_a_live_run_that_saves_nothing_is_found_while_waiting_and_told_once(tmp_path):
    path = save(tmp_path / "t", [0, 10, 20, 3000, 3010])
    engine = Engine([StalledTrainingRule()])
    assert list(engine.wait(START)) == []  # nothing was saved yet
    trial = create_trial(path)
    block = trial.block(-1, 1 << 10)
    block.steps, rest = block.steps[:3], block.steps[3:]
    assert list(engine.judge(block)) == []
    assert list(engine.wait(START + 1000)) == []
    (finding,) = engine.wait(START + 1821)
    assert finding.step == 2
    assert finding.message == (
        "Nothing was saved for 30 min after step 2; the limit is 30 min. Usually it takes 10 s."
    )
    assert list(engine.wait(START + 2500)) == []
    block.steps = rest
    assert list(engine.judge(block)) == []  # the stall is over
    (again,) = engine.wait(START + 5000)
    assert again.step == 4


@pytest.mark.parametrize("threshold", [0, -1])
def test_a_threshold_must_be_above_0(threshold):
    with pytest.raises(SMDebugValueError, match="threshold must be above 0, not"):
        StalledTrainingRule.configured(threshold=threshold)


def test_parameters_of_smdebug_are_accepted():
    rule = StalledTrainingRule.configured(
        threshold="120", stop_training_on_fire="True", training_job_name_prefix="job"
    )
    assert (rule.threshold, rule.stop_training_on_fire) == (120.0, True)
