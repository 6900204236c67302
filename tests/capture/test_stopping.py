"""A job that is asked to stop does, at a step boundary, on all of its workers."""

import pytest

from tornasole import Hook, SaveConfig, create_trial
from tornasole.errors import TrainingStopped
from tornasole.format import Stop, StopSign

EVERY = SaveConfig(save_interval=1)


def train(hook, steps, at_step=lambda step: None):
    for step in range(steps):
        hook.begin_step()
        hook.save_scalar("loss", 1.0)
        at_step(step)


def test_training_stops_where_the_next_step_would_begin(tmp_path):
    hook = Hook(tmp_path / "trial", save_config=EVERY)
    ask = {3: lambda: hook.stop_training("loss is NaN")}
    with pytest.raises(TrainingStopped, match="loss is NaN"):
        train(hook, 10, lambda step: ask.get(step, bool)())
    assert create_trial(tmp_path / "trial").steps() == [0, 1, 2, 3]


def test_a_job_that_was_stopped_has_ended_cleanly_and_says_why(tmp_path):
    hook = Hook(tmp_path / "trial", save_config=EVERY)
    hook.stop_training("loss is NaN")
    with pytest.raises(TrainingStopped):
        train(hook, 2)
    trial = create_trial(tmp_path / "trial")
    assert trial.state == "finished"
    assert "loss is NaN" in trial.state_reason


def test_anybody_may_put_up_the_sign(tmp_path):
    hook = Hook(tmp_path / "trial", save_config=EVERY)
    StopSign.of(str(tmp_path / "trial")).put(Stop("from afar"))
    with pytest.raises(TrainingStopped, match="from afar"):
        train(hook, 2)


def test_a_stopped_hook_lets_a_training_that_goes_on_alone(tmp_path):
    hook = Hook(tmp_path / "trial", save_config=EVERY)
    hook.stop_training("enough")
    with pytest.raises(TrainingStopped):
        hook.begin_step()
    train(hook, 2)
    assert create_trial(tmp_path / "trial").steps() == []


def workers(monkeypatch, folder, count):
    """Hooks of a job of several processes, here all in one."""
    hooks = []
    for rank in range(count):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", str(count))
        hooks.append(Hook(folder, save_config=EVERY, include_workers="all"))
    return hooks


@pytest.mark.parametrize("asks", [0, 1], ids=["the first asks", "another asks"])
def test_all_workers_stop_at_the_same_step(tmp_path, monkeypatch, asks):
    hooks = workers(monkeypatch, tmp_path / "trial", 3)
    stopped = {}
    for step in range(8):
        for rank, hook in enumerate(hooks):
            if rank in stopped:
                continue
            try:
                hook.begin_step()
            except TrainingStopped:
                stopped[rank] = step
                continue
            hook.save_scalar("loss", 1.0)
            if step == 2 and rank == asks:
                hook.stop_training("enough")
    assert len(stopped) == 3
    assert len(set(stopped.values())) == 1
    assert stopped[0] <= 5


def test_a_sign_with_a_step_is_not_replaced_by_one_without(tmp_path):
    sign = StopSign.of(str(tmp_path))
    sign.put(Stop("first", 7))
    sign.put(Stop("second"))
    assert sign.look() == Stop("first", 7)


def test_without_a_sign_there_is_nothing_to_see(tmp_path):
    assert StopSign.of(str(tmp_path)).look() is None


def test_an_observer_sees_the_records_of_each_saved_step(tmp_path):
    seen = []
    with Hook(tmp_path / "trial", save_config=EVERY) as hook:
        hook.observe(lambda step: seen.append((step.step, [r.name for r in step.records])))
        train(hook, 2)
    assert seen == [(0, ["scalar/loss"]), (1, ["scalar/loss"])]


@pytest.mark.parametrize("content", ['{"reason": "x"', "", "[]", "null", '{"reason": 5}'])
def test_a_sign_that_is_damaged_is_passed_over(tmp_path, content, caplog):
    hook = Hook(tmp_path / "trial", save_config=EVERY, on_error="raise")
    (tmp_path / "trial" / "stop.json").write_text(content)
    train(hook, 4)
    hook.close()
    assert create_trial(tmp_path / "trial").steps() == [0, 1, 2, 3]
    assert "cannot be read" in caplog.text


def test_a_worker_that_cannot_tell_the_others_stops_alone(tmp_path, monkeypatch):
    hook, *others = workers(monkeypatch, tmp_path / "trial", 2)

    def refuse(stop):
        raise PermissionError("on purpose")

    hook._sign.put = refuse
    hook.stop_training("enough")
    with pytest.raises(TrainingStopped):
        train(hook, 3)
    for other in others:
        other.close()


def test_an_observer_is_told_of_the_end(tmp_path):
    seen = []
    hook = Hook(tmp_path / "trial", save_config=EVERY)
    hook.observe(lambda step: seen.append(step.step), lambda: seen.append("end"))
    train(hook, 2)
    hook.close()
    assert seen == [0, 1, "end"]
