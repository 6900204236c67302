"""The writer: whole steps in order, segments of bounded size and age, few files, and no hanging."""

import threading

import numpy as np
import pytest

from tornasole.errors import SMDebugRuntimeError, SMDebugValueError
from tornasole.format import StepRecords, TrialReader, TrialWriter, segment
from tornasole.format import writer as writer_module
from tornasole.format.segment import Segment
from tornasole.format.writer import Limits
from tornasole.store import open_store
from tornasole.store.memory import MemoryStore
from tornasole.types import ModeKeys

FOREVER = 3600.0
PATIENCE = 30.0  # for what must happen; never waited for in full


@pytest.fixture
def running(store):
    """Starts writers in a thread, and ends them."""
    threads = []

    def start(limits: Limits, place=store) -> TrialWriter:
        writer = TrialWriter(place, "worker_0", limits)
        thread = threading.Thread(target=writer.run)
        thread.start()
        threads.append((writer, thread))
        return writer

    yield start
    for writer, thread in threads:
        writer.finish()
        thread.join(PATIENCE)
        assert not thread.is_alive()


class Watched(MemoryStore):
    """Tells when rows have been written; writes only when it may; fails when it must."""

    def __init__(self) -> None:
        super().__init__()
        self.written = threading.Semaphore(0)
        self.may_write = threading.Event()
        self.may_write.set()
        self.trying = threading.Event()
        self.fails = False

    def put(self, key, data, *, overwrite=True):
        self.trying.set()
        assert self.may_write.wait(PATIENCE)
        if self.fails:
            raise OSError(28, "No space left on device")
        super().put(key, data, overwrite=overwrite)
        if key.endswith(".parquet"):
            self.written.release()


def write_all(writer: TrialWriter, steps) -> None:
    """Runs the writer in this thread over steps that are there already."""
    for step in steps:
        writer.submit(step)
    writer.finish()
    writer.run()


def steps_in(store, metadata) -> list[list[int]]:
    """The steps of each segment, as its rows have them."""
    found = []
    for key in store.list():
        if key.endswith(".parquet"):
            number = metadata(store, key)["segment"]
            table = segment.SegmentFile(store, "worker_0", number).table(["step"])
            found.append(table.column("step").to_pylist())
    return found


# -- segments -------------------------------------------------------------------------------------


def test_steps_come_back_whole_and_in_order(store, making):
    making.claim(store)
    write_all(making.writer(store), [making.step(number) for number in range(50)])
    assert making.contents(TrialReader(store)) == making.expected(50)


def test_a_segment_is_closed_when_it_has_enough_rows(store, making, metadata):
    writer = making.writer(store, Limits(rows=6))  # and two of them are too large to be merged
    write_all(writer, [making.step(number) for number in range(5)])
    assert steps_in(store, metadata) == [[0, 0, 0, 1, 1, 1], [2, 2, 2, 3, 3, 3], [4, 4, 4]]


def test_a_segment_is_closed_when_it_has_enough_bytes(store, making, metadata):
    writer = making.writer(store, Limits(payload_bytes=100))
    write_all(writer, [making.step(number, size=20) for number in range(4)])
    assert [sorted(set(steps)) for steps in steps_in(store, metadata)] == [[0, 1], [2, 3]]


def test_a_step_is_never_divided(store, making, metadata):
    write_all(making.writer(store, Limits(rows=1)), [making.step(number) for number in range(3)])
    assert steps_in(store, metadata) == [[0, 0, 0], [1, 1, 1], [2, 2, 2]]


def test_a_segment_is_closed_when_it_is_old_enough(making, running):
    store = Watched()
    writer = running(Limits(seconds=0.01), store)
    writer.submit(making.step(0))
    assert store.written.acquire(timeout=PATIENCE)
    writer.submit(making.step(1))
    assert store.written.acquire(timeout=PATIENCE)


