"""From the bytes of a trial to columns of rows: what the read side stands on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tornasole.errors import CorruptTrial, ObjectNotFound, TrialNotFound, UnsupportedFormat
from tornasole.format import layout, payload
from tornasole.format.segment import SCHEMA, SegmentFile
from tornasole.store import Store, open_store
from tornasole.types import ModeKeys

_NO_ROWS = SCHEMA.empty_table()
_INDEX = ("step", "mode", "mode_step", "order", "name")
_MODES = {mode.name: mode.value for mode in ModeKeys}


class TrialReader:
    """Reads a trial in format version 1, while it is being written or later.

    ``refresh`` takes in what is new; everything else answers from what has been taken in. Rows are numbered
    from 0 in the order of their workers and, within a worker, of their writing; a refresh may renumber them.

    Attributes:
        about: What ``trial.json`` says.
        names: Every tensor name; ``name`` columns hold indices into it.
        workers: Every worker seen; ``worker`` columns hold indices into it.
        generation: Grows whenever a refresh brought something.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.about = self._read_about()
        self.names: list[str] = []
        self.workers: list[str] = []
        self.generation = 0
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
        if len(self._folders) < self.about["workers"]:
            found = {key.partition("/")[0] for key in self._store.list() if "/" in key}
            for worker in found - set(self._folders) - {layout.FINDINGS}:
                self._folders[worker] = _Folder(self._store, worker)
            self.workers = sorted(self._folders)
        changed = [self._folders[worker].refresh() for worker in self.workers]
        if any(changed):
            self.generation += 1
            self._columns.clear()
            self._newer = None
        return any(changed)

    # -- small files ----------------------------------------------------------------------------------------

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
            what = f"holds {', '.join(held[:3])} but no {layout.TRIAL}" if held else "is empty or missing"
            raise TrialNotFound(f"There is no trial at {self._store.url}: it {what}.")
        numbers = (about.get("version"), about.get("workers"))
        if about.get("format") != layout.FORMAT or not all(type(each) is int for each in numbers):
            raise CorruptTrial(f"{self._store.url}/{layout.TRIAL} does not describe a trial.")
        if about["version"] > layout.VERSION:
            raise UnsupportedFormat(
                f"{self._store.url} is a trial of format version {about['version']}; this version of tornasole "
                f"reads up to {layout.VERSION}. Upgrade with: pip install -U tornasole"
            )
        return about

    def _json(self, key: str) -> dict[str, Any] | None:
        return _read_json(self._store, key)

    # -- rows -----------------------------------------------------------------------------------------------

    @property
    def row_count(self) -> int:
        return sum(segment.rows for segment in self._segments())

    def column(self, name: str) -> npt.NDArray[Any]:
        """One column of all rows.

        ``worker`` and ``name`` come as indices into ``workers`` and ``names``, ``mode`` as the mode's value,
        ``time`` as microseconds; numbers that are missing come as NaN in columns of floats and as -1 in others;
        words as objects.
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

    def table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows as one Arrow table, with a column ``worker`` in front."""
        names = [name for name in columns or SCHEMA.names if name != "worker"]
        parts = []
        for segment in self._segments():
            part = segment.file.table(names)
            worker = pa.DictionaryArray.from_arrays(
                pa.array(np.zeros(part.num_rows, np.int32)), pa.array([segment.file.worker])
            )
            parts.append(part.add_column(0, "worker", worker))
        if not parts:
            empty = pa.schema([("worker", pa.dictionary(pa.int32(), pa.string()))])
            return pa.schema([*empty, *(SCHEMA.field(name) for name in names)]).empty_table()
        table = pa.concat_tables(parts).unify_dictionaries()
        return table if columns is None or "worker" in columns else table.drop_columns("worker")

    def raw(self, row: int) -> npt.NDArray[Any] | None:
        """The raw value of a row, read from its payload; ``None`` if it has none."""
        source = int(self.column("payload")[row])
        if source < 0:
            return None
        key = layout.payload_key(self.workers[self.column("worker")[row]], source)
        offset, length = int(self.column("offset")[row]), int(self.column("length")[row])
        where = f"{self._store.url}/{key}"
        if offset < 0 or length < 0:
            raise CorruptTrial(f"The rows beside {where} are damaged: they place a value at byte {offset}.")
        try:
            data = self._store.get(key, offset, length)
        except ObjectNotFound:
            return self._moved_raw(row, where)
        if len(data) != length:
            raise CorruptTrial(
                f"{where} is damaged: it ends before byte {offset + length}, where a value should end."
            )
        try:
            return payload.decode(data, self.column("dtype")[row], self.shape(row))
        except CorruptTrial as error:
            raise CorruptTrial(f"{where} is damaged: {error}.") from None

    def _moved_raw(self, row: int, where: str) -> npt.NDArray[Any] | None:
        """Reads a value whose segment has been merged into another since our last refresh.

        A second reader finds it, because a refresh here would renumber rows under the caller.
        """
        fresh = self._newer = self._newer or TrialReader(self._store)
        worker = self.workers[self.column("worker")[row]]
        name = self.names[self.column("name")[row]]
        found = np.flatnonzero(
            (fresh.column("step") == self.column("step")[row])
            & (fresh.column("name") == fresh._codes.get(name, -1))
            & (fresh.column("worker") == fresh.workers.index(worker))
        )
        same = len(found) == 1 and all(
            fresh.column(part)[found[0]] == self.column(part)[row] for part in ("payload", "offset")
        )
        if len(found) != 1 or same:
            raise CorruptTrial(f"{where}, which holds the value of a tensor, is missing.")
        return fresh.raw(int(found[0]))

    def shape(self, row: int) -> tuple[int, ...]:
        """The shape of the tensor in a row."""
        starts, dimensions = self._shapes
        return tuple(int(size) for size in dimensions[starts[row] : starts[row + 1]])

    @property
    def _shapes(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        if "shape" not in self._columns:
            column = self.table(["shape"]).column("shape").combine_chunks()
            self._columns["shape"] = (
                np.asarray(column.offsets, np.int64) - column.offsets[0].as_py(),
                np.asarray(column.flatten(), np.int64),
            )
        found: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] = self._columns["shape"]
        return found

    def _segments(self) -> list[_Segment]:
        return [segment for worker in self.workers for segment in self._folders[worker].segments()]

    def _gather(self, name: str) -> npt.NDArray[Any]:
        segments = self._segments()
        if name == "worker":
            codes = {worker: code for code, worker in enumerate(self.workers)}
            parts = [np.full(each.rows, codes[each.file.worker], np.int32) for each in segments]
        elif name == "name":
            parts = [self._name_codes(each) for each in segments]
        else:
            parts = [each.column(name) for each in segments]
        return np.concatenate(parts) if parts else _convert(name, _NO_ROWS.column(name))

    def _name_codes(self, segment: _Segment) -> npt.NDArray[np.int32]:
        words, codes = segment.names
        for word in words:
            if word not in self._codes:
                self._codes[word] = len(self.names)
                self.names.append(word)
        table = np.array([self._codes[word] for word in words], np.int32)
        return table[codes]


