"""When a backward pass is over, and which gradients it brought.

Gluon has no callback for that. ``loss.backward()`` and ``autograd.backward`` both call one function
of MXNet's library; while somebody waits for gradients, a function of ours stands in its place.
"""

from __future__ import annotations

import threading
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
        self._original: Callable[..., int] = getattr(_LIB, _BACKWARD)
        self._lock = threading.RLock()

    def add(self, waiter: Waiter) -> None:
        with self._lock:
            if waiter not in self._waiters:
                self._waiters.append(waiter)
            setattr(_LIB, _BACKWARD, self._run)

    def remove(self, waiter: Waiter) -> None:
        with self._lock:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            if not self._waiters:
                setattr(_LIB, _BACKWARD, self._original)

    def _run(self, *args: Any) -> int:
        if args[_NUMBER_OF_VARIABLES]:
            return self._original(*args)
        with self._lock:  # marks are shared, and nets may run in several threads
            awaited = [(waiter, waiter.awaited()) for waiter in tuple(self._waiters)]
            status, fresh = self._run_marked(args, {p for _, each in awaited for p in each})
        for waiter, parameters in awaited:
            waiter.arrived([parameter for parameter in parameters if parameter in fresh])
        return status

    def _run_marked(
        self, args: tuple[Any, ...], parameters: set[Parameter]
    ) -> tuple[int, set[Parameter]]:
        """Returns also whose gradients the pass wrote.

        MXNet marks the data whose gradients are fresh, and Trainer relies on the marks.
        """
        before = {p for p in parameters if p._data[0]._fresh_grad}
        for parameter in parameters:
            parameter._data[0]._fresh_grad = False
        try:
            status = self._original(*args)
        finally:
            fresh = {p for p in parameters if p._data[0]._fresh_grad}
            for parameter in before:
                parameter._data[0]._fresh_grad = True
        return status, fresh


backward_passes = BackwardPasses()
