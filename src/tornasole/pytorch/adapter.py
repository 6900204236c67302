"""From PyTorch's callbacks to the recorder: what a step is, and which tensors appear in it.

A step is one call of a registered model. On a step that keeps nothing, the model carries one
callback, on its root. On a step that keeps module inputs or outputs, every module carries callbacks
for that step alone; on one that keeps gradients, every parameter does. Nothing of ours is inside
compiled code: on a kept step, compiled modules run eagerly.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from torch.nn.parameter import is_lazy
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from tornasole.capture.guard import Callback, Guard
from tornasole.capture.layers import LayerAdapter, tensors_in
from tornasole.capture.recorder import Item, Recorder
from tornasole.errors import SMDebugValueError
from tornasole.pytorch.compilation import (
    CallWrapper,
    CompilationListener,
    compiled_callers,
    eager_stance,
    inner_module,
    plain_path,
)
from tornasole.types import Role

log = logging.getLogger("tornasole")

_INPUTS = (Role.INPUT, Role.LAYER_INPUT)
_OUTPUTS = (Role.OUTPUT, Role.LAYER_OUTPUT)


class _Removable(Protocol):
    def remove(self) -> None: ...


class ModuleAdapter(LayerAdapter):
    """Watches the models and losses of one hook."""

    tensor_type = torch.Tensor

    def __init__(
        self, recorder: Recorder, guard: Guard, begin_step: Callable[[bool], None]
    ) -> None:
        super().__init__(recorder, guard, begin_step)
        self._roots: list[_Root] = []
        self._losses: dict[torch.nn.Module, _Removable] = {}
        self._armed: list[_Removable] = []
        self._awaiting: list[_Removable] = []  # armed until what a step owes has come
        self._reached: bool | None = None  # whether a backward pass went through the step's output
        self._gradients: dict[torch.Tensor, str] = {}
        self._arrived: list[torch.Tensor] = []
        self._listener: _Removable | None = None
        self._optimizers: weakref.WeakKeyDictionary[Optimizer, str] = weakref.WeakKeyDictionary()

    # -- models and losses -------------------------------------------------------------------------

    @property
    def has_roots(self) -> bool:
        return bool(self._roots)

    @property
    def has_losses(self) -> bool:
        return bool(self._losses)

    def attach(self, module: torch.nn.Module) -> None:
        """Makes each call of the module a step."""
        inner = inner_module(module)
        for root in self._roots:
            if inner in root.names or root.module in set(inner.modules()):
                raise SMDebugValueError(
                    f"{type(inner).__name__} is registered already, by itself or within "
                    "another model."
                )
        taken = {name for root in self._roots for name in root.names.values()}
        root = _Root(inner, taken)
        self._roots.append(root)
        self._watch_calls(root, module)
        if self._listener is None:
            self._listener = CompilationListener(self._guard, self._on_compilation)
        # Until its first call we cannot know whether the model will be compiled after it was
        # registered; that first call runs eagerly, so that it reaches us, and then we know.
        eager_stance.hold(self)
        callback = _OptimizerCallback(self._guard, self._on_step_without_call)
        self._armed.append(register_optimizer_step_post_hook(callback))

    def attach_loss(self, module: torch.nn.Module) -> None:
        """Records what the module returns as loss, and what it is given as prediction and label."""
        if module in self._losses:
            raise SMDebugValueError(f"The loss {type(module).__name__} is registered already.")
        name = type(inner_module(module)).__name__
        self._losses[module] = module.register_forward_hook(
            _Callback(self._guard, self._on_loss, name), with_kwargs=True
        )

    def _name_of(self, layer: torch.nn.Module) -> str | None:
        inner = inner_module(layer)
        return next((root.names[inner] for root in self._roots if inner in root.names), None)

    def detach(self) -> None:
        self._disarm()
        self._stop_waiting()
        eager_stance.release(self)
        for root in self._roots:
            root.let_go()
        for handle in self._losses.values():
            handle.remove()
        if self._listener is not None:
            self._listener.remove()
        self._roots, self._losses, self._listener = [], {}, None

    # -- a step ------------------------------------------------------------------------------------

    def _watch_calls(self, root: _Root, module: torch.nn.Module) -> None:
        """Has us called before each call of the model, outside of what may be compiled of it."""
        root.let_go()
        root.compiled = module is not root.module or module._compiled_call_impl is not None
        callback = _Callback(self._guard, self._on_call, root)
        if module._compiled_call_impl is not None:
            root.handles.append(CallWrapper(module, callback))
        else:
            root.handles.append(module.register_forward_pre_hook(callback, with_kwargs=True))

    def _on_call(
        self, root: _Root, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        if _in_backward():  # activation checkpointing computes the model again: no new step
            if self._recorder.active and not self._awaiting:
                self._recorder.trains_after_all()
                self._await_gradients()
            return
        eager_stance.release(self)
        if not root.called:
            root.called = True
            self._settle(root, module)
        if self._begin(trains=torch.is_grad_enabled()):
            self._arm(root)
            self._record_parameters()
            if self._recorder.wants_role(Role.INPUT):
                self._on_input(root.name, Role.INPUT, module, args, kwargs)

    def _settle(self, root: _Root, module: torch.nn.Module) -> None:
        """On the first call: watches the compiled model if it was compiled after registering."""
        if root.compiled:
            return
        compiled, enclosing = compiled_callers(module)
        if compiled is not None:
            self._watch_calls(root, compiled)
        elif enclosing:
            log.warning(
                "%s is called from within a compiled function, where calls cannot be seen: "
                "only its eager calls count as steps. Compile the model rather than the "
                "function around it.",
                root.name,
            )

    def _on_compilation(self) -> None:
        """When torch begins to compile: is it a model of ours that ran uncompiled so far?"""
        for root in self._roots:
            if root.compiled:
                continue
            compiled, _ = compiled_callers(root.module)
            if compiled is not None:
                log.warning(
                    "%s was compiled so late that of its first compiled call only weights and "
                    "buffers can be saved. Compile a model before it is registered.",
                    root.name,
                )
                root.called = True
                self._disarm()
                self._stop_waiting()
                self._watch_calls(root, compiled)
                self._begin_step(torch.is_grad_enabled())
                self._record_parameters()

    def _on_step_without_call(self, *args: Any) -> None:
        """Training goes on without calling our models: compiled code need not wait for them."""
        if eager_stance.release(self):
            log.warning(
                "An optimizer took a step, but no call of %s has been seen since it was "
                "registered: nothing of it is saved. Register the module that training calls.",
                " or ".join(root.name for root in self._roots if not root.called),
            )

    def _arm(self, called: _Root) -> None:
        """Puts callbacks on modules, parameters and optimizers as far as this step needs them."""
        wants = self._recorder.wants_role
        eager_stance.hold(self)
        inputs, outputs = (any(wants(role) for role in roles) for roles in (_INPUTS, _OUTPUTS))
        for root in self._roots:
            for module, name in root.current_names().items():
                if inputs and module is not root.module:  # the root's arrive with the call itself
                    callback = _Callback(self._guard, self._on_input, name, Role.LAYER_INPUT)
                    self._armed.append(module.register_forward_pre_hook(callback, with_kwargs=True))
                if outputs:
                    role = Role.OUTPUT if module is root.module else Role.LAYER_OUTPUT
                    callback = _Callback(self._guard, self._on_output, name, role)
                    self._armed.append(module.register_forward_hook(callback))
        if torch.is_grad_enabled():
            self._await(called)

    def _await(self, called: _Root) -> None:
        """Waits for what follows the model's call."""
        owed = [Role.LOSS] if self._losses else []
        if self._await_gradients():
            owed.append(Role.GRADIENT)
            callback = _Callback(self._guard, self._on_root_output)
            self._armed.append(called.module.register_forward_hook(callback))
        if self._recorder.wants_role(Role.OPTIMIZER_VARIABLE):
            owed.append(Role.OPTIMIZER_VARIABLE)
            after = _OptimizerCallback(self._guard, self._on_optimizer_step)
            self._awaiting.append(register_optimizer_step_post_hook(after))
        self._recorder.owe(*owed)

    def _await_gradients(self) -> bool:
        """Returns whether there can be any."""
        if self._recorder.wants_role(Role.GRADIENT):
            callback = _Callback(self._guard, self._on_gradient)
            for name, _, parameter in self._parameters():
                if parameter.requires_grad and parameter.is_leaf:
                    self._gradients[parameter] = f"gradient/{name}"
                    register: Any = parameter.register_post_accumulate_grad_hook
                    self._awaiting.append(register(callback))
        return bool(self._gradients)

    def _on_root_output(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        """Has us told when a backward pass goes through the output: it is this step's, then."""

        def reach(gradient: torch.Tensor) -> None:
            self._reached = True

        for tensor in tensors_in(output, torch.Tensor):
            if tensor.requires_grad:
                self._reached = False
                self._awaiting.append(tensor.register_hook(reach))

    def _disarm(self) -> None:
        armed, self._armed = self._armed, []
        for handle in armed:
            handle.remove()

    def _stop_waiting(self) -> None:
        awaiting, self._awaiting = self._awaiting, []
        self._reached = None
        self._gradients.clear()
        self._arrived.clear()
        for handle in awaiting:
            handle.remove()

    def _can_train(self, value: Any) -> bool:
        return any(tensor.requires_grad for tensor in tensors_in(value, torch.Tensor))

    # -- tensors -----------------------------------------------------------------------------------

    def _parameters(self) -> Iterator[tuple[str, Role, torch.nn.Parameter]]:
        for root in self._roots:
            for path, parameter in root.module.named_parameters():
                role = Role.BIAS if "bias" in path.rpartition(".")[2] else Role.WEIGHT
                if not is_lazy(parameter):  # else it has no values before its module was called
                    yield f"{root.name}_{plain_path(path)}", role, parameter

    def _record_parameters(self) -> None:
        """Weights, biases and buffers as the forward pass will use them."""
        wants = self._recorder.wants_role
        items: list[Item] = []
        if wants(Role.WEIGHT) or wants(Role.BIAS):
            items += self._parameters()
        if wants(Role.BUFFER):
            for root in self._roots:
                for path, buffer in root.module.named_buffers():
                    if not is_lazy(buffer):
                        items.append((f"{root.name}_{plain_path(path)}", Role.BUFFER, buffer))
        self._recorder.record_many(items)

    def _on_input(
        self, name: str, role: Role, module: torch.nn.Module, args: Any, kwargs: Any
    ) -> None:
        self._record(name, "input", (role,), (args, kwargs))

    def _on_output(
        self, name: str, role: Role, module: torch.nn.Module, args: Any, output: Any
    ) -> None:
        self._record(name, "output", (role,), output)

    def _on_loss(
        self, name: str, module: torch.nn.Module, args: Any, kwargs: Any, output: Any
    ) -> None:
        self._record_loss(name, (args, kwargs), output)

    def _record(
        self, name: str, kind: str, roles: tuple[Role, ...], value: Any, owed: Role | None = None
    ) -> None:
        if not _in_backward():  # else computed again, by activation checkpointing
            super()._record(name, kind, roles, value, owed)

    def _on_gradient(self, parameter: torch.Tensor) -> None:
        """Notes which gradients a backward pass brings; they are recorded when it is over."""
        if not self._arrived:
            _at_end_of_backward(lambda: _at_end_of_backward(self._backward_over))
        self._arrived.append(parameter)

    def _backward_over(self) -> None:
        # Asked for twice (above), so that what other libraries do at the end of a backward pass,
        # such as reducing gradients over processes, comes before.
        self._guard.run(self._record_gradients)

    def _record_gradients(self) -> None:
        arrived, self._arrived = self._arrived, []
        if self._recorder.lingering and self._reached is False:
            return  # it is that of a later step: the lingering one's never came
        items: list[Item] = []
        for parameter in arrived:
            name = self._gradients.get(parameter)
            if name is not None and parameter.grad is not None:
                items.append((name, Role.GRADIENT, parameter.grad))
            elif name is not None:
                self._recorder.note(name, "it was gone before the backward pass was over")
        self._recorder.record_many(items, Role.GRADIENT)
        self._recorder.has_come(Role.GRADIENT)

    def _on_optimizer_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Records the optimizer's state as the step has left it, if it trains a model of ours."""
        names = {parameter: name for name, _, parameter in self._parameters()}
        ours = [p for group in optimizer.param_groups for p in group["params"] if p in names]
        if not ours:
            return
        stem = f"optimizer/{self._optimizer_name(optimizer)}"
        items: list[Item] = []
        for number, group in enumerate(optimizer.param_groups):
            for key, value in group.items():
                if isinstance(value, (float, torch.Tensor)) and key != "params":
                    items.append((f"{stem}/group_{number}/{key}", Role.OPTIMIZER_VARIABLE, value))
        for parameter in ours:
            for key, value in optimizer.state.get(parameter, {}).items():
                if isinstance(value, (float, torch.Tensor)):
                    items.append(
                        (f"{stem}/{names[parameter]}/{key}", Role.OPTIMIZER_VARIABLE, value)
                    )
        self._recorder.record_many(items, Role.OPTIMIZER_VARIABLE)
        self._recorder.has_come(Role.OPTIMIZER_VARIABLE)

    def _optimizer_name(self, optimizer: Optimizer) -> str:
        """Its class; a second one of the class is numbered."""
        name = kind = type(optimizer).__name__
        taken = set(self._optimizers.values())
        for number in range(1, len(taken) + 1):
            if name in taken:
                name = f"{kind}_{number}"
        return self._optimizers.setdefault(optimizer, name)


class _Root:
    """A registered model and the names in it."""

    def __init__(self, module: torch.nn.Module, taken: set[str]) -> None:
        self.module = module
        self.name = type(module).__name__
        if self.name in taken:
            numbers = (n for n in range(1, len(taken) + 2) if f"{self.name}_{n}" not in taken)
            self.name = f"{self.name}_{next(numbers)}"
        # Modules of the first model go by their path, as everybody expects; those of another one
        # whose paths are taken go by model and path.
        paths = {plain_path(path) for path, child in module.named_modules() if child is not module}
        self._lead = f"{self.name}." if paths & taken else ""
        self.names = self.current_names()
        self.handles: list[_Removable] = []
        self.called = self.compiled = False

    def current_names(self) -> dict[torch.nn.Module, str]:
        """The name of each module in the model as it is now."""
        self.names = {
            child: self.name if child is self.module else self._lead + plain_path(path)
            for path, child in self.module.named_modules()
            if child is self.module or child is inner_module(child)
        }
        return self.names

    def let_go(self) -> None:
        handles, self.handles = self.handles, []
        for handle in handles:
            handle.remove()


class _Callback(Callback):
    """Not part of compiled or traced code."""

    def __call__(self, *args: Any) -> None:
        if not (torch.compiler.is_compiling() or torch._C._get_tracing_state()):
            super().__call__(*args)


class _OptimizerCallback(Callback):
    """One that torch calls from a loop over all of them: none may go, not even after a fault."""

    def __call__(self, *args: Any) -> None:
        if not torch.compiler.is_compiling():
            self._guard.run_apart(self._function, *self._bound, *args)


def _at_end_of_backward(function: Callable[[], None]) -> None:
    torch.autograd.Variable._execution_engine.queue_callback(function)


def _in_backward() -> bool:
    """Whether this is called from within a backward pass."""
    return torch._C._current_graph_task_id() != -1
