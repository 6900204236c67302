"""A trial: what a training run saved, read while it runs or later."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tornasole.errors import (
    MissingExtra,
    NoMoreData,
    SMDebugTypeError,
    SMDebugValueError,
    StepNotYetAvailable,
    StepUnavailable,
    TensorUnavailable,
    WaitTimeout,
)
from tornasole.format import TrialReader
from tornasole.format.segment import SCHEMA
from tornasole.selection import Collection, CollectionKeys, canonical_name
from tornasole.selection.patterns import compiled
from tornasole.trial.blocks import Block
from tornasole.trial.collection_files import CollectionFiles
from tornasole.trial.completeness import last_complete, step_state, wait_window
from tornasole.trial.hints import nearest
from tornasole.trial.liveness import is_gone
from tornasole.trial.nonfinite import NonFinite, first_nonfinite
from tornasole.trial.refreshing import refresh
from tornasole.trial.run_state import RunState, StateName, judge
from tornasole.trial.source import Source
from tornasole.trial.tensor import Tensor
from tornasole.types import ModeKeys, Role, StepState

if TYPE_CHECKING:
    import pandas

Array = npt.NDArray[Any]

POLL_SECONDS = 0.5
_LABELS = Collection("labels", include_regex="labels*", roles=[Role.LABEL])
_PREDICTIONS = Collection("predictions", include_regex="predictions*", roles=[Role.PREDICTION])


class Trial:
    """A run at a path.

    Where a method takes ``mode``, its step numbers are of that mode; in ``GLOBAL`` they are global.
    While the run goes on, most calls first take in what is new, if ``dynamic_refresh`` is true.

    Args:
        name: What to call it.
        path: Where it lies: a folder, or any address that a store opens.
        range_steps: Read only the global steps from the first number on and before the second;
            either may be ``None``.
        check: Accepted for old scripts; has no effect.
        index_mode: Accepted for old scripts; has no effect.
        cache: Whether raw values, once read, stay in memory.

    Attributes:
        dynamic_refresh: Whether calls take in what is new.
        num_workers: How many workers the run has.

    Raises:
        TrialNotFound: There is no trial at the path.
    """

    def __init__(
        self,
        name: str,
        path: str | os.PathLike[str],
        range_steps: Sequence[int | None] | None = None,
        check: bool = False,
        index_mode: bool = True,
        cache: bool = False,
    ) -> None:
        self.name, self.path = name, os.fspath(path)
        self._first, self._stop = _checked_range(range_steps)
        self._window = wait_window()
        reader = TrialReader.open(self.path)
        self.num_workers: int = reader.about["workers"]
        self.dynamic_refresh = True
        self._reader = reader
        self._source = Source(reader, self._first, self._stop, cache)
        self._files = CollectionFiles(reader)
        self._processes: dict[str, Any] = {}
        self._last_complete = -1
        self._state = self._judge()
        self._advance()

    @property
    def about(self) -> dict[str, Any]:
        """What ``trial.json`` says: format, creation time, framework, versions of libraries."""
        return dict(self._reader.about)

    # -- the run ----------------------------------------------------------------------------------

    @property
    def state(self) -> StateName:
        """How the run stands.

        ``finished``: all workers ended cleanly; ``failed``: one said that it did not;
        ``interrupted``: the process of one is gone without a word; else ``running``.
        """
        self.maybe_refresh()
        return self._state.name

    @property
    def state_reason(self) -> str:
        """Why ``state`` is what it is, for people."""
        self.maybe_refresh()
        return self._state.reason

    @property
    def loaded_all_steps(self) -> bool:
        """Whether the run is over and all of it has been taken in."""
        return self._state.over

    @property
    def last_complete_step(self) -> int:
        """The last step that will not change any more; -1 if there is none."""
        steps = self._source.index.steps
        count = int(np.searchsorted(steps, self._last_complete, side="right"))
        return int(steps[count - 1]) if count else -1

    def workers(self) -> list[str]:
        """The workers seen so far, sorted."""
        self.maybe_refresh()
        return list(self._reader.workers)

    # -- refreshing -------------------------------------------------------------------------------

    def maybe_refresh(self, name: str | None = None) -> None:
        """Takes in what is new, unless the run is over or ``dynamic_refresh`` is false."""
        if self.dynamic_refresh:
            self.refresh_data()

    def refresh_tensor(self, tname: str, steps: Iterable[int] | None = None) -> None:
        """Takes in what is new, of this tensor and all others."""
        self.refresh_data()

    def refresh_data(self) -> None:
        """Takes in what is new, unless the run is over."""
        if not self.loaded_all_steps:
            self._reader.refresh()
            self._state = self._judge()
            self._advance()

    def _judge(self) -> RunState:
        ends = {worker: self._reader.end(worker) for worker in self._reader.workers}
        gone = frozenset(w for w, end in ends.items() if end is None and self._is_gone(w))
        if gone:
            # Between our look at its files and our look at it, it may have written more.
            self._reader.refresh()
            ends = {worker: self._reader.end(worker) for worker in self._reader.workers}
            gone = frozenset(worker for worker in gone if ends[worker] is None)
        return judge(self.num_workers, ends, gone)

    def _is_gone(self, worker: str) -> bool:
        if not self._processes.get(worker) or is_gone(self._processes[worker]):
            self._processes[worker] = self._files.process(worker)
        return is_gone(self._processes[worker])

    def _advance(self) -> None:
        index = self._source.index
        known = index.known_steps
        if self._state.over:
            self._last_complete = int(known[-1]) if len(known) else -1
        else:
            full = index.full_steps(self.num_workers)
            self._last_complete = last_complete(known, full, self._last_complete, self._window)

    # -- steps ------------------------------------------------------------------------------------

    def steps(
        self, mode: ModeKeys = ModeKeys.GLOBAL, show_incomplete_steps: bool = False
    ) -> list[int]:
        """The complete steps, or all of them, ascending."""
        self.maybe_refresh()
        timeline = self._source.index.timeline(mode)
        if show_incomplete_steps:
            steps: list[int] = timeline.steps.tolist()
        else:
            steps = timeline.steps[timeline.at <= self._last_complete].tolist()
        return steps

    def modes(self) -> list[ModeKeys]:
        """The modes in which steps were saved, without ``GLOBAL``."""
        self.maybe_refresh()
        return [mode for mode in self._source.index.modes if mode is not ModeKeys.GLOBAL]

    def mode(self, global_step: int) -> ModeKeys | None:
        """The mode of a global step; ``None`` if nothing was saved at it."""
        return self.mode_modestep(global_step)[0]

    def mode_step(self, global_step: int) -> int | None:
        """The number that a global step has in its mode; ``None`` if nothing was saved at it."""
        return self.mode_modestep(global_step)[1]

    def mode_modestep(self, global_step: int) -> tuple[ModeKeys, int] | tuple[None, None]:
        """Mode and mode step of a global step; a pair of ``None`` if nothing was saved at it."""
        found = self._source.index.mode_of(global_step)
        if found is None:
            self.maybe_refresh()
            found = self._source.index.mode_of(global_step)
        return found or (None, None)

    def global_step(self, mode: ModeKeys, mode_step: int) -> int | None:
        """The global step of a mode's step; ``None`` if nothing was saved at it."""
        if mode is ModeKeys.GLOBAL:
            return mode_step
        found = self._source.index.timeline(mode).global_step(mode_step)
        if found is None:
            self.maybe_refresh()
            found = self._source.index.timeline(mode).global_step(mode_step)
        return found

    def has_passed_step(self, step: int, mode: ModeKeys = ModeKeys.GLOBAL) -> StepState:
        """Whether a step can be had now, later or never."""
        state = self._step_state(step, mode)
        if state is not StepState.AVAILABLE:
            self.maybe_refresh()
            state = self._step_state(step, mode)
        return state

    def _step_state(self, step: int, mode: ModeKeys) -> StepState:
        index = self._source.index
        timeline = index.timeline(mode)
        if mode is ModeKeys.GLOBAL and not index.contains(step):
            return StepState.UNAVAILABLE
        beyond = self._stop is not None and self._last_complete >= self._stop - 1
        over = self.loaded_all_steps or beyond
        return step_state(timeline.steps, timeline.at, step, self._last_complete, over)

    def wait_for_steps(
        self,
        required_steps: Iterable[int],
        mode: ModeKeys = ModeKeys.GLOBAL,
        timeout: float | None = None,
    ) -> None:
        """Returns once all of the steps are there.

        Args:
            timeout: Seconds to wait at most; without, as long as the run goes on.

        Raises:
            StepUnavailable: One of them was passed and not saved.
            NoMoreData: The run is over and did not come so far.
            WaitTimeout: They did not come in time.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with refresh(self):
            for step in required_steps:
                while self.has_passed_step(step, mode) is not StepState.AVAILABLE:
                    self._expect(step, mode)
                    pause(deadline, f"Step {step} of {self.name!r} did not come in {timeout} s.")

    def _expect(self, step: int, mode: ModeKeys) -> None:
        """Raises if a step that is not there will not come."""
        if self.has_passed_step(step, mode) is not StepState.UNAVAILABLE:
            return
        last = max(self.steps(mode), default=-1)
        if self.loaded_all_steps and step > last:
            raise NoMoreData(step, mode, last)
        raise StepUnavailable(step, mode)

    # -- tensors ----------------------------------------------------------------------------------

    def tensor_names(
        self,
        show_prefixed_tensors: bool = False,
        *,
        step: int | None = None,
        mode: ModeKeys = ModeKeys.GLOBAL,
        regex: str | Iterable[Any] | None = None,
        collection: str | Collection | None = None,
    ) -> list[str]:
        """The tensors saved, sorted.

        Args:
            show_prefixed_tensors: Accepted for old scripts; reductions are no tensors here.
            step: Only those of this step.
            mode: Only those of this mode.
            regex: Only those in whose names this, or one of these, is found.
            collection: Only those of this collection. Not together with ``regex``.
        """
        if regex is not None and collection is not None:
            raise SMDebugValueError("Give tensor_names() a regex or a collection, not both.")
        self.maybe_refresh()
        index = self._source.index
        names = index.names_in(mode, step)
        if regex is not None:
            patterns = compiled("regex", regex)
            return sorted(n for n in names if any(pattern.search(n) for pattern in patterns))
        if collection is not None:
            chosen, members = self._resolve(collection)
            roles = index.roles
            return sorted(n for n in names if n in members or chosen.matches(n, roles[n]))
        return sorted(names)

    def tensors(self) -> list[str]:
        """The tensors saved, sorted: ``tensor_names()``."""
        return self.tensor_names()

    def has_tensor(self, tname: str) -> bool:
        """Whether a tensor of that name was saved."""
        if tname not in self._source.index:
            self.maybe_refresh(tname)
        return tname in self._source.index

    def tensor(self, tname: str) -> Tensor:
        """The tensor of that name.

        Raises:
            TensorUnavailable: There is none (yet).
        """
        if not self.has_tensor(tname):
            raise TensorUnavailable(tname, nearest(str(tname), self._source.index.names))
        return Tensor(tname, self, self._source)

    def collections(self) -> dict[str, Collection]:
        """The collections by name."""
        self.maybe_refresh()
        return dict(self._files.collections(self.loaded_all_steps))

    def collection(self, coll_name: str) -> Collection:
        """The collection of that name, an empty one if there is none; yours to change."""
        self.maybe_refresh()
        found = self._files.collections(self.loaded_all_steps)
        name = canonical_name(coll_name)
        return found[name] if name in found else found.setdefault(coll_name, Collection(coll_name))

    def _resolve(
        self, collection: str | Collection
    ) -> tuple[Collection, set[str] | frozenset[str]]:
        """A collection, and the tensors that belong to it beside those that match it."""
        if isinstance(collection, str):
            found = self.collection(collection)
            return found, found.tensor_names | self._reader.members.get(found.name, set())
        if not isinstance(collection, Collection):
            raise SMDebugTypeError(
                f"collection must be the name of one or a Collection, not {collection!r}."
            )
        return collection, collection.tensor_names

    # -- many at once -----------------------------------------------------------------------------

    def values(
        self,
        names: Iterable[str] | None = None,
        *,
        regex: str | Iterable[Any] | None = None,
        collection: str | Collection | None = None,
        steps: Iterable[int] | None = None,
        mode: ModeKeys = ModeKeys.GLOBAL,
        worker: str | None = None,
    ) -> dict[str, dict[int, Array]]:
        """The values of many tensors at all complete steps that have them, by name and step.

        Args:
            names: The tensors; without, those that ``regex`` or ``collection`` choose, or all.
            steps: Only these steps.
        """
        if names is None:
            names = self.tensor_names(mode=mode, regex=regex, collection=collection)
        elif regex is not None or collection is not None:
            raise SMDebugValueError("Give values() names, or a regex or collection, not both.")
        elif isinstance(names, str):
            names = [names]
        wanted = None if steps is None else np.array(sorted(set(steps)), np.int64)
        tensors = [self.tensor(name) for name in names]
        return {tensor.name: tensor.values_at(wanted, mode, worker) for tensor in tensors}

    def to_arrow(
        self, columns: Sequence[str] | None = None, *, names: Iterable[str] | None = None
    ) -> pa.Table:
        """All rows, one per tensor, step and worker, as one Arrow table.

        Args:
            columns: Which columns; all without.
            names: Which tensors; all without.
        """
        self.maybe_refresh()
        table = self._reader.table(_checked_columns(columns))
        rows = self._source.index.rows
        if names is not None:
            wanted = set(names)
            codes = [i for i, name in enumerate(self._reader.names) if name in wanted]
            rows = rows[np.isin(self._reader.column("name")[rows], codes)]
        return table if len(rows) == table.num_rows else table.take(pa.array(rows))

    def to_pandas(
        self, columns: Sequence[str] | None = None, *, names: Iterable[str] | None = None
    ) -> pandas.DataFrame:
        """``to_arrow()`` as a pandas DataFrame."""
        try:
            import pandas  # noqa: F401
        except ImportError as error:
            raise MissingExtra(
                "to_pandas() needs pandas. To install it: pip install 'tornasole[pandas]'"
            ) from error
        return self.to_arrow(columns, names=names).to_pandas()

    def first_nonfinite(self) -> NonFinite | None:
        """The first tensor, in order of execution and across workers, with a NaN or an infinity.

        Raw values that were saved without statistics must be read for this.
        """
        self.maybe_refresh()
        return first_nonfinite(self._reader, self._source.cells, self._source.index.rows)

    def block(self, after: int = -1, most_rows: int = 1 << 18) -> Block:
        """The complete steps after a step, whole, up to about that many rows.

        For who reads much and in order, such as rules. Good until the next refresh.
        """
        return Block(self._source, after, self._last_complete, most_rows)

    # -- inputs, labels, predictions --------------------------------------------------------------

    def inputs(self, step: int, mode: ModeKeys = ModeKeys.GLOBAL) -> list[Array]:
        """The values of collection ``inputs`` at a step, by the numbers at their names' ends."""
        return self._values_of(self.collection(CollectionKeys.INPUTS), step, mode)

    def labels(self, step: int, mode: ModeKeys = ModeKeys.GLOBAL) -> list[Array]:
        """The labels at a step, by the numbers at their names' ends."""
        return self._values_of(_LABELS, step, mode)

    def predictions(self, step: int, mode: ModeKeys = ModeKeys.GLOBAL) -> list[Array]:
        """The predictions at a step, by the numbers at their names' ends."""
        return self._values_of(_PREDICTIONS, step, mode)

    def _values_of(self, collection: Collection, step: int, mode: ModeKeys) -> list[Array]:
        state = self.has_passed_step(step, mode)
        if state is StepState.UNAVAILABLE:
            raise StepUnavailable(step, mode)
        if state is StepState.NOT_YET_AVAILABLE:
            raise StepNotYetAvailable(step, mode)
        names = self.tensor_names(step=step, mode=mode, collection=collection)
        return [self.tensor(n).value(step, mode) for n in sorted(names, key=_numbered)]

    # -- itself -----------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Trial):
            return NotImplemented
        return (self.name, self.path) == (other.name, other.path)

    def __hash__(self) -> int:
        return hash((self.name, self.path))

    def __repr__(self) -> str:
        index = self._source.index
        content = f"{len(index.steps)} steps, {len(index.names)} tensors"
        return f"{type(self).__name__}({self.name!r}, {self.path!r}: {self._state.name}, {content})"


