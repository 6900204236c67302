"""The store contract: a flat set of immutable-looking objects under ``/``-separated keys.

Six verbs, synchronous, safe to call from several threads:

* ``put`` makes an object visible whole or not at all, also when the process dies half-way;
* ``get`` returns the bytes of a range (fewer if the object ends earlier), ``size`` their number;
* ``list`` returns the keys below a prefix that sort after a given key, in order, and never an
  unfinished object;
* ``delete`` forgets an object; a missing one is no error;
* ``close`` gives back what the store holds.

A missing key raises ``errors.ObjectNotFound``. ``testing.StoreContract`` is the executable form of
this page.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tornasole.errors import SMDebugValueError

Buffer = bytes | bytearray | memoryview


class Store(Protocol):
    """Where the bytes of one trial live."""

    @property
    def url(self) -> str:
        """The address that opens this store again."""

    def put(self, key: str, data: Sequence[Buffer], *, overwrite: bool = True) -> None:
        """Writes the buffers, one after the other, as one object, atomically.

        Raises:
            FileExistsError: The key is taken and ``overwrite`` is false.
        """

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytearray:
        """Reads ``length`` bytes from ``start`` (to the end if ``None``)."""

    def size(self, key: str) -> int:
        """The object's length in bytes."""

    def list(self, prefix: str = "", after: str = "") -> list[str]:
        """The keys that begin with ``prefix`` and sort after ``after``, in order."""

    def delete(self, key: str) -> None:
        """Removes the object if it is there."""

    def close(self) -> None:
        """Gives back what the store holds; further calls are undefined."""


def checked_key(key: str) -> str:
    """Returns the key, or refuses one that could leave the store's root."""
    parts = key.split("/")
    if "\0" in key or "\\" in key or any(part in ("", ".", "..") for part in parts):
        raise SMDebugValueError(
            f"{key!r} is no valid key: use names separated by single '/', not '.', '..' or '\\'."
        )
    return key
