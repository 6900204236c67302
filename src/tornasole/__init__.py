"""Tornasole, an open training debugger: the public names, loaded on first use.

    framework ─▶ pytorch/ ─▶ capture/ ─▶ format/ ─▶ store/ ─▶ format/ ─▶ trial/ ─▶ rules/ ─▶ views/
    one step     adapter     Hook        writer     bytes     reader     Trial     Finding   pages
                              ▲    ▲
                     selection/    stats/
                     what, when    numbers

The write side (left) and the read side (right) never import each other; they meet at ``format``.
``types``, ``errors`` and ``registry`` lie below all of it. Importing this package loads none of
the rooms: the names below come from them when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from tornasole._version import __version__

if TYPE_CHECKING:
    from tornasole.capture import Hook, del_hook, get_hook, set_hook
    from tornasole.errors import TrainingStopped
    from tornasole.selection import (
        Collection,
        CollectionKeys,
        ReductionConfig,
        SaveConfig,
        SaveConfigMode,
    )
    from tornasole.trial import Tensor, Trial, create_trial
    from tornasole.types import ModeKeys
    from tornasole.types import ModeKeys as modes

__all__ = [
    "Collection",
    "CollectionKeys",
    "Hook",
    "ModeKeys",
    "ReductionConfig",
    "SaveConfig",
    "SaveConfigMode",
    "Tensor",
    "TrainingStopped",
    "Trial",
    "__version__",
    "create_trial",
    "del_hook",
    "get_hook",
    "modes",
    "set_hook",
]

# Public name -> where it lives; the block above tells type checkers the same.
_HOMES = {
    "Collection": "tornasole.selection:Collection",
    "CollectionKeys": "tornasole.selection:CollectionKeys",
    "Hook": "tornasole.capture:Hook",
    "ModeKeys": "tornasole.types:ModeKeys",
    "ReductionConfig": "tornasole.selection:ReductionConfig",
    "SaveConfig": "tornasole.selection:SaveConfig",
    "SaveConfigMode": "tornasole.selection:SaveConfigMode",
    "Tensor": "tornasole.trial:Tensor",
    "TrainingStopped": "tornasole.errors:TrainingStopped",
    "Trial": "tornasole.trial:Trial",
    "create_trial": "tornasole.trial:create_trial",
    "del_hook": "tornasole.capture:del_hook",
    "get_hook": "tornasole.capture:get_hook",
    "modes": "tornasole.types:ModeKeys",
    "set_hook": "tornasole.capture:set_hook",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    value: object = getattr(import_module(module), attribute)
    globals()[name] = value  # from now on found without coming here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
