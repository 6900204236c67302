"""From complete steps to segments: a bounded queue, and the loop that one writer thread runs."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tornasole.errors import SMDebugRuntimeError, SMDebugValueError
from tornasole.format import layout, segment
from tornasole.format.records import StepRecords
from tornasole.format.segment import Segment
from tornasole.store import Store, open_store


@dataclass(frozen=True)
class Limits:
    """When a segment is closed, when segments are merged, and how much may wait.

    Attributes:
        seconds: Age of its first step at which a segment is closed: how far a reader is behind.
        payload_bytes: Raw bytes at which a segment is closed, and up to which segments are merged.
        rows: Rows at which a segment is closed, and up to which segments are merged.
        fan_in: How many small segments are merged at a time while the job runs.
        queue_rows: Rows that may wait for the writer thread before training waits.
    """

    seconds: float = 1.0
    payload_bytes: int = 64 << 20
    rows: int = 1 << 18
    fan_in: int = 32
    queue_rows: int = 1 << 16


class TrialWriter:
    """Writes one worker's part of a trial.

    ``submit`` is for the training thread; ``run`` is the body of the writer thread, and returns
    after ``finish``. If ``run`` dies, what waits is given up, and ``submit`` returns at once from
    then on. Steps are released outside the lock: their owner may hold one of its own.

    Attributes:
        last_step: The latest step that is written; -1: none yet.
    """

    def __init__(self, store: Store, worker: str, limits: Limits | None = None) -> None:
        if not layout.is_worker(worker):
            raise SMDebugValueError(f"A worker cannot be named {worker!r}: it becomes a folder.")
        self._store, self._worker = store, worker
        self._limits = limits or Limits()
        self._queue: deque[tuple[StepRecords, int, float]] = deque()
        self._waiting_rows = self._waiting_bytes = 0
        self._change = threading.Condition()
        self._hurried = self._finishing = self._stopped = self._writing = False
        self._segments: list[Segment] = []
        self._last_number = self.last_step = -1
        self._owns_folder = False

    @classmethod
    def open(cls, address: str, worker: str, limits: Limits | None = None) -> TrialWriter:
        """A writer for the trial at the address."""
        return cls(open_store(address), worker, limits)

    # -- the small files ---------------------------------------------------------------------------

    def claim(self, about: Mapping[str, Any], *, join: bool = False) -> None:
        """Writes ``trial.json``, and refuses a place where something is already.

        Other workers of the job may have begun before the one that claims.

        Args:
            about: What the trial is.
            join: Accept a trial that other workers have begun and none has ended.

        Raises:
            SMDebugRuntimeError: The place holds a trial, or files that are not ours.
        """
        held = self._store.list()
        ended = any(key.endswith("/" + layout.END) for key in held)
        joins = join and layout.TRIAL in held and not ended
        others = [key for key in held if not (joins and key == layout.TRIAL)]
        if any(layout.worker_of(key) in (None, self._worker) for key in others):
            raise SMDebugRuntimeError(self._taken(held))
        if joins:
            return
        content = {"format": layout.FORMAT, "version": layout.VERSION, **about}
        try:
            self._store.put(layout.TRIAL, [_json(content)], overwrite=False)
        except FileExistsError:
            if join:
                return
            raise SMDebugRuntimeError(self._taken([layout.TRIAL])) from None

    def amend(self, about: Mapping[str, Any]) -> None:
        """Writes ``trial.json`` again: more is known about a trial that this writer claimed."""
        content = {"format": layout.FORMAT, "version": layout.VERSION, **about}
        self._store.put(layout.TRIAL, [_json(content)], overwrite=True)

    def put_collections(self, content: Mapping[str, Any]) -> None:
        """Writes what was asked for, in place of what this writer said before.

        Raises:
            SMDebugRuntimeError: Another writer said something before.
        """
        self._put_own(layout.collections_key(self._worker), content, overwrite=self._owns_folder)
        self._owns_folder = True

    def put_end(self, content: Mapping[str, Any]) -> None:
        """Writes the worker's last word.

        Raises:
            SMDebugRuntimeError: It has been said.
        """
        self._put_own(layout.end_key(self._worker), content, overwrite=False)

    def _put_own(self, key: str, content: Mapping[str, Any], *, overwrite: bool) -> None:
        try:
            self._store.put(key, [_json(content)], overwrite=overwrite)
        except FileExistsError:
            held = self._store.list()
            raise SMDebugRuntimeError(self._taken(held)) from None

    def _taken(self, held: list[str]) -> str:
        place = self._store.url
        if layout.TRIAL not in held:
            shown = ", ".join(held[:3]) + (", …" if len(held) > 3 else "")
            return (
                f"out_dir {place} already holds files that are not a trial ({shown}). "
                "Give a new or empty folder."
            )
        ended = any(key.endswith("/" + layout.END) for key in held)
        state = (
            "a finished trial" if ended else "a trial that has not ended (a running or killed job)"
        )
        return f"out_dir {place} already holds {state}. Give another, or remove that one first."

    # -- the training thread -----------------------------------------------------------------------

    def submit(self, step: StepRecords) -> None:
        """Queues a complete step; waits while more rows wait than the limit allows.

        The writer thread is woken for the first step of a segment and for a full one, not for each.
        """
        payload_bytes = sum(record.raw.nbytes for record in step.records if record.raw is not None)
        with self._change:
            while (
                self._queue and self._waiting_rows > self._limits.queue_rows and not self._stopped
            ):
                self._change.wait()
            stopped = self._stopped
            if not stopped:
                self._queue.append((step, payload_bytes, time.monotonic()))
                self._waiting_rows += len(step.records)
                self._waiting_bytes += payload_bytes
                if len(self._queue) == 1 or self._is_full():
                    self._change.notify_all()
        if stopped:
            step.release()

    def hurry(self) -> None:
        """Asks for a segment now: somebody waits for the memory of the queued steps."""
        with self._change:
            self._hurried = True
            self._change.notify_all()

    def flush(self) -> None:
        """Returns when what was submitted is written, or given up."""
        with self._change:
            self._hurried = bool(self._queue)
            self._change.notify_all()
            self._change.wait_for(lambda: self._stopped or not (self._queue or self._writing))

    def finish(self) -> None:
        """Asks ``run`` to write what waits and return."""
        with self._change:
            self._finishing = True
            self._change.notify_all()

    def _is_full(self) -> bool:
        limits = self._limits
        enough = min(limits.rows, limits.queue_rows)
        return self._waiting_rows >= enough or self._waiting_bytes >= limits.payload_bytes

    # -- the writer thread -------------------------------------------------------------------------

    def run(self) -> None:
        """Writes what is submitted until ``finish`` is called."""
        try:
            while steps := self._next_steps():
                self._write(steps)
                self._merge_some()
            self._merge(0, len(self._segments))
        finally:
            with self._change:
                self._stopped = True
                given_up = [step for step, *_ in self._queue]
                self._queue.clear()
                self._change.notify_all()
            for step in given_up:
                step.release()

    def _next_steps(self) -> list[StepRecords]:
        """Waits until a segment is due and takes its steps; none: there will be no more."""
        limits = self._limits
        with self._change:
            self._change.wait_for(lambda: self._queue or self._finishing)
            age = time.monotonic() - self._queue[0][2] if self._queue else 0.0
            self._change.wait_for(
                lambda: self._is_full() or self._hurried or self._finishing, limits.seconds - age
            )
            self._hurried = False
            steps: list[StepRecords] = []
            rows = payload_bytes = 0
            while self._queue and rows < limits.rows and payload_bytes < limits.payload_bytes:
                step, step_bytes, _ = self._queue.popleft()
                steps.append(step)
                rows += len(step.records)
                payload_bytes += step_bytes
            self._waiting_rows -= rows
            self._waiting_bytes -= payload_bytes
            self._writing = bool(steps)
            self._change.notify_all()
        return steps

    def _write(self, steps: list[StepRecords]) -> None:
        try:
            number = self._next_number()
            self._segments.append(segment.write(self._store, self._worker, number, steps))
            self.last_step = steps[-1].step
            with self._change:
                self._writing = False
                self._change.notify_all()
        finally:
            for step in steps:
                step.release()

    def _next_number(self) -> int:
        self._last_number += 1
        return self._last_number

    def _merge_some(self) -> None:
        """Keeps the number of files small while the job runs.

        ``fan_in`` small segments of a tier become one of the next, so that a row is rewritten only
        as often as there are tiers, a few times in a job's life. A large segment ends the run of
        small ones before it.
        """
        stop = len(self._segments)
        if not self._is_small(self._segments[-1]):
            self._merge(self._run_start(stop - 1), stop - 1)
            return
        while True:
            stop = len(self._segments)
            start = self._run_start(stop, self._segments[-1].tier)
            if stop - start < max(2, self._limits.fan_in):
                return
            self._merge(start, stop)

    def _merge(self, start: int, stop: int) -> None:
        """Merges neighbours among these segments, as many together as the limits allow."""
        self._segments[start:stop] = [
            segment.merge(self._store, self._worker, self._next_number(), group)
            if len(group) > 1
            else group[0]
            for group in self._groups(self._segments[start:stop])
        ]

    def _groups(self, parts: list[Segment]) -> Iterator[list[Segment]]:
        limits = self._limits
        group: list[Segment] = []
        rows = payload_bytes = 0
        for part in parts:
            rows += part.rows
            payload_bytes += part.payload_bytes
            fits = rows <= limits.rows and payload_bytes <= limits.payload_bytes
            small = self._is_small(part) and (not group or self._is_small(group[-1]))
            if group and not (fits and small):
                yield group
                group, rows, payload_bytes = [], part.rows, part.payload_bytes
            group.append(part)
        if group:
            yield group

    def _run_start(self, stop: int, tier: int | None = None) -> int:
        """Where the run of small segments (of one tier) that ends before ``stop`` begins."""
        start = stop
        while start > 0:
            part = self._segments[start - 1]
            if not self._is_small(part) or tier not in (None, part.tier):
                break
            start -= 1
        return start

    def _is_small(self, part: Segment) -> bool:
        """Whether two of this size would make one within the limits: larger ones are left alone."""
        limits = self._limits
        return 2 * part.rows <= limits.rows and 2 * part.payload_bytes <= limits.payload_bytes


def _json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, indent=1).encode()
