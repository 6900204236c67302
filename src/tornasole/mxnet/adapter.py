"""From Gluon's callbacks to the recorder: what a step is, and which tensors appear in it.

On a step that keeps nothing, a net carries one callback, on its root, and runs as it is, hybridised
or not. On a step that keeps inputs or outputs of inner blocks, these carry callbacks for that step
alone, and a hybridised net runs un-hybridised: its compiled graph stays and serves the next step.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from mxnet import autograd
from mxnet.gluon import Block, Constant, Parameter
from mxnet.gluon.loss import Loss
from mxnet.ndarray import NDArray
from mxnet.symbol import Symbol

from tornasole.capture.guard import Callback, Guard
from tornasole.capture.layers import LayerAdapter, tensors_in
from tornasole.capture.recorder import Item, Recorder
from tornasole.errors import SMDebugValueError
from tornasole.mxnet.backward import backward_passes
from tornasole.mxnet.hybrid import unhybridised
from tornasole.types import Role

log = logging.getLogger("tornasole")

_Named = tuple[str, Role, Parameter]


class BlockAdapter(LayerAdapter):
    """Watches the nets and losses of one hook."""

    tensor_type = NDArray

    def __init__(
        self, recorder: Recorder, guard: Guard, begin_step: Callable[[bool], None]
    ) -> None:
        super().__init__(recorder, guard, begin_step)
        self._roots: list[_Root] = []
        self._losses: dict[Block, str] = {}
        self._attached: list[_Callback] = []  # for good
        self._inner: list[_Callback] = []  # while the net runs
        self._running = 0  # in how many threads
        self._calls = _Calls()
        self._late: list[_Named] = []  # parameters that were not initialised when the step began
        self._names: dict[Parameter, str] = {}  # of those whose gradients are awaited
        self._only_hybridised: set[Block] = set()

    # -- nets and losses ---------------------------------------------------------------------------

    def attach(self, block: Block) -> None:
        """Makes each call of the block a step."""
        inside = _blocks_of(block)
        for root in self._roots:
            if block in root.names or root.block in inside:
                raise SMDebugValueError(
                    f"{block.name} is registered already, by itself or within another net."
                )
        root = _Root(block, {name for root in self._roots for name in root.names.values()})
        self._roots.append(root)
        self._attached.append(_Callback(self._guard, self._on_call, root).before(block))
        self._attached.append(_Callback(self._guard, self._on_return, root).after(block))

    def attach_loss(self, block: Block) -> None:
        """Records what the block returns as loss, and what it is given as prediction and label."""
        if block in self._losses:
            raise SMDebugValueError(f"The loss {block.name} is registered already.")
        name = self._losses[block] = _free_name(block.name, set(self._losses.values()))
        callback = _Callback(self._guard, self._on_loss, name)
        self._attached.append(callback.after(block))

    def detach(self) -> None:
        self._attached, self._inner = _remove_idle([*self._attached, *self._inner]), []
        self._disarm()
        self._stop_waiting()
        self._roots, self._losses = [], {}

    def _name_of(self, layer: Block) -> str | None:
        for root in self._roots:
            if layer in root.names:
                return root.names[layer]
        return self._losses.get(layer)

    # -- a step ------------------------------------------------------------------------------------

    def _on_call(self, root: _Root, block: Block, args: tuple[Any, ...]) -> None:
        array = next(tensors_in(args, NDArray), None)
        if array is None and next(tensors_in(args, Symbol), None) is not None:
            return  # a net around this one is being compiled
        if not root.called and not root.is_initialised():
            return
        root.called = True
        context = None if array is None else array.context
        goes_on = self._calls.go_on(root, context, self._recorder.mode)
        if not goes_on and self._begin(trains=autograd.is_recording()):
            root.refresh_names()
            self._record_parameters()
            if autograd.is_recording():
                self._await(root)
        if self._recorder.active:
            self._arm_inner(root)
            self._record(root.name, "input", (Role.INPUT,), args)

    def _await(self, root: _Root) -> None:
        """Waits for what follows the net's call."""
        owed = []
        if any(isinstance(block, Loss) for block in root.names) or self._losses:
            owed.append(Role.LOSS)
        if self._recorder.wants_role(Role.GRADIENT):
            named = [(name, p) for name, _, p in self._parameters() if p.grad_req != "null"]
            if named:
                owed.append(Role.GRADIENT)
                self._names = {parameter: name for name, parameter in named}
                backward_passes.add(self._on_gradients, list(self._names))
        self._recorder.owe(*owed)

    def _arm_inner(self, root: _Root) -> None:
        """Puts callbacks on inner blocks, as far as this step needs them, while the net runs."""
        self._running += 1
        if self._running > 1:
            return  # another thread runs the net for another context
        wants = self._recorder.wants_role
        inputs, outputs = wants(Role.LAYER_INPUT), wants(Role.LAYER_OUTPUT)
        losses = any(map(wants, (Role.LOSS, Role.PREDICTION, Role.LABEL, Role.INPUT)))
        if not (inputs or outputs or losses):
            return
        for block, name in root.names.items():
            if block is root.block or block in self._losses:
                continue
            if isinstance(block, Loss):
                if losses:
                    callback = _Callback(self._guard, self._on_loss, name)
                    self._inner.append(callback.after(block))
                continue
            if inputs:
                callback = _Callback(self._guard, self._on_input, name)
                self._inner.append(callback.before(block))
            if outputs:
                callback = _Callback(self._guard, self._on_output, name)
                self._inner.append(callback.after(block))
        if self._inner or (losses and any(block in root.names for block in self._losses)):
            unhybridised.hold(root.block, self, but=self._only_hybridised)

    def _disarm(self) -> None:
        unhybridised.release(self)
        self._running = 0
        self._late = []
        inner, self._inner = self._inner, []
        for callback in inner:
            callback.remove()

    def _stop_waiting(self) -> None:
        backward_passes.remove(self._on_gradients)

    def _can_train(self, value: Any) -> bool:
        return bool(autograd.is_recording())

    def is_ours(self, error: Exception) -> bool:
        return error is self._guard.fault or error is self._guard.passed_on

    def runs_only_hybridised(self, block: Block, error: Exception) -> None:
        self._only_hybridised.add(block)
        self._recorder.note(
            f"{block.name}, inner blocks",
            f"it runs only hybridised ({type(error).__name__}: {error})",
        )

    # -- tensors -----------------------------------------------------------------------------------

    def _parameters(self) -> Iterator[_Named]:
        names: dict[Parameter, str] = {}
        taken: set[str] = set()
        for root in self._roots:
            for parameter in root.parameters():
                if parameter not in names:
                    free = parameter.name not in taken
                    name = parameter.name if free else f"{root.name}.{parameter.name}"
                    names[parameter] = _free_name(name, taken)
                    taken.add(names[parameter])
                    yield names[parameter], _role(parameter), parameter

    def _record_parameters(self) -> None:
        """Parameters as the forward pass will use them; those that it initialises come after it."""
        if any(map(self._recorder.wants_role, (Role.WEIGHT, Role.BIAS, Role.BUFFER))):
            every = list(self._parameters())
            self._late = [each for each in every if each[2]._data is None]
            self._record_data(every)

    def _record_data(self, parameters: list[_Named]) -> None:
        self._recorder.record_many(
            (name, role, p._data[0]) for name, role, p in parameters if p._data is not None
        )

    def _on_return(self, root: _Root, block: Block, args: Any, output: Any) -> None:
        if not self._running:
            return
        late, self._late = self._late, []
        self._record_data(late)
        self._record(root.name, "output", (Role.OUTPUT,), output)
        self._running -= 1
        if not self._running:
            self._disarm()

    def _on_input(self, name: str, block: Block, args: Any) -> None:
        self._record(name, "input", (Role.LAYER_INPUT,), args)

    def _on_output(self, name: str, block: Block, args: Any, output: Any) -> None:
        self._record(name, "output", (Role.LAYER_OUTPUT,), output)

    def _on_loss(self, name: str, block: Block, args: Any, output: Any) -> None:
        if next(tensors_in(output, NDArray), None) is not None:  # else it is being compiled
            self._record_loss(name, args, output)

    def _on_gradients(self, arrived: set[Parameter]) -> None:
        if arrived:
            self._guard.run(self._record_gradients, arrived)

    def _record_gradients(self, arrived: set[Parameter]) -> None:
        items: list[Item] = [
            (f"gradient/{name}", Role.GRADIENT, parameter._grad[0])
            for parameter, name in self._names.items()
            if parameter in arrived
        ]
        self._recorder.record_many(items, Role.GRADIENT)
        self._recorder.has_come(Role.GRADIENT)


