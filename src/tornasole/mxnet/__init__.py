"""MXNet's room: everything a Gluon script needs, in the words of ``smdebug`` and in older ones.

``import tornasole.mxnet as smd`` has ``Hook``; ``import tornasole.mxnet as tm`` has the original
API: ``TornasoleHook`` and the functions on this process's collections.
"""

from typing import TYPE_CHECKING

from tornasole.capture import del_hook, set_hook
from tornasole.mxnet.collection import (
    Collection,
    add_to_collection,
    add_to_default_collection,
    get_collection,
    get_collections,
    reset_collections,
)
from tornasole.mxnet.hook import Hook, TornasoleHook, get_hook
from tornasole.selection import CollectionKeys, ReductionConfig, SaveConfig, SaveConfigMode
from tornasole.types import ModeKeys as modes

if TYPE_CHECKING:
    from tornasole.trial import create_trial

__all__ = [
    "Collection",
    "CollectionKeys",
    "Hook",
    "ReductionConfig",
    "SaveConfig",
    "SaveConfigMode",
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


def __getattr__(name: str) -> object:
    # The read side is a re-export, and loaded only when used: a training job does not need it.
    if name == "create_trial":
        from tornasole.trial import create_trial

        return create_trial
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
