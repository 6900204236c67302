"""Steps: which there are, which are complete, which will come; modes and their own counting."""

import pytest

from tornasole.errors import SMDebugTypeError, SMDebugValueError
from tornasole.trial.completeness import WINDOW_VARIABLE
from tornasole.types import ModeKeys, StepState

TRAIN, EVAL, PREDICT = ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT
A, U, NYA = StepState.AVAILABLE, StepState.UNAVAILABLE, StepState.NOT_YET_AVAILABLE
ALL = list(range(7))


def run_of_three(start, ended, **missing):
    """Workers a, b and c write steps 0 to 6, but for those that are missing."""
    run = start(workers=3)
    for worker in "abc":
        absent = missing.get(worker, [])
        run.steps(*(step for step in ALL if step not in absent), worker=worker)
        if ended:
            run.end(worker)
    return run.trial()


@pytest.mark.parametrize(
    ("missing", "ended", "complete", "last", "states"),
    [
        ({}, False, ALL, 6, {3: A, 8: NYA}),
        ({}, True, ALL, 6, {3: A, 8: U}),
        ({w: [4] for w in "abc"}, False, [0, 1, 2, 3, 5, 6], 6, {4: U, 8: NYA}),
        ({"b": [3, 4, 5, 6]}, False, [0, 1, 2], 2, {4: NYA, 6: NYA, 8: NYA}),
        ({"b": [3, 4, 5, 6]}, True, ALL, 6, {4: A, 6: A, 8: U}),
        ({"b": [3, 4, 5]}, False, ALL, 6, {4: A, 8: NYA}),
        ({"a": [3], "b": [3, 4, 5], "c": [3]}, False, [0, 1, 2, 4, 5, 6], 6, {3: U}),
        ({"a": [3], "b": [3, 4, 5, 6], "c": [3]}, False, [0, 1, 2], 2, {3: NYA, 4: NYA, 6: NYA}),
        ({"a": [3], "b": [3, 4, 5, 6], "c": [3]}, True, [0, 1, 2, 4, 5, 6], 6, {3: U, 4: A}),
    ],
)
def test_completeness_of_three_workers(start, missing, ended, complete, last, states):
    trial = run_of_three(start, ended, **missing)
    assert trial.steps() == complete
    assert trial.tensor("loss").steps() == complete
    assert trial.last_complete_step == last
    assert {step: trial.has_passed_step(step) for step in states} == states


def test_a_single_worker_that_leaves_out_a_step(run):
    trial = run.steps(0, 1, 2, 3, 5, 6).trial()
    assert trial.steps() == [0, 1, 2, 3, 5, 6]
    assert [trial.has_passed_step(step) for step in (4, 8)] == [U, NYA]


def test_incomplete_steps_can_be_shown(start):
    trial = run_of_three(start, False, b=[3, 4, 5, 6])
    assert trial.steps(show_incomplete_steps=True) == ALL
    assert trial.tensor("loss").steps(show_incomplete_steps=True) == ALL


def test_states_of_two_modes(run):
    for number, step in enumerate((0, 10, 20, 30)):
        run.step(number * 10, mode=TRAIN, mode_step=step)
    for step in range(31):
        run.step(40 + step, mode=EVAL, mode_step=step)
    trial = run.trial()
    assert trial.has_passed_step(23, TRAIN) is U
    assert trial.has_passed_step(40, TRAIN) is NYA
    assert trial.has_passed_step(30, EVAL) is A
    run.end()
    assert trial.has_passed_step(40, TRAIN) is U


def test_after_too_many_incomplete_steps_the_first_are_given_up(start, monkeypatch):
    monkeypatch.setenv(WINDOW_VARIABLE, "10")
    trial = start(workers=3).steps(*range(20), worker="a").trial()
    assert trial.last_complete_step == 4
    assert trial.steps() == list(range(10))
    assert trial.steps() == list(range(10))
    assert trial.last_complete_step == 9


def test_the_window_counts_steps_that_were_saved(start, monkeypatch):
    monkeypatch.setenv(WINDOW_VARIABLE, "10")
    trial = start(workers=2).steps(*range(0, 10_000, 500), worker="a").trial()
    assert trial.last_complete_step == 2000


def test_few_incomplete_steps_are_waited_for(start):
    trial = start(workers=3).steps(*range(20), worker="a").trial()
    assert trial.last_complete_step == -1
    assert trial.steps() == []


@pytest.mark.parametrize("window", ["0", "-1", "many"])
def test_a_bad_window_is_named(run, monkeypatch, window):
    monkeypatch.setenv(WINDOW_VARIABLE, window)
    with pytest.raises(SMDebugValueError, match=WINDOW_VARIABLE):
        run.trial()


@pytest.fixture
def interleaved(run):
    """3 TRAIN, 2 EVAL, 3 TRAIN, 2 EVAL steps, and one of no mode."""
    order = [TRAIN] * 3 + [EVAL] * 2 + [TRAIN] * 3 + [EVAL] * 2
    counts = {TRAIN: 0, EVAL: 0}
    for step, mode in enumerate(order):
        run.step(step, mode=mode, mode_step=counts[mode])
        counts[mode] += 1
    return run.step(10).end().trial()


def test_each_mode_counts_its_own_steps(interleaved):
    assert interleaved.steps() == list(range(11))
    assert interleaved.steps(TRAIN) == [0, 1, 2, 3, 4, 5]
    assert interleaved.steps(EVAL) == [0, 1, 2, 3]


def test_a_mode_that_was_not_seen_has_no_steps(interleaved):
    assert interleaved.steps(PREDICT) == []


def test_the_modes_seen_do_not_count_global(interleaved):
    assert interleaved.modes() == [TRAIN, EVAL]


def test_from_a_global_step_to_its_mode_and_back(interleaved):
    assert interleaved.mode_modestep(5) == (TRAIN, 3)
    assert (interleaved.mode(8), interleaved.mode_step(8)) == (EVAL, 2)
    assert interleaved.global_step(EVAL, 2) == 8


def test_a_step_without_a_mode_is_global(interleaved):
    assert interleaved.mode_modestep(10) == (ModeKeys.GLOBAL, 10)
    assert interleaved.global_step(ModeKeys.GLOBAL, 77) == 77


def test_an_unknown_step_has_no_mode(interleaved):
    assert interleaved.mode_modestep(99) == (None, None)
    assert (interleaved.mode(99), interleaved.mode_step(99)) == (None, None)
    assert interleaved.global_step(TRAIN, 99) is None


def test_a_mode_of_another_type_is_refused(interleaved):
    with pytest.raises(SMDebugTypeError, match=r"ModeKeys\.TRAIN.*'train'"):
        interleaved.steps("train")


def test_a_trial_without_steps_has_none(run):
    trial = run.trial()
    assert (trial.steps(), trial.modes(), trial.last_complete_step) == ([], [], -1)
    assert trial.has_passed_step(0) is NYA


def test_a_step_outside_the_range_will_never_come(run):
    trial = run.steps(*range(5)).trial(range_steps=(2, 4))
    assert [trial.has_passed_step(step) for step in (1, 2, 3, 4, 99)] == [U, A, A, U, U]


def test_once_the_range_is_behind_what_is_missing_in_it_will_not_come(run):
    trial = run.steps(0, 10).trial(range_steps=(0, 8))
    assert trial.has_passed_step(5) is U
