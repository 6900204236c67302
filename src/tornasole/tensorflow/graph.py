"""What a TensorFlow graph holds, and what a run of it can be asked for without being changed.

A run computes what its fetches need. A tensor that it computes anyway can be fetched beside them.
One that it does not compute can be, too, if that draws on no state but variables: not on a
placeholder without a value, nor on a data set, a queue or random numbers, which would then be used
up, and not on an assignment. Reads of variables go before the run, which may write to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import tensorflow as tf

from tornasole.capture.adapter import DTYPES
from tornasole.tensorflow.models import role_of_variable
from tornasole.types import Role

_KEYS = tf.compat.v1.GraphKeys
_NUMERIC = DTYPES - {"string"}

_PLACEHOLDERS = frozenset({"Placeholder", "PlaceholderV2"})
_SOURCES = _PLACEHOLDERS | {"PlaceholderWithDefault", "IteratorGetNext"}
_REF_VARIABLES = frozenset({"Variable", "VariableV2"})
_VARIABLES = _REF_VARIABLES | {"VarHandleOp"}
_READS = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd", *_REF_VARIABLES})
_HARMLESS = _VARIABLES | _READS | {"VarIsInitializedOp", "IsVariableInitialized", "VariableShape"}

_SUMMARISED = {  # which of its inputs a summary shows
    "ScalarSummary": 1,
    "HistogramSummary": 1,
    "ImageSummary": 1,
    "AudioSummary": 1,
    "AudioSummaryV2": 1,
    "TensorSummary": 0,
    "TensorSummaryV2": 1,
}

_POSSIBLE, _PURE, _READING = 1, 2, 4


@dataclass
class Marks:
    """What only the optimizer knows about the tensors of a graph. Names: it must not hold them."""

    gradients: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The name of each, and those of its parts: one, or three if it is sparse."""
    optimizer_variables: set[str] = field(default_factory=set)


class Wanted(NamedTuple):
    """A tensor to be saved."""

    role: Role
    fetch: Any


class Request(NamedTuple):
    """What a run is asked for by its caller: a value that stands for every run like it."""

    operations: frozenset[Any]
    fed: frozenset[tuple[Any, int]]
    """Each tensor that is given a value: its operation, and which of the outputs it is."""


@dataclass
class Fetches:
    """What to fetch for one kind of run."""

    before: dict[str, Wanted] = field(default_factory=dict)
    during: dict[str, Wanted] = field(default_factory=dict)
    variables: set[Any] = field(default_factory=set)
    """The operations of the variables that must have been initialised."""


