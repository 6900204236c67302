"""The steps of a loop written by hand: those that Python runs, and those that a graph runs.

Within a ``tf.function`` Python runs only while TensorFlow traces it, and what is seen then is
symbolic. So the graph itself is made to tell: where a tape is entered it calls back once, to begin
a step and learn what that wants; what is wanted it hands over, in branches that run only then. So
every step, saved or not, runs the same compiled code, and what is saved is what it computed.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tornasole.capture.guard import Guard
from tornasole.capture.layers import tensors_in
from tornasole.capture.recorder import Item, Recorder
from tornasole.tensorflow.models import layers_of
from tornasole.tensorflow.steps import is_sketching, seeing_call, tensor_types
from tornasole.types import Role

Group = list[tuple[str, Role]]

_WITH_INSIDES = frozenset({"If", "Case", "While", "ReduceDataset", "StatefulPartitionedCall"})
_ROLES = (Role.INPUT, Role.PREDICTION, Role.LAYER_INPUT, Role.LAYER_OUTPUT)


class Runner(Protocol):
    """What a graph calls when it runs."""

    def begin_traced(self, groups: Sequence[Group]) -> list[bool] | None:
        """Begins a step; returns which groups of tensors it wants, ``None`` if none."""

    def record_traced(self, items: list[Item]) -> None:
        """Here is what was computed."""


class Step:
    """What was seen of one step so far.

    Args:
        note: Says what is not saved, and why.

    Attributes:
        given: The names of the gradients.
        shown: The variables, by their ``id``.
    """

    def __init__(self, note: Callable[[str, str], None]) -> None:
        self._note = note
        self.given: set[str] = set()
        self.shown: set[int] = set()
        self._losses: list[weakref.ref[Any]] = []
        self._counts: dict[str, int] = {}
        self._armed: ExitStack | None = None
        self._saw_layers = False

    def may_want(self, role: Role) -> bool:
        """Whether it, or another run of it, may want a tensor of this role."""
        raise NotImplementedError

    def keep(self, items: list[Item]) -> None:
        """Here are values; one that is a ``partial`` is called only if its value is wanted."""
        raise NotImplementedError

    def keep_from_layer(self, items: list[Item]) -> None:
        """Here are values that may go when this returns."""
        self.keep(items)

    def holds(self, tensor: Any) -> bool:
        """Whether it can have this tensor's value."""
        raise NotImplementedError

    def losses(self, targets: list[Any]) -> list[Item]:
        """What a tape differentiates, but for what it differentiated before in the step."""
        fresh = [t for t in targets if not any(seen() is t for seen in self._losses)]
        self._losses.extend(map(weakref.ref, fresh))
        return list(self.numbered("loss", Role.LOSS, fresh))

    def numbered(self, stem: str, role: Role, tensors: list[Any]) -> Iterator[Item]:
        """The tensors under ``<stem>``, or ``<stem>_<i>`` if they are not alone in the step."""
        first = self._counts.get(stem, 0)
        self._counts[stem] = first + len(tensors)
        alone = first == 0 and len(tensors) == 1
        for number, tensor in enumerate(tensors, first):
            yield (stem if alone else f"{stem}_{number}"), role, tensor

    def arm(self, models: list[Any], guard: Guard) -> None:
        """Has the models show what flows through them, until ``disarm``."""
        if self._armed is not None or not models:
            return
        see = partial(guard.run, self._see)
        armed = self._armed = ExitStack()
        for model in models:
            if self.may_want(Role.INPUT) or self.may_want(Role.PREDICTION):
                inputs, outputs = ("inputs", Role.INPUT), ("predictions", Role.PREDICTION)
                armed.enter_context(_seeing(model, see, inputs, outputs))
            if self.may_want(Role.LAYER_INPUT) or self.may_want(Role.LAYER_OUTPUT):
                for layer, name in layers_of(model).items():
                    inputs = f"{name}/inputs", Role.LAYER_INPUT
                    outputs = f"{name}/outputs", Role.LAYER_OUTPUT
                    armed.enter_context(_seeing(layer, see, inputs, outputs))

    def end_layers(self) -> None:
        """No tape records any more, for a while at least."""
        self.disarm()

    def end_forward(self) -> None:
        """The models have been called, if they are."""

    def disarm(self) -> None:
        """Leaves the models as they were."""
        armed, self._armed = self._armed, None
        if armed is not None:
            armed.close()

    def _see(self, stem: str, role: Role, value: Any) -> None:
        self._saw_layers = True
        tensors = list(tensors_in(value, tensor_types()))
        ours = [tensor for tensor in tensors if self.holds(tensor)]
        if len(ours) < len(tensors) and not is_sketching():
            self._note(stem, "it is computed within a graph of its own (a function, or a loop)")
        self.keep_from_layer(list(self.numbered(stem, role, ours)))


def _seeing(
    layer: Any,
    see: Callable[[str, Role, Any], None],
    inputs: tuple[str, Role],
    outputs: tuple[str, Role],
) -> AbstractContextManager[None]:
    return seeing_call(
        layer,
        lambda args, kwargs: see(*inputs, (args, kwargs)),
        lambda result: see(*outputs, result),
    )


