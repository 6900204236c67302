"""A store in this process's memory: for tests, and for looking at a run without leaving files."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from tornasole.errors import ObjectNotFound
from tornasole.store.base import Buffer, checked_key


class MemoryStore:
    """Objects in a dictionary; several threads may read while one writes."""

    def __init__(self, name: str = "") -> None:
        self._name = name
        self._objects: dict[str, bytes] = {}
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"memory://{self._name}"

    def put(self, key: str, data: Sequence[Buffer], *, overwrite: bool = True) -> None:
        content = b"".join(data)
        with self._lock:
            if checked_key(key) in self._objects and not overwrite:
                raise FileExistsError(f"{self.url} already holds {key!r}.")
            self._objects[key] = content

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytearray:
        content = memoryview(self._object(key))
        return bytearray(content[start : None if length is None else start + length])

    def size(self, key: str) -> int:
        return len(self._object(key))

    def list(self, prefix: str = "", after: str = "") -> list[str]:
        with self._lock:
            return sorted(key for key in self._objects if key.startswith(prefix) and key > after)

    def delete(self, key: str) -> None:
        with self._lock:
            self._objects.pop(checked_key(key), None)

    def close(self) -> None:
        """Keeps the objects: another store of the same name sees them."""

    def _object(self, key: str) -> bytes:
        try:
            return self._objects[checked_key(key)]
        except KeyError:
            raise ObjectNotFound(f"{self.url} holds no {key!r}.") from None


_named: dict[str, MemoryStore] = {}


def open_memory(url: str) -> MemoryStore:
    """Returns the store of that name in this process: one place for writer and reader."""
    name = url.removeprefix("memory://").strip("/")
    return _named.setdefault(name, MemoryStore(name))
