"""One segment: what goes into its rows comes out of them, and plain pyarrow can read it."""

import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load

from tornasole.errors import SMDebugRuntimeError, SMDebugValueError
from tornasole.format import Record, StepRecords, TrialReader, segment
from tornasole.format.segment import COUNTS, SCHEMA, STATISTICS, SegmentFile
from tornasole.types import ModeKeys

TIME = 1_700_000_000.25


@pytest.fixture
def all_kinds():
    """Two steps in which every column has a value somewhere and none elsewhere, where it may."""
    statistics = {name: float(i) for i, name in enumerate(STATISTICS)}
    counts = {name: i for i, name in enumerate(COUNTS)}
    weight = np.arange(6, dtype="i2").reshape(2, 3)
    train = [
        Record("a/w:0 ü", "weight", ("weights", "all"), "int16", (2, 3), TIME),
        Record("loss", "loss", ("losses",), "float32", (), TIME, value=math.nan),
    ]
    train[0].raw = memoryview(weight.tobytes())
    partly = {"mean": math.nan, "max": -math.inf}
    evaluate = [
        Record("g", "gradient", (), "float64", (0,), TIME, statistics=statistics | counts),
        Record("h", "gradient", (), "float32", (2,), TIME, statistics=partly),
        Record("d", "output", (), "float32", (9,), TIME, lost="The queue was full."),
    ]
    return [StepRecords(3, ModeKeys.TRAIN, 1, train), StepRecords(4, ModeKeys.EVAL, 0, evaluate)]


def rows_of(store, number: int = 0) -> list[dict]:
    """The rows as anybody reads them: with pyarrow alone."""
    content = bytes(store.get(f"worker_0/{number:012d}.parquet"))
    return pq.read_table(pa.BufferReader(content)).to_pylist()


def test_every_column_comes_back_through_plain_pyarrow(store, all_kinds):
    segment.write(store, "worker_0", 0, all_kinds)
    rows = rows_of(store)
    assert [
        (row["step"], row["mode"], row["mode_step"], row["order"], row["name"]) for row in rows
    ] == [
        (3, "TRAIN", 1, 0, "a/w:0 ü"),
        (3, "TRAIN", 1, 1, "loss"),
        (4, "EVAL", 0, 0, "g"),
        (4, "EVAL", 0, 1, "h"),
        (4, "EVAL", 0, 2, "d"),
    ]
    weight, loss, reduced, _, lost = rows
    assert weight["collections"] == ["weights", "all"]
    assert (weight["dtype"], weight["shape"], weight["role"]) == ("int16", [2, 3], "weight")
    assert weight["time"].timestamp() == TIME
    assert (weight["payload"], weight["length"], weight["value"]) == (0, 12, None)
    assert math.isnan(loss["value"])
    assert (loss["shape"], loss["payload"]) == ([], None)
    assert [reduced[name] for name in STATISTICS] == list(range(len(STATISTICS)))
    assert [reduced[name] for name in COUNTS] == list(range(len(COUNTS)))
    assert lost["lost"] == "The queue was full."


def test_nan_is_a_value_and_missing_is_none(store, all_kinds):
    segment.write(store, "worker_0", 0, all_kinds)
    partly = rows_of(store)[3]
    assert math.isnan(partly["mean"])
    assert partly["max"] == -math.inf
    assert partly["min"] is None
    assert partly["nan_count"] is None


def test_the_offset_in_a_row_is_where_safetensors_has_the_value(store, all_kinds):
    segment.write(store, "worker_0", 0, all_kinds)
    content = bytes(store.get("worker_0/000000000000.safetensors"))
    row = rows_of(store)[0]
    there = content[row["offset"] : row["offset"] + row["length"]]
    assert load(content)["3/a/w:0 ü"].tobytes() == there == np.arange(6, dtype="i2").tobytes()


def test_a_segment_without_raw_values_has_no_payload(store, making):
    segment.write(
        store, "worker_0", 7, [StepRecords(0, ModeKeys.TRAIN, 0, [making.scalar("l", 1)])]
    )
    assert store.list() == ["worker_0/000000000007.parquet"]


def test_the_payload_is_there_before_the_rows(recording, making):
    store = recording()
    segment.write(store, "worker_0", 0, [making.step(0)])
    assert [key.rpartition(".")[2] for key, _ in store.log] == ["safetensors", "parquet"]


@pytest.mark.parametrize("resident", [True, False])
def test_a_segment_is_read_column_by_column(store, all_kinds, resident):
    segment.write(store, "worker_0", 0, all_kinds)
    file = SegmentFile(store, "worker_0", 0, resident=resident)
    assert (file.rows, file.first, file.last, file.replaces) == (5, 0, 0, frozenset())
    table = file.table(["name", "step"])
    assert table.column_names == ["name", "step"]
    assert table.column("name").to_pylist() == ["a/w:0 ü", "loss", "g", "h", "d"]
    assert file.table().schema.equals(SCHEMA)


def test_a_column_that_does_not_exist_is_said_not_to(store, all_kinds):
    segment.write(store, "worker_0", 0, all_kinds)
    with pytest.raises(SMDebugValueError, match="nonsense"):
        SegmentFile(store, "worker_0", 0).table(["step", "nonsense"])


