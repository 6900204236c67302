"""Running hybridised blocks un-hybridised for one step, so that the blocks inside can be seen."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from mxnet.gluon import Block, HybridBlock, SymbolBlock
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
        self._lock = threading.RLock()  # never held while others' code runs

    def hold(self, net: Block, holder: Holder, but: set[Block]) -> None:
        """Has the net's outermost hybridised blocks run so, except some."""
        with self._lock:
            for block in self._outermost_hybridised(net):
                if block in but:
                    continue
                if block not in self._forwards:
                    self._forwards[block] = _Forward(block, self._lock, self._forget)
                self._forwards[block].holders.append(holder)

    def release(self, holder: Holder) -> None:
        with self._lock:
            for forward in list(self._forwards.values()):
                forward.holders = [each for each in forward.holders if each is not holder]
                self._forget(forward)

    def _forget(self, forward: _Forward) -> None:
        with self._lock:
            if not forward.holders and not forward.running:
                forward.remove()
                self._forwards.pop(forward.block, None)

    def _outermost_hybridised(self, block: Block) -> Iterator[HybridBlock]:
        if block in self._forwards or _runs_compiled(block):
            yield block
            return
        for child in block._children.values():
            yield from self._outermost_hybridised(child)


class _Forward:
    """Stands in the place of a block's ``forward``."""

    def __init__(
        self, block: HybridBlock, lock: threading.RLock, forget: Callable[[_Forward], None]
    ) -> None:
        self.block, self._lock, self._forget = block, lock, forget
        self._before = block.__dict__.get("forward")
        self._original: Callable[..., Any] = block.forward
        self._hybridised: list[HybridBlock] = []
        self.running = 0
        self.holders: list[Holder] = []
        block.forward = self._run

    def _run(self, *args: Any) -> Any:
        array = next(tensors_in(args, NDArray), None)
        if array is None:
            return self._original(*args)  # a net around this one is being compiled
        # First what a compiled run does first: so parameters are initialised in the same order.
        if self.block._cached_op is None:
            with array.context:
                self.block._build_cache(*args)
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
            holder.runs_only_hybridised(self.block, reason)
        return output

    def _enter(self) -> None:
        with self._lock:
            if not self.running:
                self._hybridised = [each for each in _inside(self.block) if _runs_compiled(each)]
                for block in self._hybridised:
                    block._active = False
            self.running += 1

    def _leave(self) -> None:
        with self._lock:
            self.running -= 1
            if not self.running:
                for block in self._hybridised:
                    block._active = True
                self._forget(self)

    def remove(self) -> None:
        if self.block.__dict__.get("forward") == self._run:
            del self.block.__dict__["forward"]
            if self._before is not None:
                self.block.forward = self._before


def _inside(block: Block) -> Iterator[Block]:
    yield block
    for child in block._children.values():
        yield from _inside(child)


def _runs_compiled(block: Any) -> bool:
    """Whether the block is hybridised. One that was loaded as a graph has nothing else inside."""
    return isinstance(block, HybridBlock) and not isinstance(block, SymbolBlock) and block._active


unhybridised = Unhybridised()
