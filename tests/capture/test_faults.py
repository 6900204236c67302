"""A fault of ours never breaks training unless asked; close always leaves a readable trial."""

import json
import logging

import numpy as np
import pytest

from tornasole.capture.arrays import Arrays
from tornasole.capture.guard import Guard
from tornasole.capture.recorder import Recorder


def train(hook, steps=3):
    """A training loop, and what it computes."""
    total = 0.0
    for step in range(steps):
        hook.begin_step()
        total += step
        hook.save_scalar("total", total)
        hook.save_tensor("x", [total, 1])
    return total


def wait_for_the_writer(hook):
    hook._writer.hurry()
    hook._thread.join(30)


@pytest.fixture
def last_word(out_dir):
    return lambda: json.loads((out_dir / "worker_0/end.json").read_text())


def broken(*args):
    raise ValueError("a fault of ours")


def interrupted(*args):
    raise KeyboardInterrupt


def test_a_fault_on_the_training_thread_is_logged_once(new_hook, monkeypatch, caplog):
    hook = new_hook(on_error="warn")
    monkeypatch.setattr(Recorder, "begin_step", broken)
    assert train(hook) == 3
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1
    assert "a fault of ours" in errors[0].getMessage()
    assert errors[0].exc_info


def test_a_fault_on_the_training_thread_is_raised_if_asked(new_hook, monkeypatch):
    hook = new_hook(on_error="raise")
    monkeypatch.setattr(Recorder, "begin_step", broken)
    with pytest.raises(ValueError, match="a fault of ours"):
        hook.begin_step()


def test_after_a_fault_the_trial_is_readable_and_says_so(new_hook, monkeypatch, read, last_word):
    hook = new_hook(on_error="warn")
    train(hook, 3)
    monkeypatch.setattr(Recorder, "begin_step", broken)
    train(hook, 3)
    hook.close()
    assert read().steps() == [0, 1]
    assert last_word()["clean"] is False
    assert "a fault of ours" in last_word()["reason"]


def test_a_full_disk_is_logged_and_training_goes_on(new_hook, full_disk, caplog, read, last_word):
    hook = new_hook(on_error="warn")
    full_disk(".parquet", ".safetensors")
    assert train(hook) == 3
    wait_for_the_writer(hook)
    assert train(hook) == 3
    hook.close()
    assert "No space left" in caplog.text
    assert "No space left" in last_word()["reason"]
    assert read().steps() == []


def test_a_full_disk_is_raised_into_training_if_asked(new_hook, full_disk, last_word):
    hook = new_hook(on_error="raise")
    full_disk(".parquet", ".safetensors")
    train(hook)
    wait_for_the_writer(hook)
    with pytest.raises(OSError, match="No space left"):
        hook.begin_step()
    hook.begin_step()
    hook.close()
    assert "No space left" in last_word()["reason"]


def test_a_full_disk_found_only_by_close_is_raised_by_close(new_hook, full_disk, last_word):
    hook = new_hook(on_error="raise")
    full_disk(".parquet", ".safetensors")
    train(hook)
    with pytest.raises(OSError, match="No space left"):
        hook.close()
    assert "No space left" in last_word()["reason"]
    hook.close()


def test_a_full_disk_found_only_by_close_is_logged_by_close(new_hook, full_disk, caplog):
    hook = new_hook(on_error="warn")
    full_disk(".parquet", ".safetensors")
    train(hook)
    hook.close()
    assert "No space left" in caplog.text


def test_a_fault_while_closing_still_leaves_a_last_word(new_hook, monkeypatch, last_word):
    hook = new_hook(on_error="raise")
    train(hook)
    monkeypatch.setattr(Recorder, "finish", broken)
    with pytest.raises(ValueError, match="a fault of ours"):
        hook.close()
    assert "a fault of ours" in last_word()["reason"]


def test_a_last_word_that_cannot_be_written_is_logged(new_hook, full_disk, caplog, read):
    hook = new_hook(on_error="warn")
    train(hook)
    full_disk("end.json", "collections.json")
    hook.close()
    assert "No space left" in caplog.text
    assert read().steps() == [0, 1, 2]


def test_a_step_in_which_ctrl_c_came_while_recording_is_not_kept(new_hook, monkeypatch, read):
    hook = new_hook(on_error="raise")
    train(hook)
    hook.begin_step()
    hook.save_tensor("before", np.ones(10))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Arrays, "copy", interrupted)
        hook.save_tensor("x", np.ones(10))
    hook.close()
    assert read().steps() == [0, 1, 2]


# -- the guard by itself ---------------------------------------------------------------------------


def test_the_guard_stands_aside_once_and_runs_nothing_more():
    events = []
    guard = Guard("warn", lambda: events.append("aside"))
    guard.run(broken)
    guard.run(events.append, "ran")
    assert events == ["aside"]


def test_the_guard_returns_what_the_function_returns():
    assert Guard("raise", lambda: None).run(max, 1, 2) == 2


def test_a_fault_of_a_thread_waits_for_the_training_thread_to_stand_aside():
    events = []
    guard = Guard("warn", lambda: events.append("aside"))
    guard.run_apart(broken)
    assert events == []
    guard.run(events.append, "ran")
    assert events == ["aside"]


def test_a_fault_of_a_thread_is_raised_once():
    guard = Guard("raise", lambda: None)
    guard.run_apart(broken)
    with pytest.raises(ValueError):
        guard.run(max, 1, 2)
    assert guard.run(max, 1, 2) is None


def test_the_guard_lets_an_interrupt_pass():
    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Guard("warn", lambda: None).run(interrupt)


def test_the_log_says_up_to_which_step_everything_is_saved(new_hook, full_disk, caplog, out_dir):
    hook = new_hook(on_error="warn")
    train(hook, steps=4)
    hook._writer.hurry()
    while hook._writer.last_step < 0:
        pass
    written = hook._writer.last_step
    full_disk(".parquet")
    train(hook, steps=4)
    hook.close()
    assert f"{out_dir} holds steps up to {written}" in caplog.text
