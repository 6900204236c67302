"""From questions about names, steps, modes and workers to row numbers.

A trial's columns are arranged once per refresh; no question loops over rows in Python.
"""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tornasole.errors import SMDebugTypeError
from tornasole.format import TrialReader
from tornasole.types import ModeKeys, Role

Ints = npt.NDArray[np.int64]
_ROLES = {role.value: role for role in Role}


class Timeline(NamedTuple):
    """The steps of a mode, ascending, and the global step of each."""

    steps: Ints
    at: Ints

    def global_step(self, step: int) -> int | None:
        """The global step of a step."""
        position = int(np.searchsorted(self.steps, step))
        if position < len(self.steps) and self.steps[position] == step:
            return int(self.at[position])
        return None


class Track(NamedTuple):
    """One tensor over the steps of a mode, ascending, with their global steps and its rows."""

    steps: Ints
    at: Ints
    rows: Ints

    def up_to(self, last: int) -> Track:
        """The part up to a global step."""
        return self.only(self.at <= last)

    def only(self, chosen: npt.NDArray[np.bool_]) -> Track:
        """The chosen part."""
        return self if chosen.all() else Track(*(column[chosen] for column in self))

    def row(self, step: int) -> int | None:
        """The row of a step."""
        position = int(np.searchsorted(self.steps, step))
        if position < len(self.steps) and self.steps[position] == step:
            return int(self.rows[position])
        return None


