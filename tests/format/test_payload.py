"""Raw values: what is written, others read; what is read is what was written."""

import json

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load

from tornasole.errors import CorruptTrial, SMDebugValueError
from tornasole.format import payload

NUMPY = [
    "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64",
    "float16", "float32", "float64", "complex64", "complex128",
]  # fmt: skip
SMALL_FLOATS = [
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
]


def sample(dtype: str) -> np.ndarray:
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return np.array([[True, False, True]])
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        return np.array([[limits.min, 0, limits.max]], kind)
    if kind.kind == "c":
        return np.array([[complex(np.nan, 1), complex(-np.inf, -0.0), 1 / 3 - 2j]], kind)
    return np.array([[np.nan, -np.inf, 1 / 3, -0.0, np.finfo(kind).max]], kind)


def file_of(*tensors: tuple[str, str, tuple[int, ...], bytes]) -> tuple[bytes, list[int]]:
    head, places = payload.header([(key, dtype, shape, len(d)) for key, dtype, shape, d in tensors])
    return head + b"".join(data for *_, data in tensors), places


def test_every_dtype_is_sampled_here():
    assert {*NUMPY, *SMALL_FLOATS, "string"} == payload.DTYPES


@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize("shape", [None, (), (0,), (2, 0, 3)])
def test_a_value_comes_back_as_it_went(dtype, shape):
    array = sample(dtype)
    if shape is not None:
        array = np.resize(array, shape) if 0 not in shape else np.zeros(shape, dtype)
    back = payload.decode(bytearray(array.tobytes()), dtype, array.shape)
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert back.tobytes() == array.tobytes()
    assert back.flags.writeable


@pytest.mark.parametrize("dtype", [dtype for dtype in NUMPY if not dtype.startswith("complex")])
def test_the_safetensors_library_reads_the_same_values(dtype):
    array = sample(dtype)
    content, _ = file_of(("7/a b:c/ä", dtype, array.shape, array.tobytes()))
    read = load(content)["7/a b:c/ä"]
    assert read.dtype == array.dtype
    assert read.shape == array.shape
    assert read.tobytes() == array.tobytes()


def test_complex64_is_the_type_of_that_name_in_safetensors(tmp_path):
    torch = pytest.importorskip("torch")
    array = sample("complex64")
    (tmp_path / "f").write_bytes(file_of(("k", "complex64", array.shape, array.tobytes()))[0])
    with safe_open(tmp_path / "f", "pt") as file:
        read = file.get_tensor("k")
    assert read.dtype == torch.complex64
    assert read.numpy().tobytes() == array.tobytes()


def test_complex128_travels_as_pairs_of_float64():
    array = np.array([[1 + 2j, np.nan - 3j]])
    content, _ = file_of(("k", "complex128", array.shape, array.tobytes()))
    read = load(content)["k"]
    assert read.shape == (1, 2, 2)
    assert read.tobytes() == array.tobytes()


@pytest.mark.parametrize("dtype", SMALL_FLOATS)
def test_every_bit_pattern_of_a_small_float_means_what_torch_says(dtype, tmp_path):
    torch = pytest.importorskip("torch")
    if not hasattr(torch, dtype):
        pytest.skip(f"this torch has no {dtype}")
    patterns = np.arange(65536, dtype="u2") if dtype == "bfloat16" else np.arange(256, dtype="u1")
    (tmp_path / "f").write_bytes(file_of(("k", dtype, patterns.shape, patterns.tobytes()))[0])
    with safe_open(tmp_path / "f", "pt") as file:
        theirs = file.get_tensor("k")
    assert str(theirs.dtype) == f"torch.{dtype}"
    ours = payload.decode(bytearray(patterns.tobytes()), dtype, patterns.shape)
    assert ours.dtype == np.float32
    np.testing.assert_array_equal(ours, theirs.float().numpy())


