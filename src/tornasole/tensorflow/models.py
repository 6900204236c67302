"""The layers and variables of a Keras model, and the names that people know them by."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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


def variables_of(model: Any) -> Iterator[tuple[str, Role, Any]]:
    """Every weight of the model under the name of the innermost layer that holds it."""
    owners: dict[int, tuple[str, Any]] = {}
    for layer, name in ((model, model.name), *layers_of(model).items()):
        for variable in layer.weights:
            owners[id(variable)] = (name, variable)
    for owner, variable in owners.values():
        name = path_of(variable)
        role = Role.BIAS if "bias" in name.rpartition("/")[2] else Role.WEIGHT
        yield f"{owner}/weights/{name}", role, variable


def path_of(variable: Any) -> str:
    """The name of a variable: its path, as Keras 3 has it, or its name in the graph."""
    return str(getattr(variable, "path", None) or variable.name)


def gradient_names(model: Any) -> dict[int, str]:
    """What gradients are called, by the id of the variable; with its layer, if that is taken."""
    names: dict[int, str] = {}
    taken: set[str] = set()
    for name, _, variable in variables_of(model):
        plain = gradient_name(variable)
        owner = name.partition("/weights/")[0]
        chosen = plain.replace("/", f"/{owner}/", 1) if plain in taken else plain
        names[id(variable)] = chosen
        taken.add(chosen)
    return names


def variables_of_optimizer(model: Any) -> list[Any]:
    """The variables of a model's optimizer, if it has one."""
    variables = getattr(getattr(model, "optimizer", None), "variables", ())
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
