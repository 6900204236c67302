"""How to look into MXNet's arrays: description, snapshot and statistics."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from mxnet import autograd
from mxnet.base import _LIB, MXNetError, check_call
from mxnet.ndarray import NDArray

from tornasole.capture.adapter import DTYPES, MOST_DENSE_BYTES, Bytes, Unsavable
from tornasole.capture.guard import NotOurs
from tornasole.stats.numpy import statistics


class NDArrays:
    """``Tensors`` for MXNet, on any context, dense or sparse, of ``mx.nd`` and of ``mx.np``."""

    def admits(self, value: Any) -> bool:
        return isinstance(value, NDArray)

    def plain(self, value: NDArray) -> NDArray:
        if value.shape and not _known(value.shape):
            raise Unsavable(f"its shape {value.shape} is not known yet")
        dtype = np.dtype(value.dtype)
        if dtype.name not in DTYPES:
            raise Unsavable(f"its dtype {dtype} has no place in a trial")
        if value.stype == "default":
            return value
        size = math.prod(value.shape) * dtype.itemsize
        if size > MOST_DENSE_BYTES:
            raise Unsavable(
                f"it is sparse ({value.stype}), and would take {size >> 20} MiB as a dense tensor"
            )
        with autograd.pause(), _reading():
            return value.tostype("default")

    def describe(self, value: NDArray) -> tuple[str, tuple[int, ...], int]:
        dtype = np.dtype(value.dtype)
        return dtype.name, tuple(value.shape), value.size * dtype.itemsize

    def item(self, value: NDArray) -> float | int | complex:
        with _reading():
            found: float | int | complex = value.asnumpy().item()
        return found

    def copy(self, values: Sequence[NDArray], buffers: Sequence[Bytes]) -> None:
        for value, buffer in zip(values, buffers, strict=True):
            if len(buffer):  # what asnumpy does, into memory of ours; it waits for the value
                target, size = buffer.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(value.size)
                with _reading():
                    check_call(_LIB.MXNDArraySyncCopyToCPU(value.handle, target, size))

    def statistics(
        self, values: Sequence[NDArray], names: frozenset[str]
    ) -> list[dict[str, float]]:
        with _reading():
            arrays = [value.asnumpy() for value in values]
        return statistics(arrays, names)


@contextmanager
def _reading() -> Iterator[None]:
    """MXNet computes asynchronously: what went wrong in the user's net shows when it is read."""
    try:
        yield
    except MXNetError as error:
        raise NotOurs(error) from error


def _known(shape: tuple[int, ...]) -> bool:
    return all(size >= 0 for size in shape)
