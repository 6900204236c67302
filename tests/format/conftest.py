"""Small trials for the tests of this folder, and stores that misbehave."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from tornasole.format import Record, StepRecords, TrialReader, TrialWriter
from tornasole.format.writer import Limits
from tornasole.store import Store
from tornasole.store.memory import MemoryStore
from tornasole.types import ModeKeys

WORKER = "worker_0"
TIME = 1_700_000_000.0
Step = tuple[int, list[tuple[str, Any]]]


class Making:
    """Makes records, steps and whole trials.

    Rows of a step made by ``step`` are ``weight`` with the raw value ``step, step + 1, …``,
    ``loss`` with the value ``step / 2``, and ``reduced`` with a mean of ``-step``; ``contents``
    reads them back.
    """

    worker = WORKER

    def raw(self, name: str, array: np.ndarray, dtype: str = "", **more: Any) -> Record:
        return Record(
            name,
            "weight",
            ("weights",),
            dtype or array.dtype.name,
            more.pop("shape", array.shape),
            TIME,
            raw=memoryview(array.tobytes()),
            **more,
        )

    def scalar(self, name: str, value: float) -> Record:
        return Record(name, "loss", ("losses",), "float32", (), TIME, value=value)

    def reduced(self, name: str, **statistics: float) -> Record:
        return Record(name, "gradient", (), "float32", (3,), TIME, statistics=statistics)

    def step(self, number: int, size: int = 3, mode: ModeKeys = ModeKeys.TRAIN) -> StepRecords:
        records = [
            self.raw("weight", np.arange(size, dtype="f4") + number),
            self.scalar("loss", number / 2),
            self.reduced("reduced", mean=-number, count=3),
        ]
        return StepRecords(number, mode, number, records)

    def expected(self, steps: int, size: int = 3) -> list[Step]:
        return [
            (n, [("weight", [float(n + i) for i in range(size)]), ("loss", n / 2), ("reduced", -n)])
            for n in range(steps)
        ]

    def writer(self, store: Store, limits: Limits | None = None) -> TrialWriter:
        return TrialWriter(store, self.worker, limits)

    def claim(self, store: Store, workers: int = 1) -> None:
        """Makes a trial without any worker's files."""
        TrialWriter(store, self.worker).claim({"workers": workers, "framework": "none"})

    def segments(
        self,
        writer: TrialWriter,
        groups: Sequence[Sequence[StepRecords]],
        merge: bool = False,
        close: bool = False,
    ) -> None:
        """Writes each group as a segment, in this thread; merges as the writer thread would."""
        for group in groups:
            writer._write(list(group))
            if merge:
                writer._merge_some()
        if close:
            writer._merge(0, len(writer._segments))

    def trial(self, store: Store, steps: int = 6, per_segment: int = 2, end: bool = True) -> None:
        """A trial of some small segments."""
        self.claim(store)
        writer = self.writer(store)
        writer.put_collections({"collections": {}})
        groups = [
            [self.step(number) for number in range(start, min(start + per_segment, steps))]
            for start in range(0, steps, per_segment)
        ]
        self.segments(writer, groups)
        if end:
            writer.put_end({"clean": True})

    def contents(self, reader: TrialReader) -> list[Step]:
        """All rows of a trial of one worker, step by step."""
        found: list[Step] = []
        names, steps = reader.column("name"), reader.column("step")
        values, means, present = (
            reader.column("value"),
            reader.column("mean"),
            reader.present("value"),
        )
        for row in range(reader.row_count):
            raw = reader.raw(row)
            value: Any = raw.tolist() if raw is not None else means[row].item()
            value = values[row].item() if present[row] else value
            if not found or found[-1][0] != steps[row] or reader.column("order")[row] == 0:
                found.append((int(steps[row]), []))
            found[-1][1].append((reader.names[names[row]], value))
        return found


class Recording(MemoryStore):
    """Keeps a log of every change, for ``Replay``."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[tuple[str, bytes | None]] = []

    def put(self, key: str, data: Any, *, overwrite: bool = True) -> None:
        super().put(key, data, overwrite=overwrite)
        self.log.append((key, bytes(self.get(key))))

    def delete(self, key: str) -> None:
        super().delete(key)
        self.log.append((key, None))


class Replay(MemoryStore):
    """What a reader sees while a recorded writer works: before each call, more of its log happens.

    A listing is not one moment: what changes during it may be in it or not, as in a real folder.
    """

    def __init__(self, log: Sequence[tuple[str, bytes | None]], pace: Iterator[int]) -> None:
        super().__init__()
        self._log, self._pace, self._done = log, pace, 0

    @property
    def over(self) -> bool:
        return self._done == len(self._log)

    def advance(self, count: int) -> None:
        for key, content in self._log[self._done : self._done + count]:
            if content is None:
                super().delete(key)
            else:
                super().put(key, [content])
        self._done = min(self._done + count, len(self._log))

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytearray:
        self.advance(next(self._pace, 1))
        return super().get(key, start, length)

    def size(self, key: str) -> int:
        self.advance(next(self._pace, 1))
        return super().size(key)

    def list(self, prefix: str = "", after: str = "") -> list[str]:
        before = set(super().list(prefix, after))
        count = next(self._pace, 1)
        self.advance(count)
        later = set(super().list(prefix, after))
        unsure = random.Random(self._done * 31 + count)
        return sorted((before & later) | {key for key in before ^ later if unsure.random() < 0.5})


@pytest.fixture(scope="session")
def making() -> Making:
    return Making()


@pytest.fixture
def recording() -> type[Recording]:
    return Recording


@pytest.fixture
def replay() -> type[Replay]:
    return Replay


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore("test")


@pytest.fixture
def metadata() -> Callable[[Store, str], dict[str, Any]]:
    """What a rows file says about itself, read without our reader."""

    def read(store: Store, key: str) -> dict[str, Any]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = pq.read_schema(pa.BufferReader(bytes(store.get(key))))
        found: dict[str, Any] = json.loads(schema.metadata[b"tornasole"])
        return found

    return read
