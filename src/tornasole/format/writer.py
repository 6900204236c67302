"""From complete steps to segments: a bounded queue, and the loop that one writer thread runs."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tornasole.errors import SMDebugRuntimeError
from tornasole.format import layout, segment
from tornasole.format.records import StepRecords
from tornasole.format.segment import Segment
from tornasole.store import Store, open_store

@dataclass(frozen=True)
class Limits:
    """When a segment is closed, when segments are merged, and how much may wait.

    Attributes:
        seconds: Age of its first step at which a segment is closed: how far a live reader is behind.
        payload_bytes: Raw bytes at which a segment is closed, and up to which segments are merged.
        rows: Rows at which a segment is closed, and up to which segments are merged.
        fan_in: How many small segments are merged at a time while the job runs.
        queue_rows: Rows that may wait for the writer thread before training waits.
    """

    seconds: float = 1.0
    payload_bytes: int = 64 << 20
    rows: int = 1 << 18
    fan_in: int = 32
    queue_rows: int = 1 << 18


class TrialWriter:
    """Writes one worker's part of a trial.

    ``submit`` is for the training thread; ``run`` is the body of the writer thread, and returns after ``finish``.
    If ``run`` dies, what waits is given up, and ``submit`` returns at once from then on.
    """

    def __init__(self, store: Store, worker: str, limits: Limits | None = None) -> None:
        self._store, self._worker = store, worker
        self._limits = limits or Limits()
        self._queue: deque[tuple[StepRecords, int]] = deque()
        self._waiting_rows = self._waiting_bytes = 0
        self._change = threading.Condition()
        self._hurried = self._finishing = self._stopped = False
        self._segments: list[Segment] = []
        self._last_number = -1

    @classmethod
    def open(cls, address: str, worker: str, limits: Limits | None = None) -> TrialWriter:
        """A writer for the trial at the address."""
        return cls(open_store(address), worker, limits)

    # -- the small files ------------------------------------------------------------------------------------

    def claim(self, about: Mapping[str, Any]) -> None:
        """Writes ``trial.json``, and refuses a place where something is already.

        Raises:
            SMDebugRuntimeError: The place holds a trial, or files that are not ours.
        """
        held = self._store.list()
        if held:
            raise SMDebugRuntimeError(self._taken(held))
        content = {"format": layout.FORMAT, "version": layout.VERSION, **about}
        try:
            self._store.put(layout.TRIAL, [_json(content)], overwrite=False)
        except FileExistsError:
            raise SMDebugRuntimeError(self._taken([layout.TRIAL])) from None

    def put_collections(self, content: Mapping[str, Any]) -> None:
        """Writes what was asked for, in place of what it said before."""
        self._store.put(layout.collections_key(self._worker), [_json(content)])

    def put_end(self, content: Mapping[str, Any]) -> None:
        """Writes the worker's last word."""
        self._store.put(layout.end_key(self._worker), [_json(content)])

    def _taken(self, held: list[str]) -> str:
        place = self._store.url
        if layout.TRIAL not in held:
            shown = ", ".join(held[:3]) + (", …" if len(held) > 3 else "")
            return (
                f"out_dir {place} already holds files that are not a trial ({shown}). "
                "Give a new or empty folder."
            )
        ended = any(key.endswith("/" + layout.END) for key in held)
        state = "a finished trial" if ended else "a trial that has not ended (a running or killed job)"
        return f"out_dir {place} already holds {state}. Give another out_dir, or remove that one first."

    # -- the training thread --------------------------------------------------------------------------------

    def submit(self, step: StepRecords) -> None:
        """Queues a complete step; waits while more rows wait than the limit allows.

        The writer thread is woken for the first step of a segment and for a full one, not for every step.
        """
        payload_bytes = sum(len(record.raw) for record in step.records if record.raw is not None)
        with self._change:
            while self._queue and self._waiting_rows > self._limits.queue_rows and not self._stopped:
                self._change.wait()
            if self._stopped:
                step.release()
                return
            self._queue.append((step, payload_bytes))
            self._waiting_rows += len(step.records)
            self._waiting_bytes += payload_bytes
            if len(self._queue) == 1 or self._is_full():
                self._change.notify_all()

    def hurry(self) -> None:
        """Asks for a segment now: somebody waits for the memory of the queued steps."""
        with self._change:
            self._hurried = True
            self._change.notify_all()

    def finish(self) -> None:
        """Asks ``run`` to write what waits and return."""
        with self._change:
            self._finishing = True
            self._change.notify_all()

    def _is_full(self) -> bool:
        limits = self._limits
        return self._waiting_rows >= limits.rows or self._waiting_bytes >= limits.payload_bytes

    # -- the writer thread ----------------------------------------------------------------------------------

    def run(self) -> None:
        """Writes what is submitted until ``finish`` is called."""
        try:
            while steps := self._next_steps():
                try:
                    number = self._next_number()
                    self._segments.append(segment.write(self._store, self._worker, number, steps))
                finally:
                    for step in steps:
                        step.release()
                self._merge_small()
            self._merge_all()
        finally:
            with self._change:
                self._stopped = True
                for step, _ in self._queue:
                    step.release()
                self._queue.clear()
                self._change.notify_all()

    def _next_steps(self) -> list[StepRecords]:
        """Waits until a segment is due and takes its steps from the queue; none: there will be no more."""
        limits = self._limits
        with self._change:
            self._change.wait_for(lambda: self._queue or self._finishing)
            self._change.wait_for(
                lambda: self._is_full() or self._hurried or self._finishing, timeout=limits.seconds
            )
            self._hurried = False
            steps: list[StepRecords] = []
            rows = payload_bytes = 0
            while self._queue and rows < limits.rows and payload_bytes < limits.payload_bytes:
                step, step_bytes = self._queue.popleft()
                steps.append(step)
                rows += len(step.records)
                payload_bytes += step_bytes
            self._waiting_rows -= rows
            self._waiting_bytes -= payload_bytes
            self._change.notify_all()
        return steps

    def _next_number(self) -> int:
        self._last_number += 1
        return self._last_number

    def _merge_small(self) -> None:
        """Keeps the number of files small while the job runs: ``fan_in`` segments of a tier become one of the next.

        Each row is rewritten only as often as there are tiers, a few times in a job's life.
        """
        while True:
            tier = self._segments[-1].tier
            alike = 0
            for part in reversed(self._segments):
                if part.tier != tier:
                    break
                alike += 1
            if alike < self._limits.fan_in or not self._merge_from(len(self._segments) - alike):
                return

    def _merge_all(self) -> None:
        """Merges everything that is still small, at close."""
        start = 0
        while start < len(self._segments):
            self._merge_from(start)
            start += 1

    def _merge_from(self, start: int) -> bool:
        """Merges as many segments from ``start`` on as the limits allow; false if that is not even two."""
        limits = self._limits
        stop, rows, payload_bytes = start, 0, 0
        for part in self._segments[start:]:
            rows += part.rows
            payload_bytes += part.payload_bytes
            if rows > limits.rows or payload_bytes > limits.payload_bytes:
                break
            stop += 1
        parts = self._segments[start:stop]
        if len(parts) < 2:
            return False
        self._segments[start:stop] = [
            segment.merge(self._store, self._worker, self._next_number(), parts)
        ]
        return True


def _json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, indent=1).encode()