class _Folder:
    """One worker's part of a trial: which segments there are, and which of them still count."""

    def __init__(self, store: Store, worker: str) -> None:
        self._store, self._worker = store, worker
        self._live: dict[int, _Segment] = {}
        self._seen: set[int] = set()
        self._complete = -1  # every segment up to this number has been seen
        self.end: dict[str, Any] | None = None

    def segments(self) -> list[_Segment]:
        """The segments that count, in the order of their steps."""
        return sorted(self._live.values(), key=lambda segment: segment.file.first)

    def refresh(self) -> bool:
        """Takes in new segments and the worker's end; returns whether there was anything new."""
        if self.end is not None:
            return False
        # The end is looked for first: what was written before it is then surely listed.
        end = _read_json(self._store, layout.end_key(self._worker))
        changed = self._refresh_segments(final=end is not None)
        self.end = end
        return changed or end is not None

    def _refresh_segments(self, final: bool) -> bool:
        changed = False
        while True:
            taken = self._take_new(final)
            changed |= taken
            if self._complete >= max(self._seen, default=-1):
                return changed
            if not taken:
                missing = layout.rows_key(self._worker, self._complete + 1)
                raise CorruptTrial(f"{self._store.url}/{missing} is missing, but later segments are there.")

    def _take_new(self, final: bool) -> bool:
        """One listing. A file may vanish under us when it is merged into a later one: the next listing has that."""
        after = layout.rows_key(self._worker, self._complete) if self._complete >= 0 else ""
        taken = False
        for key in self._store.list(f"{self._worker}/", after):
            number = layout.segment_number(key)
            if number is None or number in self._seen:
                continue
            try:
                file = SegmentFile(self._store, self._worker, number, resident=not final)
            except ObjectNotFound:
                continue
            taken = True
            self._seen |= {number, *file.replaces, *range(file.first, file.last + 1)}
            for other in list(self._live):
                if file.first <= self._live[other].file.first and self._live[other].file.last <= file.last:
                    del self._live[other]
            self._live[number] = _Segment(file)
        while self._complete + 1 in self._seen:
            self._complete += 1
        return taken


