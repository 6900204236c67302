"""From the runs of sessions to the recorder.

A step is one run. Variables are read before it, in a run of their own, because it may write to
them; everything else is fetched by the run itself, beside what its caller wants.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tornasole.capture.adapter import DTYPES, Unsavable
from tornasole.capture.guard import NotOurs
from tornasole.capture.layers import tensors_in
from tornasole.capture.recorder import Recorder
from tornasole.tensorflow.graph import Fetches, GraphTensors, Marks, Request, Wanted
from tornasole.tensorflow.tensors import KerasTensors
from tornasole.types import ModeKeys, Role

_REMEMBERED = 32  # kinds of runs; one that was forgotten costs a walk over the graph

# A MonitoredSession that meets these makes itself a new session.
_LOST_A_MACHINE = (tf.errors.AbortedError, tf.errors.UnavailableError)


class FetchedTensors(KerasTensors):
    """``Tensors`` for what a run returns, sparse gradients among it."""

    def admits(self, value: Any) -> bool:
        return _is_foreign_array(value) or super().admits(value)

    def plain(self, value: Any) -> npt.NDArray[Any]:
        if _is_foreign_array(value) and value.dtype.name in DTYPES:
            return np.asarray(value)
        if is_in_graph(value):
            raise Unsavable("it is a tensor of a graph, which has a value only within a run")
        return super().plain(value)


class RunAdapter:
    """Watches the runs of sessions.

    Args:
        recorder: Told what appears.
        begin_step: Called before each run.
        left_out: Gives the names of the tensors that are meant for other modes than this one.
    """

    def __init__(
        self,
        recorder: Recorder,
        begin_step: Callable[[], None],
        left_out: Callable[[ModeKeys], frozenset[str]],
    ) -> None:
        self._recorder, self._begin_step, self._left_out = recorder, begin_step, left_out
        self._marks: weakref.WeakKeyDictionary[Any, Marks] = weakref.WeakKeyDictionary()
        self._tensors: GraphTensors | None = None
        self._fetches: dict[tuple[object, ...], Fetches] = {}
        self._session: Callable[[], Any] = lambda: None
        self._initialised: set[Any] = set()
        self._under_way = False
        self._fetched: dict[str, Wanted] = {}

    # -- graphs ------------------------------------------------------------------------------------

    def look_at(self, graph: Any) -> list[str]:
        """Gets to know the graph; returns the names of its summaries if it is another than before.

        A graph that has grown is another.
        """
        if self._tensors is not None and self._tensors.is_current(graph):
            return []
        self.forget()
        self._tensors = GraphTensors(graph, self._marks_of(graph))
        return list(self._tensors.summaries)

    def mark_gradients(self, gradients: Iterable[Any]) -> None:
        """These are gradients; those that are not in a graph are passed over."""
        for gradient in filter(is_in_graph, gradients):
            parts = [gradient]
            if isinstance(gradient, tf.IndexedSlices):
                parts = [gradient.values]  # without a shape, its rows are all that can be saved
                if gradient.dense_shape is not None:
                    parts += [gradient.indices, gradient.dense_shape]
            names = tuple(part.name for part in parts)
            self._marks_of(gradient.graph).gradients[gradient.name] = names
        self.forget()

    def mark_optimizer_variables(self, variables: Iterable[Any]) -> None:
        """These are an optimizer's; those that are not in a graph are passed over."""
        for variable in filter(is_in_graph, variables):
            self._marks_of(variable.graph).optimizer_variables.add(variable.name)
        self.forget()

    def patterns(self, layer: Any, inputs: bool, outputs: bool) -> list[str] | None:
        """Patterns of the names of a layer's inputs and outputs; ``None`` if it is in no graph."""
        found = []
        for attribute, asked in (("input", inputs), ("output", outputs)):
            try:
                value = getattr(layer, attribute) if asked else ()
            except (AttributeError, ValueError):  # the layer was not called, or more than once
                return None
            tensors = list(tensors_in(value, tf.Tensor))
            if asked and not tensors:
                return None
            found += [f"^{re.escape(tensor.name)}$" for tensor in tensors]
        return found

    def forget(self) -> None:
        """Lets go of the graph; what was marked in it stays known as long as it exists."""
        self._tensors, self._fetches = None, {}

    def detach(self) -> None:
        self.forget()
        self._initialised.clear()

    def _marks_of(self, graph: Any) -> Marks:
        return self._marks.setdefault(graph, Marks())

    # -- runs --------------------------------------------------------------------------------------

    def begin_run(
        self, session: Any, run: Callable[..., Any], fetches: Any, feed_dict: Any
    ) -> dict[str, Any] | None:
        """Before a run: begins a step; returns what the run is to fetch beside, if anything.

        Args:
            session: The session.
            run: Runs it without us.
            fetches: What the caller wants.
            feed_dict: The values that the caller gives.
        """
        self._give_up_run()
        self._begin_step()
        self._under_way = True
        if not self._recorder.active:
            return None
        if session is not self._session():
            self._session = weakref.ref(session)
            self._initialised = set()
        try:
            found = self._find_fetches(run, fetches, feed_dict)
            if found.before:
                values = run({name: each.fetch for name, each in found.before.items()}, feed_dict)
                self._record(found.before, values)
        except _LOST_A_MACHINE as error:
            raise NotOurs(error) from error
        self._fetched = found.during
        return {name: each.fetch for name, each in found.during.items()} or None

    def end_run(self, values: dict[str, Any] | None) -> None:
        """After a run: records what it fetched for us."""
        self._under_way = False
        fetched, self._fetched = self._fetched, {}
        if values:
            self._record(fetched, values)

    def end_session(self) -> None:
        """No run is under way, and there may be no more in this graph."""
        self._give_up_run()
        self.forget()

    def _give_up_run(self) -> None:
        """A run that was begun and has not ended has failed, and is no step."""
        if self._under_way:
            self._under_way, self._fetched = False, {}
            self._recorder.take_back_step()

    def _record(self, wanted: dict[str, Wanted], values: dict[str, Any]) -> None:
        self._recorder.record_many((name, each.role, values[name]) for name, each in wanted.items())

    # -- what to fetch -----------------------------------------------------------------------------

    def _find_fetches(self, run: Callable[..., Any], fetches: Any, feed_dict: Any) -> Fetches:
        assert self._tensors is not None
        request = self._tensors.request(fetches, feed_dict)
        found = self._fetches_for(request, frozenset())
        unreadable = self._uninitialised(run, found.variables)
        return self._fetches_for(request, unreadable) if unreadable else found

    def _fetches_for(self, request: Request, unreadable: frozenset[Any]) -> Fetches:
        assert self._tensors is not None
        left_out = self._left_out(self._recorder.mode)
        key = (self._recorder.due, left_out, request, unreadable)
        if key not in self._fetches:
            if len(self._fetches) >= _REMEMBERED:
                self._fetches.clear()
            self._fetches[key] = self._tensors.fetches(
                self._find_wanted(left_out), request, unreadable
            )
        return self._fetches[key]

    def _find_wanted(self, left_out: frozenset[str]) -> dict[str, Wanted]:
        assert self._tensors is not None
        candidates = list(self._tensors.known.items())
        if self._recorder.wants_role(Role.CUSTOM):
            candidates += self._tensors.others()
        return {
            name: each
            for name, each in candidates
            if name not in left_out and self._recorder.wants(name, each.role)
        }

    def _uninitialised(self, run: Callable[..., Any], variables: set[Any]) -> frozenset[Any]:
        """Those variables that have no value yet.

        To read one would be an error, and one in the caller's run. What was found initialised once
        is so for as long as the session lives.
        """
        assert self._tensors is not None
        reads = {
            variable: self._tensors.read_of(variable) for variable in variables - self._initialised
        }
        known = {variable: read.op for variable, read in reads.items() if read is not None}
        if not _can_run(run, list(known.values())):
            known = {variable: read for variable, read in known.items() if _can_run(run, [read])}
        self._initialised.update(known)
        return frozenset(reads.keys() - known.keys())


def _is_foreign_array(value: Any) -> bool:
    """Whether this is an array of a type that NumPy itself lacks, such as bfloat16."""
    return isinstance(value, (np.ndarray, np.generic)) and value.dtype.isbuiltin == 2


def is_in_graph(value: Any) -> bool:
    """Whether this is a tensor or variable of a graph, not an eager one."""
    return hasattr(value, "graph") and hasattr(value, "name")


def _can_run(run: Callable[..., Any], reads: list[Any]) -> bool:
    """Whether variables can be read; nothing is copied."""
    try:
        run(reads)
    except tf.errors.FailedPreconditionError:
        return False
    return True
