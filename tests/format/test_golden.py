"""Files of format version 1, kept as bytes: every later version must read them alike.

``tests/data/make_golden_v1.py`` made them. Do not make them anew to get these tests to pass: a
change of meaning is a new version of the format, with golden files of its own beside these.
"""

import json
import math
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

from tornasole.format import TrialReader
from tornasole.format.segment import COUNTS, STATISTICS

GOLDEN = Path(__file__).parent.parent / "data" / "golden_v1"
TIME = 1_750_000_000_500_000

NAN, INF = math.nan, math.inf

VALUES = {
    "raw/bool": [True, False, True],
    "raw/uint8": [0, 255],
    "raw/int8": [-128, 127],
    "raw/uint16": [65535],
    "raw/int16": [-32768],
    "raw/uint32": [4294967295],
    "raw/int32": [-2147483648],
    "raw/uint64": [18446744073709551615],
    "raw/int64": [-9223372036854775808, 9223372036854775807],
    "raw/float16": [[1.5, -2.25]],
    "raw/float32": [[1.0, 2.0, 3.0], [NAN, INF, -INF]],
    "raw/float64": [0.1, 5e-324],
    "raw/complex64": [1 + 2j],
    "raw/complex128": [[1 - 2j, 0.5j]],
    "raw/bfloat16": [1.0, -1.0],
    "raw/float8_e4m3fn": [1.0, NAN],
    "raw/float8_e5m2": [1.0, INF],
    "raw/float8_e4m3fnuz": [1.0, NAN],
    "raw/float8_e5m2fnuz": [1.0, NAN],
    "raw/float8_e8m0fnu": [1.0, NAN],
    "raw/string": ["grün", ""],
    "raw/empty": [],
    "raw/scalar": 7.0,
}


@pytest.fixture(scope="module")
def reader():
    return TrialReader.open(str(GOLDEN))


def test_the_trial_says_what_it_is(reader):
    assert reader.about == {
        "format": "tornasole",
        "version": 1,
        "created": "2025-06-15T15:06:40+00:00",
        "workers": 1,
        "framework": "none",
        "versions": {"tornasole": "0.1.0"},
    }
    assert reader.workers == ["worker_0"]
    assert set(reader.collections("worker_0")["collections"]) == {"weights", "losses"}
    assert reader.end("worker_0")["clean"] is True


def test_rows_are_whose_they_were(reader):
    names = [reader.names[code] for code in reader.column("name")]
    later = ["loss", "grad:0 / ü", "some", "loss", "lost", "raw/float32", "raw/uint8"]
    assert names == [*VALUES, *later]
    count = len(VALUES)
    assert reader.column("step").tolist() == [0] * count + [1] * 3 + [2] * 4
    assert reader.column("mode").tolist() == [1] * count + [2] * 3 + [1] * 4
    assert reader.column("mode_step").tolist() == [0] * count + [0] * 3 + [1] * 4
    assert reader.column("order").tolist() == [*range(count), *range(3), *range(4)]
    assert reader.column("time").tolist() == (
        [TIME] * count + [TIME + 1_000_000] * 3 + [TIME + 2_000_000] * 2 + [TIME] * 2
    )
    assert reader.column("collections")[0] == ["weights", "all"]
    assert reader.column("role").tolist()[count:] == [
        "loss", "gradient", "output", "loss", "output", "weight", "weight",
    ]  # fmt: skip


def test_raw_values_are_what_they_were(reader):
    for row, (name, value) in enumerate(VALUES.items()):
        array, dtype = reader.raw(row), name.removeprefix("raw/")
        assert reader.column("dtype")[row] == {"empty": "float32", "scalar": "float32"}.get(
            dtype, dtype
        )
        assert array.shape == reader.shape(row)
        np.testing.assert_array_equal(array, np.array(value).reshape(array.shape), err_msg=name)
    assert reader.shape(list(VALUES).index("raw/empty")) == (0, 3)
    assert [reader.raw(row).tolist() for row in range(28, 30)] == [[1.0, 2.0], [1, 2, 3]]
    assert [reader.raw(row) for row in range(23, 28)] == [None] * 5


def test_numbers_are_what_they_were_and_missing_ones_are_missing(reader):
    loss, reduced, some, second, lost = range(23, 28)
    assert math.isnan(reader.column("value")[loss])
    assert reader.column("value")[second] == 0.5
    assert reader.present("value")[22:28].tolist() == [True, True, False, False, True, False]
    assert [reader.column(name)[reduced] for name in STATISTICS] == list(range(20))
    assert [reader.column(name)[reduced] for name in COUNTS] == [100, 101, 102, 103]
    assert reader.column("max")[some] == INF
    assert not reader.present("min")[some]
    assert reader.column("count")[some] == -1
    assert reader.column("lost")[lost] == "The queue was full."


