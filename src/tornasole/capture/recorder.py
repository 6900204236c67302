"""The hot path, on the training thread: from the tensors of a step to its records."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

from tornasole.capture.adapter import Tensors, Unsavable
from tornasole.capture.buffers import BufferPool, Lease
from tornasole.format import Record, StepRecords
from tornasole.selection.plan import Due, Form, Part, Plan
from tornasole.types import ModeKeys, Role

log = logging.getLogger("tornasole")

Item = tuple[str, Role, Any]

_NOT_FLOATS = frozenset({"complex64", "complex128", "string"})
_EXACT = 2**53  # up to here a float64 holds every integer
_QUEUE_FULL = "It was dropped because the queue of raw values was full (when_full='drop')."


class Recorder:
    """Counts steps, asks the plan what is due, and turns tensors into records.

    Args:
        plan: What is due.
        kinds: How to look into tensors; the first kind that admits one is used.
        pool: Memory for raw values.
        submit: Takes the records of a step that is over.

    Attributes:
        step: The current global step; -1 before the first.
        mode: The mode of the steps that begin from now on.
        mode_steps: The latest step of each mode that has had one.
        dropped: How many raw values were dropped because the queue was full.
    """

    def __init__(
        self,
        plan: Plan,
        kinds: Sequence[Tensors],
        pool: BufferPool,
        submit: Callable[[StepRecords], None],
    ) -> None:
        self._plan, self._kinds, self._pool, self._submit = plan, kinds, pool, submit
        self.step = -1
        self.mode = ModeKeys.GLOBAL
        self.mode_steps: dict[ModeKeys, int] = {}
        self.last_saved_step: int | None = None
        self.dropped = 0
        self.members: dict[str, set[str]] = {}
        self._open = _Step(0, ModeKeys.GLOBAL, 0, None)  # holds what comes before the first step
        self._noted: set[str] = set()
        self._lock = threading.RLock()

    # -- steps -------------------------------------------------------------------------------------

    def begin_step(self) -> None:
        """Ends the step before and begins the next one of the current mode."""
        with self._lock:
            early = self._open.entries if self.step < 0 else {}
            if not early:
                self.end_step()
            mode = self.mode
            self.step += 1
            mode_step = self.mode_steps[mode] = self.mode_steps.get(mode, -1) + 1
            self.mode_steps[ModeKeys.GLOBAL] = self.step
            if mode is ModeKeys.GLOBAL:
                mode_step = self.step
            due = self._plan.at(mode, mode_step)
            self._open, before = _Step(self.step, mode, mode_step, due), self._open
            if early:
                self._open.entries, self._open.lease = before.entries, before.lease

    def end_step(self) -> None:
        """Hands over the current step's records; later ones need a new step."""
        with self._lock:
            step = self._open
            self._open = _Step(step.number, step.mode, step.mode_step, None)
            if not step.entries:
                return
            records = step.kept()
            if not records:
                step.release()
                return
            for record in records:
                for collection in record.collections:
                    self.members.setdefault(collection, set()).add(record.name)
            self.last_saved_step = step.number
            self._submit(StepRecords(step.number, step.mode, step.mode_step, records, step.release))

    def finish(self) -> None:
        """Hands over what is left; what was saved before any step makes a step of its own."""
        with self._lock:
            if self.step < 0 and self._open.entries:
                self.begin_step()
            self.end_step()

    @property
    def active(self) -> bool:
        """Whether the current step keeps anything by itself."""
        return self._open.due is not None

    # -- what adapters ask and tell ----------------------------------------------------------------

    def wants_role(self, role: Role) -> bool:
        """Whether the current step may keep a tensor of this role."""
        due = self._open.due
        return due is not None and due.may_want(role)

    def wants(self, name: str, role: Role) -> bool:
        """Whether the current step keeps this tensor."""
        due = self._open.due
        return due is not None and due.form(name, role) is not None

    def record(self, name: str, role: Role, value: Any) -> None:
        """Keeps a tensor, if it is wanted: copied or reduced when this returns."""
        self.record_many(((name, role, value),))

    def record_many(self, items: Iterable[Item]) -> None:
        """Keeps those tensors that are wanted, together."""
        with self._lock:
            due = self._open.due
            if due is None:
                return
            batch = _Batch(time.time())
            for name, role, value in items:
                form = due.form(name, role)
                if form is not None:
                    self._add(batch, name, role, value, form)
            self._finish(batch)

    def save(
        self, name: str, role: Role, value: Any, form: Form, when: float | None = None
    ) -> None:
        """Keeps a tensor that the user handed over, whatever is due."""
        with self._lock:
            due = self._open.due
            watched = due.form(name, role) if due is not None else None
            if watched is not None and watched.triggers:
                form = Form(form.parts, watched.triggers)
            batch = _Batch(time.time() if when is None else when)
            self._add(batch, name, role, value, form)
            self._finish(batch)

    # -- how ---------------------------------------------------------------------------------------

    def _add(self, batch: _Batch, name: str, role: Role, value: Any, form: Form) -> None:
        """Describes one tensor and sorts it by what must be done with it."""
        kind = next(kind for kind in self._kinds if kind.admits(value))
        try:
            value = kind.plain(value)
        except Unsavable as reason:
            self.note(name, f"{reason}; it is left out")
            return
        dtype, shape, size = kind.describe(value)
        record = Record(name, role.value, form.collections, dtype, shape, batch.time)
        entries = self._open.entries
        entries.pop(name, None)  # what is saved again replaces, and counts as later
        entries[name] = (record, form)
        count = math.prod(shape)
        if count == 1 and dtype not in _NOT_FLOATS:
            scalar = kind.item(value)
            if isinstance(scalar, float) or -_EXACT <= scalar.real <= _EXACT:
                record.value = float(scalar.real)
                if form.watch and not math.isfinite(record.value):
                    self._open.fired |= form.triggers
                return
        if form.raw:
            self._snapshot(batch, kind, value, record, size)
        if (form.statistics or form.watch) and dtype != "string":
            batch.to_reduce.setdefault((id(kind), form.statistics), (kind, []))[1].append(
                (value, record, form)
            )

    def _snapshot(
        self, batch: _Batch, kind: Tensors, value: Any, record: Record, size: int
    ) -> None:
        if self._open.lease is None:
            self._open.lease = self._pool.lease()
        buffer = self._open.lease.take(size)
        if buffer is None:
            record.lost = _QUEUE_FULL
            self.dropped += 1
            self.note("raw values", "the queue is full, so some are dropped; their rows say so")
            return
        record.raw = buffer.data
        values, buffers = batch.to_copy.setdefault(id(kind), (kind, [], []))[1:]
        values.append(value)
        buffers.append(buffer)

    def _finish(self, batch: _Batch) -> None:
        for kind, values, buffers in batch.to_copy.values():
            kind.copy(values, buffers)
        for (_, names), (kind, reduced) in batch.to_reduce.items():
            results = kind.statistics([value for value, _, _ in reduced], names)
            for (_, record, form), statistics in zip(reduced, results, strict=True):
                if names:
                    record.statistics = statistics
                if form.watch and (statistics["nan_count"] or statistics["inf_count"]):
                    self._open.fired |= form.triggers

    def note(self, name: str, what: str) -> None:
        """Says once per name what is not saved and why."""
        if name not in self._noted:
            self._noted.add(name)
            log.warning("Tensor %r is not saved as asked: %s.", name, what)


