"""Raw values as safetensors: the header, the element types, and the way back to NumPy.

The header is written here rather than by the safetensors library because values must go from their
snapshot to the file without being copied; every payload is an ordinary safetensors file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from math import prod

import numpy as np
import numpy.typing as npt

from tornasole.errors import CorruptTrial, SMDebugValueError

# dtype in the row -> (safetensors dtype, bytes per element)
_DTYPES = {
    "bool": ("BOOL", 1),
    "uint8": ("U8", 1),
    "int8": ("I8", 1),
    "uint16": ("U16", 2),
    "int16": ("I16", 2),
    "uint32": ("U32", 4),
    "int32": ("I32", 4),
    "uint64": ("U64", 8),
    "int64": ("I64", 8),
    "float16": ("F16", 2),
    "bfloat16": ("BF16", 2),
    "float32": ("F32", 4),
    "float64": ("F64", 8),
    "complex64": ("C64", 8),
    "float8_e4m3fn": ("F8_E4M3", 1),
    "float8_e5m2": ("F8_E5M2", 1),
    "float8_e4m3fnuz": ("F8_E4M3FNUZ", 1),
    "float8_e5m2fnuz": ("F8_E5M2FNUZ", 1),
    "float8_e8m0fnu": ("F8_E8M0", 1),
}
# Types that safetensors lacks travel as another one; the row's dtype says what they are.
_COMPLEX128 = "complex128"  # as F64 with a last axis of two
STRING = "string"  # as U8: a JSON list of the elements in C order, UTF-8

_STRING_ROOM = 1 << 20  # characters

DTYPES = frozenset(_DTYPES) | {_COMPLEX128, STRING}
"""Every dtype that a row can name."""


def element_size(dtype: str) -> int:
    """Bytes per element of a dtype other than ``string``."""
    return 16 if dtype == _COMPLEX128 else _DTYPES[dtype][1]


def header(tensors: Sequence[tuple[str, str, tuple[int, ...], int]]) -> tuple[bytes, list[int]]:
    """The head of a safetensors file, and where in the file each value begins.

    Args:
        tensors: Key, dtype, shape and length in bytes of each value, in the order in which they
            will follow. A key that comes again gets a number behind it, because every byte of the
            file must belong to a key.
    """
    entries: dict[str, object] = {}
    offsets, position = [], 0
    for wanted, dtype, shape, length in tensors:
        key, again = wanted, 1
        while key in entries:
            again += 1
            key = f"{wanted}#{again}"
        if dtype != STRING and length != prod(shape) * element_size(dtype):
            raise SMDebugValueError(
                f"{length} bytes of {wanted!r} are no {dtype} of shape {shape}."
            )
        if dtype == STRING:
            kind, dimensions = "U8", [length]
        elif dtype == _COMPLEX128:
            kind, dimensions = "F64", [*shape, 2]
        else:
            kind, dimensions = _DTYPES[dtype][0], list(shape)
        entries[key] = {
            "dtype": kind,
            "shape": dimensions,
            "data_offsets": [position, position + length],
        }
        offsets.append(position)
        position += length
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # so that the first value is aligned
    start = 8 + len(text)
    return len(text).to_bytes(8, "little") + text, [start + offset for offset in offsets]


def decode(data: bytearray, dtype: str, shape: tuple[int, ...]) -> npt.NDArray[np.generic]:
    """Turns the bytes of one value into an array that owns them.

    bfloat16 and the 8-bit floats, which NumPy lacks, come back as float32 of the same value.
    """
    if dtype not in DTYPES:
        raise CorruptTrial(f"unknown dtype {dtype!r}; this version knows {sorted(DTYPES)}")
    size = len(data) if dtype == STRING else prod(shape) * element_size(dtype)
    if len(data) != size or any(dimension < 0 for dimension in shape):
        raise CorruptTrial(f"{len(data)} bytes cannot hold {dtype} of shape {shape}")
    try:
        return _decode_flat(data, dtype).reshape(shape)
    except ValueError as error:
        raise CorruptTrial(f"{dtype} of shape {shape} cannot be read: {error}") from None


def _decode_flat(data: bytearray, dtype: str) -> npt.NDArray[np.generic]:
    if dtype == STRING:
        return _decode_strings(data)
    if dtype == "bool":
        return np.frombuffer(data, np.uint8).astype(np.bool_)
    if dtype == "bfloat16":
        return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
    if dtype.startswith("float8"):
        return _float8_table(dtype)[np.frombuffer(data, np.uint8)]
    kind = np.dtype(dtype).newbyteorder("<")
    return np.frombuffer(data, kind).astype(np.dtype(dtype), copy=False)


def _decode_strings(data: bytearray) -> npt.NDArray[np.generic]:
    try:
        items = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptTrial(f"strings that are not JSON ({error})") from None
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise CorruptTrial("strings that are not a JSON list of strings")
    # NumPy gives every string the room of the longest: one long among many could eat all memory.
    room = len(items) * max(map(len, items), default=0)
    kind = np.str_ if room <= _STRING_ROOM + 8 * len(data) else np.object_
    return np.array(items, dtype=kind)


@lru_cache
def _float8_table(dtype: str) -> npt.NDArray[np.float32]:
    """The value of each of the 256 bit patterns."""
    bits = np.arange(256)
    if dtype == "float8_e8m0fnu":
        table = np.ldexp(np.ones(256), bits - 127)
        table[255] = np.nan
        return table.astype(np.float32)
    mantissa_bits = 3 if "e4m3" in dtype else 2
    unsigned_zero = dtype.endswith("fnuz")
    bias = (1 << (6 - mantissa_bits)) - (0 if unsigned_zero else 1)
    sign = np.where(bits >> 7, -1.0, 1.0)
    exponent = (bits & 0x7F) >> mantissa_bits
    mantissa = bits & ((1 << mantissa_bits) - 1)
    fraction = mantissa / (1 << mantissa_bits)
    table = sign * np.where(
        exponent == 0, np.ldexp(fraction, 1 - bias), np.ldexp(1 + fraction, exponent - bias)
    )
    if unsigned_zero:
        table[0x80] = np.nan
    elif dtype == "float8_e4m3fn":
        table[[0x7F, 0xFF]] = np.nan
    else:
        table[(bits & 0x7C) == 0x7C] = np.nan
        table[[0x7C, 0xFC]] = np.inf, -np.inf
    return table.astype(np.float32)
