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
from tornasole.stats.moments import statistics_of_one
from tornasole.types import ModeKeys, Role

log = logging.getLogger("tornasole")

Item = tuple[str, Role, Any]

_NOT_FLOATS = frozenset({"complex64", "complex128", "string"})
_EXACT = 2**53  # up to here a float64 holds every integer
_LONGEST_LINGER = 32  # steps: a backward pass that has not come by then will not
_QUEUE_FULL = "It was dropped because the queue of raw values was full (when_full='drop')."


class Recorder:
    """Counts steps, asks the plan what is due, and turns tensors into records.

    A step may owe something, such as the gradients of its backward pass. If it does when the next
    one begins, it lingers until that has come: two calls of a model before one backward pass are
    common, and so is a call without gradients between a call and its backward pass. It lingers no
    longer than until a step begins that is due and brings its own.

    Args:
        plan: What is due.
        kinds: How to look into tensors; the first kind that admits one is used.
        pool: Memory for raw values.
        submit: Takes the records of a step that is over.
        keeps: Whether anything is to be kept: not in a process that only counts along.

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
        keeps: bool = True,
    ) -> None:
        self._plan, self._kinds, self._pool, self._submit = plan, kinds, pool, submit
        self._keeps = keeps
        self.step = -1
        self.mode = ModeKeys.GLOBAL
        self.mode_steps: dict[ModeKeys, int] = {}
        self.last_saved_step: int | None = None
        self.dropped = 0
        self.members: dict[str, set[str]] = {}
        self._open = _Step(0, ModeKeys.GLOBAL, 0, None)  # holds what comes before the first step
        self._has_trained = False  # whether a step before the current one could train
        self._lingering: _Step | None = None
        self._behind: list[_Step] = []  # steps that are over, but later than the lingering one
        self._noted: set[str] = set()
        self._lock = threading.RLock()

    # -- steps -------------------------------------------------------------------------------------

    def begin_step(self, trains: bool = True) -> None:
        """Ends the step before and begins the next one of the current mode.

        Args:
            trains: Whether it can bring losses and gradients to train with.
        """
        with self._lock:
            before = self._open
            mode = self.mode
            self.step += 1
            mode_step = self.mode_steps[mode] = self.mode_steps.get(mode, -1) + 1
            self.mode_steps[ModeKeys.GLOBAL] = self.step
            if mode is ModeKeys.GLOBAL:
                mode_step = self.step
            due = self._plan.at(mode, mode_step)
            step = _Step(self.step, mode, mode_step, due, trains)
            if self.step == 0:  # what came before the first step is the first step's
                step.entries, step.lease = before.entries, before.lease
                self._open = step
                return
            brings_its_own = due is not None and trains
            if before.owed and not brings_its_own:
                self.end_lingering()
                self._lingering = before
            else:
                self._end(before)
            late = self._lingering
            if late is not None and (brings_its_own or self.step - late.number > _LONGEST_LINGER):
                self.end_lingering()
            self._has_trained = self._has_trained or before.trains
            self._open = step

    def follow(self, other: Recorder) -> None:
        """The next step is to be the one that another recorder is at."""
        mode = self.mode = other._open.mode
        self.step = other.step - 1
        self.mode_steps = {
            **other.mode_steps, ModeKeys.GLOBAL: self.step, mode: other.mode_steps[mode] - 1
        }  # fmt: skip

    def take_back_step(self) -> None:
        """The step that was begun did not take place: the next one has its number."""
        with self._lock:
            step = self._open
            self.step -= 1
            for mode in {step.mode, ModeKeys.GLOBAL}:
                self.mode_steps[mode] -= 1
                if self.mode_steps[mode] < 0:
                    del self.mode_steps[mode]
            self._open = _Step(max(self.step, 0), step.mode, max(step.mode_step - 1, 0), None)
            if self.step < 0:  # what came before the first step is still there
                self._open.entries, self._open.lease = step.entries, step.lease
            else:
                step.release()

    def end_lingering(self) -> None:
        """Nothing is awaited any more: hands over the step that lingered, and those behind it."""
        with self._lock:
            late, self._lingering = self._lingering, None
            behind, self._behind = self._behind, []
            for step in ([late] if late is not None else []) + behind:
                self._end(step)

    def owe(self, *roles: Role) -> None:
        """The current step waits for tensors of these roles, as far as it wants them."""
        self._open.owed = {role for role in roles if self.wants_role(role)}

    def has_come(self, role: Role) -> None:
        """What was owed is there; a lingering step that owes nothing more ends."""
        with self._lock:
            late = self._lingering
            if late is None:
                self._open.owed.discard(role)
                return
            late.owed.discard(role)
            if not late.owed:
                self.end_lingering()

    def trains_after_all(self) -> None:
        """The current step brings losses and gradients, though that was not to be seen before."""
        self._open.trains = True

    def finish(self) -> None:
        """Hands over what is left; what was saved before any step makes a step of its own."""
        with self._lock:
            if self.step < 0 and self._open.entries:
                self.begin_step()
            self.end_lingering()
            mode_step = self.mode_steps.get(self.mode, 0)
            step, self._open = self._open, _Step(self.step, self.mode, mode_step, None)
            self._end(step)

    def _end(self, step: _Step) -> None:
        """Hands over the records of a step, in the order of steps."""
        if self._lingering is not None:
            if step.entries:
                self._behind.append(step)
            return
        records = step.kept()
        if not records:
            step.release()
            return
        for record in records:
            for collection in record.collections:
                self.members.setdefault(collection, set()).add(record.name)
        self.last_saved_step = step.number
        complete = StepRecords(step.number, step.mode, step.mode_step, records)
        if step.lease is not None:  # not step.release: what waits should hold little memory
            complete.release = step.lease.release
        self._submit(complete)

    @property
    def active(self) -> bool:
        """Whether the current step keeps anything by itself."""
        return self._open.due is not None

    @property
    def due(self) -> object | None:
        """What the current step keeps: the same object for steps that keep the same."""
        return self._open.due

    @property
    def lingering(self) -> bool:
        """Whether an earlier step still waits for something."""
        return self._lingering is not None

    # -- what adapters ask and tell ----------------------------------------------------------------

    def wants_role(self, role: Role) -> bool:
        """Whether the current step may keep a tensor of this role."""
        due = self._open.due
        return due is not None and self._keeps and due.may_want(role)

    def wants(self, name: str, role: Role) -> bool:
        """Whether the current step keeps this tensor."""
        due = self._open.due
        return due is not None and self._keeps and due.form(name, role) is not None

    def record(self, name: str, role: Role, value: Any) -> None:
        """Keeps a tensor, if it is wanted: copied or reduced when this returns."""
        self.record_many(((name, role, value),))

    def record_many(self, items: Iterable[Item], owed: Role | None = None) -> None:
        """Keeps those tensors that are wanted, together.

        Args:
            items: Name, role and value of each.
            owed: What they are of that a step may owe; a lingering one may be that step.
        """
        with self._lock:
            step = self._step_of(owed)
            if step is not None:
                self._record(step, items)

    def record_numbered(
        self, stem: str, roles: Sequence[Role], values: Sequence[Any], owed: Role | None = None
    ) -> None:
        """Keeps tensors under ``<stem><i>``; counting goes on if this is called again in the step.

        The i-th has the i-th of the roles, or the last.
        """
        with self._lock:
            step = self._step_of(owed)
            if step is None:
                return
            first = step.counts.get(stem, 0)
            step.counts[stem] = first + len(values)
            last = len(roles) - 1
            self._record(
                step,
                [(f"{stem}{first + i}", roles[min(i, last)], v) for i, v in enumerate(values)],
            )

    def _step_of(self, owed: Role | None) -> _Step | None:
        """The step that a tensor belongs to, if that one keeps anything."""
        late = self._lingering
        if owed is not None and late is not None and (owed in late.owed or not self._open.trains):
            return late
        if owed is not None and not self._open.trains and self._has_trained:
            return None  # it belongs to an earlier step, which was not due
        return self._open if self._open.due is not None else None

    def _record(self, step: _Step, items: Iterable[Item]) -> None:
        if step.due is None or not self._keeps:
            return
        batch = _Batch(step, time.time())
        for name, role, value in items:
            form = step.due.form(name, role)
            if form is not None:
                self._add(batch, name, role, value, form)
        self._finish(batch)

    def save(
        self, name: str, role: Role, value: Any, form: Form, when: float | None = None
    ) -> None:
        """Keeps a tensor that the user handed over, whatever is due."""
        with self._lock:
            if not self._keeps:
                return
            due = self._open.due
            watched = due.form(name, role) if due is not None else None
            if watched is not None and watched.triggers:
                form = Form(form.parts, watched.triggers)
            batch = _Batch(self._open, time.time() if when is None else when)
            self._add(batch, name, role, value, form)
            self._finish(batch)

    # -- how ---------------------------------------------------------------------------------------

    def _add(self, batch: _Batch, name: str, role: Role, value: Any, form: Form) -> None:
        """Describes one tensor and sorts it by what must be done with it."""
        if not name.isascii():  # files hold no lone surrogates
            name = name.encode("utf-8", "backslashreplace").decode()
        kind = next(kind for kind in self._kinds if kind.admits(value))
        try:
            value = kind.plain(value)
        except Unsavable as reason:
            self.note(name, f"{reason}; it is left out")
            return
        dtype, shape, size = kind.describe(value)
        record = Record(name, role.value, form.collections, dtype, shape, batch.time)
        batch.entries.append((record, form))
        if math.prod(shape) == 1 and dtype not in _NOT_FLOATS:
            scalar = kind.item(value)
            if isinstance(scalar, float) or -_EXACT <= scalar.real <= _EXACT:
                record.value = float(scalar.real)
                if form.statistics:
                    record.statistics = statistics_of_one(record.value, form.statistics)
                if form.watch and not math.isfinite(record.value):
                    batch.step.fired |= form.triggers
                return
        if form.raw or (dtype == "string" and form.statistics):  # strings have no statistics
            self._snapshot(batch, kind, value, record, size)
        if (form.statistics or form.watch) and dtype != "string":
            batch.to_reduce.setdefault((id(kind), form.statistics), (kind, []))[1].append(
                (value, record, form)
            )

    def _snapshot(
        self, batch: _Batch, kind: Tensors, value: Any, record: Record, size: int
    ) -> None:
        if batch.step.lease is None:
            batch.step.lease = self._pool.lease()
        beside = self._held_beside(batch.step)
        if beside and batch.step is not self._lingering and not self._pool.has_room(size):
            # The writer gets nothing while a step lingers.
            self.note("losses and gradients", "the queue is full: a step does not wait for them")
            self.end_lingering()
            beside = 0
        buffer = batch.step.lease.take(size, beside)
        if buffer is None:
            record.lost = _QUEUE_FULL
            self.dropped += 1
            self.note("raw values", "the queue is full, so some are dropped; their rows say so")
            return
        record.raw = buffer.data
        values, buffers = batch.to_copy.setdefault(id(kind), (kind, [], []))[1:]
        values.append(value)
        buffers.append(buffer)

    def _held_beside(self, step: _Step) -> int:
        """The memory of other steps that the writer does not have yet: some linger, or wait."""
        if self._lingering is None:
            return 0
        unwritten = (self._lingering, *self._behind, self._open)
        return sum(s.lease.held for s in unwritten if s is not step and s.lease is not None)

    def _finish(self, batch: _Batch) -> None:
        """Copies and reduces. A step in which Ctrl-C interrupts this is not whole, and not kept."""
        step = batch.step
        step.whole = False
        for kind, values, buffers in batch.to_copy.values():
            kind.copy(values, buffers)
        for (_, names), (kind, reduced) in batch.to_reduce.items():
            results = kind.statistics([value for value, _, _ in reduced], names)
            for (_, record, form), statistics in zip(reduced, results, strict=True):
                if names:
                    record.statistics = statistics
                if form.watch and (statistics["nan_count"] or statistics["inf_count"]):
                    step.fired |= form.triggers
        for record, form in batch.entries:
            step.entries.pop(record.name, None)  # what is saved again replaces, and counts as later
            step.entries[record.name] = (record, form)
        step.whole = True

    def note(self, name: str, what: str) -> None:
        """Says once per name what is not saved and why."""
        if name not in self._noted:
            self._noted.add(name)
            log.warning("%r is not saved as asked: %s.", name, what)


class _Batch:
    """Tensors of a step that are copied and reduced together."""

    __slots__ = ("entries", "step", "time", "to_copy", "to_reduce")

    def __init__(self, step: _Step, when: float) -> None:
        self.step, self.time = step, when
        self.entries: list[tuple[Record, Form]] = []
        self.to_copy: dict[int, tuple[Tensors, list[Any], list[Any]]] = {}
        self.to_reduce: dict[
            tuple[int, frozenset[str]], tuple[Tensors, list[tuple[Any, Record, Form]]]
        ] = {}


class _Step:
    """A step that is under way."""

    __slots__ = (
        "counts", "due", "entries", "fired", "lease", "mode", "mode_step", "number", "owed",
        "trains", "whole",
    )  # fmt: skip

    def __init__(
        self, number: int, mode: ModeKeys, mode_step: int, due: Due | None, trains: bool = True
    ) -> None:
        self.number, self.mode, self.mode_step, self.due = number, mode, mode_step, due
        self.trains = trains
        self.owed: set[Role] = set()
        self.counts: dict[str, int] = {}
        self.entries: dict[str, tuple[Record, Form]] = {}
        self.fired: set[str] = set()
        self.lease: Lease | None = None
        self.whole = True

    def kept(self) -> list[Record]:
        """The records that the schedule or a watch that fired asks for."""
        records: list[Record] = []
        if not self.whole:
            return records
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
