"""The reader: what was written, once, in order, live or later."""

import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tornasole.errors import CorruptTrial, SMDebugValueError, TrialNotFound
from tornasole.format import StepRecords, TrialReader, TrialWriter, segment
from tornasole.format.writer import Limits
from tornasole.store import open_store
from tornasole.store.memory import MemoryStore
from tornasole.types import ModeKeys


class Counting(MemoryStore):
    """Counts what is asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, str]] = []

    def get(self, key, start=0, length=None):
        self.calls.append(("get", key))
        return super().get(key, start, length)

    def list(self, prefix="", after=""):
        self.calls.append(("list", prefix))
        return super().list(prefix, after)


# -- opening --------------------------------------------------------------------------------------


def test_there_is_no_trial_where_there_is_nothing(tmp_path):
    with pytest.raises(TrialNotFound, match=r"nothing-here: it is empty or missing"):
        TrialReader.open(str(tmp_path / "nothing-here"))


def test_there_is_no_trial_among_other_files_and_some_are_named(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(TrialNotFound, match=r"holds notes.txt but no trial.json"):
        TrialReader.open(str(tmp_path))


def test_a_trial_that_has_only_begun_is_open_and_empty(store, making):
    making.claim(store)
    reader = TrialReader(store)
    assert (reader.row_count, reader.workers, reader.names) == (0, [], [])
    for name in ("step", "name", "worker", "mode", "value", "collections", "lost", "count", "time"):
        assert len(reader.column(name)) == 0
    assert reader.table().num_rows == 0
    assert reader.table().column_names[0] == "worker"


@pytest.mark.parametrize("kind", ["memory", "local"])
def test_a_finished_trial_is_read_back(tmp_path, making, kind):
    store = open_store(tmp_path / "t") if kind == "local" else MemoryStore()
    making.trial(store)
    reader = TrialReader(store)
    assert making.contents(reader) == making.expected(6)
    assert reader.end("worker_0") == {"clean": True}
    assert reader.collections("worker_0") == {"collections": {}}
    assert reader.about["workers"] == 1


# -- columns --------------------------------------------------------------------------------------


def test_columns_come_in_the_terms_that_they_promise(store, making):
    making.claim(store)
    step = making.step(7, mode=ModeKeys.EVAL)
    segment.write(store, "worker_0", 0, [step])
    reader = TrialReader(store)
    assert reader.column("mode").tolist() == [ModeKeys.EVAL.value] * 3
    assert reader.column("role").tolist() == ["weight", "loss", "gradient"]
    assert reader.column("collections").tolist() == [["weights"], ["losses"], []]
    assert reader.column("payload").tolist() == [0, -1, -1]
    assert reader.column("count").tolist() == [-1, -1, 3]
    assert reader.column("time").tolist() == [1_700_000_000_000_000] * 3
    assert reader.column("lost").tolist() == [None] * 3
    np.testing.assert_array_equal(reader.column("value"), [np.nan, 3.5, np.nan])
    assert [reader.shape(row) for row in range(3)] == [(3,), (), (3,)]
    assert reader.names == ["weight", "loss", "reduced"]


def test_names_are_known_before_any_column_is_asked_for(store, making):
    making.trial(store)
    assert TrialReader(store).names == ["weight", "loss", "reduced"]


def test_a_saved_nan_is_present_and_a_missing_number_is_not(store, making):
    making.claim(store)
    records = [making.scalar("a", float("nan")), making.reduced("b", mean=float("nan"))]
    segment.write(store, "worker_0", 0, [StepRecords(0, ModeKeys.TRAIN, 0, records)])
    reader = TrialReader(store)
    assert np.isnan(reader.column("value")).all()
    assert reader.present("value").tolist() == [True, False]
    assert reader.present("mean").tolist() == [False, True]
    assert reader.present("count").tolist() == [False, False]


def test_rows_lie_worker_by_worker(store, making):
    making.claim(store, workers=2)
    for worker in ("worker_1", "worker_0"):
        segment.write(store, worker, 0, [making.step(0), making.step(1)])
    reader = TrialReader(store)
    assert reader.workers == ["worker_0", "worker_1"]
    assert reader.column("worker").tolist() == [0] * 6 + [1] * 6
    workers = reader.table(["worker"]).column("worker").to_pylist()
    assert workers == ["worker_0"] * 6 + ["worker_1"] * 6
    assert [reader.raw(row).tolist() for row in (0, 3, 6, 9)] == [[0, 1, 2], [1, 2, 3]] * 2


def test_a_table_has_the_columns_asked_for(store, making):
    making.trial(store)
    reader = TrialReader(store)
    assert reader.table(["name", "value"]).column_names == ["name", "value"]
    assert reader.table(["worker", "step"]).column_names == ["worker", "step"]
    with pytest.raises(SMDebugValueError, match="nonsense"):
        reader.table(["nonsense"])


def test_the_rows_are_read_with_pyarrow_alone(tmp_path, making):
    making.trial(open_store(tmp_path))
    files = sorted(map(str, tmp_path.glob("*/*.parquet")))
    table = pq.read_table(files, filters=[("name", "=", "loss")])
    assert table.column("value").to_pylist() == [0, 0.5, 1, 1.5, 2, 2.5]
    assert table.schema.field("name").type == pa.dictionary(pa.int32(), pa.string())


# -- following ------------------------------------------------------------------------------------


def test_a_refresh_takes_in_what_is_new_and_says_so(store, making):
    making.claim(store)
    reader = TrialReader(store)
    writer = making.writer(store)
    assert reader.refresh() is False
    making.segments(writer, [[making.step(0)]])
    assert reader.row_count == 0
    assert reader.refresh() is True
    assert making.contents(reader) == making.expected(1)
    assert reader.refresh() is False
    writer.put_end({"clean": True})
    assert reader.refresh() is True
    assert reader.end("worker_0") == {"clean": True}
    assert reader.refresh() is False


def test_a_refresh_reads_only_what_is_new(making):
    store = Counting()
    making.trial(store, end=False)
    reader = TrialReader(store)
    store.calls.clear()
    reader.refresh()
    assert store.calls == [("get", "worker_0/end.json"), ("list", "worker_0/")]
    segment.write(store, "worker_0", 3, [making.step(6)])
    store.calls.clear()
    reader.refresh()
    assert store.calls[2:] == [("get", "worker_0/000000000003.parquet")]


def test_a_refresh_of_an_ended_trial_asks_for_nothing(making):
    store = Counting()
    making.trial(store)
    reader = TrialReader(store)
    store.calls.clear()
    reader.refresh()
    assert store.calls == []


def test_a_worker_that_comes_late_is_found(store, making):
    making.claim(store, workers=2)
    reader = TrialReader(store)
    segment.write(store, "worker_0", 0, [making.step(0)])
    reader.refresh()
    assert reader.workers == ["worker_0"]
    assert reader.column("worker").tolist() == [0, 0, 0]
    TrialWriter(store, "a worker").put_collections({})
    assert reader.refresh() is True
    assert reader.workers == ["a worker", "worker_0"]
    assert reader.column("worker").tolist() == [1, 1, 1]
    segment.write(store, "a worker", 0, [making.step(0)])
    reader.refresh()
    assert reader.column("worker").tolist() == [0, 0, 0, 1, 1, 1]


def test_folders_of_others_are_no_workers(store, making):
    making.claim(store)
    for key in ("findings/rule.jsonl", "plots/a.png", "a/b/000000000000.parquet", "x/._end.json"):
        store.put(key, [b"."])
    store.put("findings/end.json", [b"."])
    reader = TrialReader(store)
    assert reader.workers == []
    segment.write(store, "worker_0", 0, [making.step(0)])
    reader.refresh()
    assert reader.workers == ["worker_0"]


def test_a_value_that_was_merged_away_is_found_where_it_went(store, making):
    making.trial(store, end=False)
    reader = TrialReader(store)
    parts = [segment.Segment(n, n, n, 6, 1) for n in range(3)]
    first = segment.merge(store, "worker_0", 3, parts[:2])
    assert reader.raw(0).tolist() == [0, 1, 2]  # by a second reader, which saw the rest unmerged
    segment.merge(store, "worker_0", 4, [first, parts[2]])
    assert reader.raw(15).tolist() == [5, 6, 7]
    assert reader.raw(0).tolist() == [0, 1, 2]
    assert making.contents(reader) == making.expected(6)


def test_a_value_whose_payload_is_missing_is_said_to_be_missing(store, making):
    making.trial(store)
    reader = TrialReader(store)
    store.delete("worker_0/000000000001.safetensors")
    assert reader.raw(0).tolist() == [0, 1, 2]
    with pytest.raises(CorruptTrial, match=r"000000000001\.safetensors.*missing"):
        reader.raw(6)


def test_a_worker_whose_folder_is_removed_is_said_to_be_missing(store, making):
    making.trial(store, end=False)
    reader = TrialReader(store)
    for key in store.list("worker_0/"):
        store.delete(key)
    assert reader.row_count == 18
    with pytest.raises(CorruptTrial, match=r"000000000000\.safetensors.*missing"):
        reader.raw(0)


def test_what_was_taken_in_before_a_damaged_file_can_be_read(store, making):
    making.trial(store, end=False)
    reader = TrialReader(store)
    assert reader.column("step").tolist()[-1] == 5
    segment.write(store, "worker_0", 3, [making.step(6)])
    store.put("worker_0/000000000004.parquet", [b"damaged"])
    with pytest.raises(CorruptTrial, match=r"000000000004\.parquet"):
        reader.refresh()
    assert reader.row_count == len(reader.column("step"))
    assert making.contents(reader) == making.expected(7)


def test_a_segment_that_is_missing_in_between_is_said_to_be_missing(store, making):
    making.trial(store)
    store.delete("worker_0/000000000001.parquet")
    with pytest.raises(CorruptTrial, match=r"000000000001\.parquet is missing"):
        TrialReader(store)


def test_a_file_that_is_listed_and_cannot_be_got_does_not_hang(tmp_path, making):
    making.trial(open_store(tmp_path), end=False)
    (tmp_path / "worker_0" / "000000000003.parquet").symlink_to(tmp_path / "nowhere")
    with pytest.raises(CorruptTrial, match=r"000000000003\.parquet is missing"):
        TrialReader.open(str(tmp_path))


# -- any interleaving -----------------------------------------------------------------------------


def steps_of(making, sizes):
    return [making.step(number, size) for number, size in enumerate(sizes)]


def check_prefix(making, reader, sizes) -> None:
    """Every visible step is whole, in its place, with its values; nothing is there twice."""
    found = making.contents(reader)
    assert len(found) <= len(sizes)
    for number, (step, rows) in enumerate(found):
        assert step == number
        raw = [float(number + i) for i in range(sizes[number])]
        assert rows == [("weight", raw), ("loss", number / 2), ("reduced", -number)]


@given(
    sizes=st.lists(st.sampled_from([0, 1, 5, 90]), min_size=1, max_size=40),
    per_segment=st.lists(st.integers(1, 3), min_size=40, max_size=40),
    fan_in=st.integers(2, 5),
    pace=st.lists(st.integers(0, 12), max_size=80),
)
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_interleaving_of_writes_merges_and_reads_shows_each_row_once(
    making, recording, replay, sizes, per_segment, fan_in, pace
):
    written = recording()
    making.claim(written)
    writer = making.writer(written, Limits(rows=40, payload_bytes=1500, fan_in=fan_in))
    steps = steps_of(making, sizes)
    groups = []
    for count in per_segment:
        groups.append(steps[:count])
        del steps[:count]
    making.segments(writer, [group for group in groups if group], merge=True, close=True)
    writer.put_end({"clean": True})

    store = replay(written.log, iter(pace))
    store.advance(1)  # trial.json
    reader = TrialReader(store)
    seen = 0
    while not store.over:
        reader.refresh()
        check_prefix(making, reader, sizes)
        assert reader.row_count >= seen
        seen = reader.row_count
        store.advance(1)
    reader.refresh()
    check_prefix(making, reader, sizes)
    assert reader.row_count == 3 * len(sizes)
    assert reader.end("worker_0") == {"clean": True}


@pytest.mark.parametrize("seed", range(5))
def test_a_long_run_is_followed_through_all_its_merges(making, recording, replay, seed):
    written = recording()
    making.claim(written)
    writer = making.writer(written, Limits(fan_in=3))
    making.segments(writer, [[making.step(n)] for n in range(100)], merge=True, close=True)
    chance = random.Random(seed)
    store = replay(written.log, iter(lambda: chance.choice([0, 0, 1, 2, 25]), None))
    store.advance(1)
    reader = TrialReader(store)
    while not store.over:
        reader.refresh()
        check_prefix(making, reader, [3] * 100)
    reader.refresh()
    assert making.contents(reader) == making.expected(100)
