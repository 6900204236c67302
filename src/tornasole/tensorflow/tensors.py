"""How to look into the tensors of Keras, on each of its backends, and of TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from tornasole.capture.adapter import DTYPES, MOST_DENSE_BYTES, Unsavable
from tornasole.capture.arrays import Arrays
from tornasole.stats.numpy import statistics

KERAS_3 = int(keras.__version__.partition(".")[0]) >= 3
BACKEND: str = keras.backend.backend()

_LIBRARIES = frozenset({"tensorflow", "keras", "torch", "jax", "jaxlib", "tf_keras"})


class KerasTensors(Arrays):
    """``Tensors`` for values that TensorFlow, JAX or torch hold for Keras; all become arrays."""

    def admits(self, value: Any) -> bool:
        return type(value).__module__.partition(".")[0] in _LIBRARIES

    def plain(self, value: Any) -> npt.NDArray[Any]:
        array = as_array(value)
        if array.dtype.name in DTYPES:  # also those that NumPy itself lacks, such as bfloat16
            return array
        return super().plain(array)

    def statistics(
        self, values: Sequence[npt.NDArray[Any]], names: frozenset[str]
    ) -> list[dict[str, float]]:
        return statistics([_widened(value) for value in values], names)


def as_array(value: Any) -> npt.NDArray[Any]:
    """The numbers of a tensor or variable, which may be its own memory."""
    if hasattr(value, "indices") and hasattr(value, "dense_shape"):  # tf.IndexedSlices
        value = _dense(value)
    try:
        if hasattr(value, "numpy") and BACKEND == "tensorflow":
            return np.asarray(value.numpy())
        return np.asarray(keras.ops.convert_to_numpy(value) if KERAS_3 else value)
    except (NotImplementedError, AttributeError, TypeError) as error:
        raise Unsavable(f"{type(value).__name__} has no values here ({error})") from error


def _dense(slices: Any) -> Any:
    rows = as_array(slices.values)
    shape = tuple(int(size) for size in as_array(slices.dense_shape))
    size = int(np.prod(shape)) * rows.dtype.itemsize
    if size > MOST_DENSE_BYTES:
        raise Unsavable(f"it is sparse, and would take {size >> 20} MiB as a dense tensor")
    dense = np.zeros(shape, rows.dtype)
    np.add.at(dense, as_array(slices.indices), rows)
    return dense


def _widened(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return array if array.dtype.kind in "biufc" else array.astype(np.float32)
