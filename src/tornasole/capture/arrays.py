"""``Tensors`` for NumPy arrays and whatever turns into one: what ``save_tensor`` takes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tornasole.capture.adapter import Bytes, Unsavable
from tornasole.stats.numpy import statistics

_KINDS = frozenset("biufc")
_UNREADABLE = "it holds neither numbers nor strings"


class Arrays:
    """NumPy arrays, Python numbers, nested lists, and strings."""

    def admits(self, value: Any) -> bool:
        return True

    def plain(self, value: Any) -> npt.NDArray[Any]:
        try:
            array = np.asarray(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise Unsavable(
                f"{type(value).__name__} does not turn into an array ({error})"
            ) from error
        if array.dtype.kind in "USO":
            return _as_bytes_of_strings(array)
        if array.dtype.kind not in _KINDS:
            raise Unsavable(f"{_UNREADABLE} (dtype {array.dtype})")
        if array.dtype.itemsize > (16 if array.dtype.kind == "c" else 8):
            array = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
        return array.astype(array.dtype.newbyteorder("<"), copy=False)

    def describe(self, value: npt.NDArray[Any]) -> tuple[str, tuple[int, ...], int]:
        if isinstance(value, _Strings):
            return "string", value.original_shape, value.nbytes
        return value.dtype.name, value.shape, value.nbytes

    def item(self, value: npt.NDArray[Any]) -> float | int | complex:
        found: float | int | complex = value.item()
        return found

    def copy(self, values: Sequence[npt.NDArray[Any]], buffers: Sequence[Bytes]) -> None:
        for value, buffer in zip(values, buffers, strict=True):
            np.copyto(buffer.view(value.dtype).reshape(value.shape), value)

    def statistics(
        self, values: Sequence[npt.NDArray[Any]], names: frozenset[str]
    ) -> list[dict[str, float]]:
        return statistics(values, names)


class _Strings(np.ndarray[Any, Any]):
    """An array of strings as the bytes that a payload holds, with the shape it had."""

    original_shape: tuple[int, ...]


def _as_bytes_of_strings(array: npt.NDArray[Any]) -> _Strings:
    items = [
        item.decode("utf-8", "replace") if isinstance(item, bytes) else item
        for item in array.ravel().tolist()
    ]
    if not all(isinstance(item, str) for item in items):
        raise Unsavable(_UNREADABLE)
    strings = np.frombuffer(json.dumps(items).encode(), np.uint8).view(_Strings)
    strings.original_shape = array.shape
    return strings
