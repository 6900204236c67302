"""The hook as a script with sessions or an Estimator knows it, under each of its names."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tornasole.capture.layers import LayerHook
from tornasole.capture.original import OriginalHook
from tornasole.errors import SMDebugTypeError, SMDebugValueError
from tornasole.selection import CollectionKeys
from tornasole.tensorflow.collection import ORIGINAL_COLLECTIONS, Collection
from tornasole.tensorflow.runs import FetchedTensors, RunAdapter, is_in_graph
from tornasole.types import ModeKeys

_train = tf.compat.v1.train


class SessionHook(LayerHook, tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Saves tensors of graphs: give it to a MonitoredSession or an Estimator among its ``hooks``.

    A step is one run of the session, in the mode that was set last; a run that fails is none.
    Variables are saved as the run finds them, everything else as the run computes it. What it does
    not compute, and could not without using up data or random numbers, is not saved at that step.
    Tensors have the names that they have in the graph.

    One hook may see many sessions and graphs, one after the other.

    Takes the arguments of ``tornasole.Hook``.
    """

    framework = "tensorflow"
    collection_class = Collection
    _adapter: RunAdapter

    def _connect(self) -> None:
        self._adapter = RunAdapter(self._recorder, self._begin_step, self._for_other_modes)
        self._watches: list[_Watch] = []
        self.get_collection(CollectionKeys.TENSORFLOW_SUMMARIES)

    def _detach(self) -> None:
        super()._detach()
        watches, self._watches = self._watches, []
        for watch in watches:
            watch.remove()

    def _tensors(self) -> tuple[FetchedTensors, ...]:
        return (FetchedTensors(),)

    def _versions(self) -> dict[str, str]:
        return {"tensorflow": tf.__version__}

    # -- what a user tells -------------------------------------------------------------------------

    def wrap_optimizer(self, optimizer: Any) -> Any:
        """Learns from an optimizer which tensors are gradients and which variables are its own.

        Gradients are those that it computes, and those that it applies, where these are others
        (clipped ones, for example).

        Args:
            optimizer: One of ``tf.compat.v1.train``, or one of Keras that is used in a graph.

        Returns:
            The same optimizer.
        """
        is_class = isinstance(optimizer, type)
        if is_class or not callable(getattr(optimizer, "apply_gradients", None)):
            raise SMDebugTypeError(
                "wrap_optimizer takes an optimizer of tf.compat.v1.train or of Keras, not "
                f"{type(optimizer).__name__}."
            )
        self._watch(optimizer, "apply_gradients", self._apply_gradients)
        if callable(getattr(optimizer, "compute_gradients", None)):
            self._watch(optimizer, "compute_gradients", self._compute_gradients)
        return optimizer

    def wrap_session(self, session: Any) -> Any:
        """Watches the runs of a session that is not a MonitoredSession.

        Each of them is a step: also those that initialise variables, those of ``tensor.eval()``,
        and those of a ``Saver``.

        Returns:
            The same session.
        """
        if not isinstance(session, (tf.compat.v1.Session, tf.compat.v1.InteractiveSession)):
            raise SMDebugTypeError(
                f"wrap_session takes a tf.compat.v1.Session, not {type(session).__name__}. "
                "A MonitoredSession takes hooks=[hook] when it is made."
            )
        self._watch(session, "run", self._run)
        return session

    def add_to_collection(self, collection_name: str, variable: Any) -> None:
        """The same as ``get_collection(collection_name).add(variable)``."""
        self.get_collection(collection_name).add(variable)

    def set_gradients(
        self,
        gradients: Sequence[Any] | None = None,
        gradients_and_variables: Sequence[tuple[Any, Any]] | None = None,
    ) -> None:
        """Says which tensors are gradients, where there is no optimizer to wrap.

        Args:
            gradients: Tensors of a graph.
            gradients_and_variables: The same in pairs with their variables.
        """
        if gradients is None and gradients_and_variables is None:
            raise SMDebugValueError("set_gradients needs gradients or gradients_and_variables.")
        found = [*(gradients or ()), *(pair[0] for pair in gradients_and_variables or ())]
        found = [gradient for gradient in found if gradient is not None]
        _check_graph_of("set_gradients", found)
        self._adapter.mark_gradients(found)

    def set_optimizer_variables(self, optimizer_variables: Sequence[Any]) -> None:
        """Says which variables are an optimizer's, where there is no optimizer to wrap."""
        found = list(optimizer_variables)
        _check_graph_of("set_optimizer_variables", found)
        self._adapter.mark_optimizer_variables(found)

    # -- what a session calls ----------------------------------------------------------------------

    def before_run(self, run_context: Any) -> Any:
        """Called before each run; asks it for what is to be saved."""
        return None if self._closed else self._guard.run(self._begin_run, run_context)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Called after each run that did not fail."""
        if not self._closed:
            self._guard.run(self._adapter.end_run, run_values.results)

    def end(self, session: Any) -> None:
        """Called when a session ends. The hook stays open for others, until ``close``."""
        if not self._closed:
            self._guard.run(self._adapter.end_session)

    def _begin_run(self, context: Any) -> Any:
        session, caller = context.session, context.original_args
        summaries = self._adapter.look_at(session.graph)
        if summaries:
            self.add_to_collection(CollectionKeys.TENSORFLOW_SUMMARIES, summaries)
        run = session.run
        while isinstance(run, _Watch):  # or reading variables would be a step, too
            run = run.original
        fetches = self._adapter.begin_run(session, run, caller.fetches, caller.feed_dict)
        return None if fetches is None else _train.SessionRunArgs(fetches)

    def _for_other_modes(self, mode: ModeKeys) -> frozenset[str]:
        """The names of tensors that were added to collections, but not for this mode."""
        added: set[str] = set()
        meant: set[str] = set()
        for collection in self._collections.values():
            if isinstance(collection, Collection):
                added.update(tensor.name for tensor in collection.get_tensors())
                meant.update(tensor.name for tensor in collection.get_tensors(mode))
        return frozenset(added - meant)

    # -- what wrapped objects call -----------------------------------------------------------------

    def _watch(self, watched: Any, method: str, around: Callable[..., Any]) -> None:
        known = any(watch.is_on(watched, method) for watch in self._watches)
        if not known and not self._stands_aside:
            self._watches.append(_Watch(watched, method, around))

    def _run(
        self,
        session: Any,
        original: Callable[..., Any],
        fetches: Any,
        feed_dict: Any = None,
        options: Any = None,
        run_metadata: Any = None,
    ) -> Any:
        context = _train.SessionRunContext(
            _train.SessionRunArgs(fetches, feed_dict, options), session
        )
        asked = self.before_run(context)
        if asked is None:
            values, ours = original(fetches, feed_dict, options, run_metadata), None
        else:
            values, ours = original((fetches, asked.fetches), feed_dict, options, run_metadata)
        self.after_run(context, _train.SessionRunValues(ours, options, run_metadata))
        return values

    def _compute_gradients(
        self, optimizer: Any, original: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        pairs = original(*args, **kwargs)
        if isinstance(pairs, (list, tuple)):  # not an iterator: that can be read only once
            self._guard.run(self._note_gradients, pairs)
        return pairs

    def _apply_gradients(
        self,
        optimizer: Any,
        original: Callable[..., Any],
        grads_and_vars: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        pairs = list(grads_and_vars)
        applied = original(pairs, *args, **kwargs)
        self._guard.run(self._note_gradients, pairs)
        self._guard.run(self._note_variables, optimizer)
        return applied

    def _note_gradients(self, pairs: Sequence[tuple[Any, Any]]) -> None:
        if not self._closed:
            self._adapter.mark_gradients(pair[0] for pair in pairs)

    def _note_variables(self, optimizer: Any) -> None:
        if not self._closed:
            variables = getattr(optimizer, "variables", ())
            self._adapter.mark_optimizer_variables(
                variables() if callable(variables) else variables
            )


EstimatorHook = SessionHook


class TornasoleHook(OriginalHook, SessionHook):
    """The hook of the original API."""

    original_collections = ORIGINAL_COLLECTIONS


class _Watch:
    """Stands in the place of a method of one object.

    Args:
        watched: The object.
        method: The name of the method.
        around: Called with the object, the method as it was, and the arguments.
    """

    def __init__(self, watched: Any, method: str, around: Callable[..., Any]) -> None:
        self._watched, self._method, self._around = watched, method, around
        self._before = watched.__dict__.get(method)
        watched.__dict__[method] = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._around(self._watched, self.original, *args, **kwargs)

    @property
    def original(self) -> Callable[..., Any]:
        """The method as it was."""
        if self._before is not None:
            return self._before  # type: ignore[no-any-return]
        bound: Callable[..., Any] = getattr(type(self._watched), self._method).__get__(
            self._watched
        )
        return bound

    def is_on(self, watched: Any, method: str) -> bool:
        """Whether this is the watch of that method."""
        return self._watched is watched and self._method == method

    def remove(self) -> None:
        """Puts the method back; from under another watch, if one came after this."""
        own = self._watched.__dict__
        watch = own.get(self._method)
        if watch is self:
            del own[self._method]
            if self._before is not None:
                own[self._method] = self._before
            return
        while isinstance(watch, _Watch):
            if watch._before is self:
                watch._before = self._before
                return
            watch = watch._before

    def __deepcopy__(self, memo: dict[int, Any]) -> _Watch:
        # An Estimator copies its parameters, and an optimizer may be one: the copy is watched, too.
        twin = copy.copy(self)
        twin._watched = copy.deepcopy(self._watched, memo)
        twin._before = copy.deepcopy(self._before, memo)
        return twin


def _check_graph_of(method: str, values: Sequence[Any]) -> None:
    for value in values:
        if not is_in_graph(value):
            raise SMDebugTypeError(
                f"{method} takes tensors and variables of a graph, not {type(value).__name__}."
            )
