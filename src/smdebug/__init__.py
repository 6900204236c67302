"""The old name: the public paths of ``smdebug``, resolved to Tornasole's own objects.

``ALIASES`` is the whole truth. Where an old module is one of ours, importing it gives that very
module; where its names now live in several places, it gives a module that holds them. Nothing is
copied, and nothing is loaded before it is asked for.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING

import tornasole
from tornasole import __version__

if TYPE_CHECKING:
    from tornasole import CollectionKeys, ReductionConfig, SaveConfig, SaveConfigMode, modes

__all__ = [
    "CollectionKeys",
    "ReductionConfig",
    "SaveConfig",
    "SaveConfigMode",
    "__version__",
    "modes",
]

# Old module -> our module, or the names it holds and where each lives.
ALIASES: dict[str, str | dict[str, str]] = {
    "smdebug.analysis": {},
    "smdebug.analysis.utils": {
        "no_refresh": "tornasole.trial.refreshing:no_refresh",
        "parse_bool": "tornasole.selection.json_config:parse_bool",
        "parse_list_from_str": "tornasole.selection.json_config:parse_list_from_str",
        "refresh": "tornasole.trial.refreshing:refresh",
    },
    "smdebug.core": {},
    "smdebug.core.collection": "tornasole.selection.collection",
    "smdebug.core.hook": {"BaseHook": "tornasole.capture:Hook"},
    "smdebug.core.json_config": "tornasole.selection.json_config",
    "smdebug.core.modes": {"ModeKeys": "tornasole.types:ModeKeys"},
    "smdebug.core.reduction_config": "tornasole.selection.reduction_config",
    "smdebug.core.save_config": "tornasole.selection.save_config",
    "smdebug.core.tensor": {
        "StepState": "tornasole.types:StepState",
        "Tensor": "tornasole.trial:Tensor",
    },
    "smdebug.exceptions": "tornasole.errors",
    "smdebug.mxnet": "tornasole.mxnet",
    "smdebug.mxnet.singleton_utils": {
        "get_hook": "tornasole.mxnet:get_hook",
        "set_hook": "tornasole.mxnet:set_hook",
    },
    "smdebug.pytorch": "tornasole.pytorch",
    "smdebug.pytorch.singleton_utils": {
        "get_hook": "tornasole.pytorch:get_hook",
        "set_hook": "tornasole.pytorch:set_hook",
    },
    "smdebug.rules": "tornasole.rules",
    "smdebug.rules.action": "tornasole.rules.actions",
    "smdebug.rules.rule": {"Rule": "tornasole.rules:Rule"},
    "smdebug.rules.rule_invoker": {"invoke_rule": "tornasole.rules:invoke_rule"},
    "smdebug.tensorflow": "tornasole.tensorflow",
    "smdebug.tensorflow.singleton_utils": {
        "get_hook": "tornasole.tensorflow:get_hook",
        "set_hook": "tornasole.tensorflow:set_hook",
    },
    "smdebug.trials": "tornasole.trial",
    "smdebug.trials.local_trial": {"LocalTrial": "tornasole.trial:LocalTrial"},
    "smdebug.trials.s3_trial": {"S3Trial": "tornasole.trial:S3Trial"},
    "smdebug.trials.utils": {"create_trial": "tornasole.trial:create_trial"},
    "smdebug.xgboost": "tornasole.xgboost",
    "smdebug.xgboost.singleton_utils": {
        "get_hook": "tornasole.xgboost:get_hook",
        "set_hook": "tornasole.xgboost:set_hook",
    },
}


class _AliasImporter(MetaPathFinder, Loader):
    """Answers every import below ``smdebug``, so that no file of ours is ever loaded twice."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("smdebug."):
            return None
        if _home(fullname) is None:
            raise ModuleNotFoundError(
                f"No module named {fullname!r}: 'smdebug' stands for tornasole {__version__}, "
                f"which has no such module. It has {', '.join(n for n in ALIASES if ALIASES[n])}.",
                name=fullname,
            )
        return ModuleSpec(fullname, self, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        home = _home(module.__name__)
        if isinstance(home, str):
            # The import system takes what it finds here; changing `module` would make a copy.
            sys.modules[module.__name__] = import_module(home)
            return
        for name, path in (home or {}).items():
            source, _, attribute = path.partition(":")
            setattr(module, name, getattr(import_module(source), attribute))


def _home(fullname: str) -> str | dict[str, str] | None:
    if fullname in ALIASES:
        return ALIASES[fullname]
    parent, _, leaf = fullname.rpartition(".")
    above = _home(parent) if parent else None
    return f"{above}.{leaf}" if isinstance(above, str) else None  # a module inside one of ours


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(tornasole, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


sys.meta_path.insert(0, _AliasImporter())
