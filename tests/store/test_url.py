"""From an address to a store."""

from pathlib import Path

import pytest

from tornasole.errors import SMDebugTypeError, SMDebugValueError
from tornasole.store import open_store
from tornasole.store.local import LocalStore
from tornasole.store.memory import MemoryStore


@pytest.mark.parametrize("kind", [str, Path])
def test_a_path_opens_a_folder(tmp_path, kind):
    store = open_store(kind(tmp_path / "a run: 1"))
    assert isinstance(store, LocalStore)
    assert store.url == str(tmp_path / "a run: 1")
    assert not (tmp_path / "a run: 1").exists()


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("file:///tmp/run", "/tmp/run"),
        ("FILE:///tmp/run", "/tmp/run"),
        ("file://localhost/tmp/run", "/tmp/run"),
        ("file:///tmp/my%20run", "/tmp/my run"),
        ("  /tmp/run\n", "/tmp/run"),
        ("/tmp/a/../run/", "/tmp/a/../run"),
    ],
)
def test_an_address_names_a_folder(address, path):
    assert open_store(address).url == path


def test_a_relative_path_may_follow_the_scheme(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert open_store("file://runs/1").url == str(tmp_path / "runs" / "1")


def test_a_path_and_its_uri_are_one_folder(tmp_path):
    path = tmp_path / "50% ü"
    assert open_store(path.as_uri()).url == open_store(path).url


def test_the_home_folder_is_known(monkeypatch):
    monkeypatch.setenv("HOME", "/home/somebody")
    assert open_store("~/run").url == "/home/somebody/run"


def test_a_scheme_opens_its_store():
    assert isinstance(open_store("memory://test-url"), MemoryStore)
    assert open_store("Memory://test-url") is open_store("memory://test-url")


def test_an_unknown_scheme_is_refused_with_those_there_are():
    with pytest.raises(SMDebugValueError, match=r"'memry'.*'memory'.*file, memory"):
        open_store("memry://run")


@pytest.mark.parametrize("address", [None, 3, b"/tmp/run", ["/tmp/run"], object()])
def test_an_address_of_another_type_is_refused(address):
    with pytest.raises(SMDebugTypeError, match=type(address).__name__):
        open_store(address)


def test_a_path_object_of_bytes_is_refused():
    class OfBytes:
        def __fspath__(self):
            return b"/tmp/run"

    with pytest.raises(SMDebugTypeError, match="OfBytes"):
        open_store(OfBytes())


@pytest.mark.parametrize("address", ["", "  ", "a\0b", "file://", "file:///a%00b", "://", "://x"])
def test_an_address_that_names_nothing_is_refused(address):
    with pytest.raises(SMDebugValueError):
        open_store(address)
