"""A segment: the rows of some complete steps as one Parquet file, beside its payload."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tornasole.errors import CorruptTrial, SMDebugRuntimeError, SMDebugValueError
from tornasole.format import payload
from tornasole.format.layout import (
    FORMAT,
    VERSION,
    check_version,
    parse_object,
    payload_key,
    rows_key,
)
from tornasole.format.records import StepRecords
from tornasole.store import Buffer, Store
from tornasole.types import COUNTS, STATISTICS

T = TypeVar("T")

_WORD = pa.dictionary(pa.int32(), pa.string())

_REQUIRED = (
    ("step", pa.int64()),
    ("mode", _WORD),
    ("mode_step", pa.int64()),
    ("order", pa.int32()),
    ("name", _WORD),
    ("role", _WORD),
    ("collections", pa.list_(pa.string())),
    ("dtype", _WORD),
    ("shape", pa.list_(pa.int64())),
    ("time", pa.timestamp("us", tz="UTC")),
)
# The meaning of every column is in docs/format.md; a golden file pins the bytes.
SCHEMA = pa.schema(
    [
        *(pa.field(name, kind, nullable=False) for name, kind in _REQUIRED),
        ("value", pa.float64()),
        ("payload", pa.int64()),
        ("offset", pa.int64()),
        ("length", pa.int64()),
        ("lost", pa.string()),
        *((name, pa.float64()) for name in STATISTICS),
        *((name, pa.int64()) for name in COUNTS),
    ]
)
_METADATA = b"tornasole"


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment as the writer knows it.

    Attributes:
        first: Together with ``last``, the range of segment numbers whose rows it holds: its own, or
            those merged.
        tier: How often its rows have been merged.
        replaces: The numbers of the segments merged into it, and of those merged into them that lie
            outside the range.
    """

    number: int
    first: int
    last: int
    rows: int
    payload_bytes: int
    tier: int = 0
    replaces: tuple[int, ...] = ()


def write(store: Store, worker: str, number: int, steps: Sequence[StepRecords]) -> Segment:
    """Writes the steps as segment ``number``.

    The payload goes first, so that a visible row is a readable value.
    """
    rows = [(step, order, record) for step in steps for order, record in enumerate(step.records)]
    raw = [
        (f"{step.step}/{record.name}", record.dtype, record.shape, record.raw)
        for step, _, record in rows
        if record.raw is not None
    ]
    offsets: Iterator[int] = iter(())
    payload_bytes = 0
    if raw:
        sizes = [(key, dtype, shape, data.nbytes) for key, dtype, shape, data in raw]
        head, places = payload.header(sizes)
        _put_new(store, payload_key(worker, number), [head, *(data for *_, data in raw)])
        offsets = iter(places)
        payload_bytes = len(head) + sum(size for *_, size in sizes)
    columns: dict[str, object] = {
        "step": [step.step for step, _, _ in rows],
        "mode": [step.mode.name for step, _, _ in rows],
        "mode_step": [step.mode_step for step, _, _ in rows],
        "order": [order for _, order, _ in rows],
        "name": [record.name for *_, record in rows],
        "role": [record.role for *_, record in rows],
        "collections": [record.collections for *_, record in rows],
        "dtype": [record.dtype for *_, record in rows],
        "shape": [record.shape for *_, record in rows],
        "time": [int(record.time * 1e6) for *_, record in rows],
        "value": [record.value for *_, record in rows],
        "payload": [None if record.raw is None else number for *_, record in rows],
        "offset": [None if record.raw is None else next(offsets) for *_, record in rows],
        "length": [None if record.raw is None else record.raw.nbytes for *_, record in rows],
        "lost": [record.lost for *_, record in rows],
    }
    reduced = [record.statistics for *_, record in rows]
    present = frozenset().union(*(statistics for statistics in reduced if statistics))
    for name in (*STATISTICS, *COUNTS):
        if name in present:
            columns[name] = [statistics.get(name) if statistics else None for statistics in reduced]
    about = Segment(number, number, number, len(rows), payload_bytes)
    _put_rows(store, worker, about, _table(columns, len(rows)))
    return about


