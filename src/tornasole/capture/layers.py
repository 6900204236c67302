"""What frameworks with models made of layers share: collections of layers, steps, tensor names.

A step is one call of a registered model. An adapter attaches what costs something only for a step
that wants it, and takes it off again when the next one begins.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from tornasole.capture.guard import Guard
from tornasole.capture.hook import Hook
from tornasole.capture.recorder import Recorder
from tornasole.selection import Collection
from tornasole.types import Role

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

    def resolve(self, patterns: Callable[[Layer, bool, bool], list[str] | None]) -> list[Layer]:
        """Turns layers into patterns of tensor names, once their model is registered.

        Args:
            patterns: Gives the patterns for a layer's inputs and outputs, ``None`` if it is in no
                registered model.

        Returns:
            Those layers that are in none; their model may be registered later.
        """
        layers, self._unresolved = self._unresolved, []
        for layer in layers:
            found = patterns(layer, *self._layers[layer])
            if found is None:
                self._unresolved.append(layer)
            else:
                self.include(found)
        return list(self._unresolved)

    @property
    def unresolved(self) -> bool:
        """Whether there are layers whose model was not found yet."""
        return bool(self._unresolved)


class LayerAdapter:
    """Watches the models and losses of one hook.

    Args:
        recorder: Told what appears.
        guard: Between our faults and the model.
        begin_step: Called when a registered model is called, with whether it may be trained.
    """

    tensor_type: ClassVar[type]

    def __init__(
        self, recorder: Recorder, guard: Guard, begin_step: Callable[[bool], None]
    ) -> None:
        self._recorder, self._guard, self._begin_step = recorder, guard, begin_step

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

    def _name_of(self, layer: Any) -> str | None:
        """The name of a layer of a registered model."""
        raise NotImplementedError

    def _disarm(self) -> None:
        """Takes off what is there for one step."""
        raise NotImplementedError

    def _stop_waiting(self) -> None:
        """Takes off what is there until a step has what it owes."""
        raise NotImplementedError

    def _begin(self, trains: bool) -> bool:
        """Begins the next step; returns whether it keeps anything.

        Args:
            trains: Whether a backward pass may follow.
        """
        self._disarm()
        self._begin_step(trains)
        if not self._recorder.lingering:
            self._stop_waiting()
        return self._recorder.active

    def _can_train(self, value: Any) -> bool:
        """Whether a gradient could be computed from this, which was just computed."""
        raise NotImplementedError

    def _record(
        self, name: str, kind: str, roles: tuple[Role, ...], value: Any, owed: Role | None = None
    ) -> None:
        """Records the tensors in a nest of containers under ``<name>_<kind>_<i>``."""
        tensors = list(tensors_in(value, self.tensor_type))
        self._recorder.record_numbered(f"{name}_{kind}_", roles, tensors, owed)

    def record_output(self, name: str, value: Any) -> None:
        """Records a loss that the user hands over, under ``<name>_output_<i>``."""
        self._record_loss(name, (), value)

    def _record_loss(self, name: str, inputs: Any, output: Any) -> None:
        """What a loss returns is the loss; what it is given is prediction, label and the rest."""
        if not (self._recorder.active or self._recorder.lingering):
            return
        owed = Role.LOSS if self._can_train(output) else None
        given = (Role.PREDICTION, Role.LABEL, Role.INPUT)
        self._record(name, "input", given, inputs, owed)
        self._record(name, "output", (Role.LOSS,), output, owed)
        if owed is not None:
            self._recorder.has_come(Role.LOSS)


class FindsLayers(Protocol):
    """The part of an adapter that its hook needs."""

    def patterns(self, layer: Any, inputs: bool, outputs: bool) -> list[str] | None:
        """Patterns of the names of a layer's inputs and outputs; ``None`` if it is not ours."""

    def detach(self) -> None:
        """Leaves nothing of ours on models and losses."""


class LayerHook(Hook):
    """The hook of a framework with models made of layers; ``_connect`` makes its ``_adapter``."""

    _adapter: FindsLayers

    def _begin_step(self, trains: bool = True) -> None:
        for collection in self._collections.values():
            if isinstance(collection, LayerCollection) and collection.unresolved:
                for layer in collection.resolve(self._adapter.patterns):
                    self._recorder.note(
                        f"{type(layer).__name__} in collection {collection.name!r}",
                        "it is in no registered model",
                    )
        super()._begin_step(trains)

    def _detach(self) -> None:
        self._adapter.detach()


def tensors_in(
    value: Any, kind: type | tuple[type, ...], inside: tuple[int, ...] = ()
) -> Iterator[Any]:
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
