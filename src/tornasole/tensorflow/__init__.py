"""TensorFlow's and Keras' room: everything a script needs, on any backend of Keras.

``import tornasole.tensorflow as smd`` has ``KerasHook``, ``SessionHook`` and ``EstimatorHook``;
``import tornasole.tensorflow as ts`` has the original API: ``TornasoleHook`` and the functions on
this process's collections. What needs TensorFlow itself is loaded when used: Keras runs without.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from tornasole.capture import del_hook, set_hook
from tornasole.selection import CollectionKeys, ReductionConfig, SaveConfig, SaveConfigMode
from tornasole.tensorflow.collection import (
    Collection,
    add_to_collection,
    add_to_default_collection,
    get_collection,
    get_collections,
    reset_collections,
)
from tornasole.tensorflow.keras_hook import KerasHook
from tornasole.types import ModeKeys as modes

if TYPE_CHECKING:
    from tornasole.tensorflow.current import get_hook
    from tornasole.tensorflow.session import EstimatorHook, SessionHook, TornasoleHook
    from tornasole.trial import create_trial

__all__ = [
    "Collection",
    "CollectionKeys",
    "EstimatorHook",
    "KerasHook",
    "ReductionConfig",
    "SaveConfig",
    "SaveConfigMode",
    "SessionHook",
    "TornasoleHook",
    "add_to_collection",
    "add_to_default_collection",
    "create_trial",
    "del_hook",
    "get_collection",
    "get_collections",
    "get_hook",
    "modes",
    "reset_collections",
    "set_hook",
]

_HOMES = {
    "EstimatorHook": "tornasole.tensorflow.session",
    "SessionHook": "tornasole.tensorflow.session",
    "TornasoleHook": "tornasole.tensorflow.session",
    "create_trial": "tornasole.trial",  # the read side, which a training job does not need
    "get_hook": "tornasole.tensorflow.current",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