class EagerStep(Step):
    """A step that Python runs: what is seen is recorded at once.

    Args:
        recorder: Told what is seen.

    Attributes:
        number: The recorder's, to know when the step is over.
    """

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder.note)
        self._recorder = recorder
        self.number = recorder.step

    def keep(self, items: list[Item]) -> None:
        wants = self._recorder.wants
        with tf.init_scope():  # or a tape that still records would record what we read
            self._recorder.record_many(
                [
                    (name, role, value() if isinstance(value, partial) else value)
                    for name, role, value in items
                    if wants(name, role)
                ]
            )

    def end_forward(self) -> None:
        if not self._saw_layers and any(map(self.may_want, _ROLES)):
            self._note(
                "what flows through registered models",
                "none was called while the tape recorded, or only within a tf.function, where one "
                "has to be wrapped to see it",
            )

    def may_want(self, role: Role) -> bool:
        return self._recorder.wants_role(role)

    def holds(self, tensor: Any) -> bool:
        return not hasattr(tensor, "graph")


class TracedStep(Step):
    """Each run of one part of a graph, from where a tape is entered: what is seen is symbolic.

    What is seen together is handed over together, if any of it is wanted. A graph may outlive the
    hook, and the hook the graph, so neither holds the other.

    Args:
        runner: Called when the graph runs.
        graph: The graph that is being traced.
        note: Says what is not saved, and why.
    """

    def __init__(self, runner: Runner, graph: Any, note: Callable[[str, str], None]) -> None:
        super().__init__(note)
        self._runner, self._graph = weakref.ref(runner), weakref.ref(graph)
        self._groups: list[Group] = []
        self._from_layers: list[Item] = []
        # TensorFlow orders what has side effects only where it sees that it shares something.
        before = [op for op in graph.get_operations() if op.type in _WITH_INSIDES]
        with tf.device("CPU:0"), tf.control_dependencies(before):
            wanted = tf.numpy_function(
                partial(_begin, self._runner, self._groups), [], tf.bool, name="tornasole"
            )
            wanted.set_shape([None])
        self._wanted: str = wanted.name

    def keep(self, items: list[Item]) -> None:
        graph = self._graph()
        if not items or graph is None:
            return
        number = len(self._groups)
        self._groups.append([(name, role) for name, role, _ in items])
        with tf.device("CPU:0"):
            wanted = graph.get_tensor_by_name(self._wanted)[number]
        tf.cond(wanted, partial(_hand_over, self._runner, items), lambda: tf.constant(False))

    def keep_from_layer(self, items: list[Item]) -> None:
        self._from_layers.extend(items)  # one branch for all of them: TensorFlow is slow to trace

    def end_layers(self) -> None:
        super().end_layers()
        items, self._from_layers = self._from_layers, []
        if current_graph() is self._graph():
            self.keep(items)

    def may_want(self, role: Role) -> bool:
        return True

    def holds(self, tensor: Any) -> bool:
        return getattr(tensor, "graph", None) in (None, self._graph())


# -- what graphs call ------------------------------------------------------------------------------


def _begin(reference: weakref.ref[Runner], groups: list[Group]) -> npt.NDArray[np.bool_]:
    runner = reference()
    wanted = None if runner is None else runner.begin_traced(groups)
    return np.zeros(len(groups), np.bool_) if wanted is None else np.array(wanted, np.bool_)


def _hand_over(reference: weakref.ref[Runner], items: list[Item]) -> Any:
    """In the branch of a graph: the items' values go out to the runner."""
    values = [value() if isinstance(value, partial) else value for _, _, value in items]
    parts = [_parts(value) for value in values]
    sizes = [len(each) for each in parts]
    names = [(name, role) for name, role, _ in items]
    with tf.device("CPU:0"):
        return tf.numpy_function(
            partial(_receive, reference, names, sizes),
            [part for each in parts for part in each],
            tf.bool,
            name="tornasole",
        )


def _receive(
    reference: weakref.ref[Runner],
    names: Group,
    sizes: list[int],
    *arrays: Any,
) -> np.bool_:
    runner = reference()
    if runner is not None:
        rest = iter(arrays)
        values = [_whole([next(rest) for _ in range(size)]) for size in sizes]
        runner.record_traced(
            [(name, role, value) for (name, role), value in zip(names, values, strict=True)]
        )
    return np.False_


def _parts(value: Any) -> list[Any]:
    if isinstance(value, tf.IndexedSlices):
        shape = value.dense_shape
        return [value.values, value.indices, value.shape.as_list() if shape is None else shape]
    return [tf.convert_to_tensor(value)]


def _whole(parts: list[Any]) -> Any:
    if len(parts) > 1:
        return tf.IndexedSlices(*parts)
    array = np.asarray(parts[0])
    return tf.convert_to_tensor(array) if array.dtype.kind == "V" else array  # such as bfloat16


# -- where we are ----------------------------------------------------------------------------------


def current_graph() -> Any:
    """The graph that is being traced; ``None`` where Python runs for itself."""
    return None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()


def graphs_around(graph: Any) -> Iterator[Any]:
    """The graph, the one in which it is a branch, a loop or a function, and so on outwards."""
    while graph is not None:
        yield graph
        graph = getattr(graph, "outer_graph", None)


def is_compiled_by_xla(graph: Any) -> bool:
    """Whether the graph, or one around it, is that of a function with ``jit_compile=True``."""
    from tensorflow.python.ops import control_flow_util  # nothing public tells

    return bool(control_flow_util.GraphOrParentsInXlaContext(graph))


def in_first_replica() -> bool:
    """Whether this is not another of the replicas of a distributed step."""
    context = tf.distribute.get_replica_context()
    if context is None:
        return True
    replica = context.replica_id_in_sync_group
    return (replica if isinstance(replica, int) else tf.get_static_value(replica)) in (0, None)
