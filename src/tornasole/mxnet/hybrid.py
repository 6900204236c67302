"""Running hybridised blocks un-hybridised for one step, so that the blocks inside can be seen."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

from mxnet.gluon import HybridBlock, SymbolBlock
from mxnet.ndarray import NDArray

from tornasole.capture.layers import tensors_in


class Holder(Protocol):
    """Who wants to see inside."""

    def is_ours(self, error: Exception) -> bool:
        """Whether the error is the holder's own, and meant for the user."""

    def runs_only_hybridised(self, block: HybridBlock, error: Exception) -> None:
        """Un-hybridised, the block failed; as it is, it did not."""


class Unhybridised:
    """Has hybridised blocks run un-hybridised while anybody holds them; their graphs are kept.

    There is one for the process: a net may be watched by several hooks, and run in several threads.
    """

    def __init__(self) -> None:
        self._forwards: dict[HybridBlock, _Forward] = {}
        self._lock = threading.RLock()

    def hold(self, block: HybridBlock, inside: list[HybridBlock], holder: Holder) -> None:
        """Has a block that no hybridised block is around run so, and those inside it."""
        with self._lock:
            if block not in self._forwards:
                self._forwards[block] = _Forward(block, inside, self._lock)
            self._forwards[block].holders.append(holder)

    def release(self, holder: Holder) -> None:
        with self._lock:
            for block, forward in list(self._forwards.items()):
                forward.holders = [each for each in forward.holders if each is not holder]
                if not forward.holders:
                    forward.remove()
                    del self._forwards[block]


class _Forward:
    """Stands in the place of a block's ``forward``."""

    def __init__(
        self, block: HybridBlock, inside: list[HybridBlock], lock: threading.RLock
    ) -> None:
        self._block, self._inside, self._lock = block, inside, lock
        self._before = block.__dict__.get("forward")
        self._original: Callable[..., Any] = block.forward
        self._running = 0
        self.holders: list[Holder] = []
        block.forward = self._run

    def _run(self, *args: Any) -> Any:
        array = next(tensors_in(args, NDArray), None)
        if array is None:
            return self._original(*args)  # a net around this one is being compiled
        # First what a compiled run does first: so parameters are initialised in the same order.
        if self._block._cached_op is None:
            with array.context:
                self._block._build_cache(*args)
        self._enter()
        try:
            return self._original(*args)
        except Exception as error:  # whatever it is, it may be for our doing
            if any(holder.is_ours(error) for holder in self.holders):
                raise
            reason = error
        finally:
            self._leave()
        # Its Python code does not run when it is compiled, so nothing of the user's runs twice; an
        # error of the user's comes again.
        output = self._original(*args)
        for holder in list(self.holders):
            holder.runs_only_hybridised(self._block, reason)
        return output

    def _enter(self) -> None:
        with self._lock:
            self._running += 1
            for block in self._inside:
                block._active = False

    def _leave(self) -> None:
        with self._lock:
            self._running -= 1
            if not self._running:
                for block in self._inside:
                    block._active = True

    def remove(self) -> None:
        if self._block.__dict__.get("forward") == self._run:
            del self._block.__dict__["forward"]
            if self._before is not None:
                self._block.forward = self._before


def runs_compiled(block: Any) -> bool:
    """Whether the block is hybridised. One that was loaded as a graph has nothing else inside."""
    return isinstance(block, HybridBlock) and not isinstance(block, SymbolBlock) and block._active


unhybridised = Unhybridised()