def test_the_age_of_a_segment_counts_from_its_first_step(store, making, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(writer_module.time, "monotonic", lambda: now[0])
    writer = making.writer(store, Limits(seconds=FOREVER))
    writer.submit(making.step(0))
    now[0] += FOREVER + 1  # the writer thread was busy with a merge
    taken = []
    thread = threading.Thread(target=lambda: taken.append(writer._next_steps()), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert [[step.step for step in steps] for steps in taken] == [[0]]


def test_hurry_closes_a_segment_at_once(making, running):
    store = Watched()
    writer = running(Limits(seconds=FOREVER), store)
    writer.submit(making.step(0))
    writer.hurry()
    assert store.written.acquire(timeout=PATIENCE)


def test_a_full_segment_is_written_at_once(making, running):
    store = Watched()
    writer = running(Limits(seconds=FOREVER, rows=6), store)
    writer.submit(making.step(0))
    writer.submit(making.step(1))
    assert store.written.acquire(timeout=PATIENCE)


def test_finish_writes_what_waits(store, making):
    making.claim(store)
    writer = making.writer(store, Limits(seconds=FOREVER))
    thread = threading.Thread(target=writer.run)
    thread.start()
    for number in range(3):
        writer.submit(making.step(number))
    writer.finish()
    thread.join(PATIENCE)
    assert making.contents(TrialReader(store)) == making.expected(3)


def test_a_writer_that_got_nothing_writes_nothing(store, making):
    write_all(making.writer(store), [])
    assert store.list() == []


# -- the queue ------------------------------------------------------------------------------------


def test_training_waits_while_the_queue_is_full(making, running):
    store = Watched()
    store.may_write.clear()
    writer = running(Limits(seconds=FOREVER, queue_rows=5), store)
    submitted = []

    def train():
        for number in range(9):
            writer.submit(making.step(number))
            submitted.append(number)

    training = threading.Thread(target=train)
    training.start()
    assert store.trying.wait(PATIENCE)
    training.join(0.05)
    assert training.is_alive()
    assert len(submitted) <= 4  # two steps being written, two in the queue
    store.may_write.set()
    training.join(PATIENCE)
    assert submitted == list(range(9))


def test_the_queue_does_not_wait_for_the_age_when_it_is_full(making, running):
    writer = running(Limits(seconds=FOREVER, queue_rows=3), MemoryStore())
    for number in range(20):  # would hang
        writer.submit(making.step(number))


def test_a_step_larger_than_the_queue_passes(making, running):
    store = Watched()
    writer = running(Limits(seconds=FOREVER, queue_rows=1), store)
    writer.submit(making.step(0))
    assert store.written.acquire(timeout=PATIENCE)


def test_every_step_is_released_once_after_it_was_written(making, store):
    released = []
    writer = making.writer(store, Limits(rows=6))
    steps = [making.step(number) for number in range(5)]
    for step in steps:
        step.release = lambda number=step.step: released.append((number, len(store.list())))
    write_all(writer, steps)
    assert [number for number, _ in released] == [0, 1, 2, 3, 4]
    assert [files for _, files in released] == [2, 2, 4, 4, 6]


# -- failure --------------------------------------------------------------------------------------


def test_when_the_store_fails_nothing_hangs_and_everything_is_released(making):
    store = Watched()
    store.may_write.clear()
    store.fails = True
    writer = TrialWriter(store, "worker_0", Limits(seconds=FOREVER, queue_rows=3))
    errors, released = [], []

    def run():
        try:
            writer.run()
        except OSError as error:
            errors.append(error)

    def train():
        for number in range(20):
            step = making.step(number)
            step.release = lambda number=number: released.append(number)
            writer.submit(step)

    threads = [threading.Thread(target=run), threading.Thread(target=train)]
    for thread in threads:
        thread.start()
    assert store.trying.wait(PATIENCE)
    store.may_write.set()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert [str(error) for error in errors] == ["[Errno 28] No space left on device"]
    assert sorted(released) == list(range(20))
    assert store.list() == []


def test_steps_are_released_outside_the_lock(making):
    """Whoever takes memory back may hold a lock of its own while it calls ``hurry``."""
    store = Watched()
    store.fails = True
    writer = TrialWriter(store, "worker_0", Limits(rows=3))
    free = []

    def release():
        other = threading.Thread(target=writer.hurry)
        other.start()
        other.join(PATIENCE)
        free.append(not other.is_alive())

    for number in range(3):
        step = making.step(number)
        step.release = release
        writer.submit(step)
    with pytest.raises(OSError, match="No space"):
        writer.run()
    late = making.step(3)
    late.release = release
    writer.submit(late)
    assert free == [True] * 4


def test_after_a_failure_what_was_written_before_is_readable(making):
    store = Watched()
    making.claim(store)
    writer = making.writer(store)
    making.segments(writer, [[making.step(0)], [making.step(1)]])
    store.fails = True
    with pytest.raises(OSError, match="No space"):
        making.segments(writer, [[making.step(2)]])
    store.fails = False
    writer.put_end({"clean": False, "reason": "saving failed"})
    reader = TrialReader(store)
    assert making.contents(reader) == making.expected(2)
    assert reader.end("worker_0") == {"clean": False, "reason": "saving failed"}


# -- merging --------------------------------------------------------------------------------------


def test_small_segments_are_merged_while_the_job_runs_and_at_its_end(store, making):
    making.claim(store)
    writer = making.writer(store, Limits(fan_in=4))
    most = 0
    for number in range(200):
        making.segments(writer, [[making.step(number)]], merge=True)
        most = max(most, sum(key.endswith(".parquet") for key in store.list()))
    assert most <= 3 * 4 + 1  # tiers of 1, 4, 16 and 64, three of each
    assert making.contents(TrialReader(store)) == making.expected(200)
    making.segments(writer, [], close=True)
    assert sum(key.endswith(".parquet") for key in store.list()) == 1
    assert making.contents(TrialReader(store)) == making.expected(200)


def test_large_segments_in_between_do_not_keep_small_ones_from_being_merged(store, making):
    """A step of raw weights now and then, scalars all the time."""
    making.claim(store)
    writer = making.writer(store, Limits(fan_in=20, payload_bytes=4000))
    for number in range(120):
        size = 900 if number % 10 == 7 else 1
        making.segments(writer, [[making.step(number, size)]], merge=True)
    assert sum(key.endswith(".parquet") for key in store.list()) == 24 + 2
    making.segments(writer, [], close=True)
    assert sum(key.endswith(".parquet") for key in store.list()) == 24 + 1
    steps = TrialReader(store).column("step")
    assert steps.tolist() == [number for number in range(120) for _ in range(3)]


def test_large_segments_are_not_rewritten(making, store):
    writer = making.writer(store, Limits(payload_bytes=4000))
    making.segments(writer, [[making.step(n, 900 if n % 2 else 1)] for n in range(6)], True, True)
    assert [part.tier for part in writer._segments] == [0] * 6


def test_a_hundred_thousand_segments_cost_little_more_than_themselves(monkeypatch, making, store):
    rewritten = [0]

    def write(store, worker, number, steps):
        return Segment(number, number, number, 3, 0)

    def merge(store, worker, number, parts):
        rewritten[0] += sum(part.rows for part in parts)
        rows, tier = sum(part.rows for part in parts), max(part.tier for part in parts) + 1
        return Segment(number, parts[0].first, parts[-1].last, rows, 0, tier)

    monkeypatch.setattr(segment, "write", write)
    monkeypatch.setattr(segment, "merge", merge)
    writer = making.writer(store, Limits(rows=1000))
    making.segments(writer, [[making.step(0)]] * 100_000, merge=True)
    assert len(writer._segments) < 800
    assert rewritten[0] <= 3 * 300_000
    making.segments(writer, [], close=True)
    assert sum(part.rows for part in writer._segments) == 300_000
    assert len(writer._segments) <= 2 * 300_000 / 1000


@pytest.mark.parametrize("fan_in", [-1, 0, 1, 2])
def test_a_small_fan_in_does_not_hang(store, making, fan_in):
    making.claim(store)
    writer = making.writer(store, Limits(fan_in=fan_in))
    making.segments(writer, [[making.step(number)] for number in range(5)], merge=True)
    assert making.contents(TrialReader(store)) == making.expected(5)


@pytest.mark.parametrize("fails_after", range(5))
def test_a_crash_between_writing_and_deleting_leaves_nothing_twice(making, fails_after):
    class Crashing(MemoryStore):
        deletions = 0

        def delete(self, key):
            if self.deletions == fails_after:
                raise KeyboardInterrupt
            self.deletions += 1
            super().delete(key)

    store = Crashing()
    making.claim(store)
    writer = making.writer(store, Limits(fan_in=3))
    with pytest.raises(KeyboardInterrupt):
        making.segments(writer, [[making.step(number)] for number in range(3)], merge=True)
    assert making.contents(TrialReader(store)) == making.expected(3)


def test_a_store_that_deletes_nothing_leaves_nothing_twice(making):
    class Keeping(MemoryStore):
        def delete(self, key):
            pass

    store = Keeping()
    making.claim(store)
    reader = TrialReader(store)
    writer = making.writer(store, Limits(fan_in=3))
    for number in range(30):
        making.segments(writer, [[making.step(number)]], merge=True)
        reader.refresh()
        assert making.contents(reader) == making.expected(number + 1)
    assert making.contents(TrialReader(store)) == making.expected(30)


# -- the small files ------------------------------------------------------------------------------


def test_a_claim_is_refused_where_a_trial_runs_or_was_killed(store, making):
    making.trial(store, end=False)
    with pytest.raises(SMDebugRuntimeError, match="has not ended"):
        making.claim(store)


def test_a_claim_is_refused_where_a_trial_is_finished(store, making):
    making.trial(store)
    with pytest.raises(SMDebugRuntimeError, match="a finished trial"):
        making.claim(store)


def test_a_claim_is_refused_among_other_files_and_names_some(store, making):
    for key in ("a", "b", "c/d", "e"):
        store.put(key, [b""])
    with pytest.raises(SMDebugRuntimeError, match=r"not a trial \(a, b, c/d, …\)"):
        making.claim(store)


def test_a_claim_is_refused_where_a_file_is(tmp_path, making):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotADirectoryError, match="is a file"):
        making.claim(open_store(tmp_path / "file"))


def test_a_claim_comes_through_after_other_workers_have_begun(store, making):
    TrialWriter(store, "worker_1").put_collections({})
    making.claim(store, workers=2)
    assert TrialReader(store).workers == ["worker_1"]


def test_of_two_that_claim_one_is_refused(making, monkeypatch):
    class Blind(MemoryStore):
        def list(self, prefix="", after=""):
            return []

    store = Blind()
    making.claim(store)
    with pytest.raises(SMDebugRuntimeError, match="already holds"):
        making.claim(store)


def test_a_worker_does_not_write_into_what_another_job_left(store, making):
    making.trial(store)
    before = {key: bytes(store.get(key)) for key in store.list()}
    late = TrialWriter(store, "worker_0")
    with pytest.raises(SMDebugRuntimeError, match="a finished trial"):
        late.put_collections({})
    with pytest.raises(SMDebugRuntimeError, match="a finished trial"):
        late.put_end({})
    with pytest.raises(SMDebugRuntimeError, match="another job"):
        write_all(late, [making.step(9)])
    assert {key: bytes(store.get(key)) for key in store.list()} == before


def test_collections_may_be_written_again_by_their_writer(store, making):
    making.claim(store)
    writer = making.writer(store)
    writer.put_collections({"collections": {"a": 1}})
    writer.put_collections({"collections": {"b": 2}})
    assert TrialReader(store).collections("worker_0") == {"collections": {"b": 2}}


@pytest.mark.parametrize("worker", ["", ".", "..", "a/b", "a\\b", "findings", "a\nb", "\ud800"])
def test_a_worker_that_could_not_be_a_folder_is_refused(store, worker):
    with pytest.raises(SMDebugValueError):
        TrialWriter(store, worker)


def test_raw_values_of_merged_segments_keep_their_bytes(store, making):
    """Every dtype through a write and two merges."""
    making.claim(store)
    arrays = {
        "bool": np.array([True, False]),
        "float16": np.array([[np.nan]], "f2"),
        "complex128": np.array(1 - 2j),
        "int64": np.zeros((0, 4), "i8"),
    }
    writer = making.writer(store, Limits(fan_in=2))
    for number in range(4):
        records = [making.raw(name, array) for name, array in arrays.items()]
        step = StepRecords(number, ModeKeys.TRAIN, number, records)
        making.segments(writer, [[step]], merge=True)
    reader = TrialReader(store)
    for row in range(reader.row_count):
        array, back = arrays[reader.names[reader.column("name")[row]]], reader.raw(row)
        assert (back.shape, back.dtype) == (array.shape, array.dtype)
        assert back.tobytes() == array.tobytes()
