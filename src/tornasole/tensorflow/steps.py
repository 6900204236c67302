"""A step function that also returns what flows through it, for one batch in place of a model's own.

Keras compiles ``train_step`` to ``train_function`` once, and calls that for every batch. On a batch
that keeps gradients or tensors of layers, another function is called: made by the same means from
the same ``train_step``, while layers and optimizer carry functions of ours that see what passes.
What they see is symbolic, so it leaves the compiled code beside the logs that the step returns.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Literal, NamedTuple

import keras
import numpy as np

from tornasole.capture.guard import Guard
from tornasole.capture.layers import tensors_in
from tornasole.capture.recorder import Item, Recorder
from tornasole.tensorflow.models import (
    gradient_name,
    gradient_names,
    layers_of,
    optimizers_of,
    replicas_of,
    variables_of,
)
from tornasole.tensorflow.tensors import BACKEND, KERAS_3
from tornasole.types import Role

Kind = Literal["train", "test", "predict"]

_OURS = "tornasole "  # with this begin the keys of what we add to the logs
_RESULT = _OURS + "result"

Deliver = Callable[[int, list[Item]], None]

STEP_ROLES = (
    Role.GRADIENT,
    Role.INPUT,
    Role.LABEL,
    Role.PREDICTION,
    Role.LAYER_INPUT,
    Role.LAYER_OUTPUT,
)
"""The roles of what can be seen only from within a step."""


class Trace(NamedTuple):
    """What is being traced: symbolic tensors of inner traces (loops) cannot leave them."""

    scope: Any

    @classmethod
    def current(cls, data: Any) -> Trace:
        if BACKEND == "jax":
            leaf = next(tensors_in(data, tensor_types()), None)
            return cls(getattr(leaf, "_trace", None))
        if BACKEND == "tensorflow":
            tf = sys.modules["tensorflow"]
            return cls(None if tf.executing_eagerly() else tf.compat.v1.get_default_graph())
        return cls(None)

    def is_symbolic(self, tensor: Any) -> bool:
        return hasattr(tensor, "_trace" if BACKEND == "jax" else "graph")

    def holds(self, tensor: Any) -> bool:
        return getattr(tensor, "_trace" if BACKEND == "jax" else "graph") is self.scope


class Capture:
    """What passes in one run, or one trace, of a step, on one replica.

    Args:
        recorder: Asked what is wanted, and told what has a value already.
        guard: Between our faults and the step.
        trace: What is being traced.

    Attributes:
        symbolic: What has to leave the trace, by role and name.
    """

    def __init__(self, recorder: Recorder, guard: Guard, trace: Trace) -> None:
        self._recorder, self._guard, self._trace = recorder, guard, trace
        self._counts: dict[str, int] = {}
        self.symbolic: dict[tuple[Role, str], Any] = {}

    def draws_from_within(self) -> bool:
        """Whether the traced graph has random operations with a state of their own."""
        operations: list[Any] = getattr(self._trace.scope, "get_operations", list)()
        kinds = {each.type for each in operations if each.op_def.is_stateful}
        return any("Random" in kind or kind.startswith("Truncated") for kind in kinds)

    def keep_all(self, stem: str, role: Role, value: Any) -> None:
        """Keeps the tensors in a nest under ``<stem>``, numbered if there are several."""
        self._guard.run(self._keep_all, stem, role, value)

    def keep(self, name: str, role: Role, tensor: Any) -> None:
        """Keeps one tensor."""
        self._guard.run(self._keep, name, role, tensor)

    def _keep_all(self, stem: str, role: Role, value: Any) -> None:
        if is_sketching():
            return
        tensors = list(tensors_in(value, tensor_types()))
        first = self._counts.get(stem, 0)
        self._counts[stem] = first + len(tensors)
        for number, tensor in enumerate(tensors, first):
            alone = first == 0 and len(tensors) == 1
            self._keep(stem if alone else f"{stem}_{number}", role, tensor)

    def _keep(self, name: str, role: Role, tensor: Any) -> None:
        if tensor is None or not self._recorder.wants(name, role):
            return
        if not self._trace.is_symbolic(tensor):
            self._recorder.record(name, role, tensor)
        elif self._trace.holds(tensor):
            self.symbolic[role, name] = dense(tensor)
        else:
            self._recorder.note(name, "it is computed within a loop of the graph")


class Dispatched:
    """A ``test_function`` in whose place another can be put while ``evaluate`` runs."""

    def __init__(self, own_function: Callable[..., Any]) -> None:
        self.own_function = own_function
        self.instead: Callable[..., Any] | None = None

    def __call__(self, *args: Any) -> Any:
        return (self.instead or self.own_function)(*args)


def current_function(model: Any, kind: Kind) -> Any:
    """The function that the next batch runs."""
    function = getattr(model, f"{kind}_function")
    if isinstance(function, Dispatched):
        return function.instead or function.own_function
    return function


class Dispatcher:
    """Keras 2 looks up ``test_function`` once for all batches, so that one has to be ours."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._make = model.make_test_function
        model.__dict__["make_test_function"] = self._make_test_function

    def _make_test_function(self, force: bool = False) -> Any:
        function = self._make(force)
        if not isinstance(function, Dispatched):
            function = Dispatched(function)
            self._model.__dict__["test_function"] = function
        return function

    def remove(self) -> None:
        self._model.__dict__.pop("make_test_function", None)
        function = self._model.__dict__.get("test_function")
        if isinstance(function, Dispatched):
            self._model.__dict__["test_function"] = function.own_function


