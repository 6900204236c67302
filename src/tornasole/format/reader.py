"""From the bytes of a trial to columns of rows: what the read side stands on."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tornasole.errors import CorruptTrial, ObjectNotFound, TrialNotFound
from tornasole.format import layout, payload
from tornasole.format.segment import SCHEMA, SegmentFile
from tornasole.store import Store, open_store
from tornasole.types import ModeKeys

# Columns that are mostly asked for together are read together.
_INDEX = ("step", "mode", "mode_step", "order", "name")
_VALUE = ("dtype", "shape", "value")
_MODES = {mode.name: mode.value for mode in ModeKeys}


class TrialReader:
    """Reads a trial in format version 1, while it is being written or later.

    ``refresh`` takes in what is new; everything else answers from what has been taken in. Rows are
    numbered from 0 in the order of their workers and, within a worker, of their writing; a refresh
    may renumber them.

    Attributes:
        about: What ``trial.json`` says.
        workers: Every worker seen; ``worker`` columns hold indices into it.
        generation: Grows whenever a refresh brought something.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.about = self._read_about()
        self.workers: list[str] = []
        self.generation = 0
        self._names: list[str] = []
        self._codes: dict[str, int] = {}
        self._folders: dict[str, _Folder] = {}
        self._columns: dict[str, Any] = {}
        self._newer: TrialReader | None = None
        self.refresh()

    @classmethod
    def open(cls, address: str) -> TrialReader:
        """Opens the trial at the address.

        Raises:
            TrialNotFound: There is none.
        """
        return cls(open_store(address))

    @property
    def url(self) -> str:
        return self._store.url

    def refresh(self) -> bool:
        """Looks for new segments, workers and ends; returns whether there was anything new."""
        before = self._changes()
        if len(self._folders) < self.about["workers"]:
            for worker in self._listed_workers() - set(self._folders):
                self._folders[worker] = _Folder(self._store, worker)
            self.workers = sorted(self._folders)
        try:
            for worker in self.workers:
                self._folders[worker].refresh()
        finally:  # what was taken in before a damaged file counts
            changed = self._changes() != before
            if changed:
                self.generation += 1
                self._columns.clear()
                self._newer = None
        return changed

    def _changes(self) -> int:
        return len(self._folders) + sum(folder.changes for folder in self._folders.values())

    def _listed_workers(self) -> set[str]:
        """The folders that hold a worker's files; others may lie beside them, such as findings."""
        found = {layout.worker_of(key) for key in self._store.list()}
        return {worker for worker in found if worker is not None}

    # -- small files -------------------------------------------------------------------------------

    def collections(self, worker: str) -> dict[str, Any] | None:
        """What the worker's ``collections.json`` says, if it has been written."""
        return self._json(layout.collections_key(worker))

    def end(self, worker: str) -> dict[str, Any] | None:
        """The worker's last word, if it has been said."""
        return self._folders[worker].end

    def _read_about(self) -> dict[str, Any]:
        about = self._json(layout.TRIAL)
        if about is None:
            held = self._store.list()
            what = (
                f"holds {', '.join(held[:3])} but no {layout.TRIAL}"
                if held
                else "is empty or missing"
            )
            raise TrialNotFound(f"There is no trial at {self._store.url}: it {what}.")
        where = f"{self._store.url}/{layout.TRIAL}"
        layout.check_version(about, where)
        workers = about.get("workers")
        if type(workers) is not int or workers < 1:
            raise CorruptTrial(f"{where} is damaged: it says that there are {workers!r} workers.")
        return about

    def _json(self, key: str) -> dict[str, Any] | None:
        return _read_json(self._store, key)

    # -- rows --------------------------------------------------------------------------------------

    @property
    def names(self) -> list[str]:
        """Every tensor name; ``name`` columns hold indices into it."""
        self.column("name")
        return self._names

    @property
    def row_count(self) -> int:
        return sum(segment.rows for segment in self._segments())

    def column(self, name: str) -> npt.NDArray[Any]:
        """One column of all rows.

        ``worker`` and ``name`` come as indices into ``workers`` and ``names``, ``mode`` as the
        mode's value, ``time`` as microseconds; numbers that are missing come as NaN in columns of
        floats and as -1 in others; words as objects.
        """
        if name not in self._columns:
            self._columns[name] = self._gather(name)
        found: npt.NDArray[Any] = self._columns[name]
        return found

    def present(self, name: str) -> npt.NDArray[np.bool_]:
        """Which rows have a value in the column: a NaN that was saved is one."""
        key = f"present {name}"
        if key not in self._columns:
            parts = [segment.present(name) for segment in self._segments()]
            self._columns[key] = np.concatenate(parts) if parts else np.zeros(0, np.bool_)
        found: npt.NDArray[np.bool_] = self._columns[key]
        return found

    def cell(self, name: str, row: int) -> Any:
        """What one row has in a column of numbers or words; ``None`` if it is missing.

        Reads the column of that row's segment only.
        """
        segments = self._segments()
        ends = np.cumsum([segment.rows for segment in segments])
        which = int(np.searchsorted(ends, row, side="right"))
        segment, inside = segments[which], int(row - ends[which])
        return segment.column(name)[inside] if segment.present(name)[inside] else None

    def table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows as one Arrow table, with a column ``worker`` in front."""
        wanted = list(columns or ("worker", *SCHEMA.names))
        names = [name for name in wanted if name != "worker"] or ["step"]
        parts = []
        for segment in self._segments():
            part = segment.file.table(names)
            worker = pa.DictionaryArray.from_arrays(
                pa.array(np.zeros(part.num_rows, np.int32)), pa.array([segment.file.worker])
            )
            parts.append(part.add_column(0, "worker", worker))
        if not parts:
            worker = pa.field("worker", pa.dictionary(pa.int32(), pa.string()))
            parts = [pa.schema([worker, *map(SCHEMA.field, names)]).empty_table()]
        return pa.concat_tables(parts).unify_dictionaries().select(wanted)

    def raw(self, row: int) -> npt.NDArray[Any] | None:
        """The raw value of a row, read from its payload; ``None`` if it has none."""
        if self.column("payload")[row] < 0:
            return None
        try:
            return self._raw(row)
        except ObjectNotFound:
            return self._moved_raw(row)

    def _raw(self, row: int) -> npt.NDArray[Any]:
        worker, source, offset, length = self._place(row)
        key = layout.payload_key(worker, source)
        where = f"{self._store.url}/{key}"
        if offset < 0 or length < 0:
            raise CorruptTrial(f"The rows beside {where} place a value at byte {offset}.")
        data = self._store.get(key, offset, length)
        if len(data) != length:
            raise CorruptTrial(
                f"{where} is damaged: a value ends at byte {offset + length}, the file before."
            )
        try:
            return payload.decode(data, self.column("dtype")[row], self.shape(row))
        except CorruptTrial as error:
            raise CorruptTrial(f"{where} is damaged: {error}.") from None

    def _place(self, row: int) -> tuple[str, int, int, int]:
        """Where the raw value of a row lies: worker, segment, first byte, length."""
        source, offset, length = (int(self.column(c)[row]) for c in ("payload", "offset", "length"))
        return self.workers[self.column("worker")[row]], source, offset, length

    def _moved_raw(self, row: int) -> npt.NDArray[Any]:
        """Reads a value whose segment has been merged into another since our last refresh.

        A second reader finds it, because a refresh here would renumber rows under the caller. That
        one may be late too: then it looks again, until the value lies where it was looked for.
        """
        newer = self._newer = self._newer or TrialReader(self._store)
        key = (
            self.workers[self.column("worker")[row]],
            int(self.column("step")[row]),
            self.names[self.column("name")[row]],
        )
        which = int(np.searchsorted(self._rows_of(*key), row))  # a name may come twice in a step
        place, refreshed = self._place(row), False
        while True:
            found = newer._rows_of(*key)
            there = newer._place(int(found[which])) if which < len(found) else place
            if there != place:
                place, refreshed = there, False
                try:
                    return newer._raw(int(found[which]))
                except ObjectNotFound:
                    pass
            elif refreshed:
                where = f"{self._store.url}/{layout.payload_key(*place[:2])}"
                raise CorruptTrial(f"{where}, which holds the value of a tensor, is missing.")
            newer.refresh()
            refreshed = True

    def _rows_of(self, worker: str, step: int, name: str) -> npt.NDArray[np.int64]:
        workers, names = self.column("worker"), self.column("name")
        if worker not in self.workers or name not in self._codes:
            return np.zeros(0, np.int64)
        of_worker = (workers == self.workers.index(worker)) & (names == self._codes[name])
        return np.flatnonzero(of_worker & (self.column("step") == step))

    def shape(self, row: int) -> tuple[int, ...]:
        """The shape of the tensor in a row."""
        starts, dimensions = self._shapes
        return tuple(int(size) for size in dimensions[starts[row] : starts[row + 1]])

    @property
    def dimensions(self) -> npt.NDArray[np.int32]:
        """How many dimensions the tensor in each row has."""
        if "dimensions" not in self._columns:
            parts = [segment.shapes[0] for segment in self._segments()]
            self._columns["dimensions"] = np.concatenate(parts) if parts else np.zeros(0, np.int32)
        found: npt.NDArray[np.int32] = self._columns["dimensions"]
        return found

    @property
    def _shapes(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        if "shape" not in self._columns:
            sizes = [segment.shapes[1] for segment in self._segments()]
            starts = np.concatenate([[0], np.cumsum(self.dimensions)])
            self._columns["shape"] = (starts, np.concatenate([*sizes, np.zeros(0, np.int64)]))
        found: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] = self._columns["shape"]
        return found

    @property
    def members(self) -> dict[str, set[str]]:
        """The tensors that were saved under each collection."""
        if "members" not in self._columns:
            members: dict[str, set[str]] = {}
            for segment in self._segments():
                for collection, name in segment.members():
                    members.setdefault(collection, set()).add(name)
            self._columns["members"] = members
        found: dict[str, set[str]] = self._columns["members"]
        return found

    def _segments(self) -> list[_Segment]:
        return [segment for worker in self.workers for segment in self._folders[worker].segments]

    def _gather(self, name: str) -> npt.NDArray[Any]:
        segments = self._segments()
        if name == "worker":
            codes = {worker: code for code, worker in enumerate(self.workers)}
            parts = [
                np.full(len(each.column("step")), codes[each.file.worker], np.int32)
                for each in segments
            ]
        elif name == "name":
            parts = [self._name_codes(each) for each in segments]
        else:
            parts = [each.column(name) for each in segments]
        if parts:
            return np.concatenate(parts)
        if name in ("worker", "name"):
            return np.zeros(0, np.int32)
        return _convert(name, pa.chunked_array([], SCHEMA.field(name).type))

    def _name_codes(self, segment: _Segment) -> npt.NDArray[np.int32]:
        words, codes = segment.names
        for word in words:
            if word not in self._codes:
                self._codes[word] = len(self._names)
                self._names.append(word)
        table = np.array([self._codes[word] for word in words], np.int32)
        return table[codes]


class _Folder:
    """One worker's part of a trial: which segments there are, and which of them still count.

    Attributes:
        segments: Those that count, in the order of their rows.
        end: The worker's last word.
        changes: Grows whenever something new was taken in.
    """

    def __init__(self, store: Store, worker: str) -> None:
        self._store, self._worker = store, worker
        self.segments: list[_Segment] = []
        self._complete = -1  # every segment up to this number is accounted for
        self._beyond: list[tuple[int, int]] = []  # later numbers that are, as ranges
        self.end: dict[str, Any] | None = None
        self.changes = 0

    def refresh(self) -> None:
        """Takes in new segments and the worker's end."""
        if self.end is not None:
            return
        # The end is looked for first: what was written before it is then surely listed.
        end = _read_json(self._store, layout.end_key(self._worker))
        self._refresh_segments(final=end is not None)
        self.end = end
        self.changes += end is not None

    def _refresh_segments(self, final: bool) -> None:
        """Lists until nothing is missing in between.

        A file may vanish under us when it is merged into a later one: the next listing has that.
        """
        before: list[int] | None = None
        while True:
            listed = self._list()
            gone = [number for number in listed if not self._take(number, final)]
            if not gone and not self._beyond:
                return
            if listed == before:
                key = layout.rows_key(self._worker, self._complete + 1)
                raise CorruptTrial(f"{self._store.url}/{key} is missing; later segments are there.")
            before = listed

    def _list(self) -> list[int]:
        """The segments that are there and not accounted for."""
        after = layout.rows_key(self._worker, self._complete) if self._complete >= 0 else ""
        numbers = map(layout.segment_number, self._store.list(f"{self._worker}/", after))
        return [number for number in numbers if number is not None and not self._accounted(number)]

    def _accounted(self, number: int) -> bool:
        return number <= self._complete or any(a <= number <= b for a, b in self._beyond)

    def _take(self, number: int, final: bool) -> bool:
        """Takes in a segment, in place of those merged into it; false if it has gone."""
        if self._accounted(number):
            return True
        try:
            file = SegmentFile(self._store, self._worker, number, resident=not final)
        except ObjectNotFound:
            return False
        live = self.segments
        start = stop = bisect_left(live, file.first, key=lambda segment: segment.file.first)
        while stop < len(live) and live[stop].file.last <= file.last:
            stop += 1
        if (start and live[start - 1].file.last >= file.first) or (
            stop < len(live) and live[stop].file.first <= file.last
        ):
            raise file.damaged("it holds rows that another segment holds too")
        live[start:stop] = [_Segment(file)]
        self.changes += 1
        self._account([(file.first, file.last), (number, number), *((n, n) for n in file.replaces)])
        return True

    def _account(self, ranges: list[tuple[int, int]]) -> None:
        both = sorted([*self._beyond, *ranges])
        for first, last in both:
            if first <= self._complete + 1:
                self._complete = max(self._complete, last)
        self._beyond = [(first, last) for first, last in both if last > self._complete]


