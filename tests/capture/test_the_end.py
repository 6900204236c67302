"""However a run ends, its trial is readable and says how it ended."""

import copy
import json
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading

import pytest

import tornasole


@pytest.fixture
def last_word(out_dir):
    return lambda: json.loads((out_dir / "worker_0/end.json").read_text())


@pytest.fixture
def run_script(out_dir):
    """Runs a program with ``hook`` and ``out_dir`` at hand in another process."""

    def run(script, **options):
        head = (
            "import os, sys, tornasole\n"
            f"out_dir = {str(out_dir)!r}\n"
            "hook = tornasole.Hook(out_dir)\n"
            "hook.begin_step()\n"
            "hook.save_tensor('x', [1, 2])\n"
        )
        return subprocess.run(
            [sys.executable, "-c", head + script],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            **options,
        )

    return run


def test_close_writes_what_is_left(new_hook, read, last_word):
    hook = new_hook()
    hook.begin_step()
    hook.save_scalar("s", 1)
    hook.close()
    assert read().state == "finished"
    assert read().tensor("scalar/s").value(0) == 1
    assert last_word()["clean"] is True
    assert last_word()["last_step"] == 0


def test_closing_twice_is_no_error(new_hook, last_word):
    hook = new_hook()
    hook.begin_step()
    hook.close()
    first = last_word()
    hook.close()
    assert last_word() == first


def test_closing_before_any_step_leaves_an_empty_trial(new_hook, read):
    new_hook().close()
    assert read().steps() == []
    assert read().state == "finished"


def test_close_leaves_no_thread(new_hook):
    before = threading.active_count()
    hook = new_hook()
    for _ in range(2):
        hook.begin_step()
        hook.save_scalar("s", 1)
    assert threading.active_count() == before + 1
    hook.close()
    assert threading.active_count() == before


def test_the_last_step_is_written_without_starting_a_thread(new_hook, read, monkeypatch):
    """At exit, newer Pythons start no threads."""
    hook = new_hook()
    hook.begin_step()
    hook.save_scalar("s", 1)
    monkeypatch.setattr(threading.Thread, "start", lambda thread: pytest.fail("started a thread"))
    hook.close()
    assert read().steps() == [0]


def test_a_with_block_closes(out_dir, last_word):
    with tornasole.Hook(out_dir) as hook:
        hook.begin_step()
    assert last_word()["clean"] is True


def test_a_with_block_that_an_error_leaves_says_which(out_dir, last_word, read):
    def train():
        with tornasole.Hook(out_dir) as hook:
            hook.begin_step()
            hook.save_scalar("s", 1)
            raise ZeroDivisionError("lr")

    with pytest.raises(ZeroDivisionError):
        train()
    assert last_word()["clean"] is False
    assert last_word()["reason"] == "ZeroDivisionError: lr"
    assert read().steps() == [0]
    assert read().state == "failed"


def test_a_close_while_an_error_is_handled_is_a_clean_end(new_hook, last_word):
    hook = new_hook()
    try:
        raise ImportError("an optional package")
    except ImportError:
        hook.close()
    assert last_word()["clean"] is True


def test_a_hook_that_saw_no_step_says_so(new_hook, caplog):
    new_hook().close()
    assert "saw no step" in caplog.text


@pytest.mark.parametrize(("code", "clean"), [(None, True), (0, True), (3, False)])
def test_leaving_with_sys_exit_is_clean_if_its_code_is(out_dir, last_word, code, clean):
    def train():
        with tornasole.Hook(out_dir):
            sys.exit(code)

    with pytest.raises(SystemExit):
        train()
    assert last_word()["clean"] is clean


def test_a_program_that_does_not_close_closes_at_exit(run_script, read):
    assert run_script("").returncode == 0
    assert read().state == "finished"
    assert read().tensor("x").value(0).tolist() == [1, 2]


def test_a_program_that_fails_says_so_at_exit(run_script, read, last_word):
    assert "ZeroDivisionError" in run_script("1 / 0").stderr
    assert read().tensor("x").value(0).tolist() == [1, 2]
    assert last_word()["clean"] is False
    assert "ZeroDivisionError" in last_word()["reason"]


def test_a_program_that_is_killed_leaves_a_trial_that_says_so(run_script, read):
    run_script("hook.begin_step(); os.kill(os.getpid(), 9)")
    assert read().state == "interrupted"


def test_two_hooks_in_one_process_save_side_by_side(new_hook, tmp_path, read):
    hooks = [new_hook(tmp_path / name) for name in "ab"]
    for hook in hooks:
        hook.begin_step()
    hooks[0].save_scalar("s", 1)
    hooks[1].begin_step()
    hooks[1].save_scalar("s", 2)
    for hook in hooks:
        hook.close()
    assert [read(tmp_path / name).tensor("scalar/s").steps() for name in "ab"] == [[0], [1]]


# -- other processes -------------------------------------------------------------------------------


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


def in_child(hook):
    hook.begin_step()
    hook.save_scalar("child", 1)
    hook.close()


@needs_fork
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_writes_nothing_and_does_not_hang(new_hook, read):
    hook = new_hook()
    for step in range(2):
        hook.begin_step()
        hook.save_scalar("parent", step)
    child = multiprocessing.get_context("fork").Process(target=in_child, args=(hook,))
    child.start()
    child.join(30)
    assert child.exitcode == 0
    hook.begin_step()
    hook.save_scalar("parent", 2)
    hook.close()
    trial = read()
    assert trial.tensor_names() == ["scalar/parent"]
    assert trial.tensor("scalar/parent").steps() == [0, 1, 2]
    assert trial.state == "finished"


@needs_fork
def test_a_forked_child_that_exits_normally_writes_nothing(run_script, read):
    script = (
        "if os.fork() == 0: sys.exit(0)\nos.wait(); hook.begin_step(); hook.save_scalar('s', 1)"
    )
    assert run_script(script).returncode == 0
    assert read().steps() == [0, 1]
    assert read().state == "finished"


@pytest.mark.parametrize(
    "duplicate",
    [copy.deepcopy, copy.copy, lambda hook: pickle.loads(pickle.dumps(hook))],
    ids=["deepcopy", "copy", "pickle"],
)
def test_a_copy_of_a_hook_can_be_used_and_saves_nothing(new_hook, read, duplicate):
    hook = new_hook()
    hook.begin_step()
    twin = duplicate(hook)
    twin.begin_step()
    twin.save_scalar("twin", 1)
    twin.close()
    assert repr(twin)
    assert tornasole.get_hook() is hook
    hook.save_scalar("s", 1)
    hook.close()
    assert read().tensor_names() == ["scalar/s"]


def test_a_hook_pickles_to_almost_nothing(new_hook):
    assert len(pickle.dumps(new_hook())) < 200