class Instrumented:
    """The function in place of ``train_function``, ``test_function`` or ``predict_function``.

    Args:
        model: A compiled model.
        kind: Which function.
        recorder: Asked what is wanted.
        guard: Between our faults and the step.
        deliver: Told what passed, replica by replica, once it has values.
        late: Whether some variables come into being in this step.

    Attributes:
        failed: Why the step cannot be traced with us inside, if it cannot.
        has_seen_gradients: Whether an optimizer was given gradients, in a trace or a run.
    """

    def __init__(
        self,
        model: Any,
        kind: Kind,
        recorder: Recorder,
        guard: Guard,
        deliver: Deliver,
        late: bool,
    ) -> None:
        self._model, self._kind, self._late = model, kind, late
        self._recorder, self._guard, self._deliver = recorder, guard, deliver
        self._seen = _Seen()
        self._key = f"{_OURS}{id(self)} "  # several hooks may look into one step
        self._name = f"{kind}_function"
        self.original: Callable[..., Any] = current_function(model, kind)
        self._other = self.original if isinstance(self.original, Instrumented) else None
        self._own: Callable[..., Any] = self._other._own if self._other else self.original
        step: Callable[..., Any] = getattr(model, f"{kind}_step")
        self._step = self._other._run_step if self._other else step
        self._has_run = self.has_seen_gradients = False
        self.failed: Exception | None = None
        with _restored(model, self._name, f"{kind}_tf_function"):
            with self._as_step(), _uncompiled_torch(model):
                getattr(model, f"make_{kind}_function")(force=True)
            function: Any = getattr(model, self._name)
            self._function: Callable[..., Any] = getattr(function, "own_function", function)

    def put_in_place(self) -> None:
        self._put(self)

    def put_back(self) -> None:
        if current_function(self._model, self._kind) is self:
            self._put(self._own)

    def _put(self, function: Callable[..., Any]) -> None:
        place = self._model.__dict__.get(self._name)
        if isinstance(place, Dispatched):
            place.instead = None if function is place.own_function else function
        else:
            self._model.__dict__[self._name] = function

    def __call__(self, *args: Any) -> Any:
        """Runs the batch, and returns what the model's own function would have."""
        self.put_back()
        again = args
        if BACKEND == "jax" or (BACKEND == "tensorflow" and self._model.run_eagerly):
            # The batch is taken from the iterator before anything can fail.
            *state, batches = args
            if hasattr(batches, "__next__"):
                batch = next(batches)
                args = (*state, itertools.chain([batch], batches))
                again = (*state, itertools.chain([batch], batches))
        try:
            with self._as_step(), self._seeing():
                result = self._function(*args)
            self._has_run = True
        except Exception as error:
            eager = BACKEND == "torch" or self._model.run_eagerly
            applied = self.has_seen_gradients and eager  # in part it has taken place
            if self._has_run or applied or self._guard.fault is not None or _is_of_the_run(error):
                raise
            output = self._own(*again)  # an error of the user's comes again
            self.failed = error
            return output
        if BACKEND == "jax":
            result, state_after = result
            return self._split(result), state_after
        return self._split(result)

    # -- a step, as it is traced or run ------------------------------------------------------------

    @contextmanager
    def _as_step(self) -> Iterator[None]:
        """Keras looks up ``train_step`` when it makes the function, or when it first runs it."""
        with _attribute(self._model, f"{self._kind}_step", self._run_step):
            yield

    def _run_step(self, *args: Any) -> Any:
        *state, data = args  # JAX's steps take and return the state
        capture = Capture(self._recorder, self._guard, Trace.current(data))
        inputs, labels, _ = keras.utils.unpack_x_y_sample_weight(data)
        capture.keep_all("inputs", Role.INPUT, inputs)
        capture.keep_all("labels", Role.LABEL, labels)
        if BACKEND == "jax":
            self._run_layers_apart(state[0], inputs, capture)
        seen = self._seen
        seen.gradients = capture
        seen.layers = None if BACKEND == "jax" else capture
        try:
            result = self._step(*args)
        finally:
            seen.gradients = seen.layers = None
        if KERAS_3 and capture.draws_from_within():
            self._recorder.note(
                "what tf.random draws",
                "on saved steps it draws other numbers, because they run another function; "
                "keras.random does not",
            )
        if BACKEND == "jax":
            result, state_after = result
            return self._joined(result, capture), state_after
        return self._joined(result, capture)

    def _run_layers_apart(self, state: Any, inputs: Any, capture: Capture) -> None:
        """On JAX layers run within ``jax.grad``, which nothing can leave: they run once more."""
        roles = (Role.PREDICTION, Role.LAYER_INPUT, Role.LAYER_OUTPUT)
        if not any(map(self._recorder.wants_role, roles)):
            return
        trains = {"training": self._kind == "train"} if self._model._call_has_training_arg else {}
        self._seen.layers = capture
        try:
            self._model.stateless_call(state[0], state[1], inputs, **trains)
        finally:
            self._seen.layers = None

    def _joined(self, result: Any, capture: Capture) -> Any:
        """The step's result, and beside it what has to leave the trace."""
        symbolic = capture.symbolic.items()
        ours = {f"{self._key}{role.value} {name}": tensor for (role, name), tensor in symbolic}
        if replicas_of(self._model) > 1:
            self._hand_over(capture)
            ours = {}
        if isinstance(result, dict) and (self._kind != "predict" or _RESULT in result):
            return {**result, **ours}
        return {_RESULT: result, **ours}

    def _hand_over(self, capture: Capture) -> None:
        """Keras reduces what replicas return to one value, so theirs take another way."""
        tf = sys.modules["tensorflow"]
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        keys, tensors = list(capture.symbolic), list(capture.symbolic.values())

        def deliver(number: Any, *values: Any) -> None:
            items: list[Item] = [(k[1], k[0], v) for k, v in zip(keys, values, strict=True)]
            self._deliver(int(number), items)

        if tensors:
            tf.numpy_function(deliver, [replica, *tensors], [])

    def _split(self, result: Any) -> Any:
        """Takes what is ours from the result, and has others take what is theirs."""
        if not isinstance(result, dict):
            return result
        items: list[Item] = []
        for key in [key for key in result if key.startswith(self._key)]:
            role, _, name = key.removeprefix(self._key).partition(" ")
            items.append((name, Role(role), result.pop(key)))
        self._deliver(0, items)
        if self._other is not None:
            return self._other._split(result)
        return result.get(_RESULT, result)

    # -- who sees ----------------------------------------------------------------------------------

    @contextmanager
    def _seeing(self) -> Iterator[None]:
        """Puts functions of ours on layers and optimizer."""
        wants = self._recorder.wants_role
        seen = self._seen
        with ExitStack() as stack:
            if self._other is not None:
                stack.enter_context(self._other._seeing())
            inputs, outputs = wants(Role.LAYER_INPUT), wants(Role.LAYER_OUTPUT)
            if inputs or outputs:
                for layer, name in layers_of(self._model).items():
                    stack.enter_context(seeing_layer(layer, name, lambda: seen.layers))
            if wants(Role.PREDICTION):
                stack.enter_context(seeing_predictions(self._model, lambda: seen.layers))
            if self._kind == "train":
                see = partial(self._guard.run, self._see_gradients)
                for optimizer in optimizers_of(self._model):
                    stack.enter_context(seeing_gradients(optimizer, see))
            yield

    def _see_gradients(self, gradients: Any, variables: Any) -> None:
        capture = self._seen.gradients
        if capture is None:
            return
        self.has_seen_gradients = True
        names = gradient_names(self._model)
        for gradient, variable in zip(gradients, variables, strict=False):
            name = names.get(id(variable)) or gradient_name(variable)
            capture.keep(name, Role.GRADIENT, gradient)
        if self._late:
            for name, role, variable in variables_of(self._model):
                capture.keep(name, role, _copied(variable))


