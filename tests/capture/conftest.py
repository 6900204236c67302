"""What tests of capture may ask for: a place, hooks without framework, a trial, a full disk."""

import errno
from pathlib import Path

import pytest

import tornasole
from tornasole.store.local import LocalStore


@pytest.fixture(autouse=True)
def no_current_hook():
    tornasole.del_hook()
    yield
    tornasole.del_hook()


@pytest.fixture
def out_dir(tmp_path) -> Path:
    """A place for a trial; nothing is there yet."""
    return tmp_path / "trial"


@pytest.fixture
def new_hook(out_dir):
    """Makes hooks that raise their faults, and closes them at the end."""
    hooks = []

    def make(path=out_dir, **options):
        hooks.append(tornasole.Hook(path, **{"on_error": "raise", **options}))
        return hooks[-1]

    yield make
    for hook in hooks:
        hook.close()


@pytest.fixture
def read(out_dir):
    """Opens the trial at out_dir."""
    return lambda path=out_dir: tornasole.create_trial(str(path))


@pytest.fixture
def full_disk(monkeypatch):
    """From the call on, a disk on which no file whose name ends as given can be written."""
    put = LocalStore.put

    def fill(*endings):
        def full(store, key, data, **options):
            if key.endswith(endings or ("",)):
                raise OSError(errno.ENOSPC, "No space left on device", key)
            put(store, key, data, **options)

        monkeypatch.setattr(LocalStore, "put", full)

    return fill
