"""A segment: the rows of some complete steps as one Parquet file, beside its payload."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tornasole.errors import CorruptTrial, UnsupportedFormat
from tornasole.format import payload
from tornasole.format.layout import FORMAT, VERSION, payload_key, rows_key
from tornasole.format.records import StepRecords
from tornasole.store import Buffer, Store

_WORD = pa.dictionary(pa.int32(), pa.string())

STATISTICS = tuple(
    prefix + name
    for prefix in ("", "abs_")
    for name in ("min", "max", "mean", "median", "std", "variance", "sum", "prod", "l1", "l2")
)
COUNTS = ("count", "nan_count", "inf_count", "zero_count")

# The meaning of every column is in docs/format.md; a golden file pins the bytes.
SCHEMA = pa.schema(
    [
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


@dataclass(frozen=True)
class Segment:
    """A segment as the writer knows it.

    Attributes:
        first: Together with ``last``, the range of segment numbers whose rows it holds: its own, or those merged.
        tier: How often its rows have been merged.
    """

    number: int
    first: int
    last: int
    rows: int
    payload_bytes: int
    tier: int


def write(
    store: Store, worker: str, number: int, steps: Sequence[StepRecords]
) -> Segment:
    """Writes the steps as segment ``number``: payload first, so that a visible row is a readable value."""
    rows = [(step, order, record) for step in steps for order, record in enumerate(step.records)]
    raw = [
        (f"{step.step}/{record.name}", record.dtype, record.shape, record.raw)
        for step, _, record in rows
        if record.raw is not None
    ]
    offsets: Iterator[int] = iter(())
    payload_bytes = 0
    if raw:
        head, places = payload.header([(key, dtype, shape, len(data)) for key, dtype, shape, data in raw])
        store.put(payload_key(worker, number), [head, *(data for *_, data in raw)])
        offsets = iter(places)
        payload_bytes = len(head) + sum(len(data) for *_, data in raw)
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
        "length": [None if record.raw is None else len(record.raw) for *_, record in rows],
        "lost": [record.lost for *_, record in rows],
    }
    reduced = [record.statistics for *_, record in rows]
    present = frozenset().union(*(statistics for statistics in reduced if statistics))
    for name in (*STATISTICS, *COUNTS):
        if name in present:
            columns[name] = [statistics.get(name) if statistics else None for statistics in reduced]
    about = Segment(number, number, number, len(rows), payload_bytes, tier=0)
    _put_rows(store, worker, about, _table(columns, len(rows)), replaces=())
    return about


def _table(columns: dict[str, object], count: int) -> pa.Table:
    return pa.table(
        [
            pa.array(columns[field.name], field.type) if field.name in columns else pa.nulls(count, field.type)
            for field in SCHEMA
        ],
        schema=SCHEMA,
    )


def _put_rows(
    store: Store, worker: str, about: Segment, table: pa.Table, replaces: Sequence[int]
) -> None:
    description = {
        "format": FORMAT,
        "version": VERSION,
        "segment": about.number,
        "first": about.first,
        "last": about.last,
        "replaces": list(replaces),
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
    )
    store.put(rows_key(worker, about.number), [memoryview(sink.getvalue())])


def merge(store: Store, worker: str, number: int, parts: Sequence[Segment]) -> Segment:
    """Writes the rows and values of consecutive segments as one new segment, then deletes them.

    The new file says which segments it stands for, so that a reader drops those it already has, and a crash
    between writing and deleting leaves nothing twice.
    """
    tables = [SegmentFile(store, worker, part.number).table() for part in parts]
    table = pa.concat_tables(tables).unify_dictionaries()
    about = Segment(
        number,
        parts[0].first,
        parts[-1].last,
        sum(part.rows for part in parts),
        sum(part.payload_bytes for part in parts),
        1 + max(part.tier for part in parts),
    )
    if about.payload_bytes:
        table = _merge_payloads(store, worker, number, table)
    _put_rows(store, worker, about, table.combine_chunks(), [part.number for part in parts])
    for part in parts:
        store.delete(rows_key(worker, part.number))
        if part.payload_bytes:
            store.delete(payload_key(worker, part.number))
    return about


def _merge_payloads(store: Store, worker: str, number: int, table: pa.Table) -> pa.Table:
    columns = {
        name: table.column(name).to_pylist()
        for name in ("step", "name", "dtype", "shape", "payload", "offset", "length")
    }
    files: dict[int, memoryview] = {}
    values: list[tuple[str, str, tuple[int, ...], Buffer]] = []
    for step, name, dtype, shape, source, offset, length in zip(*columns.values(), strict=True):
        if source is None:
            continue
        if source not in files:
            files[source] = memoryview(store.get(payload_key(worker, source)))
        data = files[source][offset : offset + length]
        values.append((f"{step}/{name}", dtype, tuple(shape), data))
    head, places = payload.header([(key, dtype, shape, len(data)) for key, dtype, shape, data in values])
    store.put(payload_key(worker, number), [head, *(data for *_, data in values)])
    offsets = iter(places)
    has_value = [source is not None for source in columns["payload"]]
    moved = {
        "payload": [number if has else None for has in has_value],
        "offset": [next(offsets) if has else None for has in has_value],
    }
    for name, column in moved.items():
        field = SCHEMA.field(name)
        table = table.set_column(SCHEMA.get_field_index(name), field, pa.array(column, field.type))
    return table


class SegmentFile:
    """The rows file of one segment, read column by column.

    ``resident`` fetches the file at once and keeps it: while the job runs, it may be merged and deleted.
    """

    def __init__(self, store: Store, worker: str, number: int, *, resident: bool = True) -> None:
        self.worker, self.number = worker, number
        self._key = rows_key(worker, number)
        self._where = f"{store.url}/{self._key}"
        try:
            source = pa.py_buffer(store.get(self._key)) if resident else _StoreFile(store, self._key)
            self._file = pq.ParquetFile(source)
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, FileNotFoundError):
                raise
            raise self._damaged(error) from error
        about = self._about()
        self.first, self.last = int(about["first"]), int(about["last"])
        self.replaces = frozenset(int(part) for part in about["replaces"])
        self.rows: int = self._file.metadata.num_rows

    def table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Reads the columns (all if ``None``)."""
        names = list(columns or SCHEMA.names)
        try:
            return self._file.read(names).select(names).cast(pa.schema([SCHEMA.field(n) for n in names]))
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, FileNotFoundError):
                raise
            raise self._damaged(error) from error

    def _about(self) -> dict[str, Any]:
        metadata = self._file.schema_arrow.metadata or {}
        try:
            about = json.loads(metadata[_METADATA])
            known = about["format"] == FORMAT and isinstance(about["version"], int)
            numbers = [about["first"], about["last"], *about["replaces"]]
            known = known and all(isinstance(each, int) for each in numbers)
        except (KeyError, ValueError, TypeError) as error:
            raise self._damaged(f"no segment description ({error})") from error
        if not known:
            raise self._damaged("it is not a segment of a trial")
        if about["version"] > VERSION:
            raise UnsupportedFormat(
                f"{self._where} is of format version {about['version']}; this version of tornasole reads up to "
                f"{VERSION}. Upgrade with: pip install -U tornasole"
            )
        missing = set(SCHEMA.names) - set(self._file.schema_arrow.names)
        if missing:
            raise self._damaged(f"it lacks the columns {sorted(missing)}")
        return dict(about)

    def _damaged(self, why: object) -> CorruptTrial:
        return CorruptTrial(f"{self._where} is damaged: {why}")


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