def test_the_columns_are_pinned():
    schema = pq.read_schema(GOLDEN / "worker_0" / "000000000002.parquet")
    assert [(f.name, str(f.type), f.nullable) for f in schema] == [
        ("step", "int64", False),
        ("mode", "dictionary<values=string, indices=int32, ordered=0>", False),
        ("mode_step", "int64", False),
        ("order", "int32", False),
        ("name", "dictionary<values=string, indices=int32, ordered=0>", False),
        ("role", "dictionary<values=string, indices=int32, ordered=0>", False),
        ("collections", "list<element: string>", False),
        ("dtype", "dictionary<values=string, indices=int32, ordered=0>", False),
        ("shape", "list<element: int64>", False),
        ("time", "timestamp[us, tz=UTC]", False),
        ("value", "double", True),
        ("payload", "int64", True),
        ("offset", "int64", True),
        ("length", "int64", True),
        ("lost", "string", True),
        *((name, "double", True) for name in (
            "min", "max", "mean", "median", "std", "variance", "sum", "prod", "l1", "l2",
            "abs_min", "abs_max", "abs_mean", "abs_median", "abs_std", "abs_variance", "abs_sum",
            "abs_prod", "abs_l1", "abs_l2",
        )),
        *((name, "int64", True) for name in ("count", "nan_count", "inf_count", "zero_count")),
    ]  # fmt: skip


def test_what_a_segment_says_of_itself_is_pinned():
    def about(number):
        schema = pq.read_schema(GOLDEN / "worker_0" / f"{number:012d}.parquet")
        return json.loads(schema.metadata[b"tornasole"])

    common = {"format": "tornasole", "version": 1}
    assert about(2) == common | {"segment": 2, "first": 0, "last": 1, "replaces": [0, 1]}
    assert about(3) == common | {"segment": 3, "first": 3, "last": 3, "replaces": []}


def test_the_layout_of_a_payload_is_pinned():
    content = (GOLDEN / "worker_0" / "000000000003.safetensors").read_bytes()
    header = (
        b'{"2/raw/float32":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},'
        b'"2/raw/uint8":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}}'
    )
    header += b" " * (-len(header) % 8)
    values = bytes.fromhex("0000803f 00000040 010203")
    assert content == len(header).to_bytes(8, "little") + header + values


def test_the_types_in_a_payload_are_pinned():
    content = (GOLDEN / "worker_0" / "000000000002.safetensors").read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    found = {name.removeprefix("0/raw/"): (e["dtype"], e["shape"]) for name, e in header.items()}
    assert found == {
        "bool": ("BOOL", [3]),
        "uint8": ("U8", [2]),
        "int8": ("I8", [2]),
        "uint16": ("U16", [1]),
        "int16": ("I16", [1]),
        "uint32": ("U32", [1]),
        "int32": ("I32", [1]),
        "uint64": ("U64", [1]),
        "int64": ("I64", [2]),
        "float16": ("F16", [1, 2]),
        "float32": ("F32", [2, 3]),
        "float64": ("F64", [2]),
        "complex64": ("C64", [1]),
        "complex128": ("F64", [1, 2, 2]),
        "bfloat16": ("BF16", [2]),
        "float8_e4m3fn": ("F8_E4M3", [2]),
        "float8_e5m2": ("F8_E5M2", [2]),
        "float8_e4m3fnuz": ("F8_E4M3FNUZ", [2]),
        "float8_e5m2fnuz": ("F8_E5M2FNUZ", [2]),
        "float8_e8m0fnu": ("F8_E8M0", [2]),
        "string": ("U8", [17]),
        "empty": ("F32", [0, 3]),
        "scalar": ("F32", []),
    }


def test_the_safetensors_library_opens_a_payload():
    values = load_file(GOLDEN / "worker_0" / "000000000003.safetensors")
    assert {name: value.tolist() for name, value in values.items()} == {
        "2/raw/float32": [1.0, 2.0],
        "2/raw/uint8": [1, 2, 3],
    }


def test_what_is_written_today_is_laid_out_as_then(tmp_path):
    """Byte for byte in payloads and JSON; in its columns and description in Parquet."""
    made = _make(tmp_path)
    for path in sorted(GOLDEN.rglob("*")):
        new = made / path.relative_to(GOLDEN)
        if path.suffix in (".safetensors", ".json"):
            assert new.read_bytes() == path.read_bytes()
        elif path.suffix == ".parquet":
            assert pq.read_schema(new).equals(pq.read_schema(path), check_metadata=True)
            old_rows, new_rows = pq.read_table(path).to_pylist(), pq.read_table(new).to_pylist()
            assert str(new_rows) == str(old_rows)


def _make(folder: Path) -> Path:
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("make_golden_v1", GOLDEN.parent / "make_golden_v1.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    module.FOLDER = folder / "golden_v1"
    module.main()
    return module.FOLDER
