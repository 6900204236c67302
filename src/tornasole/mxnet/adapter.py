"""From Gluon's callbacks to the recorder: what a step is, and which tensors appear in it.

On a step that keeps nothing, a net carries one callback, on its root, and runs as it is, hybridised
or not. On a step that keeps inputs or outputs of inner blocks, these carry callbacks for that step
alone, and a hybridised net runs un-hybridised: its compiled graph stays and serves the next step.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from mxnet import autograd
from mxnet.gluon import Block, HybridBlock, Parameter
from mxnet.gluon.loss import Loss
from mxnet.ndarray import NDArray
from mxnet.symbol import Symbol

from tornasole.capture.guard import Callback, Guard
from tornasole.capture.layers import LayerAdapter, tensors_in
from tornasole.capture.recorder import Item, Recorder
from tornasole.errors import SMDebugValueError
from tornasole.mxnet.backward import backward_passes
from tornasole.types import Role

log = logging.getLogger("tornasole")


class _Removable(Protocol):
    def remove(self) -> bool:
        """Returns whether it is gone."""


class BlockAdapter(LayerAdapter):
    """Watches the nets and losses of one hook."""

    tensor_type = NDArray

    def __init__(self, recorder: Recorder, guard: Guard, begin_step: Callable[[], None]) -> None:
        super().__init__(recorder, guard, begin_step)
        self._roots: list[_Root] = []
        self._losses: dict[Block, str] = {}
        self._attached: list[_Removable] = []
        self._armed: list[_Removable] = []
        self._late: list[tuple[str, Role, Parameter]] = []  # not initialised when the step began
        self._calls = _Calls()

    # -- nets and losses ---------------------------------------------------------------------------

    def attach(self, block: Block) -> None:
        """Makes each call of the block a step."""
        inside = set(_blocks_of(block))
        for root in self._roots:
            if block in root.names or root.block in inside:
                raise SMDebugValueError(
                    f"{block.name} is registered already, by itself or within another net."
                )
        root = _Root(block, {name for root in self._roots for name in root.names.values()})
        self._roots.append(root)
        call = _Callback(self._guard, self._on_call, root)
        self._attached.append(call.on(block.register_forward_pre_hook))

    def attach_loss(self, block: Block) -> None:
        """Records what the block returns as loss, and what it is given as prediction and label."""
        if block in self._losses:
            raise SMDebugValueError(f"The loss {block.name} is registered already.")
        name = self._losses[block] = _free_name(block.name, set(self._losses.values()))
        callback = _Callback(self._guard, self._on_loss, name)
        self._attached.append(callback.on(block.register_forward_hook))

    def detach(self) -> None:
        self._disarm()
        self._attached = [callback for callback in self._attached if not callback.remove()]
        self._roots, self._losses = [], {}

    def _name_of(self, layer: Block) -> str | None:
        names = [root.names for root in self._roots if layer in root.names] + [self._losses]
        return names[0].get(layer)

    # -- a step ------------------------------------------------------------------------------------

    def _on_call(self, root: _Root, block: Block, args: tuple[Any, ...]) -> None:
        array = next(tensors_in(args, NDArray), None)
        if array is None and next(tensors_in(args, Symbol), None) is not None:
            return  # a net around this one is being compiled
        context = None if array is None else array.context
        if not self._calls.go_on(root, context, self._recorder.mode):
            if not root.called and not root.is_initialised():
                return
            root.called = True
            if self._begin():
                self._arm(root)
                self._record_parameters()
        if self._recorder.wants_role(Role.INPUT):
            self._record(root.name, "input", (Role.INPUT,), args)

    def _arm(self, root: _Root) -> None:
        """Puts callbacks on blocks as far as this step needs them, and waits for gradients."""
        wants = self._recorder.wants_role
        callback = _Callback(self._guard, self._on_root_output, root)
        self._armed.append(callback.on(root.block.register_forward_hook))
        inner: list[_Removable] = []
        losses = False
        for block, name in root.current_names().items():
            if block is root.block or block in self._losses:
                continue
            if isinstance(block, Loss):
                losses = True
                if any(map(wants, (Role.LOSS, Role.PREDICTION, Role.LABEL, Role.INPUT))):
                    callback = _Callback(self._guard, self._on_loss, name)
                    inner.append(callback.on(block.register_forward_hook))
                continue
            if wants(Role.LAYER_INPUT):
                callback = _Callback(self._guard, self._on_input, name)
                inner.append(callback.on(block.register_forward_pre_hook))
            if wants(Role.LAYER_OUTPUT):
                callback = _Callback(self._guard, self._on_output, name)
                inner.append(callback.on(block.register_forward_hook))
        self._armed += inner
        if inner and not root.only_hybridised:
            self._armed.append(_Unhybridised(root, self._guard, self._recorder))
        if autograd.is_recording():
            self._owe(gradients=True, losses=losses or bool(self._losses))
        if wants(Role.GRADIENT):
            backward_passes.add(self)

    def _disarm(self, keep_gradients: bool = False) -> None:
        armed, self._armed = self._armed, []
        self._attached += [each for each in armed if not each.remove()]
        self._late.clear()
        if not keep_gradients:
            backward_passes.remove(self)
            self._owed.clear()

    # -- tensors -----------------------------------------------------------------------------------

    def _parameters(self) -> Iterator[tuple[str, Role, Parameter]]:
        names: dict[Parameter, str] = {}
        taken: set[str] = set()
        for root in self._roots:
            for name, parameter in root.block.collect_params().items():
                if parameter not in names:
                    names[parameter] = f"{root.name}.{name}" if name in taken else name
                    taken.add(names[parameter])
                    yield names[parameter], _role(parameter), parameter

    def _record_parameters(self) -> None:
        """Parameters as the forward pass will use them; those that it initialises come after it."""
        if any(map(self._recorder.wants_role, (Role.WEIGHT, Role.BIAS, Role.BUFFER))):
            every = list(self._parameters())
            self._late = [each for each in every if each[2]._data is None]
            self._record_data(each for each in every if each[2]._data is not None)

    def _record_data(self, parameters: Iterator[tuple[str, Role, Parameter]]) -> None:
        self._recorder.record_many((name, role, p._data[0]) for name, role, p in parameters)

    def _on_root_output(self, root: _Root, block: Block, args: Any, output: Any) -> None:
        late, self._late = self._late, []
        self._record_data(each for each in late if each[2]._data is not None)
        if self._recorder.wants_role(Role.OUTPUT):
            self._record(root.name, "output", (Role.OUTPUT,), output)

    def _on_input(self, name: str, block: Block, args: Any) -> None:
        self._record(name, "input", (Role.LAYER_INPUT,), args)

    def _on_output(self, name: str, block: Block, args: Any, output: Any) -> None:
        self._record(name, "output", (Role.LAYER_OUTPUT,), output)

    def _on_loss(self, name: str, block: Block, args: Any, output: Any) -> None:
        if next(tensors_in(output, NDArray), None) is not None:  # else it is being compiled
            self._record_loss(name, args, output)

    def awaited(self) -> Sequence[Parameter]:
        return self._guard.run(self._with_gradients) or ()

    def _with_gradients(self) -> Sequence[Parameter]:
        return [parameter for _, _, parameter in self._parameters() if parameter._grad is not None]

    def arrived(self, parameters: Sequence[Parameter]) -> None:
        if parameters:
            self._guard.run(self._record_gradients, set(parameters))

    def _record_gradients(self, arrived: set[Parameter]) -> None:
        items: list[Item] = [
            (f"gradient/{name}", Role.GRADIENT, parameter._grad[0])
            for name, _, parameter in self._parameters()
            if parameter in arrived
        ]
        self._recorder.record_many(items)
        self._has_come(Role.GRADIENT)


class _Root:
    """A registered net and the names in it.

    A block goes by its own name, which Gluon makes unique in the process. One whose name is taken,
    because of a prefix that the user chose, goes by the net's name and the path in it.
    """

    def __init__(self, block: Block, taken: set[str]) -> None:
        self.block = block
        self.name = _free_name(block.name or type(block).__name__.lower(), taken)
        self._taken = taken - {self.name}
        self.names = self.current_names()
        self.called = self.only_hybridised = False

    def current_names(self) -> dict[Block, str]:
        """The name of each block in the net as it is now."""
        self.names = {self.block: self.name}
        taken = self._taken | {self.name}
        for block, path in _blocks_of(self.block).items():
            if block is not self.block:
                free = block.name and block.name not in taken
                self.names[block] = block.name if free else f"{self.name}.{path}"
                taken.add(self.names[block])
        return self.names

    def is_initialised(self) -> bool:
        """Whether the net can be called; where it cannot, MXNet raises."""
        parameters = self.block.collect_params().items()
        missing = [name for name, p in parameters if p._data is None and not p._deferred_init]
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
        same = context is not None and kind == self._kind and context not in self._contexts
        if not same:
            self._kind, self._contexts = kind, set()
        self._contexts.add(context)
        return same


class _Callback(Callback):
    """A callback on a block.

    Gluon calls the callbacks of a block in a loop over them, in which none may go: one that is
    removed while it runs does nothing from then on, and goes later.
    """

    _running = _removed = False

    def on(self, register: Callable[[Callback], Any]) -> _Callback:
        self._handle = register(self)
        return self

    def __call__(self, *args: Any) -> None:
        if self._removed:
            return
        self._running = True
        try:
            super().__call__(*args)
        finally:
            self._running = False

    def remove(self) -> bool:
        self._removed = True
        if not self._running:
            self._handle.detach()
        return not self._running


class _Unhybridised:
    """Has a net run un-hybridised, each of its blocks by itself; its compiled graph is kept."""

    def __init__(self, root: _Root, guard: Guard, recorder: Recorder) -> None:
        self._root, self._guard, self._recorder = root, guard, recorder
        self._before = root.block.__dict__.get("forward")
        self._forward = root.block.forward
        root.block.forward = self._run

    def _run(self, *args: Any) -> Any:
        hybridised = [
            block
            for block in _blocks_of(self._root.block)
            if isinstance(block, HybridBlock) and block._active
        ]
        if not hybridised:
            return self._forward(*args)
        try:
            for block in hybridised:
                block._active = False
            return self._forward(*args)
        except Exception as error:
            if self._guard.fault is not None:
                raise  # it is ours, and the user wants it
            reason = error
        finally:
            for block in hybridised:
                block._active = True
        output = self._forward(*args)  # the user's own error comes again, from the user's own code
        self._root.only_hybridised = True
        self._recorder.note(
            f"{self._root.name}, inner blocks",
            f"the net runs only hybridised ({type(reason).__name__}: {reason})",
        )
        return output

    def remove(self) -> bool:
        if self._root.block.__dict__.get("forward") == self._run:
            del self._root.block.__dict__["forward"]
            if self._before is not None:
                self._root.block.forward = self._before
        return True


def _blocks_of(block: Block, path: str = "") -> dict[Block, str]:
    """Every block in the block, itself first, with the path to it; one in two places comes once."""
    found = {block: path}
    for key, child in block._children.items():
        for inner, place in _blocks_of(child, f"{path}.{key}" if path else key).items():
            found.setdefault(inner, place)
    return found


def _role(parameter: Parameter) -> Role:
    if not parameter._differentiable:
        return Role.BUFFER  # running statistics and constants
    leaf = parameter.name.rpartition("_")[2]
    return Role.BIAS if "bias" in leaf or leaf == "beta" else Role.WEIGHT


def _free_name(name: str, taken: set[str]) -> str:
    """The name, numbered if it is taken."""
    if name not in taken:
        return name
    return next(f"{name}_{n}" for n in range(1, len(taken) + 2) if f"{name}_{n}" not in taken)
