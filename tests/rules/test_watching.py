"""Following a live run: what is found is told and acted upon once, and a job can be stopped."""

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import tornasole
from tornasole.capture.worker import this_process
from tornasole.errors import SMDebugValueError, TrainingStopped, TrialNotFound, WaitTimeout
from tornasole.format import StopSign
from tornasole.rules import check, findings_of, stop_job, watch
from tornasole.rules.stopping import Stopping
from tornasole.trial.liveness import is_here
from tornasole.types import Role

SCRIPT = Path(__file__).parent / "watched_process.py"
RULES = ["vanishing_gradient"]
EVERY_STEP = tornasole.SaveConfig(save_interval=1)


@pytest.fixture
def train(tmp_path):
    """Starts the training process; it is gone at the end."""
    started = []

    def train(obeys="obeys"):
        path = tmp_path / "job"
        command = [sys.executable, str(SCRIPT), str(path), obeys]
        started.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
        return started[-1], path

    yield train
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def hook(tmp_path):
    """A hook in the middle of a run, with a gradient that has vanished at its second step."""
    hook = tornasole.Hook(tmp_path / "job", save_config=EVERY_STEP, save_all=True, on_error="raise")
    for size in (1.0, 1e-9, 1e-9):
        hook.begin_step()
        hook._recorder.record("gradient/w", Role.GRADIENT, [size])
    hook._flush()
    yield hook
    hook.close()


# -- stopping


def test_a_training_is_stopped_by_a_rule_within_two_saved_steps(train):
    process, path = train()
    report = watch(path, RULES, ["stop"], wait=60, timeout=60)
    assert [(f.rule, f.step) for f in report.findings] == [("vanishing_gradient", 3)]
    assert process.wait(60) == 1
    assert "TrainingStopped: vanishing_gradient: 1 gradient is below" in process.stderr.read()
    trial = tornasole.create_trial(path)
    assert (trial.state, trial.steps()[-1]) == ("finished", 4)
    assert "when asked to stop: vanishing_gradient" in trial.state_reason


def test_a_job_that_does_not_obey_is_sent_a_signal(train, caplog):
    process, path = train("deaf")
    watch(path, RULES, ["stop"], wait=60, timeout=60, grace=0.2)
    assert process.wait(60) == -signal.SIGTERM
    assert f"its process {process.pid} was sent SIGTERM" in caplog.text
    assert tornasole.create_trial(path).state == "interrupted"


@pytest.fixture
def here():
    """This process, as a trial knows it."""
    return this_process()


def test_this_process_is_known_to_be_here(here):
    assert is_here(here)


@pytest.mark.parametrize(
    "change",
    [
        {"host": "elsewhere"},
        {"boot": "another"},
        {"boot": None},
        {"namespace": "pid:[1]"},
        {"namespace": None},
        {"started": 1},
        {"started": None},
        {"pid": 0},
        {"pid": -1},
        {"pid": "1"},
        {"pid": 2**22 + 1},
    ],
    ids=str,
)
def test_a_process_of_which_anything_is_not_known_is_not_here(here, change):
    assert not is_here(here | change)
    assert not is_here({})


def test_a_job_elsewhere_is_never_sent_a_signal(hook, monkeypatch, caplog):
    monkeypatch.setattr("tornasole.trial.liveness.socket.gethostname", lambda: "elsewhere")
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda *args: pytest.fail("sent"))
    stopping = Stopping(tornasole.create_trial(hook.out_dir), grace=0)
    stopping.ask("enough")
    stopping.insist()
    stopping.insist()
    assert caplog.text.count("not known to be on this machine") == 1


def test_without_being_asked_nobody_is_stopped(hook, monkeypatch):
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda *args: pytest.fail("sent"))
    Stopping(tornasole.create_trial(hook.out_dir), grace=0).insist()


def test_a_job_can_be_asked_to_stop(hook):
    deadline = time.monotonic() + 30
    stop_job(hook.out_dir, "enough")
    with pytest.raises(TrainingStopped, match="enough"):
        while time.monotonic() < deadline:  # it looks now and then
            hook.begin_step()


# -- following


def test_findings_come_while_the_run_goes_on(hook):
    told = []
    report = watch(hook.out_dir, RULES, timeout=0, on_finding=told.append)
    assert told == report.findings
    assert [f.step for f in findings_of(hook.out_dir)] == [1]


