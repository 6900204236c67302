"""Opening a trial: where it may lie, what it is called, and what is said when there is none."""

import json
import math

import pytest

from tornasole.errors import (
    CorruptTrial,
    SMDebugNotImplementedError,
    SMDebugTypeError,
    SMDebugValueError,
    TrialNotFound,
    UnsupportedFormat,
    WaitTimeout,
)
from tornasole.trial import LocalTrial, S3Trial, Trial, create_trial
from tornasole.trial import trial as trial_module


def test_a_path_opens_the_trial_at_it(start, tmp_path):
    start(tmp_path / "job").steps(0, 1)
    assert create_trial(str(tmp_path / "job")).steps() == [0, 1]


def test_a_path_object_will_do(start, tmp_path):
    start(tmp_path / "job").steps(0)
    assert create_trial(tmp_path / "job").steps() == [0]


def test_out_dir_is_another_word_for_path(run):
    assert create_trial(out_dir=run.address).path == run.address


@pytest.mark.parametrize("arguments", [{}, {"path": "a", "out_dir": "b"}])
def test_exactly_one_of_path_and_out_dir_is_needed(arguments):
    with pytest.raises(SMDebugValueError, match=r"path= or out_dir="):
        create_trial(**arguments)


@pytest.mark.parametrize("path", [3, ["a"], b"a"])
def test_a_path_of_another_type_is_refused(path):
    with pytest.raises(SMDebugTypeError, match="string or a path"):
        create_trial(path)


def test_an_empty_path_is_refused():
    with pytest.raises(SMDebugValueError, match="empty"):
        create_trial("  ")


def test_whitespace_around_a_path_is_ignored(run):
    assert create_trial(f"  {run.address}\n").path == run.address


@pytest.mark.parametrize("ending", ["", "/", "//"])
def test_the_default_name_is_the_last_part_of_the_path(start, tmp_path, ending):
    start(tmp_path / "my job")
    assert create_trial(f"{tmp_path}/my job{ending}").name == "my job"


def test_a_name_can_be_given(run):
    assert create_trial(run.address, "mine").name == "mine"


def test_a_missing_path_says_so_at_once(tmp_path):
    with pytest.raises(TrialNotFound, match=rf"{tmp_path}/none.*empty or missing"):
        create_trial(tmp_path / "none")


def test_an_empty_folder_says_so_at_once(tmp_path):
    with pytest.raises(FileNotFoundError, match="empty or missing"):
        create_trial(tmp_path)


def test_a_folder_of_other_things_says_what_it_holds(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(TrialNotFound, match=r"notes\.txt"):
        create_trial(tmp_path)


def test_waiting_ends_when_the_trial_appears(start, tmp_path, monkeypatch):
    monkeypatch.setattr(trial_module.time, "sleep", lambda _: start(tmp_path / "job").steps(0))
    assert create_trial(tmp_path / "job", wait=60).steps() == [0]


@pytest.mark.parametrize("wait", [True, math.inf])
def test_waiting_can_take_as_long_as_it_takes(start, tmp_path, monkeypatch, wait):
    pauses = iter([lambda: None, lambda: None, lambda: start(tmp_path / "job")])
    monkeypatch.setattr(trial_module.time, "sleep", lambda _: next(pauses)())
    assert create_trial(tmp_path / "job", wait=wait).state == "running"


def test_waiting_gives_up_in_time(tmp_path):
    with pytest.raises(WaitTimeout, match=rf"{tmp_path}.*0\.01 s"):
        create_trial(tmp_path, wait=0.01)


def test_waiting_does_not_hide_a_damaged_trial(tmp_path):
    (tmp_path / "trial.json").write_text("{")
    with pytest.raises(CorruptTrial, match=r"trial\.json"):
        create_trial(tmp_path, wait=True)


def test_profiler_data_are_refused_in_a_sentence(run):
    with pytest.raises(SMDebugNotImplementedError, match="profiler data cannot be read"):
        create_trial(run.address, profiler=True)


def test_a_newer_format_says_to_upgrade(tmp_path):
    content = {"format": "tornasole", "version": 99, "workers": 1}
    (tmp_path / "trial.json").write_text(json.dumps(content))
    with pytest.raises(UnsupportedFormat, match=r"version 99.*pip install -U"):
        create_trial(tmp_path)


def test_arguments_of_old_scripts_are_accepted(run):
    old = {"check": True, "index_mode": False, "parallel": False, "output_dir": "/tmp"}
    assert isinstance(create_trial(run.address, **old), Trial)


def test_the_old_constructor_of_local_trials_works(start, tmp_path):
    start(tmp_path / "job").steps(4)
    trial = LocalTrial("mine", str(tmp_path / "job"))
    assert (trial.name, trial.steps()) == ("mine", [4])


def test_the_old_constructor_of_s3_trials_names_the_store_it_needs():
    with pytest.raises(SMDebugValueError, match="s3"):
        S3Trial("mine", "bucket", "prefix")


def test_trials_are_equal_by_name_and_path(run):
    assert run.trial() == run.trial()
    assert len({run.trial(), run.trial(), run.trial(name="another")}) == 2


def test_a_trial_shows_itself_shortly(run):
    run.steps(0, 1).end()
    assert "finished, 2 steps, 1 tensors" in repr(run.trial())


def test_what_the_trial_file_says_can_be_read(start):
    assert start(framework="pytorch").trial().about["framework"] == "pytorch"


@pytest.mark.parametrize(
    ("steps", "seen"),
    [((2, 5), [2, 3, 4]), ((None, 2), [0, 1]), ((4, None), [4, 5]), ((None, None), list(range(6)))],
)
def test_a_range_of_steps_is_half_open(run, steps, seen):
    run.steps(*range(6)).end()
    trial = run.trial(range_steps=steps)
    assert (trial.steps(), trial.tensor("loss").steps()) == (seen, seen)


@pytest.mark.parametrize(
    "steps", [(3, 3), (3, 1), (-1, 4), (0, 1.5), ("0", 1), (True, 4), (1,), (1, 2, 3), 5, "01"]
)
def test_a_bad_range_of_steps_is_refused(run, steps):
    with pytest.raises(SMDebugValueError, match="range_steps"):
        run.trial(range_steps=steps)


def test_a_tensor_outside_the_range_is_not_there(run, records):
    run.step(0, records.scalar("early", 1)).step(1, records.scalar("late", 1)).end()
    trial = run.trial(range_steps=(1, None))
    assert trial.tensor_names() == ["late"]
    assert not trial.has_tensor("early")
