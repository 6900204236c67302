"""A store in a local folder: one file per object, written beside its place and renamed into it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path

from tornasole.errors import ObjectNotFound
from tornasole.store.base import Buffer, checked_key

# A name that list() never shows: a writer that was killed may leave one behind.
_TEMPORARY = ".tmp-"
_counter = itertools.count()


class LocalStore:
    """The folder ``root``, which comes into being with the first object."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = Path(root).expanduser().absolute()

    @property
    def url(self) -> str:
        return str(self._root)

    def put(self, key: str, data: Sequence[Buffer], *, overwrite: bool = True) -> None:
        path = self._root / checked_key(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{_TEMPORARY}{os.getpid()}-{next(_counter)}")
        try:
            _write(temporary, data)
            if overwrite:
                os.replace(temporary, path)
            else:
                os.link(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytearray:
        try:
            with open(self._root / checked_key(key), "rb", buffering=0) as file:
                available = max(0, os.fstat(file.fileno()).st_size - start)
                wanted = available if length is None else min(length, available)
                data = bytearray(wanted)
                file.seek(start)
                view, done = memoryview(data), 0
                while done < wanted and (count := file.readinto(view[done:])):
                    done += count
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise self._missing(key) from None
        view.release()
        return data if done == wanted else data[:done]

    def size(self, key: str) -> int:
        try:
            return os.stat(self._root / checked_key(key)).st_size
        except (FileNotFoundError, NotADirectoryError):
            raise self._missing(key) from None

    def list(self, prefix: str = "", after: str = "") -> list[str]:
        base = self._root / prefix.rpartition("/")[0]
        keys = []
        for folder, _, names in os.walk(base):
            above = Path(folder).relative_to(self._root).as_posix()
            lead = "" if above == "." else above + "/"
            keys += [lead + name for name in names if not name.startswith(_TEMPORARY)]
        return sorted(key for key in keys if key.startswith(prefix) and key > after)

    def delete(self, key: str) -> None:
        (self._root / checked_key(key)).unlink(missing_ok=True)

    def close(self) -> None:
        """Nothing is held between calls."""

    def _missing(self, key: str) -> ObjectNotFound:
        return ObjectNotFound(f"There is no file {self._root / key}.")


def _write(path: Path, data: Sequence[Buffer]) -> None:
    """Writes all buffers without joining them: large ones go straight to the kernel, small ones together."""
    with open(path, "xb", buffering=1 << 20) as file:
        for buffer in data:
            file.write(buffer)
