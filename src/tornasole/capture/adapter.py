"""The adapter contract: how a framework's training loop reaches the recorder.

An adapter watches one framework. It is given a ``Recorder`` and tells it, from the framework's own
callbacks, when a step begins and which tensors appear; it knows the *role* of each tensor (a
weight, a gradient, a loss …) and gives it the name that people know. It never sees collections,
stores or rules. A ``Tensors`` object tells how to look into that framework's tensors.

The recorder decides what is kept:

    recorder.begin_step()                      a step begins; the one before is over
    recorder.active                            whether this step keeps anything at all
    recorder.wants_role(Role.GRADIENT)         whether it may keep any tensor of this role
    recorder.wants(name, role)                 whether it keeps this one
    recorder.record(name, role, tensor)        here it is: copied or reduced when this returns
    recorder.record_many([(name, role, t), …]) the same for many, together, which is faster

What comes after the model's call, losses and gradients, may come when the next step has begun:

    recorder.owe(Role.GRADIENT)                this step waits for it, if it wants it
    recorder.record_many(items, Role.GRADIENT) here it is, for the step that waits
    recorder.has_come(Role.GRADIENT)           and that was all of it

An adapter attaches what costs something only if ``wants_role`` says so, and only for that step.

Callbacks that a framework calls go through ``Guard.run``, so that a fault of ours never breaks
training.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tornasole.format.payload import DTYPES

__all__ = ["DTYPES", "MOST_DENSE_BYTES", "Bytes", "Tensors", "Unsavable"]

Bytes = npt.NDArray[np.uint8]

MOST_DENSE_BYTES = 64 << 20
"""A sparse tensor is saved dense up to this size; beyond, that could take the job's memory."""


class Unsavable(Exception):
    """A tensor that cannot be saved, and why; the recorder notes it in the log and goes on."""


class Tensors(Protocol):
    """How to look into the tensors of one framework."""

    def admits(self, value: Any) -> bool:
        """Whether the value is one of this framework's tensors."""

    def plain(self, value: Any) -> Any:
        """The tensor without what hinders reading it (autograd, sparse or quantised storage).

        Raises:
            Unsavable: It has no values, or none that can be read here.
        """

    def describe(self, value: Any) -> tuple[str, tuple[int, ...], int]:
        """dtype (one of ``DTYPES``), shape and size in bytes."""

    def item(self, value: Any) -> float | int | complex:
        """The value of a tensor with one element."""

    def copy(self, values: Sequence[Any], buffers: Sequence[Bytes]) -> None:
        """Copies the elements of each tensor, in C order, into the buffer beside it."""

    def statistics(self, values: Sequence[Any], names: frozenset[str]) -> list[dict[str, float]]:
        """The statistics of each tensor by name, and always its four counts."""