class _Root:
    """A registered net and the names in it.

    A block goes by its own name, which Gluon makes unique in the process. One whose name is taken,
    because of a prefix that the user chose, goes by the net's name and the path in it.
    """

    def __init__(self, block: Block, taken: set[str]) -> None:
        self.block = block
        self.name = _free_name(block.name or type(block).__name__.lower(), taken)
        self._taken = taken - {self.name}
        self.called = False
        self.names: dict[Block, str] = {}
        self.refresh_names()

    def refresh_names(self) -> None:
        """Finds the name of each block in the net as it is now."""
        self.names = {self.block: self.name}
        taken = self._taken | {self.name}
        for block, path in _blocks_of(self.block).items():
            if block is not self.block:
                free = block.name and block.name not in taken
                self.names[block] = block.name if free else f"{self.name}.{path}"
                taken.add(self.names[block])

    def parameters(self) -> Iterator[Parameter]:
        """Not by ``collect_params``, which refuses a net with two parameters of one name."""
        for block in _blocks_of(self.block):
            yield from block.params.values()

    def contexts(self) -> set[Any]:
        """Where the parameters are."""
        return {context for p in self.parameters() if _is_placed(p) for context in p.list_ctx()}

    def is_initialised(self) -> bool:
        """Whether the net can be called; where it cannot, MXNet raises."""
        missing = [parameter.name for parameter in self.parameters() if not _is_placed(parameter)]
        if missing:
            log.warning(
                "%s was called, but %s%s not initialised: this call is no step. Call its "
                "initialize() first.",
                self.name,
                ", ".join(missing[:3]),
                " is" if len(missing) == 1 else " and others are" if len(missing) > 3 else " are",
            )
        return not missing