class Rehearsed(Instrumented):
    """For ``fit`` of Keras 2, whose random layers draw from within the compiled function.

    Another function would draw other numbers, and training would not be what it is without us. So
    the model's own function runs, and then, from the state before, the other one for us to see.
    """

    @classmethod
    def suits(cls, model: Any, kind: Kind) -> bool:
        """Whether a function can be run so."""
        steps = getattr(model, "_steps_per_execution", None)
        several = steps is not None and int(steps.numpy()) > 1
        unlike = KERAS_3 or several or model.run_eagerly or replicas_of(model) > 1
        compiled = hasattr(current_function(model, kind), "get_concrete_function")
        return kind == "train" and compiled and not unlike

    def __call__(self, *args: Any) -> Any:
        self.put_back()
        tf = sys.modules["tensorflow"]
        (iterator,) = args
        spec = iterator.element_spec
        batch = next(iterator)
        batches = tf.data.Dataset.from_generator(lambda: iter([batch]), output_signature=spec)
        before = self._guard.run(self._state, iter(batches))
        result = self.original(iter(batches))
        if before is not None:
            self._guard.run(self._rehearse, iter(batches), before)
        return result

    def get_concrete_function(self, *args: Any) -> Any:
        """What the model's own function is compiled to."""
        own: Any = self._own
        return own.get_concrete_function(*args)

    def _state(self, batches: Any) -> dict[Any, Any] | None:
        """The values of all variables that either function touches, as the batch finds them."""
        own: Any = self._own
        functions = [own.get_concrete_function(batches)]
        if self._late:  # now the model is built
            self._deliver(0, list(variables_of(self._model)))
        ours: Any = self._function
        try:
            with self._as_step(), self._seeing():
                functions.append(ours.get_concrete_function(batches))
        except Exception as error:
            if self._guard.fault is not None:  # perhaps in another wrapping
                raise
            self.failed = error
            return None
        handles = [h for function in functions for h in function.graph.external_captures]
        return _read({h.ref() for h in handles if _is_variable(h)})

    def _rehearse(self, batches: Any, before: dict[Any, Any]) -> None:
        after = _read(before)
        _write(before)
        try:
            super().__call__(batches)
        finally:
            _write(after)


