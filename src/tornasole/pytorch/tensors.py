"""How to look into torch's tensors: description, snapshot and statistics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.parameter import is_lazy

from tornasole.capture.adapter import DTYPES, MOST_DENSE_BYTES, Bytes, Unsavable
from tornasole.capture.buffers import copy_all
from tornasole.stats.torch import statistics


class TorchTensors:
    """``Tensors`` for torch, on any device."""

    def admits(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor)

    def plain(self, value: torch.Tensor) -> torch.Tensor:
        if is_lazy(value):
            raise Unsavable("it is not initialised yet")
        if torch._C._functorch.is_functorch_wrapped_tensor(value):
            raise Unsavable(
                "it is inside a function transform (torch.func), where it has no values of its own"
            )
        tensor = value.detach()
        if type(tensor) is not torch.Tensor:
            tensor = _without_subclass(tensor)
        if tensor.is_meta:
            raise Unsavable("it is on the meta device and has no values")
        if tensor.is_nested:
            raise Unsavable("it is a nested tensor")
        if tensor.is_quantized:
            tensor = tensor.dequantize()
        if tensor.layout is not torch.strided:
            size = tensor.numel() * tensor.element_size()
            if size > MOST_DENSE_BYTES:
                raise Unsavable(
                    f"it is sparse ({tensor.layout}), and would take {size >> 20} MiB "
                    "as a dense tensor"
                )
            tensor = tensor.to_dense()
        if tensor.is_conj() or tensor.is_neg():
            tensor = tensor.resolve_conj().resolve_neg()
        if tensor.dtype is torch.complex32:
            tensor = tensor.to(torch.complex64)
        if _name(tensor.dtype) not in DTYPES:
            raise Unsavable(f"its dtype {tensor.dtype} has no place in a trial")
        return tensor

    def describe(self, value: torch.Tensor) -> tuple[str, tuple[int, ...], int]:
        return _name(value.dtype), tuple(value.shape), value.numel() * value.element_size()

    def item(self, value: torch.Tensor) -> float | int | complex:
        return value.item()

    def copy(self, values: Sequence[torch.Tensor], buffers: Sequence[Bytes]) -> None:
        sources, targets = [], []
        for value, buffer in zip(values, buffers, strict=True):
            if value.is_contiguous() and value.device.type == "cpu":
                sources.append(_bytes_of(value))
                targets.append(buffer)
            elif len(buffer):
                _like(buffer, value).copy_(value)
        copy_all(sources, targets)

    def statistics(
        self, values: Sequence[torch.Tensor], names: frozenset[str]
    ) -> list[dict[str, float]]:
        return statistics(values, names)


def _without_subclass(tensor: torch.Tensor) -> torch.Tensor:
    if hasattr(tensor, "to_local"):
        raise Unsavable("it is sharded over several processes (DTensor)")
    plain = tensor.as_subclass(torch.Tensor)
    if type(plain) is not torch.Tensor:
        raise Unsavable(f"it is a {type(tensor).__name__}")
    return plain


# NumPy makes views several times faster than torch does; bfloat16 and the 8-bit floats it lacks.
_IN_NUMPY = frozenset(
    getattr(torch, name)
    for name in (
        "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64",
        "float16", "float32", "float64", "complex64", "complex128",
    )
)  # fmt: skip


def _bytes_of(value: torch.Tensor) -> Bytes:
    """The memory of a contiguous tensor."""
    if value.dtype in _IN_NUMPY:
        return value.numpy().reshape(-1).view(np.uint8)
    numbers: Bytes = value.reshape(-1).view(torch.uint8).numpy()
    return numbers


def _like(buffer: Bytes, value: torch.Tensor) -> torch.Tensor:
    """The buffer as a tensor like the value."""
    return torch.from_numpy(buffer).view(value.dtype).view(value.shape)


_names: dict[torch.dtype, str] = {}


def _name(dtype: torch.dtype) -> str:
    if dtype not in _names:
        _names[dtype] = str(dtype).removeprefix("torch.")
    return _names[dtype]