class _Batch:
    """Tensors that are copied and reduced together."""

    __slots__ = ("time", "to_copy", "to_reduce")

    def __init__(self, when: float) -> None:
        self.time = when
        self.to_copy: dict[int, tuple[Tensors, list[Any], list[Any]]] = {}
        self.to_reduce: dict[
            tuple[int, frozenset[str]], tuple[Tensors, list[tuple[Any, Record, Form]]]
        ] = {}


class _Step:
    """A step that is under way."""

    __slots__ = ("due", "entries", "fired", "lease", "mode", "mode_step", "number")

    def __init__(self, number: int, mode: ModeKeys, mode_step: int, due: Due | None) -> None:
        self.number, self.mode, self.mode_step, self.due = number, mode, mode_step, due
        self.entries: dict[str, tuple[Record, Form]] = {}
        self.fired: set[str] = set()
        self.lease: Lease | None = None

    def kept(self) -> list[Record]:
        """The records that the schedule or a watch that fired asks for."""
        records = []
        for record, form in self.entries.values():
            kept = form.keep(self.fired)
            if kept is None:
                continue
            if kept is not form:
                record.collections = kept.collections
                if not kept.raw:
                    record.raw = None
                if record.statistics is not None:
                    record.statistics = _only(record.statistics, kept)
            records.append(record)
        return records

    def release(self) -> None:
        if self.lease is not None:
            self.lease.release()


def _only(statistics: dict[str, float], form: Form) -> dict[str, float] | None:
    if not form.statistics:
        return None
    return {
        name: value
        for name, value in statistics.items()
        if name in form.statistics or name.endswith("count")
    }


def asked_for(collections: Iterable[str], raw: bool, statistics: frozenset[str]) -> Form:
    """The form of a tensor that the user saves by hand: due at once, whatever the schedule says."""
    return _asked_for(tuple(collections), raw, statistics)


@lru_cache(maxsize=256)  # few differ, and one is wanted for every scalar
def _asked_for(collections: tuple[str, ...], raw: bool, statistics: frozenset[str]) -> Form:
    return Form(
        tuple(Part(name, True, raw, False, statistics) for name in collections), frozenset()
    )