class _Calls:
    """The calls of a net that make up the current step: one for each of its contexts."""

    def __init__(self) -> None:
        self._kind: tuple[Any, ...] = ()
        self._contexts: set[Any] = set()

    def go_on(self, root: _Root, context: Any, mode: Any) -> bool:
        """Whether a call belongs to the current step: the same net, for a context not yet seen."""
        kind = (root, mode, autograd.is_recording())
        same = (
            kind == self._kind
            and context is not None
            and context not in self._contexts
            and self._contexts < root.contexts()  # else the net has moved
        )
        if not same:
            self._kind, self._contexts = kind, set()
        self._contexts.add(context)
        return same


class _Callback(Callback):
    """A callback on a block."""

    def before(self, block: Block) -> _Callback:
        self.block, self._handle = block, block.register_forward_pre_hook(self)
        return self

    def after(self, block: Block) -> _Callback:
        self.block, self._handle = block, block.register_forward_hook(self)
        return self

    def remove(self) -> None:
        self._handle.detach()

    silenced = False  # what is being called cannot be removed

    def __call__(self, *args: Any) -> None:
        if not self.silenced:
            super().__call__(*args)


def _remove_idle(callbacks: list[_Callback]) -> list[_Callback]:
    """Removes callbacks from blocks that are not being called; returns the others, silenced.

    Gluon calls the callbacks of a block in a loop over them, in which none may go.
    """
    busy = _blocks_being_called()
    waiting = [callback for callback in callbacks if callback.block in busy]
    for callback in callbacks:
        if callback.block in busy:
            callback.silenced = True
        else:
            callback.remove()
    return waiting


def _blocks_being_called() -> set[Block]:
    called = set()
    for top in sys._current_frames().values():
        frame: FrameType | None = top
        while frame is not None:
            if frame.f_code is Block.__call__.__code__:
                called.add(frame.f_locals["self"])
            frame = frame.f_back
    return called


def _blocks_of(block: Block, path: str = "") -> dict[Block, str]:
    """Every block in the block, itself first, with the path to it; one in two places comes once."""
    found = {block: path}
    for key, child in block._children.items():
        for inner, place in _blocks_of(child, f"{path}.{key}" if path else key).items():
            found.setdefault(inner, place)
    return found


def _is_placed(parameter: Parameter) -> bool:
    """Whether the parameter is initialised, or will be when its net is called."""
    return parameter._data is not None or bool(parameter._deferred_init)


def _role(parameter: Parameter) -> Role:
    if isinstance(parameter, Constant) or not parameter._differentiable:
        return Role.BUFFER  # constants and running statistics
    leaf = parameter.name.rpartition("_")[2]
    return Role.BIAS if "bias" in leaf or leaf == "beta" else Role.WEIGHT


def _free_name(name: str, taken: set[str]) -> str:
    """The name, numbered if it is taken."""
    if name not in taken:
        return name
    return next(f"{name}_{n}" for n in range(1, len(taken) + 2) if f"{name}_{n}" not in taken)