def _table(columns: dict[str, object], count: int) -> pa.Table:
    return pa.table(
        [
            pa.array(columns[field.name], field.type)
            if field.name in columns
            else pa.nulls(count, field.type)
            for field in SCHEMA
        ],
        schema=SCHEMA,
    )


def _put_rows(store: Store, worker: str, about: Segment, table: pa.Table) -> None:
    description = {
        "format": FORMAT,
        "version": VERSION,
        "segment": about.number,
        "first": about.first,
        "last": about.last,
        "replaces": list(about.replaces),
    }
    table = table.replace_schema_metadata({_METADATA: json.dumps(description).encode()})
    sink = pa.BufferOutputStream()
    words = [field.name for field in SCHEMA if field.type == _WORD]
    pq.write_table(
        table,
        sink,
        compression="zstd",
        compression_level=1,
        use_dictionary=[*words, "collections.list.element"],
        write_page_checksum=True,
    )
    _put_new(store, rows_key(worker, about.number), [memoryview(sink.getvalue())])


def _put_new(store: Store, key: str, data: Sequence[Buffer]) -> None:
    """Writes a file of a segment, which never changes: one that is there belongs to another job."""
    try:
        store.put(key, data, overwrite=False)
    except FileExistsError:
        raise SMDebugRuntimeError(
            f"{store.url}/{key} is there already: another job writes, or has written, there."
        ) from None


def merge(store: Store, worker: str, number: int, parts: Sequence[Segment]) -> Segment:
    """Writes the rows and values of consecutive segments as one new segment, then deletes them.

    The new file says which segments it stands for, so that a reader drops those it already has, and
    a crash between writing and deleting leaves nothing twice.
    """
    tables = [SegmentFile(store, worker, part.number).table() for part in parts]
    table = pa.concat_tables(tables).unify_dictionaries()
    first, last = parts[0].first, parts[-1].last
    earlier = (each for part in parts for each in part.replaces if not first <= each <= last)
    about = Segment(
        number,
        first,
        last,
        sum(part.rows for part in parts),
        sum(part.payload_bytes for part in parts),
        1 + max(part.tier for part in parts),
        (*(part.number for part in parts), *earlier),
    )
    if about.payload_bytes:
        table = _merge_payloads(store, worker, number, table)
    _put_rows(store, worker, about, table)
    for part in parts:
        store.delete(rows_key(worker, part.number))
        if part.payload_bytes:
            store.delete(payload_key(worker, part.number))
    del tables, table
    pa.default_memory_pool().release_unused()  # else the job keeps what merging needed for a moment
    return about


def _merge_payloads(store: Store, worker: str, number: int, table: pa.Table) -> pa.Table:
    """Copies the values that the rows point to into one payload; returns rows that point there."""
    has_value = table.column("payload").is_valid().combine_chunks()
    names = ("step", "name", "dtype", "shape", "payload", "offset", "length")
    columns = table.select(names).filter(has_value).to_pydict()
    files: dict[int, memoryview] = {}
    values: list[tuple[str, str, tuple[int, ...], memoryview]] = []
    for step, name, dtype, shape, source, offset, length in zip(*columns.values(), strict=True):
        if source not in files:
            files[source] = memoryview(store.get(payload_key(worker, source)))
        data = files[source][offset : offset + length]
        values.append((f"{step}/{name}", dtype, tuple(shape), data))
    sizes = [(key, dtype, shape, len(data)) for key, dtype, shape, data in values]
    head, places = payload.header(sizes)
    _put_new(store, payload_key(worker, number), [head, *(data for *_, data in values)])
    there, nowhere = pa.scalar(number, pa.int64()), pa.scalar(None, pa.int64())
    offsets = table.column("offset").combine_chunks()
    moved = {
        "payload": pc.if_else(has_value, there, nowhere),
        "offset": pc.replace_with_mask(offsets, has_value, pa.array(places, pa.int64())),
    }
    for name, column in moved.items():
        table = table.set_column(SCHEMA.get_field_index(name), SCHEMA.field(name), column)
    return table


