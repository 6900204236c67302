"""From the tapes of a loop written by hand to the recorder.

A step begins when a wrapped tape is entered. While it records, registered models show what flows
through them; ``tape.gradient`` shows losses, gradients and weights, a wrapped optimizer its state.
All this holds within a ``tf.function`` too, unless XLA compiles it.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import keras
import tensorflow as tf

from tornasole.capture.guard import Guard
from tornasole.capture.recorder import Item, Recorder
from tornasole.errors import SMDebugTypeError
from tornasole.tensorflow.models import (
    layer_patterns,
    layers_of,
    path_of,
    role_of_variable,
    variables_of,
)
from tornasole.tensorflow.steps import unscaled
from tornasole.tensorflow.tape_steps import (
    EagerStep,
    Group,
    Step,
    TracedStep,
    current_graph,
    graphs_around,
    in_first_replica,
    is_compiled_by_xla,
)
from tornasole.tensorflow.tensors import KERAS_3
from tornasole.types import ModeKeys, Role

F = TypeVar("F", bound=Callable[..., Any])


def _left_as_it_is(function: F) -> F:
    """Keeps AutoGraph from converting what code that it converts calls."""
    unconverted: F = tf.autograph.experimental.do_not_convert(function)
    return unconverted


class TapeAdapter:
    """Watches the tapes, optimizers and models that it is given, and nothing else.

    Weights of a registered model go by the names that they have in ``fit`` and are recorded when
    the step begins; any other variable is ``weights/<its name>``, recorded with its gradient.

    Args:
        recorder: Told what appears.
        guard: Between our faults and the loop.
        begin_step: Called when a tape is entered.
    """

    def __init__(self, recorder: Recorder, guard: Guard, begin_step: Callable[[], None]) -> None:
        self._recorder, self._guard, self._begin_step = recorder, guard, begin_step
        self._models: list[Any] = []
        self._methods: weakref.WeakKeyDictionary[Any, list[Method]] = weakref.WeakKeyDictionary()
        self._recording: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self._names = VariableNames()
        self._eager = EagerStep(recorder)
        self._traced: weakref.WeakKeyDictionary[Any, TracedStep] = weakref.WeakKeyDictionary()
        self._is_over = False

    @_left_as_it_is
    def wrap_tape(self, tape: Any) -> Any:
        """Makes each entering of the tape a step; one that records already begins one now."""
        if not isinstance(tape, tf.GradientTape):
            raise SMDebugTypeError(f"wrap_tape takes a tf.GradientTape, not {_described(tape)}.")
        if tape not in self._methods:
            self._methods[tape] = [
                Method(tape, "_push_tape", self._push),
                Method(tape, "_pop_tape", self._pop),
                Method(tape, "gradient", self._gradient, called_by_user=True),
            ]
            if tape._recording:
                self._guard.run(self._enter)
                # Not layers in a graph: they are to be called as AutoGraph converts them.
                self._guard.run(self._records, tape, current_graph() is None)
        return tape

    @_left_as_it_is
    def wrap_optimizer(self, optimizer: Any) -> Any:
        """Has the optimizer show the gradients that no tape has shown, and its state after."""
        if isinstance(optimizer, type) or not (
            callable(getattr(optimizer, "apply_gradients", None))
            and hasattr(optimizer, "variables")
        ):
            raise SMDebugTypeError(
                "wrap_optimizer takes an optimizer of Keras or tf.compat.v1.train, not "
                f"{_described(optimizer)}."
            )
        if optimizer not in self._methods:
            if KERAS_3 and isinstance(optimizer, keras.optimizers.Optimizer):
                method = Method(optimizer, "apply", self._apply, called_by_user=True)
            else:
                method = Method(
                    optimizer, "apply_gradients", self._apply_gradients, called_by_user=True
                )
            self._methods[optimizer] = [method]
        return optimizer

    def register_model(self, model: Any) -> None:
        """Has the model show its weights, and what flows through it while a tape records.

        A ``tf.function`` sees this only when it is traced afterwards.
        """
        if not isinstance(model, keras.layers.Layer):
            raise SMDebugTypeError(f"register_model takes a Keras model, not {_described(model)}.")
        if not any(model is each for each in self._models):
            self._models.append(model)

    def patterns(self, layer: Any, inputs: bool, outputs: bool) -> list[str] | None:
        """Patterns of the names of a layer's inputs and outputs; ``None`` if it is not ours."""
        for model in self._models:
            name = layers_of(model).get(layer)
            if name is not None:
                return layer_patterns(name, inputs, outputs)
        return None

    def detach(self) -> None:
        """Leaves nothing of ours on tapes, optimizers and models; traced graphs fall silent."""
        self._is_over = True
        for step in (self._eager, *self._traced.values()):
            step.disarm()
        for methods in list(self._methods.values()):
            for method in methods:
                method.remove()
        for each in (self._methods, self._recording, self._traced, self._models):
            each.clear()

    # -- tapes -------------------------------------------------------------------------------------

    def _push(self, original: Callable[[], None], tape: Any) -> None:
        if _is_entered() and not tape._recording:  # else TensorFlow refuses
            self._guard.run(self._enter)  # before it records: we read variables
        original()
        self._guard.run(self._records, tape)

    def _pop(self, original: Callable[[], None], tape: Any) -> None:
        original()
        self._guard.run(self._pauses, tape)

    def _gradient(
        self,
        original: Callable[..., Any],
        tape: Any,
        target: Any,
        sources: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        result = original(target, sources, *args, **kwargs)
        self._guard.run(self._see_gradients, target, sources, result)
        return result

    def _enter(self) -> None:
        graph = current_graph()
        if not in_first_replica() or self._is_recording_around(graph):
            return
        if graph is None:
            self._eager.disarm()
            self.begin()
            step: Step | None = self._current()
        else:
            step = self._trace(graph)
        if step is not None:
            for model in self._models:
                if model.built:
                    step.keep(self._unseen(step, [v for _, _, v in variables_of(model)]))

    def begin(self) -> None:
        """Begins a step, now; one for training, unless the user has said what it is for."""
        if self._recorder.mode is ModeKeys.GLOBAL:
            self._recorder.mode = ModeKeys.TRAIN
        self._begin_step()

    def _trace(self, graph: Any) -> TracedStep | None:
        if not graph.building_function:
            return None  # a graph of TensorFlow 1: its sessions have a hook of their own
        if is_compiled_by_xla(graph):
            self._recorder.note(
                "what a tape sees within tf.function(jit_compile=True)",
                "XLA compiles no calls to Python, so its steps are neither counted nor saved",
            )
            return None
        step = self._traced[graph] = TracedStep(self, graph, self._recorder.note)
        return step

    def begin_traced(self, groups: Sequence[Group]) -> list[bool] | None:
        """Called by a graph that runs: begins a step; returns which groups of tensors it wants."""
        if self._is_over:
            return None
        return self._guard.run(self._begin_traced, groups)

    def _begin_traced(self, groups: Sequence[Group]) -> list[bool] | None:
        if not any(graph is None for graph in self._recording.values()):  # a tape outside of it
            self.begin()
        if not self._recorder.active:
            return None
        wants = self._recorder.wants
        return [any(wants(name, role) for name, role in group) for group in groups]

    def record_traced(self, items: list[Item]) -> None:
        """Called by a graph that runs: here is what it computed."""
        if not self._is_over:
            self._guard.run(self._record_traced, items)

    def _record_traced(self, items: list[Item]) -> None:
        self._recorder.record_many(items)
        step = self._current()
        if step is not None:
            step.given.update(name for name, role, _ in items if role is Role.GRADIENT)

    def _is_recording_around(self, graph: Any) -> bool:
        """Whether a tape that records began the step already."""
        graphs = list(self._recording.values())
        if graph is None:
            return any(each is None for each in graphs)
        return any(each is outer for outer in graphs_around(graph) for each in graphs)

    def _records(self, tape: Any, shows_layers: bool = True) -> None:
        if not in_first_replica():
            return
        self._recording[tape] = current_graph()
        step = self._current()
        if step is not None and shows_layers:
            step.arm(self._models, self._guard)

    def _pauses(self, tape: Any) -> None:
        if tape not in self._recording:
            return
        graph = self._recording.pop(tape)
        if not any(each is graph for each in self._recording.values()):
            step = self._eager if graph is None else self._traced.get(graph)
            if step is not None:
                step.end_layers()

    def _current(self) -> Step | None:
        """The step that what happens now belongs to; ``None`` if that is not kept."""
        graph = current_graph()
        if not in_first_replica():
            return None
        if graph is None:
            if not self._recorder.active:
                return None
            if self._eager.number != self._recorder.step:
                self._eager.disarm()
                self._eager = EagerStep(self._recorder)
            return self._eager
        if self._traced and not is_compiled_by_xla(graph):
            return next((self._traced[g] for g in graphs_around(graph) if g in self._traced), None)
        return None

    # -- tensors -----------------------------------------------------------------------------------

    def _see_gradients(self, target: Any, sources: Any, result: Any) -> None:
        step = self._current()
        if step is None:
            return
        gradients = tf.nest.flatten(result)
        pairs = [
            (variable, gradient)
            for variable, gradient in zip(tf.nest.flatten(sources), gradients, strict=True)
            if _is_variable(variable)
        ]
        if pairs:  # else it is not what is trained: a gradient with respect to an input
            step.keep(step.losses(tf.nest.flatten(target, expand_composites=True)))
            self._show(step, pairs)
            step.keep(self._unseen(step, [variable for variable, _ in pairs]))
            if self._models:
                step.end_forward()

    def _show(self, step: Step, pairs: Iterable[tuple[Any, Any]]) -> None:
        items = [
            (self._names.of_gradient(variable), Role.GRADIENT, gradient)
            for variable, gradient in pairs
            if gradient is not None
        ]
        step.given.update(name for name, _, _ in items)
        step.keep(items)

    def _unseen(self, step: Step, variables: Iterable[Any]) -> list[Item]:
        """Those of the variables that the step does not have yet."""
        fresh = {id(_core(v)): v for v in variables if id(_core(v)) not in step.shown}
        step.shown.update(fresh)
        owners = {
            id(_core(variable)): (name.removesuffix(path_of(variable)), role)
            for model in self._models
            for name, role, variable in variables_of(model)
        }
        items: list[Item] = []
        for key, variable in fresh.items():
            path = self._names.path(variable)
            role = role_of_variable(path)
            stem, role = owners.get(key, ("weights/", role))
            items.append((stem + path, role, variable))
        return items

    # -- optimizers --------------------------------------------------------------------------------

    def _apply(
        self,
        original: Callable[..., Any],
        optimizer: Any,
        grads: Any,
        trainable_variables: Any = None,
    ) -> Any:
        """In place of ``apply`` of Keras 3."""
        step = self._guard.run(self._current)
        if step is None:
            return original(grads, trainable_variables)
        grads = list(grads)
        if trainable_variables is None:
            variables = list(optimizer._trainable_variables)
        else:
            variables = trainable_variables = list(trainable_variables)
        self._guard.run(
            self._see_applied, step, optimizer, list(zip(variables, grads, strict=False))
        )
        result = original(grads, trainable_variables)
        self._guard.run(self._see_optimizer, step, optimizer)
        return result

    def _apply_gradients(
        self,
        original: Callable[..., Any],
        optimizer: Any,
        grads_and_vars: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """In place of ``apply_gradients`` of Keras 2 and TensorFlow 1."""
        step = self._guard.run(self._current)
        if step is None:
            return original(grads_and_vars, *args, **kwargs)
        grads_and_vars = list(grads_and_vars)
        pairs = [(variable, gradient) for gradient, variable in grads_and_vars]
        self._guard.run(self._see_applied, step, optimizer, pairs)
        result = original(grads_and_vars, *args, **kwargs)
        self._guard.run(self._see_optimizer, step, optimizer)
        return result

    def _see_applied(self, step: Step, optimizer: Any, pairs: list[tuple[Any, Any]]) -> None:
        fresh = [
            (variable, gradient)
            for variable, gradient in pairs
            if self._names.of_gradient(variable) not in step.given
        ]
        scale = getattr(optimizer, "dynamic_scale", None)
        if scale is not None:
            fresh = [(v, g if g is None else partial(unscaled, g, scale)) for v, g in fresh]
        self._show(step, fresh)

    def _see_optimizer(self, step: Step, optimizer: Any) -> None:
        variables = optimizer.variables
        step.keep(
            [
                (self._names.path(variable), Role.OPTIMIZER_VARIABLE, variable)
                for variable in (variables() if callable(variables) else variables)
            ]
        )


class Method:
    """A method of one object alone, in the place of its class's until ``remove``.

    It holds the object weakly: a tape, and what it recorded, is to go when the loop lets go of it.

    Args:
        target: The object.
        name: The method's.
        run: What to call: with the original, the object, and the arguments of the call.
        called_by_user: Whether code that AutoGraph converts may call it: it must not convert ours.
    """

    def __init__(
        self, target: Any, name: str, run: Callable[..., Any], called_by_user: bool = False
    ) -> None:
        self._target, self._name, self._run = weakref.ref(target), name, run
        self._before = target.__dict__.get(name)
        self._is_removed = False
        function: Any = self
        if called_by_user:
            function = _left_as_it_is(self)
            function.method = self
        target.__dict__[name] = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        target = self._target()
        original = self._original()
        if original is None:
            original = getattr(type(target), self._name).__get__(target)
        if self._is_removed:
            return original(*args, **kwargs)
        return self._run(original, target, *args, **kwargs)

    @property
    def method(self) -> Method:
        """Itself; what AutoGraph makes of it has this attribute too."""
        return self

    def _original(self) -> Any:
        """What was on the object before, but for what was removed since."""
        before = self._before
        while getattr(before, "method", None) is not None and before.method._is_removed:
            before = before.method._before
        return before

    def remove(self) -> None:
        """Puts back what was there. Where another hook has wrapped it again, it only passes on."""
        self._is_removed = True
        target = self._target()
        if target is not None and _method_of(target, self._name) is self:
            del target.__dict__[self._name]
            before = self._original()
            if before is not None:
                target.__dict__[self._name] = before


class VariableNames:
    """Names for variables, each its own: TensorFlow calls every one ``Variable:0`` by default."""

    def __init__(self) -> None:
        self._paths: dict[int, tuple[weakref.ref[Any], str]] = {}
        self._holders: dict[str, weakref.ref[Any]] = {}

    def path(self, variable: Any) -> str:
        """The variable's name; if another one that lives has it, with a number."""
        core = _core(variable)
        known = self._paths.get(id(core))
        if known is not None and known[0]() is core:
            return known[1]
        stem, colon, index = path_of(variable).partition(":")
        path, number = stem + colon + index, 0
        while path in self._holders and self._holders[path]() is not None:
            number += 1
            path = f"{stem}_{number}{colon}{index}"
        self._holders[path] = weakref.ref(core)
        self._paths[id(core)] = (self._holders[path], path)
        return path

    def of_gradient(self, variable: Any) -> str:
        return f"gradients/{self.path(variable).partition(':')[0]}Grad"


def _method_of(target: Any, name: str) -> Any:
    return getattr(target.__dict__.get(name), "method", None)


_ENTER = tf.GradientTape.__enter__.__code__
_BETWEEN = (TapeAdapter._push.__code__, Method.__call__.__code__)


def _is_entered() -> bool:
    """Whether a tape is entered, not resumed by ``stop_recording``, ``reset`` or ``jacobian``."""
    frame = sys._getframe(1)
    while frame.f_code in _BETWEEN and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code is _ENTER


# -- variables -------------------------------------------------------------------------------------


def _is_variable(value: Any) -> bool:
    return isinstance(value, tf.Variable) or (hasattr(value, "assign") and hasattr(value, "name"))


def _core(variable: Any) -> Any:
    """What a variable of Keras 3 is to TensorFlow."""
    return getattr(variable, "_value", variable)


def _described(value: Any) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