def test_a_run_is_followed_to_its_end(hook):
    seen = threading.Event()
    reports = []
    follow = threading.Thread(
        target=lambda: reports.append(
            watch(hook.out_dir, RULES, poll=0.01, on_finding=lambda f: seen.set())
        )
    )
    follow.start()
    assert seen.wait(30)
    hook.begin_step()
    hook._recorder.record("gradient/other", Role.GRADIENT, [0.0])
    hook.close()
    follow.join(30)
    assert [f.tensors for f in reports[0].findings] == [("gradient/w",), ("gradient/other",)]
    assert reports[0].steps == 4


def test_a_restart_repeats_neither_findings_nor_actions(hook):
    done, told = [], []
    for _ in range(3):
        report = watch(hook.out_dir, RULES, [done.append], timeout=0, on_finding=told.append)
        assert len(report.findings) == 1
    assert (len(done), len(told)) == (1, 1)
    assert len(findings_of(hook.out_dir)) == 1


def test_actions_have_the_severity_that_is_asked_for(hook):
    done = []
    watch(hook.out_dir, RULES, [done.append, "stop"], at="critical", timeout=0)
    assert not done
    assert StopSign.of(hook.out_dir).look() is None


def test_progress_is_told(hook):
    told = []
    watch(hook.out_dir, RULES, timeout=0, on_progress=told.append)
    hook.close()
    watch(hook.out_dir, RULES, ["stop"], on_progress=told.append)
    assert [(each.state, each.steps, each.last_step) for each in told] == [
        ("running", 3, 2),
        ("finished", 3, 2),
    ]
    assert "All workers ended cleanly" in told[1].reason


def test_a_run_that_is_over_is_not_waited_for(hook):
    hook.close()
    assert watch(hook.out_dir, RULES).steps == 3


def test_a_function_that_fails_does_not_end_the_watch(hook, caplog):
    def broken(finding):
        raise RuntimeError("no")

    assert watch(hook.out_dir, RULES, [broken], timeout=0).findings
    assert "RuntimeError: no" in caplog.text


# -- waiting for a trial


def test_a_trial_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(TrialNotFound):
        watch(tmp_path / "none")


def test_a_trial_can_be_waited_for_in_vain(tmp_path):
    with pytest.raises(WaitTimeout):
        watch(tmp_path / "none", wait=0.01)


def test_a_trial_can_be_waited_for(tmp_path):
    reports = []
    follow = threading.Thread(
        target=lambda: reports.append(watch(tmp_path / "late", RULES, wait=30))
    )
    follow.start()
    with tornasole.Hook(tmp_path / "late", save_config=EVERY_STEP) as hook:
        hook.begin_step()
        hook.save_scalar("loss", 1)
    follow.join(30)
    assert reports[0].steps == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"rules": ["vanishing"]}, "Did you mean"),
        ({"actions": ["stpo"]}, "Did you mean 'stop'"),
        ({"actions": ["stop"], "at": "severe"}, "There is no severity"),
        ({"poll": 0}, "poll must be"),
    ],
)
def test_mistakes_are_told_before_anything_is_done(hook, arguments, told):
    with pytest.raises(SMDebugValueError, match=told):
        watch(hook.out_dir, **arguments)


def test_what_a_check_found_before_is_acted_upon_and_once(hook):
    check(hook.out_dir, RULES)
    done = []
    watch(hook.out_dir, RULES, [done.append], timeout=0)
    watch(hook.out_dir, RULES, [done.append], timeout=0)
    assert [finding.step for finding in done] == [1]
    assert len(findings_of(hook.out_dir)) == 1


def test_another_action_than_before_is_done(hook):
    done = []
    watch(hook.out_dir, RULES, [done.append], timeout=0)
    watch(hook.out_dir, RULES, ["stop"], timeout=0)
    assert StopSign.of(hook.out_dir).look() is not None


def test_an_action_that_failed_is_tried_again(hook):
    calls = []

    def fails_first(finding):
        calls.append(finding.step)
        if len(calls) == 1:
            raise ConnectionError("down")

    for _ in range(3):
        watch(hook.out_dir, RULES, [fails_first], timeout=0)
    assert calls == [1, 1]