def _is_variable(handle: Any) -> bool:
    data = getattr(handle, "_handle_data", None)
    is_resource = handle.dtype == sys.modules["tensorflow"].resource
    return bool(is_resource and data is not None and data.is_set and data.shape_and_type)


def _read(references: Iterable[Any]) -> dict[Any, Any]:
    tf = sys.modules["tensorflow"]
    values = {}
    for reference in references:
        handle = reference.deref()
        dtype = tf.dtypes.as_dtype(handle._handle_data.shape_and_type[0].dtype)
        value = tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)
        values[reference] = tf.identity(value) if dtype != tf.variant else value
    return values


def _write(values: dict[Any, Any]) -> None:
    tf = sys.modules["tensorflow"]
    for reference, value in values.items():
        tf.raw_ops.AssignVariableOp(resource=reference.deref(), value=value)


class _Seen(threading.local):
    """What the functions on layers and optimizer add to; replicas are traced in threads."""

    layers: Capture | None = None
    gradients: Capture | None = None


See = Callable[[Any, Any], None]


@contextmanager
def seeing_gradients(optimizer: Any, see: See) -> Iterator[None]:
    """Has an optimizer call us with gradients and variables before it applies them."""
    watch = _watch_jax if BACKEND == "jax" else _watch_keras_3 if KERAS_3 else _watch_keras_2
    with _attribute(optimizer, *watch(optimizer, see)):
        yield


