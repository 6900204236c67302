"""How a run stands: running, finished, failed or interrupted, and what follows for readers."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tornasole.errors import NoMoreData
from tornasole.trial.liveness import is_gone
from tornasole.trial.run_state import judge

CLEAN, FAILED = {"clean": True}, {"clean": False, "reason": "CUDA out of memory"}
NOBODY = frozenset()


@pytest.mark.parametrize(
    ("expected", "ends", "gone", "name", "over"),
    [
        (1, {}, NOBODY, "running", False),
        (1, {"a": None}, NOBODY, "running", False),
        (1, {"a": CLEAN}, NOBODY, "finished", True),
        (2, {"a": CLEAN}, NOBODY, "running", False),
        (2, {"a": CLEAN, "b": None}, NOBODY, "running", False),
        (2, {"a": CLEAN, "b": CLEAN}, NOBODY, "finished", True),
        (2, {"a": CLEAN, "b": FAILED}, NOBODY, "failed", True),
        (2, {"a": None, "b": FAILED}, NOBODY, "failed", False),
        (2, {"a": None, "b": FAILED}, {"a"}, "failed", True),
        (1, {"a": None}, {"a"}, "interrupted", True),
        (2, {"a": None, "b": None}, {"a"}, "interrupted", False),
        (2, {"a": CLEAN, "b": None}, {"b"}, "interrupted", True),
        (2, {"a": None}, {"a"}, "interrupted", True),
        (1, {"a": {}}, NOBODY, "failed", True),
    ],
)
def test_the_state_follows_from_the_workers(expected, ends, gone, name, over):
    state = judge(expected, ends, frozenset(gone))
    assert (state.name, state.over) == (name, over)


def test_a_failure_carries_its_reason(run):
    trial = run.steps(0).end(clean=False, reason="CUDA out of memory").trial()
    assert trial.state == "failed"
    assert "worker_0 did not end cleanly: CUDA out of memory" in trial.state_reason


def test_what_was_lost_is_told(run):
    trial = run.steps(0).end(lost={"raw_values_dropped": 3}).trial()
    assert trial.state == "finished"
    assert "raw values dropped: 3" in trial.state_reason


@pytest.mark.parametrize(
    ("workers", "told"), [(1, "worker_0 has not ended"), (2, "worker_0 has not ended")]
)
def test_a_running_trial_says_who_has_not_ended(start, workers, told):
    assert told in start(workers=workers).steps(0).trial().state_reason


def process(pid):
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    started = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return {"host": socket.gethostname(), "pid": pid, "started": started, "boot": boot}


needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")


@pytest.fixture
def child():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield child
    child.kill()
    child.wait()
    child.stdin.close()


@needs_proc
def test_a_process_that_runs_is_not_gone(child):
    assert not is_gone(process(child.pid))


@needs_proc
def test_a_killed_process_is_gone(child):
    about = process(child.pid)
    child.kill()
    child.wait()
    assert is_gone(about)


@needs_proc
def test_a_process_that_was_killed_and_not_yet_buried_is_gone(child):
    about = process(child.pid)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert is_gone(about)


@needs_proc
def test_another_process_under_the_same_number_is_not_the_one(child):
    assert is_gone(process(child.pid) | {"started": 1})


@needs_proc
def test_a_process_of_before_the_reboot_is_gone(child):
    assert is_gone(process(child.pid) | {"boot": "another"})


@needs_proc
@pytest.mark.parametrize(
    "change", [{"host": "elsewhere"}, {"pid": None}, {"pid": "1"}, {"namespace": "pid:[1]"}]
)
def test_what_cannot_be_known_does_not_count_as_gone(change):
    gone = {"host": socket.gethostname(), "pid": 2**22 + 1, "started": 1, "boot": None}
    assert is_gone(gone)
    assert not is_gone(gone | change)
    assert not is_gone({})


@needs_proc
def test_a_killed_run_opens_and_says_that_it_did_not_end_cleanly(run, child):
    trial = run.collections(process=process(child.pid)).steps(0, 1).trial()
    assert trial.state == "running"
    child.kill()
    child.wait()
    assert trial.state == "interrupted"
    assert "did not end cleanly" in trial.state_reason
    assert trial.loaded_all_steps
    assert trial.steps() == [0, 1]


@needs_proc
def test_waiting_in_a_killed_run_fails_instead_of_hanging(run, child):
    run.collections(process=process(child.pid)).steps(0)
    child.kill()
    child.wait()
    with pytest.raises(NoMoreData):
        run.trial().wait_for_steps([1])


@needs_proc
def test_a_worker_that_ended_before_it_vanished_is_no_failure(run, child):
    run.collections(process=process(child.pid)).steps(0).end()
    child.kill()
    child.wait()
    assert run.trial().state == "finished"
