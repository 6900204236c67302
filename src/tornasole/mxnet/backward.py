"""When a backward pass is over, and which gradients it brought.

Gluon has no callback for that. ``loss.backward()`` and ``autograd.backward`` both call one function
of MXNet's library; while somebody waits for gradients, a function of ours stands in its place.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, cast

from mxnet.base import _LIB
from mxnet.gluon import Parameter

_BACKWARD = "MXAutogradBackwardEx"
_NUMBER_OF_VARIABLES = 3  # among its arguments; not 0: gradients are returned, not kept


Arrived = Callable[[set[Parameter]], None]


class BackwardPasses:
    """Tells those who wait. There is one, because MXNet's library is one for the process."""

    def __init__(self) -> None:
        self._waiting: dict[Arrived, Sequence[Parameter]] = {}
        self._original: Callable[..., int] | None = None
        self._lock = threading.Lock()  # never held while others' code runs
        self._marking = threading.Lock()

    def add(self, arrived: Arrived, parameters: Sequence[Parameter]) -> None:
        """Has ``arrived`` called after each pass with those parameters whose gradients it wrote."""
        with self._lock:
            self._waiting = {**self._waiting, arrived: parameters}
            if self._original is None:
                self._original = getattr(_LIB, _BACKWARD)
                setattr(_LIB, _BACKWARD, self._run)

    def remove(self, arrived: Arrived) -> None:
        with self._lock:
            self._waiting = {each: self._waiting[each] for each in self._waiting if each != arrived}
            # Somebody else may have put a function of theirs in the place of ours.
            if not self._waiting and getattr(_LIB, _BACKWARD) == self._run:
                setattr(_LIB, _BACKWARD, self._original)
                self._original = None

    def _run(self, *args: Any) -> int:
        waiting, original = self._waiting, self._original
        if original is None:  # the last who waited has gone meanwhile
            original = cast("Callable[..., int]", getattr(_LIB, _BACKWARD))
        if args[_NUMBER_OF_VARIABLES] or not waiting:
            return original(*args)
        awaited = {p for parameters in waiting.values() for p in parameters if p._grad is not None}
        with self._marking:
            status, fresh = _run_marked(original, args, awaited)
        for arrived, parameters in waiting.items():
            arrived(fresh.intersection(parameters))
        return status


def _run_marked(
    backward: Callable[..., int], args: tuple[Any, ...], parameters: set[Parameter]
) -> tuple[int, set[Parameter]]:
    """Returns also whose gradients the pass wrote.

    MXNet marks the data whose gradients are fresh, and Trainer relies on the marks.
    """
    before = {p for p in parameters if p._data[0]._fresh_grad}
    for parameter in parameters:
        parameter._data[0]._fresh_grad = False
    try:
        status = backward(*args)
    finally:
        fresh = {p for p in parameters if p._data[0]._fresh_grad}
        for parameter in before:
            parameter._data[0]._fresh_grad = True
    return status, fresh


backward_passes = BackwardPasses()