@pytest.mark.parametrize("dtype", SMALL_FLOATS)
def test_every_bit_pattern_of_a_small_float_means_what_ml_dtypes_says(dtype):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    if not hasattr(ml_dtypes, dtype):
        pytest.skip(f"this ml_dtypes has no {dtype}")
    patterns = np.arange(65536, dtype="u2") if dtype == "bfloat16" else np.arange(256, dtype="u1")
    theirs = patterns.view(getattr(ml_dtypes, dtype)).astype(np.float32)
    ours = payload.decode(bytearray(patterns.tobytes()), dtype, patterns.shape)
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("items", [["a", "ü", "", "x" * 99], [], ["one"]])
def test_strings_come_back_in_their_shape(items):
    shape = (2, 2) if len(items) == 4 else (len(items),)
    back = payload.decode(bytearray(json.dumps(items).encode()), "string", shape)
    assert back.dtype.kind == "U"
    assert back.tolist() == np.array(items).reshape(shape).tolist()


def test_strings_are_bytes_to_the_safetensors_library():
    text = json.dumps(["a", "b"]).encode()
    content, _ = file_of(("k", "string", (2,), text), ("l", "float32", (), b"\0\0\0\0"))
    assert load(content)["k"].tobytes() == text


def test_one_long_string_among_many_does_not_eat_the_memory():
    items = ["x" * 1_000_000, *[""] * 100_000]
    back = payload.decode(bytearray(json.dumps(items).encode()), "string", (100_001,))
    assert back[0] == items[0]
    assert back.nbytes < 10_000_000


def test_values_of_many_types_lie_in_one_file_where_the_header_says():
    arrays = {f"{i}/{dtype}": sample(dtype) for i, dtype in enumerate(NUMPY)}
    content, places = file_of(
        *((key, a.dtype.name, a.shape, a.tobytes()) for key, a in arrays.items())
    )
    for (key, array), place in zip(arrays.items(), places, strict=True):
        data = bytearray(content[place : place + array.nbytes])
        back = payload.decode(data, array.dtype.name, array.shape)
        assert back.tobytes() == array.tobytes(), key
    length = int.from_bytes(content[:8], "little")
    assert length % 8 == 0
    assert places[0] == 8 + length
    assert list(json.loads(content[8 : 8 + length])) == list(arrays)


def test_a_key_that_comes_twice_is_kept_twice():
    one, two = np.array([1.0], "f4"), np.array([2.0], "f4")
    content, _ = file_of(
        ("k", "float32", (1,), one.tobytes()), ("k", "float32", (1,), two.tobytes())
    )
    assert {key: value.tolist() for key, value in load(content).items()} == {"k": [1], "k#2": [2]}


def test_bytes_that_do_not_fit_their_shape_are_not_written():
    with pytest.raises(SMDebugValueError, match="'k'"):
        payload.header([("k", "float32", (3,), 11)])


@pytest.mark.parametrize(
    ("data", "dtype", "shape"),
    [
        (b"1234", "float128", ()),
        (b"1234", None, ()),
        (b"1234", "float32", (2,)),
        (b"123", "float32", (1,)),
        (b"1" * 24, "float32", (-2, -3)),
        (b"", "float32", (0, -1)),
        (b"", "float32", (0, 2**62)),
        (b"", "float32", (0,) * 99),
        (b"[1]", "string", (1,)),
        (b'["a"', "string", (1,)),
        (b'["a"]', "string", (2,)),
        (b'{"a": 1}', "string", (1,)),
        (b"\xff", "string", (1,)),
        (b"[" * 100_000, "string", (1,)),
    ],
)
def test_bytes_that_cannot_be_such_a_value_are_corrupt(data, dtype, shape):
    with pytest.raises(CorruptTrial):
        payload.decode(bytearray(data), dtype, shape)


def test_a_bool_is_true_or_false_whatever_its_byte():
    back = payload.decode(bytearray(b"\0\1\2\xff"), "bool", (4,))
    assert back.view("u1").tolist() == [0, 1, 1, 1]