def test_a_merge_is_visible_before_anything_is_deleted_and_rows_go_before_values(recording, making):
    store = recording()
    parts = [segment.write(store, "worker_0", number, [making.step(number)]) for number in (0, 1)]
    store.log.clear()
    segment.merge(store, "worker_0", 2, parts)
    assert [(key.rpartition("/")[2], content is None) for key, content in store.log] == [
        ("000000000002.safetensors", False),
        ("000000000002.parquet", False),
        ("000000000000.parquet", True),
        ("000000000000.safetensors", True),
        ("000000000001.parquet", True),
        ("000000000001.safetensors", True),
    ]


def test_a_merge_keeps_rows_and_values_and_says_what_it_replaces(
    store, all_kinds, making, metadata
):
    parts = [
        segment.write(store, "worker_0", 0, all_kinds),
        segment.write(store, "worker_0", 1, [making.step(5)]),
        segment.write(
            store, "worker_0", 2, [StepRecords(6, ModeKeys.TRAIN, 3, [making.scalar("x", 2)])]
        ),
    ]
    before = [row for number in range(3) for row in rows_of(store, number)]
    merged = segment.merge(store, "worker_0", 3, parts)
    assert store.list() == ["worker_0/000000000003.parquet", "worker_0/000000000003.safetensors"]
    after = rows_of(store, 3)
    place = {"payload", "offset"}
    for old, new in zip(before, after, strict=True):
        for name in old.keys() - place:
            same = old[name] == new[name] or (old[name] != old[name] and new[name] != new[name])
            assert same, name
        assert (old["payload"] is None) == (new["payload"] is None)
    content = bytes(store.get("worker_0/000000000003.safetensors"))
    values = load(content)
    assert set(values) == {"3/a/w:0 ü", "5/weight"}
    for row in after:
        if row["payload"] is not None:
            assert row["payload"] == 3
            there = content[row["offset"] : row["offset"] + row["length"]]
            assert values[f"{row['step']}/{row['name']}"].tobytes() == there
    assert metadata(store, "worker_0/000000000003.parquet") == {
        "format": "tornasole",
        "version": 1,
        "segment": 3,
        "first": 0,
        "last": 2,
        "replaces": [0, 1, 2],
    }
    assert (merged.first, merged.last, merged.rows, merged.tier) == (0, 2, 9, 1)


def test_a_merge_of_merges_accounts_for_every_number(store, making, metadata):
    def write(number):
        return segment.write(store, "worker_0", number, [making.step(number)])

    one = segment.merge(store, "worker_0", 2, [write(0), write(1)])
    three, four = write(3), write(4)
    late = write(5)
    two = segment.merge(store, "worker_0", 6, [three, four])  # 5 stays behind it
    three = segment.merge(store, "worker_0", 7, [one, two])
    segment.merge(store, "worker_0", 8, [three, late])
    about = metadata(store, "worker_0/000000000008.parquet")
    accounted = {*range(about["first"], about["last"] + 1), *about["replaces"], about["segment"]}
    assert accounted == set(range(9))


def test_one_name_twice_in_a_step_keeps_both_values(store, making):
    making.claim(store)
    records = [making.raw("a", np.array([1.0])), making.raw("a", np.array([2.0]))]
    parts = [
        segment.write(store, "worker_0", 0, [StepRecords(0, ModeKeys.TRAIN, 0, records)]),
        segment.write(store, "worker_0", 1, [StepRecords(0, ModeKeys.TRAIN, 0, records[1:])]),
    ]
    early = TrialReader(store)
    segment.merge(store, "worker_0", 2, parts)
    late = TrialReader(store)
    for reader in (early, late):
        assert [reader.raw(row).tolist() for row in range(3)] == [[1], [2], [2]]
    assert len(load(bytes(store.get("worker_0/000000000002.safetensors")))) == 3


def test_a_segment_is_never_overwritten(store, making):
    segment.write(store, "worker_0", 0, [making.step(0)])
    before = {key: bytes(store.get(key)) for key in store.list()}
    with pytest.raises(SMDebugRuntimeError, match="another job"):
        segment.write(store, "worker_0", 0, [making.step(1)])
    assert {key: bytes(store.get(key)) for key in store.list()} == before


def test_a_step_without_records_is_a_segment_without_rows(store, making):
    making.claim(store)
    segment.write(store, "worker_0", 0, [StepRecords(0, ModeKeys.TRAIN, 0, [])])
    segment.write(store, "worker_0", 1, [making.step(1)])
    assert making.contents(TrialReader(store)) == making.expected(2)[1:]


def test_raw_values_of_any_memory_layout_count_in_bytes(store, making):
    array = np.arange(6, dtype="f8").reshape(2, 3)
    record = Record("a", "weight", (), "float64", (2, 3), TIME, raw=memoryview(array))
    making.claim(store)
    segment.write(store, "worker_0", 0, [StepRecords(0, ModeKeys.TRAIN, 0, [record])])
    assert TrialReader(store).raw(0).tolist() == array.tolist()
