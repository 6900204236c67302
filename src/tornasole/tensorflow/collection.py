"""A collection that can also be filled with layers, and with tensors of a graph."""

from __future__ import annotations

from typing import Any

import keras

from tornasole.capture.layers import LayerCollection
from tornasole.capture.original import OriginalCollections
from tornasole.errors import SMDebugTypeError, SMDebugValueError
from tornasole.types import ModeKeys


class Collection(LayerCollection[Any]):
    """A named group of tensors: of layers' inputs and outputs, and those of a graph."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._tensors: dict[tuple[str, ModeKeys | None], Any] = {}

    def add_keras_layer(self, layer: Any, inputs: bool = False, outputs: bool = True) -> None:
        """Includes what goes into or comes out of a layer of the model."""
        if not isinstance(layer, keras.layers.Layer):
            raise SMDebugTypeError(
                f"add_keras_layer takes a Keras layer, not {type(layer).__name__}."
            )
        self._add_layer(layer, inputs, outputs)

    def add(self, arg: Any) -> None:
        """Includes a tensor, variable or operation, a name, or a list or set of these."""
        self.add_for_mode(arg)

    def add_for_mode(self, arg: Any, mode: ModeKeys | None = None) -> None:
        """The same, for the steps of one mode."""
        if isinstance(arg, (list, tuple, set, frozenset)):
            for each in arg:
                self.add_for_mode(each, mode)
        elif isinstance(arg, str):
            self.add_tensor_name(arg)
        elif isinstance(getattr(arg, "values", None), tuple):  # one value for each replica
            self.add_for_mode(arg.values, mode)
        elif hasattr(arg, "outputs") and hasattr(arg, "node_def"):  # an operation of a graph
            self.add_for_mode(list(arg.outputs), mode)
        elif isinstance(getattr(arg, "name", None), str):
            self._tensors[arg.name, mode] = arg
            self.add_tensor_name(arg.name)
        else:
            raise SMDebugTypeError(
                f"Collection {self.name!r} takes tensors, variables, operations, names and lists "
                f"of them, not {type(arg).__name__}."
            )

    def get_tensors(self, mode: ModeKeys | None = None, graph: Any = None) -> list[Any]:
        """The tensors that were added, for one mode and of one graph if these are given."""
        return [
            tensor
            for (_, of_mode), tensor in self._tensors.items()
            if (mode is None or of_mode in (None, mode))
            and (graph is None or getattr(tensor, "graph", None) is graph)
        ]

    def get_tensor(self, name: str) -> Any:
        """The tensor that was added under this name."""
        found = {of_name: tensor for (of_name, _), tensor in self._tensors.items()}
        if name not in found:
            raise SMDebugValueError(
                f"Collection {self.name!r} holds no tensor {name!r}; it holds "
                f"{', '.join(sorted(found)) or 'none'}."
            )
        return found[name]

    def has_tensor(self, name: str) -> bool:
        """Whether a tensor of this name was added."""
        return any(name == of_name for of_name, _ in self._tensors)


ORIGINAL_COLLECTIONS = OriginalCollections("tensorflow", Collection)

get_collection = ORIGINAL_COLLECTIONS.get_collection
get_collections = ORIGINAL_COLLECTIONS.get_collections
add_to_collection = ORIGINAL_COLLECTIONS.add_to_collection
add_to_default_collection = ORIGINAL_COLLECTIONS.add_to_default_collection
reset_collections = ORIGINAL_COLLECTIONS.reset_collections
