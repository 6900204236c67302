"""Memory for snapshots: the training thread copies raw values here, another writes them from here.

Buffers are used again and again, because touching fresh memory costs as much as the copy itself.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from tornasole.capture.adapter import Bytes

WhenFull = Literal["wait", "drop"]

_PIECE = 4 << 20  # bytes that one thread copies at a time
_MOST_THREADS = 4  # more do not make memory faster


class BufferPool:
    """Buffers, bounded in bytes; a tensor comes back in the same size, so sizes recur.

    Args:
        limit: Bytes that may be lent at a time; one step alone may exceed it.
        when_full: Whether ``Lease.take`` then waits for memory to come back or returns ``None``.
        hurry: Called before waiting, to have the memory that waits in a queue given back.
    """

    def __init__(self, limit: int, when_full: WhenFull, hurry: Callable[[], None]) -> None:
        self._limit, self._when_full, self._hurry = limit, when_full, hurry
        self._change = threading.Condition()
        self._lent = self._free_bytes = 0
        self._free: dict[int, list[Bytes]] = {}

    def lease(self) -> Lease:
        """A place for the snapshots of one step."""
        return Lease(self)

    def take(self, size: int, held: int) -> Bytes | None:
        """Lends a buffer of the size to a step that already holds some bytes."""
        while (buffer := self._lend(size, held)) is None and self._when_full == "wait":
            # Not under our lock: the writer gives memory back while it holds its own.
            self._hurry()
            with self._change:
                if not self.has_room(size, held):
                    self._change.wait()
        return buffer

    def has_room(self, size: int, held: int = 0) -> bool:
        """Whether a step that already holds some bytes would get a buffer of the size."""
        return self._lent + size <= self._limit or self._lent <= held

    def _lend(self, size: int, held: int) -> Bytes | None:
        with self._change:
            if not self.has_room(size, held):
                return None
            self._lent += size
            alike = self._free.get(size)
            if alike:
                self._free_bytes -= size
                return alike.pop()
            self._forget_surplus()
        return np.empty(size, np.uint8)

    def give_back(self, buffers: list[Bytes]) -> None:
        """Takes buffers back for later use."""
        with self._change:
            size = sum(map(len, buffers))
            self._lent -= size
            self._free_bytes += size
            for buffer in buffers:
                self._free.setdefault(len(buffer), []).append(buffer)
            self._forget_surplus()
            self._change.notify_all()

    def _forget_surplus(self) -> None:
        """Gives up free buffers, those of the sizes first seen first, until all fit the limit."""
        while self._free and self._lent + self._free_bytes > self._limit:
            size = next(iter(self._free))
            buffers = self._free[size]
            if buffers:
                buffers.pop()
                self._free_bytes -= size
            if not buffers:
                del self._free[size]


class Lease:
    """The memory that one step's snapshots lie in."""

    def __init__(self, pool: BufferPool) -> None:
        self._pool = pool
        self._buffers: list[Bytes] = []
        self.held = 0

    def take(self, size: int, held_beside: int = 0) -> Bytes | None:
        """A buffer; ``None`` if the pool is full and the user chose to drop.

        Args:
            size: Its length.
            held_beside: What other steps hold that nobody will write before this one goes on, so
                that to wait for it would be to wait for ever.
        """
        buffer = self._pool.take(size, self.held + held_beside)
        if buffer is not None:
            self._buffers.append(buffer)
            self.held += size
        return buffer

    def release(self) -> None:
        """Gives all of it back; further calls do nothing."""
        buffers, self._buffers = self._buffers, []
        if buffers:
            self._pool.give_back(buffers)


def copy_all(sources: Sequence[Bytes], buffers: Sequence[Bytes]) -> None:
    """Copies each source into the buffer beside it, with a few threads if there is much to copy.

    Threads of our own, because those of a framework wait for each other: when the writer thread has
    one of the cores, that takes several times as long. They live no longer than the call.
    """
    jobs: deque[tuple[Bytes, Bytes]] = deque()
    for source, buffer in zip(sources, buffers, strict=True):
        for start in range(0, len(source), _PIECE):
            jobs.append((source[start : start + _PIECE], buffer[start : start + _PIECE]))

    def work() -> None:
        while True:
            try:
                source, buffer = jobs.popleft()
            except IndexError:
                return
            np.copyto(buffer, source)

    helpers = min(_MOST_THREADS, os.cpu_count() or 1, sum(map(len, sources)) // _PIECE) - 1
    threads = [threading.Thread(target=work, daemon=True) for _ in range(helpers)]
    for thread in threads:
        thread.start()
    try:
        work()
    finally:
        jobs.clear()  # after Ctrl-C, nobody may go on writing into memory that is given back
        for thread in threads:
            thread.join()
