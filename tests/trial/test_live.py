"""A run that goes on while it is read: refreshing, holding still, waiting."""

import threading

import numpy as np
import pytest

from tornasole.errors import NoMoreData, StepUnavailable, WaitTimeout
from tornasole.format import StepRecords
from tornasole.format.writer import Limits, TrialWriter
from tornasole.trial import create_trial, no_refresh, refresh
from tornasole.trial import trial as trial_module
from tornasole.types import ModeKeys, StepState


@pytest.fixture
def while_sleeping(monkeypatch):
    """Runs one of the given functions each time the library would sleep."""

    def while_sleeping(*functions):
        pauses = iter(functions)
        monkeypatch.setattr(trial_module.time, "sleep", lambda _: next(pauses)())

    return while_sleeping


def test_new_steps_are_seen_by_the_next_question(run):
    trial = run.steps(0).trial()
    tensor = trial.tensor("loss")
    run.steps(1)
    assert trial.steps() == [0, 1]
    assert tensor.steps() == [0, 1]
    run.steps(2)
    assert tensor.value(2) == 2
    assert list(tensor.values()) == [0, 1, 2]


def test_a_new_tensor_is_seen(run, records):
    trial = run.steps(0).trial()
    run.step(1, records.scalar("late", 1))
    assert trial.has_tensor("late")
    assert trial.tensor("late").value(1) == 1


def test_a_new_worker_is_seen(start):
    run = start(workers=2).steps(0, worker="b")
    trial = run.trial()
    run.steps(0, worker="a")
    assert trial.workers() == ["a", "b"]
    assert trial.steps() == [0]


def test_steps_and_modes_that_come_later_are_found(run):
    trial = run.trial()
    run.step(5, mode=ModeKeys.EVAL, mode_step=0)
    assert trial.mode(5) is ModeKeys.EVAL
    run.step(6, mode=ModeKeys.EVAL, mode_step=1)
    assert trial.global_step(ModeKeys.EVAL, 1) == 6


def test_a_trial_can_be_held_still(run):
    trial = run.steps(0).trial()
    with no_refresh(trial) as held:
        run.steps(1)
        assert held.steps() == [0]
    assert trial.steps() == [0, 1]


def test_a_held_trial_can_be_refreshed_by_hand(run):
    trial = run.steps(0).trial()
    with no_refresh(trial):
        run.steps(1)
        trial.refresh_data()
        assert trial.steps() == [0, 1]
        run.steps(2)
        trial.refresh_tensor("loss")
        assert trial.steps() == [0, 1, 2]


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("switch", [refresh, no_refresh])
def test_a_switch_restores_what_was_before(run, switch, before):
    trial = run.trial()
    trial.dynamic_refresh = before
    with switch([trial]):
        assert trial.dynamic_refresh is (switch is refresh)
    assert trial.dynamic_refresh is before


def test_a_switch_restores_after_an_error_too(run):
    trial = run.trial()
    with pytest.raises(KeyError), no_refresh(trial):
        raise KeyError
    assert trial.dynamic_refresh


def test_a_run_that_is_over_is_not_looked_at_again(run):
    trial = run.steps(0).end().trial()
    assert trial.loaded_all_steps
    run.steps(1)
    assert trial.steps() == [0]


def test_the_end_of_the_run_is_seen(run):
    trial = run.steps(0).trial()
    assert (trial.state, trial.loaded_all_steps) == ("running", False)
    run.end()
    assert (trial.state, trial.loaded_all_steps) == ("finished", True)


def test_waiting_for_steps_that_are_there_returns_at_once(run):
    run.steps(0, 1).trial().wait_for_steps([0, 1])


def test_waiting_returns_when_the_steps_have_come(run, while_sleeping):
    trial = run.steps(0).trial()
    while_sleeping(lambda: run.steps(1), lambda: run.steps(2))
    trial.wait_for_steps([0, 1, 2])
    assert trial.steps() == [0, 1, 2]


def test_waiting_leaves_refreshing_as_it_was(run, while_sleeping):
    trial = run.trial()
    trial.dynamic_refresh = False
    while_sleeping(lambda: run.steps(0))
    trial.wait_for_steps([0])
    assert trial.dynamic_refresh is False


def test_waiting_for_a_step_that_was_passed_over_fails(run, while_sleeping):
    trial = run.trial()
    while_sleeping(lambda: run.steps(0), lambda: run.steps(2))
    with pytest.raises(StepUnavailable):
        trial.wait_for_steps([1])


def test_waiting_for_a_step_past_the_end_fails(run, while_sleeping):
    trial = run.steps(0, 1).trial()
    while_sleeping(lambda: run.end())
    with pytest.raises(NoMoreData) as caught:
        trial.wait_for_steps([0, 5])
    assert (caught.value.step, caught.value.last_step) == (5, 1)


def test_waiting_in_a_run_that_saved_nothing_fails_at_its_end(run):
    with pytest.raises(NoMoreData):
        run.end().trial().wait_for_steps([0])


def test_waiting_for_a_step_that_an_ended_run_left_out_fails(run):
    with pytest.raises(StepUnavailable):
        run.steps(0, 2).end().trial().wait_for_steps([1])


def test_waiting_counts_in_the_steps_of_the_mode(run, while_sleeping):
    trial = run.step(0, mode=ModeKeys.EVAL, mode_step=0).trial()
    while_sleeping(lambda: run.step(9, mode=ModeKeys.EVAL, mode_step=1).end())
    trial.wait_for_steps([1], ModeKeys.EVAL)
    with pytest.raises(NoMoreData) as caught:
        trial.wait_for_steps([2], ModeKeys.EVAL)
    assert caught.value.last_step == 1


def test_waiting_ends_with_its_time(run):
    with pytest.raises(WaitTimeout, match=r"Step 7.*0\.01 s"):
        run.steps(0).trial().wait_for_steps([7], timeout=0.01)


def test_a_step_is_seen_when_its_last_worker_writes_it(start):
    run = start(workers=2).steps(0, worker="a")
    trial = run.trial()
    assert trial.has_passed_step(0) is StepState.NOT_YET_AVAILABLE
    run.steps(0, worker="b")
    assert trial.has_passed_step(0) is StepState.AVAILABLE


def test_under_constant_writing_every_step_seen_is_whole(tmp_path, records):
    writer = TrialWriter.open(str(tmp_path), "worker_0", Limits(seconds=0, fan_in=3))
    writer.claim({"workers": 1})
    thread = threading.Thread(target=writer.run)
    thread.start()
    trial = create_trial(tmp_path)
    for step in range(120):
        pair = [records.raw("w", np.full(3, step, np.float32)), records.scalar("loss", step)]
        writer.submit(StepRecords(step, ModeKeys.TRAIN, step, pair))
        if step % 10 == 0:
            seen = trial.steps()
            assert seen == list(range(len(seen)))
            with no_refresh(trial):
                assert trial.tensor_names() in ([], ["loss", "w"])
                for name, values in trial.values().items():
                    assert list(values) == seen, name
                    assert all((value == at).all() for at, value in values.items())
    writer.finish()
    thread.join()
    assert trial.steps() == list(range(120))