def _watch_jax(optimizer: Any, see: See) -> tuple[str, Callable[..., Any]]:
    original = optimizer.stateless_apply

    def stateless_apply(state: Any, gradients: Any, values: Any) -> Any:
        scale = getattr(optimizer, "dynamic_scale", None)
        places = [i for i, variable in enumerate(optimizer.variables) if variable is scale]
        seen = [unscaled(gradient, state[i]) for i in places for gradient in gradients]
        see(seen or gradients, optimizer._trainable_variables)
        return original(state, gradients, values)

    return "stateless_apply", stateless_apply


def _watch_keras_3(optimizer: Any, see: See) -> tuple[str, Callable[..., Any]]:
    original = optimizer.apply

    def apply(gradients: Any, trainable_variables: Any = None) -> Any:
        gradients = list(gradients)
        scale = getattr(optimizer, "dynamic_scale", None)
        seen = [unscaled(gradient, scale) for gradient in gradients]
        if trainable_variables is None:
            see(seen, optimizer._trainable_variables)
        else:
            trainable_variables = list(trainable_variables)
            see(seen, trainable_variables)
        return original(gradients, trainable_variables)

    return "apply", apply


def _watch_keras_2(optimizer: Any, see: See) -> tuple[str, Callable[..., Any]]:
    original = optimizer.apply_gradients

    def apply_gradients(grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        pairs = list(grads_and_vars)
        see([gradient for gradient, _ in pairs], [variable for _, variable in pairs])
        return original(pairs, *args, **kwargs)

    return "apply_gradients", apply_gradients


def unscaled(gradient: Any, scale: Any) -> Any:
    """A gradient without the factor by which mixed precision scales the loss."""
    if gradient is None or scale is None:
        return gradient
    return dense(gradient) / keras.ops.cast(scale, gradient.dtype)


@contextmanager
def seeing_layer(layer: Any, name: str, capture: Callable[[], Capture | None]) -> Iterator[None]:
    """Has a layer show what goes in and comes out."""

    def before(args: Any, kwargs: Any) -> None:
        seen = capture()
        if seen is not None:
            seen.keep_all(f"{name}/inputs", Role.LAYER_INPUT, (args, kwargs))

    def after(result: Any) -> None:
        seen = capture()
        if seen is not None:
            seen.keep_all(f"{name}/outputs", Role.LAYER_OUTPUT, result)

    with seeing_call(layer, before, after):
        yield


@contextmanager
def seeing_predictions(model: Any, capture: Callable[[], Capture | None]) -> Iterator[None]:
    """Has a model show what comes out."""

    def after(result: Any) -> None:
        seen = capture()
        if seen is not None:
            seen.keep_all("predictions", Role.PREDICTION, result)

    with seeing_call(model, lambda args, kwargs: None, after):
        yield


@contextmanager
def seeing_call(
    layer: Any, before: Callable[[Any, Any], None], after: Callable[[Any], None]
) -> Iterator[None]:
    """Has a layer call us before and after it runs."""
    original = layer.call
    run = original if KERAS_3 else _converted(original)

    def call(*args: Any, **kwargs: Any) -> Any:
        before(args, kwargs)
        result = run(*args, **kwargs)
        after(result)
        return result

    with _attribute(layer, "call", call if KERAS_3 else _not_converted(call)):
        yield


def _converted(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as Keras 2 would call it: with Python's control flow turned into the graph's."""
    autograph = sys.modules["tensorflow"].__internal__.autograph
    converted: Callable[..., Any] = autograph.tf_convert(function, autograph.control_status_ctx())
    return converted


def _not_converted(function: Callable[..., Any]) -> Callable[..., Any]:
    left: Callable[..., Any] = sys.modules["tensorflow"].autograph.experimental.do_not_convert(
        function
    )
    return left


def tensor_types() -> tuple[type, ...]:
    """The types of what flows through layers."""
    if BACKEND == "tensorflow":
        tf = sys.modules["tensorflow"]
        return (tf.Tensor, tf.IndexedSlices)
    if BACKEND == "torch":
        return (sys.modules["torch"].Tensor,)
    if BACKEND == "jax":
        return (sys.modules["jax"].Array, np.ndarray)  # batches are NumPy's until they are traced
    return ()


def dense(tensor: Any) -> Any:
    """The tensor with all its rows, if it is one of TensorFlow's with some."""
    if BACKEND == "tensorflow" and isinstance(tensor, sys.modules["tensorflow"].IndexedSlices):
        return sys.modules["tensorflow"].convert_to_tensor(tensor)
    return tensor


def _copied(variable: Any) -> Any:
    """The value that a variable has now, in the graph."""
    if BACKEND == "tensorflow":
        return sys.modules["tensorflow"].identity(variable)
    return keras.ops.copy(variable)


def is_sketching() -> bool:
    """Whether Keras only works out shapes: nothing of that ever runs."""
    if BACKEND != "tensorflow" or sys.modules["tensorflow"].executing_eagerly():
        return False
    graph = sys.modules["tensorflow"].compat.v1.get_default_graph()
    return "scratch_graph" in getattr(graph, "name", "")


def _is_of_the_run(error: Exception) -> bool:
    """Whether the step was traced, and failed, or ended, when it ran: that is the user's."""
    if isinstance(error, StopIteration):
        return True
    if BACKEND == "tensorflow":
        return isinstance(error, sys.modules["tensorflow"].errors.OpError)
    return False


@contextmanager
def _attribute(target: Any, name: str, value: Any) -> Iterator[None]:
    """An attribute of the object alone, past what Keras does when one is set."""
    missing = object()
    before = target.__dict__.get(name, missing)
    target.__dict__[name] = value
    try:
        yield
    finally:
        if before is missing:
            target.__dict__.pop(name, None)
        else:
            target.__dict__[name] = before


@contextmanager
def _restored(target: Any, *names: str) -> Iterator[None]:
    """Attributes of the object are afterwards what they were before."""
    before = {name: target.__dict__[name] for name in names if name in target.__dict__}
    try:
        yield
    finally:
        target.__dict__.update(before)


@contextmanager
def _uncompiled_torch(model: Any) -> Iterator[None]:
    """``torch.compile`` would compile what is only for one step."""
    if BACKEND != "torch" or not model.jit_compile:
        yield
        return
    model.jit_compile = False
    try:
        yield
    finally:
        model.jit_compile = True