class Index:
    """The rows of a reader as they stand now; another refresh needs another index.

    Args:
        first: Steps before it are left out everywhere but in ``known_steps`` and ``full_steps``.
        stop: So are this step and those after it.
    """

    def __init__(self, reader: TrialReader, first: int = 0, stop: int | None = None) -> None:
        self._reader = reader
        self._first, self._stop = first, stop
        self._step: Ints = reader.column("step")
        self._name = reader.column("name")
        self._worker = reader.column("worker")
        self._tracks: dict[tuple[str, ModeKeys, str | None], Track] = {}
        self._timelines: dict[ModeKeys, Timeline] = {}

    # -- steps ------------------------------------------------------------------------------------

    def contains(self, step: int) -> bool:
        """Whether a global step lies in the range."""
        return self._first <= step and (self._stop is None or step < self._stop)

    @cached_property
    def known_steps(self) -> Ints:
        """Every step that some worker wrote."""
        return self._step[self._first_rows]

    def full_steps(self, workers: int) -> Ints:
        """Every step that this many workers wrote."""
        if workers <= 1:
            return self.known_steps
        steps, counts = self._worker_counts
        return steps[counts >= workers]

    @cached_property
    def _worker_counts(self) -> tuple[Ints, Ints]:
        """Every step, and how many workers wrote it."""
        # Rows lie worker by worker.
        bounds = np.searchsorted(self._worker, np.arange(len(self._reader.workers) + 1))
        each = [
            self._step[a:b][_first_of_each(self._step[a:b])] for a, b in pairwise(bounds.tolist())
        ]
        return np.unique(np.concatenate([*each, self._step[:0]]), return_counts=True)

    @cached_property
    def steps(self) -> Ints:
        """The steps in the range."""
        steps: Ints = self.known_steps[self._in_range(self.known_steps)]
        return steps

    def timeline(self, mode: ModeKeys) -> Timeline:
        """The steps of a mode; in mode ``GLOBAL`` all of them, by their global numbers."""
        if mode not in self._timelines:
            self._timelines[mode] = self._make_timeline(mode)
        return self._timelines[mode]

    def _make_timeline(self, mode: ModeKeys) -> Timeline:
        _check(mode)
        if mode is ModeKeys.GLOBAL:
            return Timeline(self.steps, self.steps)
        modes, mode_steps = self._modes_of_steps
        chosen = modes == mode.value
        steps, positions = np.unique(mode_steps[chosen], return_index=True)
        return Timeline(steps, self.steps[chosen][positions])

    @cached_property
    def modes(self) -> list[ModeKeys]:
        """The modes of the steps in the range."""
        return [ModeKeys(int(mode)) for mode in np.unique(self._modes_of_steps[0])]

    def mode_of(self, step: int) -> tuple[ModeKeys, int] | None:
        """The mode and mode step of a global step."""
        position = int(np.searchsorted(self.steps, step))
        if position == len(self.steps) or self.steps[position] != step:
            return None
        modes, mode_steps = self._modes_of_steps
        return ModeKeys(int(modes[position])), int(mode_steps[position])

    @cached_property
    def _modes_of_steps(self) -> tuple[npt.NDArray[np.int8], Ints]:
        rows = self._first_rows[self._in_range(self.known_steps)]
        return self._reader.column("mode")[rows], self._reader.column("mode_step")[rows]

    @cached_property
    def _first_rows(self) -> Ints:
        """The first row of each step, in the order of the steps."""
        return _first_of_each(self._step)

    def _in_range(self, steps: Ints) -> Any:
        if self._first <= 0 and self._stop is None:
            return slice(None)
        inside = steps >= self._first
        return inside if self._stop is None else inside & (steps < self._stop)

    # -- tensors ----------------------------------------------------------------------------------

    @cached_property
    def names(self) -> list[str]:
        """The tensors in the range, sorted."""
        return sorted(self._codes)

    def names_in(self, mode: ModeKeys, step: int | None = None) -> set[str]:
        """The tensors of a mode, or of one step of it."""
        _check(mode)
        if mode is ModeKeys.GLOBAL and step is None:
            return set(self._codes)
        if step is None:
            chosen = self._reader.column("mode")[self.rows] == mode.value
        else:
            at = self.timeline(mode).global_step(step)
            if at is None:
                return set()
            chosen = self._step[self.rows] == at
        return {self._reader.names[code] for code in np.unique(self._name[self.rows][chosen])}

    def __contains__(self, name: object) -> bool:
        return name in self._codes

    @cached_property
    def roles(self) -> dict[str, Role]:
        """The role of each tensor where it first appears."""
        firsts = self._by_name[[start for start, _ in self._codes.values()]]
        words = self._reader.column("role")[firsts]
        return {
            name: _ROLES.get(word, Role.CUSTOM)
            for name, word in zip(self._codes, words, strict=True)
        }

    def track(self, name: str, mode: ModeKeys, worker: str | None) -> Track:
        """One tensor over the steps of a mode, as a worker wrote it; ``None``: the first to."""
        key = (name, mode, worker)
        if key not in self._tracks:
            self._tracks[key] = self._make_track(*key)
        return self._tracks[key]

    def _make_track(self, name: str, mode: ModeKeys, worker: str | None) -> Track:
        _check(mode)
        rows = self._rows_of(name)
        if worker is not None:
            workers = self._reader.workers
            code = workers.index(worker) if worker in workers else -1
            rows = rows[self._worker[rows] == code]
        if mode is ModeKeys.GLOBAL:
            steps = self._step[rows]
        else:
            rows = rows[self._reader.column("mode")[rows] == mode.value]
            steps = self._reader.column("mode_step")[rows]
        steps, rows = _first_workers_last(steps, self._worker[rows], rows)
        return Track(steps, self._step[rows], rows)

    def rows_at(self, name: str, mode: ModeKeys, step: int) -> Ints:
        """The rows of a tensor at one step, of all workers."""
        rows = self._rows_of(name)
        at = self.timeline(mode).global_step(step)
        found: Ints = rows[self._step[rows] == at]
        return found

    @cached_property
    def rows(self) -> Ints:
        """The rows of the steps in the range."""
        rows: Ints = np.arange(len(self._step))[self._in_range(self._step)]
        return rows

    def _rows_of(self, name: str) -> Ints:
        start, stop = self._codes[name]
        rows: Ints = self._by_name[start:stop]
        return rows

    @cached_property
    def _by_name(self) -> Ints:
        """The rows, tensor by tensor; those of one tensor in their own order."""
        codes = self._name[self._in_range(self._step)]
        if len(self._reader.names) <= 1 << 16:
            codes = codes.astype(np.uint16)  # NumPy sorts short integers in linear time
        rows: Ints = self.rows[np.argsort(codes, kind="stable")]
        return rows

    @cached_property
    def _codes(self) -> dict[str, tuple[int, int]]:
        """Where in ``_by_name`` the rows of each tensor lie."""
        names = self._reader.names
        ends = np.cumsum(
            np.bincount(self._name[self._in_range(self._step)], minlength=len(names))
        ).tolist()
        return {
            name: (start, stop)
            for name, start, stop in zip(names, [0, *ends], ends, strict=False)
            if stop > start
        }


def _check(mode: object) -> None:
    if not isinstance(mode, ModeKeys):
        raise SMDebugTypeError(
            f"mode must be one of ModeKeys, such as ModeKeys.TRAIN, not {mode!r}."
        )


def _first_of_each(values: Ints) -> Ints:
    """The first position of each value, in the order of the values."""
    if np.all(values[1:] >= values[:-1]):  # one worker's steps: no need to sort
        fresh = np.ones(len(values), np.bool_)
        fresh[1:] = values[1:] != values[:-1]
        return np.flatnonzero(fresh)
    return np.unique(values, return_index=True)[1]


def _first_workers_last(steps: Ints, workers: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Sorts by step and keeps one row each: of the first worker that wrote it, the last one."""
    if np.all(steps[1:] > steps[:-1]):
        return steps, rows
    order = np.lexsort((workers, steps))
    steps, workers, rows = steps[order], workers[order], rows[order]
    keep = np.ones(len(steps), np.bool_)
    keep[:-1] = (steps[1:] != steps[:-1]) | (workers[1:] != workers[:-1])
    steps, rows = steps[keep], rows[keep]
    first = np.ones(len(steps), np.bool_)
    first[1:] = steps[1:] != steps[:-1]
    return steps[first], rows[first]