class _Segment:
    """The rows of one segment; columns are read when asked for and kept."""

    def __init__(self, file: SegmentFile) -> None:
        self.file, self.rows = file, file.rows
        self._columns: dict[str, npt.NDArray[Any]] = {}
        self._present: dict[str, npt.NDArray[np.bool_]] = {}
        self._read: dict[str, pa.ChunkedArray] = {}

    @cached_property
    def names(self) -> tuple[list[str], npt.NDArray[np.int32]]:
        """The names in this segment, and for each row the index of its own."""
        return _words(self._arrow("name"))

    @cached_property
    def shapes(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """For each row the number of its dimensions, and the sizes of all of them, row by row."""
        column = self._arrow("shape")
        return _lengths(column), _numpy(_flat(column), np.int64, -1)

    def members(self) -> set[tuple[str, str]]:
        """The pairs of a collection and a tensor that was saved under it."""
        words, names = self.names
        column = self._arrow("collections")
        collections, codes = _words(_flat(column).dictionary_encode())
        pairs = np.repeat(names.astype(np.int64), _lengths(column)) * (len(collections) + 1) + codes
        found = (divmod(pair, len(collections) + 1) for pair in np.unique(pairs).tolist())
        return {(collections[code], words[name]) for name, code in found if code < len(collections)}

    def column(self, name: str) -> npt.NDArray[Any]:
        if name not in self._columns:
            column = self._arrow(name)
            self._present[name] = _valid(column)
            self._columns[name] = _convert(name, column)
        return self._columns[name]

    def present(self, name: str) -> npt.NDArray[np.bool_]:
        if name in _VALUE:
            self.column(name)  # both will be asked for
        if name not in self._present:
            self._present[name] = _valid(self._arrow(name))
        return self._present[name]

    def _arrow(self, name: str) -> pa.ChunkedArray:
        """A column as it was read; those read along with it are kept until they are asked for."""
        if name not in self._read:
            together = next((group for group in (_INDEX, _VALUE) if name in group), (name,))
            table = self.file.table(together)
            self._read |= {each: table.column(each) for each in together}
        return self._read.pop(name)


def _numpy(column: pa.ChunkedArray, dtype: type[np.generic], missing: float) -> npt.NDArray[Any]:
    """The numbers of a column.

    pyarrow's own conversion would import pandas, if it is installed: a fifth of a second.
    """
    size = np.dtype(dtype).itemsize
    parts = [
        np.frombuffer(chunk.buffers()[1], dtype, len(chunk), chunk.offset * size)
        for chunk in column.chunks
        if len(chunk)
    ]
    numbers = parts[0] if len(parts) == 1 else np.concatenate([*parts, np.zeros(0, dtype)])
    return np.where(_valid(column), numbers, dtype(missing)) if column.null_count else numbers


def _valid(column: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    return _numpy(column.is_valid().cast(pa.uint8()), np.uint8, 0).view(np.bool_)


def _flat(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The elements of all lists, one after the other."""
    return pa.chunked_array([chunk.flatten() for chunk in column.chunks], column.type.value_type)


def _lengths(column: pa.ChunkedArray) -> npt.NDArray[np.int32]:
    return _numpy(pc.list_value_length(column), np.int32, 0)


def _words(column: pa.ChunkedArray) -> tuple[list[str], npt.NDArray[np.int32]]:
    """The words of a column, and for each row the index of its own (-1: none)."""
    unified = column.unify_dictionaries()
    indices = pa.chunked_array([chunk.indices for chunk in unified.chunks], pa.int32())
    words = unified.chunk(0).dictionary.to_pylist() if unified.num_chunks else []
    return words, _numpy(indices, np.int32, -1)


def _convert(name: str, column: pa.ChunkedArray) -> npt.NDArray[Any]:
    """A column as a NumPy array, in the terms of ``TrialReader.column``."""
    kind = SCHEMA.field(name).type
    if name == "mode":
        words, codes = _words(column)
        return np.array(
            [_MODES.get(word, ModeKeys.GLOBAL.value) for word in [*words, ""]], np.int8
        )[codes]
    if pa.types.is_dictionary(kind):
        words, codes = _words(column)
        return np.array([*words, None], dtype=object)[codes]
    if pa.types.is_floating(kind):
        return _numpy(column, np.float64, np.nan)
    if pa.types.is_integer(kind) or pa.types.is_timestamp(kind):
        return _numpy(column.cast(pa.int64()), np.int64, -1)
    return np.array(column.to_pylist(), dtype=object)


def _read_json(store: Store, key: str) -> dict[str, Any] | None:
    try:
        text = store.get(key)
    except ObjectNotFound:
        return None
    return layout.parse_object(text, f"{store.url}/{key}")
