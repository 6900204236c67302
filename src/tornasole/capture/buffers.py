"""Memory for snapshots: the training thread copies raw values here, another writes them from here.

Blocks are used again and again, because touching fresh memory costs as much as the copy itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Literal

import numpy as np

from tornasole.capture.adapter import Bytes

_BLOCK = 16 << 20
_ALIGNMENT = 64

WhenFull = Literal["wait", "drop"]


class BufferPool:
    """Blocks of memory, bounded in bytes.

    Args:
        limit: Bytes that may be lent at a time; one step alone may exceed it.
        when_full: Whether ``Lease.take`` then waits for memory to come back or returns ``None``.
        hurry: Called before waiting, to have the memory that waits in a queue given back.
    """

    def __init__(self, limit: int, when_full: WhenFull, hurry: Callable[[], None]) -> None:
        self._limit, self._when_full, self._hurry = limit, when_full, hurry
        self._change = threading.Condition()
        self._lent = 0
        self._free: list[Bytes] = []

    def lease(self) -> Lease:
        """A place for the snapshots of one step."""
        return Lease(self)

    def take_block(self, size: int, held: int) -> Bytes | None:
        """Lends a block of at least the size to a step that already holds some bytes."""
        while (block := self._lend(size, held)) is None and self._when_full == "wait":
            # Not under our lock: the writer gives memory back while it holds its own.
            self._hurry()
            with self._change:
                if not self._has_room(size, held):
                    self._change.wait()
        return block

    def _has_room(self, size: int, held: int) -> bool:
        return self._lent + size <= self._limit or self._lent <= held

    def _lend(self, size: int, held: int) -> Bytes | None:
        with self._change:
            if not self._has_room(size, held):
                return None
            self._lent += size
            for place, block in enumerate(self._free):
                if len(block) == size:
                    return self._free.pop(place)
            # Make room for a new block among those of other sizes that nobody uses.
            while self._free and self._lent + sum(map(len, self._free)) > self._limit:
                self._free.pop(0)
        return np.empty(size, np.uint8)

    def give_back(self, blocks: list[Bytes]) -> None:
        """Takes blocks back for later use."""
        with self._change:
            self._lent -= sum(map(len, blocks))
            self._free += blocks
            while self._free and self._lent + sum(map(len, self._free)) > self._limit:
                self._free.pop(0)
            self._change.notify_all()


class Lease:
    """The memory that one step's snapshots lie in."""

    def __init__(self, pool: BufferPool) -> None:
        self._pool = pool
        self._blocks: list[Bytes] = []
        self._held = 0
        self._rest = np.empty(0, np.uint8)

    def take(self, size: int) -> Bytes | None:
        """A piece of memory; ``None`` if the pool is full and the user chose to drop."""
        room = -(-size // _ALIGNMENT) * _ALIGNMENT
        if room > len(self._rest):
            block = self._pool.take_block(max(room, _BLOCK), self._held)
            if block is None:
                return None
            self._blocks.append(block)
            self._held += len(block)
            self._rest = block
        piece, self._rest = self._rest[:size], self._rest[room:]
        return piece

    def release(self) -> None:
        """Gives all of it back; further calls do nothing."""
        blocks, self._blocks = self._blocks, []
        if blocks:
            self._pool.give_back(blocks)
