"""What each framework's hook starts with: its built-in collections, made of roles, and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tornasole.errors import SMDebugValueError
from tornasole.selection.collection import C, Collection
from tornasole.selection.collection import CollectionKeys as Keys
from tornasole.selection.patterns import choose_from
from tornasole.selection.save_config import DEFAULT_SAVE_INTERVAL
from tornasole.types import Role

UNREDUCED_COLLECTIONS = frozenset(
    {
        Keys.LOSSES, Keys.METRICS, Keys.FEATURE_IMPORTANCE, Keys.AVERAGE_SHAP, Keys.SM_METRICS,
        Keys.HYPERPARAMETERS, Keys.TREES,
    }
)  # fmt: skip
"""Collections of single numbers and words: always saved raw, never drawn as histograms."""

TRAINING_ONLY_COLLECTIONS = frozenset({Keys.GRADIENTS, Keys.OPTIMIZER_VARIABLES})
"""Collections that are skipped in EVAL and PREDICT."""

TRAINING_ONLY_ROLES = frozenset({Role.GRADIENT, Role.OPTIMIZER_VARIABLE})
"""Roles that the collection ``all`` leaves out in EVAL and PREDICT."""

FILLED_LATER = frozenset({Keys.DEFAULT, Keys.SM_METRICS, Keys.TENSORFLOW_SUMMARIES})
"""Collections that may be included and empty: arguments and calls of the hook fill them."""


@dataclass(frozen=True)
class Builtin:
    """The built-in collections of one framework."""

    roles: Mapping[str, frozenset[Role]]
    included: frozenset[str]
    """The collections saved unless switched off."""
    save_interval: int = DEFAULT_SAVE_INTERVAL

    def collections(self, kind: type[C] = Collection) -> dict[str, C]:  # type: ignore[assignment]
        """Make the collections anew, of the framework's own kind."""
        return {
            name: kind(name, roles=roles, save_histogram=name not in UNREDUCED_COLLECTIONS)
            for name, roles in self.roles.items()
        }


def _roles(*roles: Role) -> frozenset[Role]:
    return frozenset(roles)


_LAYERED = {
    Keys.ALL: _roles(),
    Keys.DEFAULT: _roles(),
    Keys.WEIGHTS: _roles(Role.WEIGHT),
    Keys.BIASES: _roles(Role.BIAS),
    Keys.GRADIENTS: _roles(Role.GRADIENT),
    Keys.LOSSES: _roles(Role.LOSS),
    Keys.INPUTS: _roles(Role.INPUT, Role.LAYER_INPUT),
    Keys.OUTPUTS: _roles(Role.OUTPUT, Role.LAYER_OUTPUT),
    Keys.LAYERS: _roles(Role.LAYER_INPUT, Role.LAYER_OUTPUT),
    Keys.BUFFERS: _roles(Role.BUFFER),
    Keys.OPTIMIZER_VARIABLES: _roles(Role.OPTIMIZER_VARIABLE),
    Keys.LABELS: _roles(Role.LABEL),
    Keys.PREDICTIONS: _roles(Role.PREDICTION),
    Keys.METRICS: _roles(Role.METRIC),
    Keys.SM_METRICS: _roles(),
}

BUILTIN: Mapping[str, Builtin] = {
    "numpy": Builtin(_LAYERED, frozenset()),
    "pytorch": Builtin(_LAYERED, frozenset({Keys.LOSSES})),
    "mxnet": Builtin(_LAYERED, frozenset({Keys.LOSSES})),
    "tensorflow": Builtin(
        {
            **_LAYERED,
            Keys.INPUTS: _roles(Role.INPUT),
            Keys.OUTPUTS: _roles(Role.OUTPUT, Role.LABEL, Role.PREDICTION),
        },
        frozenset({Keys.METRICS, Keys.LOSSES, Keys.SM_METRICS}),
    ),
    "xgboost": Builtin(
        {
            Keys.ALL: _roles(),
            Keys.DEFAULT: _roles(),
            Keys.METRICS: _roles(Role.METRIC, Role.LOSS),  # XGBoost's losses are metrics, too
            Keys.LOSSES: _roles(Role.LOSS),
            Keys.HYPERPARAMETERS: _roles(Role.HYPERPARAMETER),
            Keys.PREDICTIONS: _roles(Role.PREDICTION),
            Keys.LABELS: _roles(Role.LABEL),
            Keys.FEATURE_IMPORTANCE: _roles(Role.FEATURE_IMPORTANCE),
            Keys.AVERAGE_SHAP: _roles(Role.AVERAGE_SHAP),
            Keys.FULL_SHAP: _roles(Role.FULL_SHAP),
            Keys.TREES: _roles(Role.TREE),
        },
        frozenset({Keys.METRICS}),
        save_interval=10,
    ),
}


def builtin_for(framework: str) -> Builtin:
    """The built-in collections of a framework by its name."""
    if framework not in BUILTIN:
        raise SMDebugValueError(
            f"No built-in collections for {framework!r}: {choose_from(framework, BUILTIN)}"
        )
    return BUILTIN[framework]
