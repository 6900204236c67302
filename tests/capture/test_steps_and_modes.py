"""The hook counts steps, one global number and one per mode."""

import pytest

from tornasole import SaveConfig, SaveConfigMode, modes
from tornasole.errors import SMDebugValueError


def test_there_is_no_step_before_the_first(new_hook):
    hook = new_hook()
    assert hook.step == -1
    assert hook.mode is modes.GLOBAL
    assert hook.mode_steps == {}


def test_begin_step_begins_the_next_step(new_hook):
    hook = new_hook()
    for _ in range(3):
        hook.begin_step()
    assert hook.step == 2
    assert hook.mode_steps == {modes.GLOBAL: 2}


def run_example(hook, work=lambda: None):
    """3 TRAIN, 2 EVAL, 3 TRAIN, 2 EVAL."""
    for mode, count in [(modes.TRAIN, 3), (modes.EVAL, 2), (modes.TRAIN, 3), (modes.EVAL, 2)]:
        hook.set_mode(mode)
        for _ in range(count):
            hook.begin_step()
            work()


def test_modes_count_their_own_steps_and_all_share_the_global_one(new_hook, read):
    hook = new_hook()
    run_example(hook, lambda: hook.save_scalar("s", hook.step))
    assert hook.mode_steps == {modes.TRAIN: 5, modes.EVAL: 3, modes.GLOBAL: 9}
    hook.close()
    trial = read()
    assert trial.steps() == list(range(10))
    assert trial.steps(mode=modes.TRAIN) == [0, 1, 2, 3, 4, 5]
    assert [trial.global_step(modes.TRAIN, step) for step in range(6)] == [0, 1, 2, 5, 6, 7]
    assert [trial.global_step(modes.EVAL, step) for step in range(4)] == [3, 4, 8, 9]


def test_the_schedule_goes_by_the_steps_of_the_mode(new_hook):
    hook = new_hook(
        include_collections=["metrics"],
        save_config=SaveConfig(
            {
                modes.TRAIN: SaveConfigMode(save_interval=2),
                modes.EVAL: SaveConfigMode(save_interval=1),
            }
        ),
    )
    due = []
    run_example(hook, lambda: hook._recorder.active and due.append(hook.step))
    assert due == [0, 2, 3, 4, 6, 8, 9]


def test_a_step_in_global_mode_after_others_has_its_global_number(new_hook, read):
    hook = new_hook()
    hook.set_mode(modes.TRAIN)
    hook.begin_step()
    hook.begin_step()
    hook.set_mode(modes.GLOBAL)
    hook.begin_step()
    hook.save_scalar("s", 1)
    hook.close()
    assert read().mode_modestep(2) == (modes.GLOBAL, 2)


def test_switching_the_mode_does_not_end_a_step(new_hook, read):
    hook = new_hook()
    hook.set_mode(modes.TRAIN)
    hook.begin_step()
    hook.save_scalar("before", 1)
    hook.set_mode(modes.EVAL)
    hook.save_scalar("after", 2)
    hook.close()
    assert read().tensor("scalar/after").steps(mode=modes.TRAIN) == [0]


@pytest.mark.parametrize("bad", ["train", "TRAIN", 1, None, modes])
def test_set_mode_takes_nothing_but_a_mode(new_hook, bad):
    hook = new_hook()
    with pytest.raises(SMDebugValueError, match=r"modes\.TRAIN"):
        hook.set_mode(bad)
    with pytest.raises(ValueError):
        hook.set_mode(bad)
    assert hook.mode is modes.GLOBAL


def test_last_saved_step_is_the_last_that_kept_something(new_hook):
    hook = new_hook()
    assert hook.last_saved_step is None
    hook.begin_step()
    hook.save_scalar("s", 1)
    hook.begin_step()
    hook.begin_step()
    assert hook.last_saved_step == 0


def test_a_loop_of_ones_own_is_saved_with_begin_step(new_hook, read):
    hook = new_hook()
    for step in range(4):
        hook.begin_step()
        hook.save_tensor("squares", [step, step**2])
    hook.close()
    squares = read().tensor("squares")
    assert [squares.value(step).tolist() for step in squares.steps()] == [
        [0, 0],
        [1, 1],
        [2, 4],
        [3, 9],
    ]