class SegmentFile:
    """The rows file of one segment, read column by column.

    ``resident`` fetches the file at once and keeps it: while the job runs, it may be merged and
    deleted.
    """

    def __init__(self, store: Store, worker: str, number: int, *, resident: bool = True) -> None:
        self.worker, self.number = worker, number
        key = rows_key(worker, number)
        self.where = f"{store.url}/{key}"
        source = pa.py_buffer(store.get(key)) if resident else _StoreFile(store, key)
        # On this thread alone: one of Arrow's may still give a buffer of ours back when the
        # interpreter ends, and that aborts the process.
        self._file = self._read(
            lambda: pq.ParquetFile(source, pre_buffer=False, page_checksum_verification=True)
        )
        self.rows, self._columns, about = self._read(self._describe)
        check_version(about, self.where)
        missing = set(SCHEMA.names) - set(self._columns)
        if missing:
            raise self.damaged(f"it lacks the columns {sorted(missing)}")
        self.first, self.last, self.replaces = self._place(about)

    def table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Reads the columns (all if ``None``).

        Raises:
            CorruptTrial: They cannot be read, or hold what they must not.
        """
        names = list(SCHEMA.names if columns is None else columns)
        unknown = sorted(set(names) - set(SCHEMA.names))
        if unknown:
            raise SMDebugValueError(f"A trial has no columns {unknown}; it has {SCHEMA.names}.")
        return self._read(lambda: self._table(names))

    def damaged(self, why: object) -> CorruptTrial:
        """The error that says so."""
        return CorruptTrial(f"{self.where} is damaged: {why}")

    def _table(self, names: list[str]) -> pa.Table:
        table = self._file.read(names, use_threads=False).select(names)
        if table.num_rows != self.rows:
            raise self.damaged(f"it has {table.num_rows} rows, not {self.rows}")
        for name in names:
            if not SCHEMA.field(name).nullable and table.column(name).null_count:
                raise self.damaged(f"column {name!r} has rows without a value")
        table = table.cast(pa.schema([SCHEMA.field(name) for name in names]))
        table.validate(full=True)
        return table

    def _describe(self) -> tuple[int, list[str], dict[str, Any]]:
        schema = self._file.schema_arrow
        text = (schema.metadata or {}).get(_METADATA)
        if text is None:
            raise self.damaged("it does not say that it is a segment of a trial")
        return self._file.metadata.num_rows, schema.names, parse_object(text, self.where)

    def _place(self, about: dict[str, Any]) -> tuple[Any, Any, frozenset[int]]:
        """The numbers that it stands for, if they make sense."""
        numbers = about.get("replaces")
        if not isinstance(numbers, list):
            raise self.damaged("it does not say which segments it replaces")
        first: Any = about.get("first")
        last: Any = about.get("last")
        for number in (first, last, *numbers):
            if type(number) is not int or not 0 <= number <= self.number:
                raise self.damaged(f"it stands for segment {number!r}, which cannot be")
        if about.get("segment") != self.number:
            raise self.damaged(f"it is segment {about.get('segment')!r} under another name")
        if first > last:
            raise self.damaged(f"it stands for segments {first} to {last}, which cannot be")
        return first, last, frozenset(numbers)

    def _read(self, action: Callable[[], T]) -> T:
        """Turns what pyarrow raises about bad bytes into an error that names the file."""
        try:
            return action()
        except CorruptTrial:
            raise
        except (pa.ArrowException, OSError, ValueError, KeyError, MemoryError) as error:
            # What the operating system says has a number, a missing file is told by the store.
            if isinstance(error, FileNotFoundError) or getattr(error, "errno", None) is not None:
                raise
            raise self.damaged(error) from error


class _StoreFile(io.RawIOBase):
    """A seekable view of one object, so that only the columns asked for are fetched."""

    def __init__(self, store: Store, key: str) -> None:
        self._store, self._key = store, key
        self._size, self._position = store.size(key), 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = (0, self._position, self._size)[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        length = None if size is None or size < 0 else size
        data = bytes(self._store.get(self._key, self._position, length))
        self._position += len(data)
        return data