def pause(deadline: float | None, complaint: str) -> None:
    """Sleeps a little; raises ``WaitTimeout`` once the deadline has passed."""
    left = POLL_SECONDS if deadline is None else deadline - time.monotonic()
    if left <= 0:
        raise WaitTimeout(complaint)
    time.sleep(min(left, POLL_SECONDS))


def _numbered(name: str) -> tuple[str, int]:
    """Sorts names by what stands before their last number, then by that number."""
    match = re.fullmatch(r"(.*?)(\d*)", name, re.DOTALL)
    assert match is not None
    return match[1], int(match[2] or -1)


def _checked_range(range_steps: Sequence[int | None] | None) -> tuple[int, int | None]:
    if range_steps is None:
        return 0, None
    wrong = SMDebugValueError(
        "range_steps must be a pair (first, stop) of step numbers or None, with stop > first >= 0, "
        f"not {range_steps!r}."
    )
    if not isinstance(range_steps, (tuple, list)) or len(range_steps) != 2:
        raise wrong
    if any(each is not None and (type(each) is not int or each < 0) for each in range_steps):
        raise wrong
    first, stop = range_steps[0] or 0, range_steps[1]
    if stop is not None and stop <= first:
        raise wrong
    return first, stop


def _checked_columns(columns: Sequence[str] | None) -> Sequence[str] | None:
    known = ["worker", *SCHEMA.names]
    for name in columns or ():
        if name not in known:
            hint = nearest(str(name), known)
            raise SMDebugValueError(
                f"There is no column {name!r}. {hint} There are: {', '.join(known)}."
            )
    return columns