class _Segment:
    """The rows of one segment; columns are read when asked for and kept."""

    def __init__(self, file: SegmentFile) -> None:
        self.file, self.rows = file, file.rows
        self._columns: dict[str, npt.NDArray[Any]] = {}

    @cached_property
    def names(self) -> tuple[list[str], npt.NDArray[np.int32]]:
        """The names in this segment, and for each row the index of its own."""
        return _words(self._index.column("name"))

    def column(self, name: str) -> npt.NDArray[Any]:
        if name not in self._columns:
            table = self._index if name in _INDEX else self.file.table([name])
            self._columns[name] = _convert(name, table.column(name))
        return self._columns[name]

    def present(self, name: str) -> npt.NDArray[np.bool_]:
        return np.asarray(self.file.table([name]).column(name).is_valid(), np.bool_)

    @cached_property
    def _index(self) -> pa.Table:
        return self.file.table(_INDEX)


def _words(column: pa.ChunkedArray) -> tuple[list[str], npt.NDArray[np.int32]]:
    """The words of a column, and for each row the index of its own (-1: none)."""
    unified = column.unify_dictionaries()
    codes = [np.asarray(chunk.indices.fill_null(-1), np.int32) for chunk in unified.chunks]
    words = unified.chunk(0).dictionary.to_pylist() if codes else []
    return words, np.concatenate(codes) if codes else np.zeros(0, np.int32)


def _convert(name: str, column: pa.ChunkedArray) -> npt.NDArray[Any]:
    """A column as a NumPy array, in the terms of ``TrialReader.column``."""
    kind = SCHEMA.field(name).type
    if name == "mode":
        words, codes = _words(column)
        return np.array([_MODES.get(word, ModeKeys.GLOBAL.value) for word in [*words, ""]], np.int8)[codes]
    if pa.types.is_dictionary(kind):
        words, codes = _words(column)
        return np.array([*words, None], dtype=object)[codes]
    if pa.types.is_floating(kind):
        return np.asarray(column, np.float64)
    if pa.types.is_integer(kind) or pa.types.is_timestamp(kind):
        return np.asarray(column.cast(pa.int64()).fill_null(-1), np.int64)
    return np.array(column.to_pylist(), dtype=object)


def _read_json(store: Store, key: str) -> dict[str, Any] | None:
    try:
        text = store.get(key)
    except ObjectNotFound:
        return None
    try:
        content = json.loads(text)
    except ValueError as error:
        raise CorruptTrial(f"{store.url}/{key} is damaged: it is not JSON ({error}).") from None
    if not isinstance(content, dict):
        raise CorruptTrial(f"{store.url}/{key} is damaged: it is not a JSON object.")
    return content
