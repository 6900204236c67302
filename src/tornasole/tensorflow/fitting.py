"""From the callbacks of ``fit``, ``evaluate`` and ``predict`` to the recorder.

A step is one batch (with ``steps_per_execution``, that many). Weights are recorded before it runs,
metrics after. What can be seen only from within is returned by the step function that ``steps``
puts in place of the model's own for that batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from tornasole.capture.guard import Guard
from tornasole.capture.recorder import Item, Recorder
from tornasole.errors import SMDebugRuntimeError
from tornasole.tensorflow.models import (
    Names,
    is_built,
    layer_patterns,
    layers_of,
    on_replica,
    optimizers_of,
    path_of,
    variables_of,
    variables_of_optimizer,
)
from tornasole.tensorflow.steps import (
    STEP_ROLES,
    Dispatcher,
    Instrumented,
    Kind,
    Rehearsed,
    current_function,
)
from tornasole.tensorflow.tensors import KERAS_3
from tornasole.types import ModeKeys, Role

_MODES: dict[Kind, ModeKeys] = {
    "train": ModeKeys.TRAIN,
    "test": ModeKeys.EVAL,
    "predict": ModeKeys.PREDICT,
}


_MOST_FUNCTIONS = 16  # to keep; beyond, collections must have been changed again and again


class FitAdapter:
    """Watches the batches that models run.

    Args:
        recorder: Told what appears.
        guard: Between our faults and the model.
        begin_step: Called before a batch runs.

    Attributes:
        batch_runs: Whether a batch is under way.
        others_find: Where to ask for layers that are not in a model that ``fit`` was called on.
        replicas: Who saves what the other replicas of a mirrored model compute, in their order.
    """

    def __init__(self, recorder: Recorder, guard: Guard, begin_step: Callable[[], None]) -> None:
        self._recorder, self._guard, self._begin_step = recorder, guard, begin_step
        self.replicas: Sequence[Replica] = ()
        self.others_find: Callable[[Any, bool, bool], list[str] | None] = lambda *asked: None
        self._model: Any = None
        self.batch_runs = False
        self._late = False  # whether the batch builds the model
        self._functions: dict[tuple[Any, ...], Instrumented] = {}
        self._in_place: Instrumented | None = None
        self._dispatchers: list[Dispatcher] = []

    def watch(self, model: Any) -> None:
        """The batches to come are this model's."""
        if model is not self._model:
            self.detach()
            self._model = model
            if not KERAS_3:
                self._dispatchers.append(Dispatcher(model))

    def detach(self) -> None:
        """Leaves nothing of ours on the model."""
        self._put_back()
        for dispatcher in self._dispatchers:
            dispatcher.remove()
        self._dispatchers, self._functions, self._model = [], {}, None

    def patterns(self, layer: Any, inputs: bool, outputs: bool) -> list[str] | None:
        """Patterns of the names of a layer's inputs and outputs; ``None`` if it is not ours."""
        names = layers_of(self._model) if self._model is not None else {}
        if layer not in names:
            return self.others_find(layer, inputs, outputs)
        return layer_patterns(names[layer], inputs, outputs)

    # -- batches -----------------------------------------------------------------------------------

    def begin(self, kind: Kind) -> None:
        """``fit``, ``evaluate`` or ``predict`` begins, or goes on."""
        self._recorder.mode = _MODES[kind]

    def begin_batch(self, kind: Kind, model: Callable[[], Any]) -> None:
        self.end()
        self._recorder.mode = _MODES[kind]
        self._begin_step()
        for replica in self.replicas:
            replica.follow(self._recorder)
        self.batch_runs = True
        if not self._recorder.active:
            return
        watched = model()
        self._late = not is_built(watched)
        self._record_variables(watched)
        wants = self._recorder.wants_role
        late = self._late and kind == "train" and (wants(Role.WEIGHT) or wants(Role.BIAS))
        if late or any(map(wants, STEP_ROLES)):
            self._put_in_place(kind, watched, late)

    def end_batch(self, kind: Kind, model: Callable[[], Any], logs: Mapping[str, Any]) -> None:
        self.batch_runs = False
        function = self._put_back()
        if not self._recorder.active:
            return
        if function is not None and function.failed is not None:
            lines = str(function.failed).strip().splitlines() or [""]
            reason = f"{type(function.failed).__name__}: {lines[-1].strip()}"
            self._guard.tell(
                SMDebugRuntimeError(
                    f"Gradients and tensors of layers cannot be seen in a {kind} step of "
                    f"{self._model.name}: {reason}"
                )
            )
        unseen = function is not None and not function.has_seen_gradients
        if unseen and kind == "train" and self._recorder.wants_role(Role.GRADIENT):
            self._recorder.note("gradients", "no optimizer of the model was given any")
        self._record(items_of_logs(logs))
        if self._late and kind != "train":
            self._record_variables(model())
        if kind == "train" and self._recorder.wants_role(Role.OPTIMIZER_VARIABLE):
            self._record_optimizer(model())

    def end(self) -> None:
        """No batch is under way; one that was begun found no more data."""
        self._put_back()
        if self.batch_runs:
            self.batch_runs = False
            for recorder in self._recorders():
                recorder.take_back_step()

    # -- step functions ----------------------------------------------------------------------------

    def _put_in_place(self, kind: Kind, model: Any, late: bool) -> None:
        key = (kind, self._recorder.due, current_function(model, kind), late)
        function = self._functions.get(key)
        if function is None:
            if len(self._functions) >= _MOST_FUNCTIONS:
                self._functions.clear()
            sort = Rehearsed if Rehearsed.suits(model, kind) else Instrumented
            function = self._functions[key] = sort(
                model, kind, self._recorder, self._guard, self._deliver, late
            )
        if function.failed is None:
            function.put_in_place()
            self._in_place = function

    def _recorders(self) -> list[Recorder]:
        return [self._recorder, *(replica.recorder for replica in self.replicas)]

    def _deliver(self, replica: int, items: list[Item]) -> None:
        recorders = self._recorders()
        if replica < len(recorders):
            self._guard.run(recorders[replica].record_many, items)

    def _put_back(self) -> Instrumented | None:
        """Returns what was in place."""
        function, self._in_place = self._in_place, None
        if function is not None:
            function.put_back()
        return function

    # -- tensors -----------------------------------------------------------------------------------

    def _record_variables(self, model: Any) -> None:
        wants = self._recorder.wants_role
        if wants(Role.WEIGHT) or wants(Role.BIAS):
            self._record(list(variables_of(model)))

    def _record_optimizer(self, model: Any) -> None:
        names = Names()
        items: list[Item] = [
            (names.unique(path_of(variable)), Role.OPTIMIZER_VARIABLE, variable)
            for optimizer in optimizers_of(model)
            for variable in variables_of_optimizer(optimizer)
        ]
        self._record(items)

    def _record(self, items: list[Item]) -> None:
        """Records what all replicas have alike, for each."""
        self._recorder.record_many(items)
        for number, replica in enumerate(self.replicas, 1):
            replica.recorder.record_many(
                (name, role, on_replica(value, number)) for name, role, value in items
            )


class Replica(Protocol):
    """Saves what one replica computes, as a worker of its own."""

    @property
    def recorder(self) -> Recorder:
        """Told what appears there."""

    def follow(self, chief: Recorder) -> None:
        """Begins the step that the chief has begun."""


def items_of_logs(logs: Mapping[str, Any] | None) -> list[Item]:
    """Losses and metrics as Keras reports them."""
    items: list[Item] = []
    for name, value in (logs or {}).items():
        if name == "outputs":
            continue  # of predict, whole batches of them
        is_loss = name == "loss" or name.endswith("_loss")
        items.append((name, Role.LOSS if is_loss else Role.METRIC, value))
    return items
