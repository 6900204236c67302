"""When a backward pass is over, and which gradients it brought.

Gluon has no callback for that. ``loss.backward()`` and ``autograd.backward`` both call one function
of MXNet's library; while somebody waits for gradients, a function of ours stands in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from mxnet.base import _LIB
from mxnet.gluon import Parameter

_BACKWARD = "MXAutogradBackwardEx"
_NUMBER_OF_VARIABLES = 3  # among its arguments; not 0: gradients are returned, not kept


class Waiter(Protocol):
    """Who waits for gradients."""

    def awaited(self) -> Sequence[Parameter]:
        """The parameters whose gradients are waited for."""

    def arrived(self, parameters: Sequence[Parameter]) -> None:
        """A backward pass is over and has written the gradients of these."""


class BackwardPasses:
    """Tells those who wait. There is one, because MXNet's library is one for the process."""

    def __init__(self) -> None:
        self._waiters: list[Waiter] = []
        self._original: Callable[..., int] | None = None

    def add(self, waiter: Waiter) -> None:
        if waiter not in self._waiters:
            self._waiters.append(waiter)
        if self._original is None:
            self._original = getattr(_LIB, _BACKWARD)
            setattr(_LIB, _BACKWARD, self._run)

    def remove(self, waiter: Waiter) -> None:
        if waiter in self._waiters:
            self._waiters.remove(waiter)
        if not self._waiters and self._original is not None:
            setattr(_LIB, _BACKWARD, self._original)
            self._original = None

    def _run(self, *args: Any) -> int:
        assert self._original is not None
        if args[_NUMBER_OF_VARIABLES]:
            return self._original(*args)
        awaited = [(waiter, waiter.awaited()) for waiter in self._waiters]
        # MXNet marks the data whose gradients are fresh; Trainer relies on the marks.
        marked = {
            parameter: parameter._data[0]._fresh_grad
            for _, parameters in awaited
            for parameter in parameters
        }
        for parameter in marked:
            parameter._data[0]._fresh_grad = False
        try:
            status = self._original(*args)
        finally:
            fresh = {parameter for parameter in marked if parameter._data[0]._fresh_grad}
            for parameter, was_fresh in marked.items():
                if was_fresh:
                    parameter._data[0]._fresh_grad = True
        for waiter, parameters in awaited:
            waiter.arrived([parameter for parameter in parameters if parameter in fresh])
        return status


backward_passes = BackwardPasses()
