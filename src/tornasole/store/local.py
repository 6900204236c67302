"""A store in a local folder: one file per object, written beside its place and renamed into it.

A file is whole or absent whenever the process dies. Nothing waits for the disk (no fsync), so a
machine that loses power may lose or damage what was written in the seconds before.
"""

from __future__ import annotations

import io
import os
import stat
from collections import deque
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from tornasole.errors import ObjectNotFound
from tornasole.store.base import Buffer, checked_key

# A name that list() never shows: a writer that was killed may leave one behind.
_TEMPORARY = ".tmp-"
_MOST_BUFFERS = 16  # in a call: of 16 to 1024, what was fastest, beside training
_NOT_THERE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


class LocalStore:
    """The folder ``root``, which comes into being with the first object."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = Path(os.path.expanduser(root)).absolute()

    @property
    def url(self) -> str:
        return str(self._root)

    def put(self, key: str, data: Sequence[Buffer], *, overwrite: bool = True) -> None:
        path = self._root / checked_key(key)
        _make_folder(path.parent)
        # Random, because process numbers repeat between containers and hosts that share a folder.
        temporary = path.with_name(_TEMPORARY + os.urandom(8).hex())
        try:
            _write(temporary, data)
            if overwrite:
                os.replace(temporary, path)
            else:
                _rename_if_free(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytearray:
        try:
            with open(self._root / checked_key(key), "rb", buffering=0) as file:
                available = max(0, os.fstat(file.fileno()).st_size - start)
                wanted = available if length is None else min(length, available)
                data = bytearray(wanted)
                done = 0
                if wanted:
                    file.seek(start)
                    with memoryview(data) as view:
                        while done < wanted and (count := file.readinto(view[done:])):
                            done += count
        except _NOT_THERE:
            raise self._missing(key) from None
        return data if done == wanted else data[:done]

    def size(self, key: str) -> int:
        try:
            status = os.stat(self._root / checked_key(key))
        except _NOT_THERE:
            raise self._missing(key) from None
        if stat.S_ISDIR(status.st_mode):
            raise self._missing(key)
        return status.st_size

    def list(self, prefix: str = "", after: str = "") -> list[str]:
        folder = prefix.rpartition("/")[0]
        base = self._root / checked_key(folder) if folder else self._root
        keys = []
        for place, _, names in os.walk(base, onerror=_refuse_unreadable):
            above = os.path.relpath(place, self._root).replace(os.sep, "/")
            lead = "" if above == "." else above + "/"
            keys += [lead + name for name in names if not name.startswith(_TEMPORARY)]
        return sorted(key for key in keys if key.startswith(prefix) and key > after)

    def delete(self, key: str) -> None:
        try:
            (self._root / checked_key(key)).unlink()
        except _NOT_THERE:
            pass

    def close(self) -> None:
        """Nothing is held between calls."""

    def _missing(self, key: str) -> ObjectNotFound:
        return ObjectNotFound(f"There is no file {self._root / key}.")


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:  # which would read as if the object were there
        raise NotADirectoryError(f"{path} is a file, not a folder.") from None


def _write(path: Path, data: Sequence[Buffer]) -> None:
    """Writes the buffers without joining them, in as few calls as the system allows.

    After each call this thread must get the interpreter back from the training thread: with a call
    per buffer that takes as long as the writing itself.
    """
    views = [memoryview(buffer).cast("B") for buffer in data]
    pending = deque(view for view in views if len(view))
    with open(path, "xb", buffering=0) as file:
        while pending:
            written = _write_some(file, list(islice(pending, _MOST_BUFFERS)))
            while pending and written >= len(pending[0]):
                written -= len(pending.popleft())
            if written:
                pending[0] = pending[0][written:]


def _write_some(file: io.FileIO, buffers: list[memoryview]) -> int:
    if hasattr(os, "writev"):
        return os.writev(file.fileno(), buffers)
    return file.write(buffers[0])


def _rename_if_free(temporary: Path, path: Path) -> None:
    """Gives the file its name unless that is taken: atomically, where there are hard links."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:
        open(path, "xb").close()
        os.replace(temporary, path)


def _refuse_unreadable(error: OSError) -> None:
    """A folder that is gone holds nothing; one that may not be looked into is not empty."""
    if not isinstance(error, _NOT_THERE):
        raise error
