"""Damaged and hostile trials: a clear error that names the file, and never anything else."""

import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tornasole.errors import CorruptTrial, SMDebugError, TrialNotFound, UnsupportedFormat
from tornasole.format import TrialReader, segment
from tornasole.format.segment import SCHEMA
from tornasole.store import open_store
from tornasole.store.memory import MemoryStore

ROWS = "worker_0/000000000003.parquet"
HUGE = 10**30


@pytest.fixture(scope="module")
def objects(making):
    """A small trial with a merged segment and a plain one, as keys and bytes."""
    store = MemoryStore()
    making.claim(store)
    writer = making.writer(store)
    writer.put_collections({"collections": {"weights": {}}})
    making.segments(writer, [[making.step(0), making.step(1)], [making.step(2)]], close=True)
    making.segments(writer, [[making.step(3)]])
    writer.put_end({"clean": True})
    return {key: bytes(store.get(key)) for key in store.list()}


def store_of(objects, **changed) -> MemoryStore:
    store = MemoryStore("damaged")
    for key, content in {**objects, **changed}.items():
        store.put(key, [content])
    return store


def read_everything(store) -> None:
    reader = TrialReader(store)
    for worker in reader.workers:
        reader.collections(worker)
        reader.end(worker)
    for name in ("step", "mode", "name", "collections", "value", "payload", "lost", "count"):
        reader.present(name)
        reader.column(name)
    reader.table()
    for row in range(reader.row_count):
        reader.raw(row)
        reader.shape(row)


def outcome(objects, key: str, content: bytes) -> str:
    """What reading says when one file is different; another exception than ours fails the test."""
    try:
        read_everything(store_of(objects, **{key: content}))
    except SMDebugError as error:
        return type(error).__name__ if key in str(error) else f"an error without a name: {error}"
    return "fine"


def test_the_trial_is_fine_as_it_is(objects):
    read_everything(store_of(objects))


def test_a_truncated_file_is_found_and_named(objects):
    for key, content in objects.items():
        for length in np.unique(np.linspace(0, len(content) - 1, 25).astype(int)).tolist():
            found = outcome(objects, key, content[:length])
            if key.endswith(".safetensors") and length == len(content) - 1:
                assert found == "CorruptTrial"
            elif not key.endswith(".safetensors"):
                assert found == "CorruptTrial", (key, length)


def test_a_flipped_bit_is_found_or_does_no_harm(objects):
    for key, content in objects.items():
        count = 80 if key.endswith(".parquet") else 20
        for place in np.unique(np.linspace(0, len(content) - 1, count).astype(int)).tolist():
            damaged = bytearray(content)
            damaged[place] ^= 1 << (place % 8)
            found = outcome(objects, key, bytes(damaged))
            assert found in ("fine", "CorruptTrial", "UnsupportedFormat"), (key, place)