class GraphTensors:
    """The tensors of a graph as it is now, and what they are.

    Args:
        graph: The graph; ``is_current`` says whether it has grown since.
        marks: What the optimizer knows.
    """

    def __init__(self, graph: Any, marks: Marks) -> None:
        self._graph, self._marks = graph, marks
        self._version = graph.version
        self._stateful: dict[str, bool] = {}

    def is_current(self, graph: Any) -> bool:
        return graph is self._graph and graph.version == self._version

    # -- what there is -----------------------------------------------------------------------------

    @cached_property
    def known(self) -> dict[str, Wanted]:
        """The tensors that have a role, by name."""
        found = {t.name: Wanted(Role.INPUT, t) for t in self._sources() if self._is_numeric(t)}
        for tensor in self._graph.get_collection(_KEYS.LOSSES):
            found[tensor.name] = Wanted(Role.LOSS, tensor)
        for name, parts in self._marks.gradients.items():
            found[name] = Wanted(Role.GRADIENT, self._put_together(parts))
        for name, read in self._variables.items():
            found[name] = Wanted(self._variable_roles.get(name, Role.CUSTOM), read)
        for name, values in self.summaries.items():
            found[name] = Wanted(Role.CUSTOM, values)
        return found

    @cached_property
    def summaries(self) -> dict[str, Any]:
        """The tensor that each summary shows, by the summary's name."""
        found = {}
        for summary in self._graph.get_collection(_KEYS.SUMMARIES):
            place = _SUMMARISED.get(summary.op.type)
            if place is not None and self._is_numeric(summary.op.inputs[place]):
                found[summary.name] = summary.op.inputs[place]
        return found

    def others(self) -> Iterator[tuple[str, Wanted]]:
        """Every other tensor of numbers, by name; not what TensorFlow adds to each variable."""
        own = {read.op for read in self._variables.values() if read.op.type == "ReadVariableOp"}
        for operation in self._graph.get_operations():
            if operation in own or operation.type == "VarIsInitializedOp":
                continue
            for tensor in operation.outputs:
                if self._is_numeric(tensor) and tensor.name not in self.known:
                    yield tensor.name, Wanted(Role.CUSTOM, tensor)

    def read_of(self, variable: Any) -> Any | None:
        """A tensor that is the value of a variable, given by its operation, and nothing else."""
        for user in variable.outputs[0].consumers():
            free = not user.control_inputs and self._graph.is_fetchable(user)
            if free and user.type in ("ReadVariableOp", "Identity"):
                return user.outputs[0]
        return None

    @cached_property
    def _variables(self) -> dict[str, Any]:
        """The value of each variable, by the name of the variable."""
        found = {}
        for operation in self._graph.get_operations():
            if operation.type in _VARIABLES:
                read = self.read_of(operation)
                if read is not None and self._is_numeric(read):
                    found[f"{operation.name}:0"] = read
        return found

    @cached_property
    def _variable_roles(self) -> dict[str, Role]:
        roles = {v.name: Role.BUFFER for v in self._graph.get_collection(_KEYS.GLOBAL_VARIABLES)}
        for variable in self._graph.get_collection(_KEYS.TRAINABLE_VARIABLES):
            roles[variable.name] = role_of_variable(variable.name)
        roles.update(dict.fromkeys(self._marks.optimizer_variables, Role.OPTIMIZER_VARIABLE))
        return roles

    def _sources(self) -> Iterator[Any]:
        for operation in self._graph.get_operations():
            if operation.type in _SOURCES:
                yield from operation.outputs

    def _put_together(self, parts: tuple[str, ...]) -> Any:
        tensors = [self._graph.get_tensor_by_name(part) for part in parts]
        return tensors[0] if len(tensors) == 1 else tf.IndexedSlices(*tensors)

    def _is_numeric(self, tensor: Any) -> bool:
        return tensor.dtype.base_dtype.name in _NUMERIC and self._graph.is_fetchable(tensor)

    # -- what a run can be asked for ---------------------------------------------------------------

    def request(self, fetches: Any, feed_dict: Mapping[Any, Any] | None) -> Request:
        """What the caller asks a run for."""
        fed = (e for e in self._elements(list(feed_dict or ())) if not _is_operation(e))
        return Request(
            frozenset(e if _is_operation(e) else e.op for e in self._elements(fetches)),
            frozenset((tensor.op, tensor.value_index) for tensor in fed),
        )

    def fetches(
        self, wanted: Mapping[str, Wanted], request: Request, unreadable: frozenset[Any]
    ) -> Fetches:
        """Which of the tensors a run can be asked for, and when.

        Args:
            wanted: The tensors, by name.
            request: What the run is asked for already.
            unreadable: The operations of variables that are not initialised.
        """
        computed = _needed_for(request.operations, request.fed)
        states = self._states(computed, request.fed, unreadable)
        found = Fetches()
        for name, (role, fetch) in wanted.items():
            parts = [
                part
                for part in tf.nest.flatten(fetch, expand_composites=True)
                if (part.op, part.value_index) not in request.fed
            ]
            operations = [part.op for part in parts]
            flags = [states[operation] for operation in operations]
            pure = bool(flags) and all(flag & _PURE for flag in flags)
            if pure and all(map(_is_plain_read, operations)):
                found.before[name] = Wanted(role, fetch)
            elif computed.issuperset(operations):
                found.during[name] = Wanted(role, fetch)
                continue  # whatever it needs, the run needs
            elif not all(flag & _POSSIBLE for flag in flags):
                continue
            elif pure and any(flag & _READING for flag in flags):
                found.before[name] = Wanted(role, fetch)
            else:
                found.during[name] = Wanted(role, fetch)
            found.variables.update(operations)
        needed = _needed_for(found.variables, request.fed)
        found.variables = {operation for operation in needed if operation.type in _VARIABLES}
        return found

    def _states(
        self, computed: set[Any], fed: frozenset[tuple[Any, int]], unreadable: frozenset[Any]
    ) -> dict[Any, int]:
        """For each operation whether it can be run, whether without state, whether it would read.

        Operations come in the order in which they were made: one that needs a later one is in a
        loop, and out of the question.
        """
        states: dict[Any, int] = {}
        for operation in self._graph.get_operations():
            needs = [states.get(need, 0) for need in _needs(operation, fed)]
            if operation in unreadable:  # also where the run writes to it
                states[operation] = 0
                continue
            harmless = self._is_harmless(operation)
            inside = operation in computed
            state = 0
            if inside or (harmless and all(need & _POSSIBLE for need in needs)):
                state |= _POSSIBLE
            if harmless and all(need & _PURE for need in needs):
                state |= _PURE
            if not inside and (_reads(operation) or any(need & _READING for need in needs)):
                state |= _READING
            states[operation] = state
        return states

    def _is_harmless(self, operation: Any) -> bool:
        kind = operation.type
        if kind not in self._stateful:
            definition = operation.op_def
            self._stateful[kind] = kind not in _HARMLESS and (
                definition.is_stateful or any(arg.is_ref for arg in definition.input_arg)
            )
        return kind not in _PLACEHOLDERS and not self._stateful[kind]

    def _elements(self, structure: Any) -> Iterator[Any]:
        """The tensors and operations in what a session takes."""
        for each in tf.nest.flatten(structure, expand_composites=True):
            try:
                yield self._graph.as_graph_element(each)
            except (TypeError, ValueError, KeyError):
                continue  # the session itself says what is wrong with it


def _is_operation(element: Any) -> bool:
    return isinstance(element, tf.Operation)


def _needs(operation: Any, fed: frozenset[tuple[Any, int]]) -> Iterator[Any]:
    """The operations that must run before this one."""
    for tensor in operation.inputs:
        if not fed or (tensor.op, tensor.value_index) not in fed:
            yield tensor.op
    yield from operation.control_inputs


def _needed_for(operations: Iterable[Any], fed: frozenset[tuple[Any, int]]) -> set[Any]:
    """These operations and all that must run before them."""
    found = set(operations)
    waiting = list(found)
    while waiting:
        for need in _needs(waiting.pop(), fed):
            if need not in found:
                found.add(need)
                waiting.append(need)
    return found


def _reads(operation: Any) -> bool:
    """Whether the operation looks at the value of a variable."""
    return operation.type in _READS or any(t.op.type in _REF_VARIABLES for t in operation.inputs)


def _is_plain_read(operation: Any) -> bool:
    """Whether its output is the value of a variable."""
    if operation.type == "Identity":
        return _reads(operation)
    return operation.type == "ReadVariableOp" or operation.type in _REF_VARIABLES
