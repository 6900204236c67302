"""One hook of the process is the current one."""

import pytest

import tornasole
from tornasole.errors import SMDebugTypeError


def test_there_is_none_at_first():
    assert tornasole.get_hook() is None


def test_the_hook_made_last_is_the_current_one(new_hook, tmp_path):
    new_hook()
    second = new_hook(tmp_path / "2")
    assert tornasole.get_hook() is second


def test_a_hook_can_be_made_the_current_one(new_hook, tmp_path):
    first = new_hook()
    new_hook(tmp_path / "2")
    tornasole.set_hook(first)
    assert tornasole.get_hook() is first


@pytest.mark.parametrize("bad", [None, "hook", object(), tornasole.Hook])
def test_only_a_hook_can_be(bad):
    with pytest.raises(SMDebugTypeError):
        tornasole.set_hook(bad)


def test_the_current_hook_can_be_forgotten_and_goes_on_saving(new_hook, read):
    hook = new_hook()
    tornasole.del_hook()
    assert tornasole.get_hook() is None
    hook.begin_step()
    hook.save_scalar("s", 1)
    hook.close()
    assert read().steps() == [0]


def test_a_closed_hook_is_not_the_current_one(new_hook):
    new_hook().close()
    assert tornasole.get_hook() is None


def test_closing_another_hook_leaves_the_current_one(new_hook, tmp_path):
    first, second = new_hook(), new_hook(tmp_path / "2")
    first.close()
    assert tornasole.get_hook() is second