def test_a_flipped_bit_never_gives_other_rows(objects):
    """Pages have checksums; what remains is outside of them and means nothing to us."""
    content = objects[ROWS]
    footer = int.from_bytes(content[-8:-4], "little")
    data = range(4, len(content) - 8 - footer)
    rows = str(TrialReader(store_of(objects)).table().to_pylist())
    found = 0
    for place in data[:: len(data) // 50]:
        damaged = bytearray(content)
        damaged[place] ^= 0x10
        try:
            reader = TrialReader(store_of(objects, **{ROWS: bytes(damaged)}))
            assert str(reader.table().to_pylist()) == rows, place
        except CorruptTrial:
            found += 1
    assert found > 5


@pytest.mark.parametrize("content", [b"", b"\0" * 100, b"PAR1", b"PAR1" + b"\xff" * 50 + b"PAR1"])
def test_a_file_of_something_else_is_found_and_named(objects, content):
    for key in objects:
        if not key.endswith(".safetensors"):
            assert outcome(objects, key, content) == "CorruptTrial"


# -- JSON -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["trial.json", "worker_0/collections.json", "worker_0/end.json"])
@pytest.mark.parametrize(
    "content",
    [
        b"[]",
        b"3",
        b"null",
        b'"x"',
        b"{",
        b"\xff\xfe",
        b"{'a': 1}",
        b"[" * 100_000,
        b"{}}",
        b"1" * 9999,
    ],
)
def test_what_is_no_json_object_is_damaged(objects, key, content):
    assert outcome(objects, key, content) == "CorruptTrial"


@pytest.mark.parametrize("workers", ["x", "1", -1, 0, None, 1.0, True, [1], {}])
def test_a_number_of_workers_that_is_none_is_damaged(objects, workers):
    about = json.loads(objects["trial.json"]) | {"workers": workers}
    assert outcome(objects, "trial.json", json.dumps(about).encode()) == "CorruptTrial"


def test_a_huge_number_of_workers_is_waited_for(objects):
    about = json.loads(objects["trial.json"]) | {"workers": HUGE}
    store = store_of(objects, **{"trial.json": json.dumps(about).encode()})
    reader = TrialReader(store)
    assert reader.refresh() is False
    assert reader.row_count == 12


@pytest.mark.parametrize("version", ["1", -1, 0, None, 1.0, True, [1]])
@pytest.mark.parametrize("key", ["trial.json", ROWS])
def test_a_version_that_is_none_is_damaged(objects, version, key):
    assert outcome(objects, key, redescribed(objects, key, version=version)) == "CorruptTrial"


@pytest.mark.parametrize("version", [2, HUGE])
@pytest.mark.parametrize("key", ["trial.json", ROWS])
def test_a_newer_version_asks_for_an_upgrade(objects, version, key):
    content = redescribed(objects, key, version=version, workers="many", first="a", replaces=None)
    with pytest.raises(UnsupportedFormat, match=r"pip install -U tornasole"):
        read_everything(store_of(objects, **{key: content}))


@pytest.mark.parametrize("key", ["trial.json", ROWS])
@pytest.mark.parametrize("name", ["smdebug", "", None, 1, ["tornasole"]])
def test_another_format_is_no_trial(objects, key, name):
    assert outcome(objects, key, redescribed(objects, key, format=name)) == "CorruptTrial"


def redescribed(objects, key: str, **changed) -> bytes:
    """The file with other words about itself."""
    if key == "trial.json":
        return json.dumps(json.loads(objects[key]) | changed).encode()
    table = pq.read_table(pa.BufferReader(objects[key]))
    about = json.loads(table.schema.metadata[b"tornasole"]) | changed
    return file_of(table, about)


def file_of(table: pa.Table, about: object) -> bytes:
    sink = pa.BufferOutputStream()
    text = about if isinstance(about, bytes) else json.dumps(about).encode()
    pq.write_table(table.replace_schema_metadata({b"tornasole": text}), sink)
    return sink.getvalue().to_pybytes()


# -- what a rows file says of itself --------------------------------------------------------------


def test_the_rows_file_is_fine_when_written_by_others(objects):
    assert outcome(objects, ROWS, redescribed(objects, ROWS)) == "fine"


@pytest.mark.parametrize(
    "changed",
    [
        {"first": None}, {"first": "0"}, {"first": -1}, {"first": HUGE}, {"first": 3.0},
        {"last": None}, {"last": [1]}, {"last": HUGE}, {"first": 2, "last": 1},
        {"replaces": None}, {"replaces": "012"}, {"replaces": [None]}, {"replaces": [-1]},
        {"replaces": [HUGE]}, {"replaces": {"0": 1}}, {"replaces": [[0]]}, {"replaces": [True]},
        {"segment": 4}, {"segment": None}, {"segment": "3"},
        {"first": 0, "last": 0}, {"first": 1, "last": 3},
    ],
)  # fmt: skip
def test_numbers_that_cannot_be_are_damaged(objects, changed):
    assert outcome(objects, ROWS, redescribed(objects, ROWS, **changed)) == "CorruptTrial"


@pytest.mark.parametrize("about", [b"", b"[]", b"{}", b"\xff", b"[" * 100_000])
def test_a_description_that_is_none_is_damaged(objects, about):
    table = pq.read_table(pa.BufferReader(objects[ROWS]))
    assert outcome(objects, ROWS, file_of(table, about)) == "CorruptTrial"


def test_parquet_of_others_is_no_segment(objects):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": [1]}), sink)
    assert outcome(objects, ROWS, sink.getvalue().to_pybytes()) == "CorruptTrial"


# -- what a rows file holds -----------------------------------------------------------------------


def with_column(objects, name: str, column: pa.Array) -> bytes:
    table = pq.read_table(pa.BufferReader(objects[ROWS]))
    about = json.loads(table.schema.metadata[b"tornasole"])
    return file_of(table.set_column(table.schema.get_field_index(name), name, column), about)


@pytest.mark.parametrize("name", SCHEMA.names)
def test_a_missing_column_is_damaged(objects, name):
    table = pq.read_table(pa.BufferReader(objects[ROWS]))
    about = json.loads(table.schema.metadata[b"tornasole"])
    assert outcome(objects, ROWS, file_of(table.drop_columns([name]), about)) == "CorruptTrial"


@pytest.mark.parametrize("name", SCHEMA.names)
def test_a_column_of_another_type_is_damaged(objects, name):
    column = pa.array([{"a": 1}, {"a": 2}, {"a": 3}])
    assert outcome(objects, ROWS, with_column(objects, name, column)) == "CorruptTrial"


@pytest.mark.parametrize("name", [field.name for field in SCHEMA if not field.nullable])
def test_a_missing_value_where_one_must_be_is_damaged(objects, name):
    column = pa.nulls(3, SCHEMA.field(name).type)
    assert outcome(objects, ROWS, with_column(objects, name, column)) == "CorruptTrial"


def test_words_may_be_plain_strings(objects):
    column = pa.array(["a", "b", "c"])
    assert outcome(objects, ROWS, with_column(objects, "name", column)) == "fine"


def test_words_that_are_no_text_are_damaged(objects):
    offsets = pa.py_buffer(np.array([0, 1, 2, 3], np.int32))
    column = pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b"\xff\xfe\xfd")])
    assert outcome(objects, ROWS, with_column(objects, "name", column)) == "CorruptTrial"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("offset", 0), ("offset", -1), ("offset", 2**62), ("offset", 10**6), ("offset", None),
        ("length", 0), ("length", -1), ("length", 2**62), ("length", None),
        ("payload", 2**62), ("payload", 10**12 - 1),
        ("dtype", "float1024"), ("dtype", "object"), ("dtype", ""), ("dtype", "string"),
    ],
)  # fmt: skip
def test_a_value_that_lies_where_none_can_be_is_damaged(objects, name, value):
    kind = SCHEMA.field(name).type
    words = pa.types.is_dictionary(kind)
    column = pa.array([value] * 3, pa.string() if words else kind)
    store = store_of(objects, **{ROWS: with_column(objects, name, column)})
    if (name, value) == ("offset", 0):  # within the file: wrong, but nobody can tell
        TrialReader(store).raw(9)
        return
    with pytest.raises(CorruptTrial, match="safetensors"):
        TrialReader(store).raw(9)


