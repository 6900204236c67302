"""What frameworks with models made of layers share: collections of layers, steps, tensor names.

A step is one call of a registered model. An adapter attaches what costs something only for a step
that wants it, and takes it off again when the next one begins.
"""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Generic, TypeVar

from tornasole.capture.guard import Guard
from tornasole.capture.hook import Hook
from tornasole.capture.recorder import Recorder
from tornasole.selection import Collection
from tornasole.types import Role

log = logging.getLogger("tornasole")

Layer = TypeVar("Layer")


class LayerCollection(Collection, Generic[Layer]):
    """A named group of tensors, some of which may be inputs and outputs of layers."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._layers: dict[Layer, tuple[bool, bool]] = {}
        self._unresolved: list[Layer] = []

    def _add_layer(self, layer: Layer, inputs: bool, outputs: bool) -> None:
        before = self._layers.get(layer, (False, False))
        self._layers[layer] = (inputs or before[0], outputs or before[1])
        self._unresolved.append(layer)

    @property
    def is_empty(self) -> bool:
        return super().is_empty and not self._layers

    def resolve(self, patterns: Callable[[Layer, bool, bool], list[str] | None]) -> list[str]:
        """Turns layers into patterns of tensor names, once their model is registered.

        Args:
            patterns: Gives the patterns for a layer's inputs and outputs, ``None`` if it is in no
                registered model.

        Returns:
            The classes of those layers that are in none.
        """
        unknown = []
        layers, self._unresolved = self._unresolved, []
        for layer in layers:
            found = patterns(layer, *self._layers[layer])
            if found is None:
                unknown.append(type(layer).__name__)
            else:
                self.include(found)
        return unknown

    @property
    def unresolved(self) -> bool:
        """Whether layers were added since ``resolve`` was last called."""
        return bool(self._unresolved)


class LayerAdapter:
    """Watches the models and losses of one hook.

    A framework's adapter calls ``_begin`` when a model is called, ``_record`` when tensors appear,
    and ``_has_come`` when the step has something that it waited for.

    Args:
        recorder: Told what appears.
        guard: Between our faults and the model.
        begin_step: Called when a registered model is called.
    """

    tensor_type: ClassVar[type]

    def __init__(self, recorder: Recorder, guard: Guard, begin_step: Callable[[], None]) -> None:
        self._recorder, self._guard, self._begin_step = recorder, guard, begin_step
        self._owed: set[Role] = set()  # what a due step has not had yet
        self._owing = -1  # the number of that step
        self._counts: dict[str, int] = {}

    def patterns(self, layer: Any, inputs: bool, outputs: bool) -> list[str] | None:
        """Patterns of the names of a layer's inputs and outputs; ``None`` if it is not ours."""
        name = self._name_of(layer)
        if name is None:
            return None
        wanted = (("input", inputs), ("output", outputs))
        return [rf"^{re.escape(name)}_{kind}_\d+$" for kind, asked in wanted if asked]

    def detach(self) -> None:
        """Leaves nothing of ours on models and losses."""
        raise NotImplementedError

    def record_output(self, name: str, value: Any) -> None:
        """Records a loss that the user hands over, under ``<name>_output_<i>``."""
        self._record(name, "output", (Role.LOSS,), value)

    def _name_of(self, layer: Any) -> str | None:
        """The name of a layer of a registered model."""
        raise NotImplementedError

    def _disarm(self) -> None:
        """Takes off what is attached for one step."""
        raise NotImplementedError

    def _stop_waiting(self) -> None:
        """No gradients are awaited any more."""
        self._owed.clear()

    def _begin(self, trains: bool) -> bool:
        """Begins the next step; returns whether it keeps anything.

        Args:
            trains: Whether a backward pass may follow.
        """
        recorder = self._recorder
        self._disarm()
        recorder.awaiting = bool(self._owed) and self._owing == recorder.step
        recorder.barren = not trains
        self._begin_step()
        if not recorder.lingering:
            self._stop_waiting()
        if recorder.active:
            self._counts.clear()
        return recorder.active

    def _owe(self, gradients: bool, losses: bool) -> None:
        """Notes what may still come after the model's call, as far as the step wants it."""
        comes = {Role.GRADIENT: gradients, Role.LOSS: losses}
        self._owed = {role for role in comes if comes[role] and self._recorder.wants_role(role)}
        self._owing = self._recorder.step

    def _has_come(self, role: Role) -> None:
        """Notes that a step has what it waited for; a lingering one may end."""
        self._owed.discard(role)
        if not self._owed:
            self._recorder.end_lingering()

    def _record(
        self, name: str, kind: str, roles: tuple[Role, ...], value: Any, awaited: bool = False
    ) -> None:
        """Records the tensors in a nest of containers under ``<name>_<kind>_<i>``.

        The i-th has the i-th of the roles, or the last; counting goes on when a layer runs again in
        the step.
        """
        stem = f"{name}_{kind}_"
        first = self._counts.get(stem, 0)
        tensors = list(tensors_in(value, self.tensor_type))
        self._counts[stem] = first + len(tensors)
        self._recorder.record_many(
            (
                (f"{stem}{first + i}", roles[min(i, len(roles) - 1)], tensor)
                for i, tensor in enumerate(tensors)
            ),
            awaited,
        )

    def _record_loss(self, name: str, inputs: Any, output: Any) -> None:
        """What a loss returns is the loss; what it is given is prediction, label and the rest."""
        if self._recorder.active or self._recorder.lingering:
            given = (Role.PREDICTION, Role.LABEL, Role.INPUT)
            self._record(name, "input", given, inputs, awaited=True)
            self._record(name, "output", (Role.LOSS,), output, awaited=True)
            self._has_come(Role.LOSS)


class LayerHook(Hook):
    """The hook of a framework with models made of layers; ``_connect`` makes its ``_adapter``."""

    _adapter: LayerAdapter

    def _begin_step(self) -> None:
        for collection in self._collections.values():
            if isinstance(collection, LayerCollection) and collection.unresolved:
                for name in collection.resolve(self._adapter.patterns):
                    log.warning(
                        "Collection %r asks for a %s that is in no registered model; "
                        "it is left out.",
                        collection.name,
                        name,
                    )
        super()._begin_step()

    def _detach(self) -> None:
        self._adapter.detach()


def tensors_in(value: Any, kind: type, inside: tuple[int, ...] = ()) -> Iterator[Any]:
    """Every tensor in a nest of sequences, mappings and dataclasses, in order."""
    if isinstance(value, kind):
        yield value
        return
    if isinstance(value, Mapping):
        parts: Iterable[Any] = value.values()
    elif isinstance(value, (tuple, list)):
        parts = value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = (getattr(value, field.name, None) for field in dataclasses.fields(value))
    else:
        return
    if id(value) not in inside:  # else it holds itself
        for part in parts:
            yield from tensors_in(part, kind, (*inside, id(value)))
