"""Living with ``torch.compile``: nothing of ours is inside compiled code.

Compiled code runs untouched on a step that keeps nothing, and eagerly on one that keeps something.
So we must be called from outside of what is compiled, whichever way and whenever a model was
compiled (``torch.compile(model)``, ``model.compile()``, before or after it was registered).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from tornasole.capture.guard import Guard


class CallWrapper:
    """Calls us before each call of a model compiled in place (``model.compile()``)."""

    def __init__(self, module: torch.nn.Module, callback: Callable[..., None]) -> None:
        self._module = module
        self._compiled: Any = module._compiled_call_impl
        compiled: Any = self._compiled

        def call(*args: Any, **kwargs: Any) -> Any:
            callback(module, args, kwargs)
            return compiled(*args, **kwargs)

        self._call = call
        module._compiled_call_impl = call

    def remove(self) -> None:
        if self._module._compiled_call_impl is self._call:
            self._module._compiled_call_impl = self._compiled


class CompilationListener:
    """Calls us whenever torch begins to compile."""

    def __init__(self, guard: Guard, function: Callable[[], None]) -> None:
        self._callback = lambda *args: guard.run(function)
        torch._dynamo.callback.callback_handler.register_start_callback(self._callback)

    def remove(self) -> None:
        callbacks = torch._dynamo.callback.callback_handler.start_callbacks
        if self._callback in callbacks:  # the user may have reset the compiler
            callbacks.remove(self._callback)


class EagerStance:
    """Has compiled code run eagerly while anybody holds it; the user's own stance comes back after.

    There is one for the process, because torch has one stance for the process. The user may change
    it in between, or be inside a ``with set_stance(...)`` that will bring ours back, so what was
    before ours is kept until ours is met again.
    """

    def __init__(self) -> None:
        self._holders: set[int] = set()
        self._before: list[Any] = []
        self._eager: Any = None

    def hold(self, holder: object) -> None:
        self._holders.add(id(holder))
        if self._eager is None:
            self._eager = torch._dynamo.eval_frame.DynamoStance("force_eager")
        if torch._dynamo.eval_frame._stance is not self._eager:
            self._before.append(torch._dynamo.eval_frame._set_stance(self._eager))

    def release(self, holder: object) -> bool:
        """Returns whether it was held."""
        held = id(holder) in self._holders
        self._holders.discard(id(holder))
        if self._before and not self._holders and torch._dynamo.eval_frame._stance is self._eager:
            torch._dynamo.eval_frame._set_stance(self._before.pop())
            _excuse_eager_call()
        return held


eager_stance = EagerStance()


def _excuse_eager_call() -> None:
    """Tells torch that the call under way, if any, rightly ran eagerly.

    Where the stance is the default when a call with ``fullgraph=True`` ends, torch insists that
    something compiled ran.
    """
    count_frames = getattr(torch._dynamo.eval_frame, "set_fullgraph_compiled_frame_count", None)
    if count_frames is not None:
        count = count_frames(-1)  # negative where torch does not count
        count_frames(1 if count == 0 else count)


def inner_module(module: Any) -> Any:
    """The module that ``torch.compile`` wrapped, or the module itself."""
    inner = module
    while isinstance(inner, torch._dynamo.eval_frame.OptimizedModule):
        inner = inner._orig_mod
    return inner


def plain_path(path: str) -> str:
    """A dotted path as it would be without ``torch.compile``."""
    return path.replace("_orig_mod.", "").removesuffix("._orig_mod")


def compiled_callers(module: torch.nn.Module) -> tuple[torch.nn.Module | None, bool]:
    """Who calls the module: itself compiled, if it is; whether a compiled function does."""
    enclosing = False
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        code, caller = frame.f_code.co_name, frame.f_locals.get("self")
        if code == "_wrapped_call_impl" and caller is module and module._compiled_call_impl:
            return module, False
        if code == "__call__" and caller is not module and inner_module(caller) is module:
            return caller, False
        enclosing |= code == "compile_wrapper"
        frame = frame.f_back
    return None, enclosing