@pytest.mark.parametrize(
    "shape", [[-3], [-1, -3], [3, 2**62], [2**62, 2**62, 4], [], [4], [None], [1] * 99, [0, 2**62]]
)
def test_a_shape_that_cannot_be_is_damaged(objects, shape):
    column = pa.array([shape] * 3, pa.list_(pa.int64()))
    store = store_of(objects, **{ROWS: with_column(objects, "shape", column)})
    with pytest.raises(CorruptTrial, match="safetensors"):
        TrialReader(store).raw(9)


def test_two_segments_that_hold_the_same_rows_are_damaged(objects, making):
    store = store_of({key: content for key, content in objects.items() if "end.json" not in key})
    segment.write(store, "worker_0", 4, [making.step(3)])
    content = redescribed(
        {"4": bytes(store.get("worker_0/000000000004.parquet"))}, "4", first=1, last=1
    )
    store.put("worker_0/000000000004.parquet", [content])
    with pytest.raises(CorruptTrial, match="another segment"):
        TrialReader(store)


# -- folders --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "folder", ["a\\b", "a\nb", "-rf", "a b", "ü", "findings", "C:", "~", "%s", "x" * 200]
)
def test_any_name_of_a_folder_is_borne(tmp_path, making, folder):
    making.trial(open_store(tmp_path), end=False)
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "collections.json").write_text("{}")
    read_everything(open_store(tmp_path))
    assert TrialReader.open(str(tmp_path)).row_count == 18


def test_a_folder_whose_name_is_no_text_is_borne(tmp_path, making):
    making.claim(open_store(tmp_path))
    place = bytes(tmp_path) + b"/\xff\xfe"
    os.mkdir(place)
    with open(place + b"/collections.json", "w") as file:
        file.write("{}")
    assert TrialReader.open(str(tmp_path)).workers == []


def test_a_folder_in_the_place_of_a_file_is_borne(tmp_path, making):
    making.trial(open_store(tmp_path), end=False)
    for name in ("end.json", "000000000003.parquet"):
        (tmp_path / "worker_0" / name).mkdir()
    assert TrialReader.open(str(tmp_path)).row_count == 18
    (tmp_path / "other" / "trial.json").mkdir(parents=True)
    with pytest.raises(TrialNotFound):
        TrialReader.open(str(tmp_path / "other"))
