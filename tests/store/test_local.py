"""The store in a local folder, beyond what every store does."""

import errno
import os
import subprocess
import threading
from pathlib import Path

import pytest

from tornasole.errors import ObjectNotFound, SMDebugValueError
from tornasole.store import local
from tornasole.store.local import LocalStore
from tornasole.testing import StoreContract


class TestLocalStore(StoreContract):
    @pytest.fixture
    def store(self, tmp_path):
        return LocalStore(tmp_path / "root")


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_opening_and_listing_create_nothing(tmp_path):
    store = LocalStore(tmp_path / "root")
    assert store.list() == []
    assert store.list("w/", after="w/1") == []
    assert not (tmp_path / "root").exists()


def test_what_a_killed_writer_left_is_never_listed(tmp_path):
    store = LocalStore(tmp_path)
    store.put("w/k", [b"."])
    (tmp_path / "w" / ".tmp-0123456789abcdef").write_bytes(b"half")
    assert store.list() == ["w/k"]
    assert store.list("w/") == ["w/k"]


def test_what_a_killed_writer_left_does_not_stand_in_the_way(tmp_path, monkeypatch):
    store = LocalStore(tmp_path)
    monkeypatch.setattr(os, "getpid", lambda: 1)  # in a container, every job is process 1
    for name in (".tmp-1-0", ".tmp-1-1"):
        (tmp_path / name).write_bytes(b"half")
    store.put("k", [b"whole"], overwrite=False)
    assert bytes(store.get("k")) == b"whole"


@pytest.mark.parametrize("overwrite", [True, False])
def test_a_full_disk_leaves_neither_half_an_object_nor_a_temporary_file(
    tmp_path, monkeypatch, overwrite
):
    def full(path, data):
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    store = LocalStore(tmp_path)
    monkeypatch.setattr(local, "_write", full)
    with pytest.raises(OSError, match="No space left"):
        store.put("w/k", [b"whole"], overwrite=overwrite)
    assert store.list() == []
    assert files_in(tmp_path) == []


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("file systems cannot be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_disk_that_is_really_full_keeps_what_it_has(small_disk):
    store = LocalStore(small_disk)
    store.put("w/first", [b"1" * 20_000])
    with pytest.raises(OSError, match="No space left"):
        store.put("w/second", [b"2" * 10_000] * 10)
    with pytest.raises(OSError, match="No space left"):
        store.put("w/first", [b"3" * 100_000])
    assert files_in(small_disk) == ["first"]
    assert bytes(store.get("w/first")) == b"1" * 20_000


def test_a_file_system_without_hard_links_will_do(tmp_path, monkeypatch):
    def no_links(source, target):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    store = LocalStore(tmp_path)
    store.put("k", [b"first"], overwrite=False)
    with pytest.raises(FileExistsError):
        store.put("k", [b"second"], overwrite=False)
    assert bytes(store.get("k")) == b"first"
    assert files_in(tmp_path) == ["k"]


def test_a_file_in_the_place_of_a_folder_is_said_to_be_one(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    store = LocalStore(tmp_path / "file")
    assert store.list() == []
    with pytest.raises(NotADirectoryError, match="is a file, not a folder"):
        store.put("trial.json", [b"{}"], overwrite=False)
    with pytest.raises(ObjectNotFound):
        store.get("trial.json")


def test_a_folder_that_may_not_be_read_is_not_taken_for_an_empty_one(tmp_path, monkeypatch):
    def forbidden(path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(os, "scandir", forbidden)
    with pytest.raises(PermissionError):
        LocalStore(tmp_path).list()


@pytest.mark.parametrize("prefix", ["../", "/etc/", "a/../../"])
def test_a_listing_cannot_leave_the_root(tmp_path, prefix):
    with pytest.raises(SMDebugValueError):
        LocalStore(tmp_path).list(prefix)


def test_two_threads_may_write_the_same_key(tmp_path):
    store = LocalStore(tmp_path)
    contents = [bytes([number]) * 50_000 for number in range(4)]
    threads = [threading.Thread(target=store.put, args=("k", [each])) for each in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bytes(store.get("k")) in contents
    assert files_in(tmp_path) == ["k"]


def test_a_home_that_does_not_exist_is_an_ordinary_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    LocalStore("~nobody-of-that-name/run").put("k", [b"."])
    assert (tmp_path / "~nobody-of-that-name" / "run" / "k").exists()


def test_the_url_opens_the_same_folder_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    LocalStore("run").put("k", [b"."])
    url = LocalStore("run").url
    monkeypatch.chdir("/")
    assert LocalStore(url).list() == ["k"]
