"""The layers and variables of a Keras model, and the names that people know them by."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import keras

from tornasole.types import Role


def layers_of(model: Any) -> dict[Any, str]:
    """Every layer in the model but itself, nested ones too, and its name.

    Keras makes the names of layers unique within a model, not within a model of models: there, one
    whose name is taken goes by that of the model it is in, too.
    """
    names: dict[Any, str] = {}
    taken: set[str] = set()

    def add(parent: Any, lead: str) -> None:
        for layer in parent._flatten_layers(include_self=False, recursive=False):
            if layer is model or layer in names:
                continue
            name = layer.name if layer.name not in taken else f"{lead}{layer.name}"
            while name in taken:
                name = f"{name}_"
            names[layer] = name
            taken.add(name)
            add(layer, f"{name}/")

    add(model, f"{model.name}/")
    return names


def layer_patterns(name: str, inputs: bool, outputs: bool) -> list[str]:
    """Patterns of the names of a layer's inputs and outputs."""
    wanted = (("inputs", inputs), ("outputs", outputs))
    return [rf"^{re.escape(name)}/{kind}(_\d+)?$" for kind, asked in wanted if asked]


def role_of_variable(name: str) -> Role:
    """A variable whose own name, without that of its layer, has ``bias`` in it is a bias."""
    whole = re.sub(r"/part_\d+(:\d+)?$", "", name)  # a graph may hold a variable in parts
    return Role.BIAS if "bias" in whole.rpartition("/")[2] else Role.WEIGHT


def variables_of(model: Any) -> Iterator[tuple[str, Role, Any]]:
    """Every weight of the model under the name of the innermost layer that holds it.

    A second one of a name is numbered. The state of metrics is no weight.
    """
    owners: dict[int, tuple[str, Any]] = {}
    for layer, name in ((model, model.name), *layers_of(model).items()):
        for variable in _weights_of(layer):
            owners[id(variable)] = (name, variable)
    for metric in getattr(model, "metrics", ()):
        for variable in metric.variables:
            owners.pop(id(variable), None)
    names = Names()
    for owner, variable in owners.values():
        name = path_of(variable)
        yield names.unique(f"{owner}/weights/{name}"), role_of_variable(name), variable


def _weights_of(layer: Any) -> list[Any]:
    try:
        return list(layer.weights)
    except ValueError:  # Keras 2, of a model that was never called; its layers may have some
        return []


def is_built(model: Any) -> bool:
    """Whether all of the model's weights exist."""
    layers = layers_of(model)
    return all(layer.built for layer in layers) if layers else bool(model.built)


class Names:
    """Gives names, each once."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def unique(self, name: str) -> str:
        """The name, numbered if it is taken."""
        chosen, number = name, 0
        while chosen in self._taken:
            number += 1
            chosen = f"{name}_{number}"
        self._taken.add(chosen)
        return chosen


def path_of(variable: Any) -> str:
    """The name of a variable: its path, as Keras 3 has it, or its name in the graph."""
    return str(getattr(variable, "path", None) or variable.name)


def gradient_names(model: Any) -> dict[int, str]:
    """What gradients are called, by the id of the variable; with its layer, if that is taken."""
    given: dict[int, str] = {}
    taken: set[str] = set()
    names = Names()
    for name, _, variable in variables_of(model):
        plain = gradient_name(variable)
        owner = name.partition("/weights/")[0]
        longer = plain.replace("/", f"/{owner}/", 1)
        given[id(variable)] = names.unique(longer if plain in taken else plain)
        taken.add(plain)
    return given


def optimizers_of(model: Any) -> list[Any]:
    """The model's optimizers: the one it was compiled with, and its attributes."""
    found = [getattr(model, "optimizer", None), *vars(model).values()]
    unique = {id(each): each for each in found if isinstance(each, _optimizer_types())}
    return list(unique.values())


def _optimizer_types() -> tuple[type, ...]:
    old = getattr(keras.optimizers, "legacy", None)
    kinds = [keras.optimizers.Optimizer, getattr(old, "Optimizer", None)]
    return tuple(kind for kind in kinds if isinstance(kind, type))


def variables_of_optimizer(optimizer: Any) -> list[Any]:
    """The variables of an optimizer; of older ones they are the result of a method."""
    variables = optimizer.variables
    return list(variables() if callable(variables) else variables)


def replicas_of(model: Any) -> int:
    """On how many devices the model runs side by side."""
    strategy = getattr(model, "distribute_strategy", None)
    return int(getattr(strategy, "num_replicas_in_sync", 1))


def on_replica(value: Any, number: int) -> Any:
    """What a replica has of a mirrored value; any other value is the same for all."""
    mirrored = getattr(value, "value", None) if hasattr(value, "path") else value
    copies = getattr(mirrored, "values", None)
    return copies[number] if isinstance(copies, tuple) else value


def gradient_name(variable: Any) -> str:
    """What the gradient with respect to a variable is called."""
    return f"gradients/{path_of(variable).partition(':')[0]}Grad"
