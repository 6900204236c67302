"""XGBoost's room: ``import tornasole.xgboost as smd`` has everything an XGBoost script needs."""

from typing import TYPE_CHECKING

from tornasole.capture import del_hook, set_hook
from tornasole.selection import (
    Collection,
    CollectionKeys,
    ReductionConfig,
    SaveConfig,
    SaveConfigMode,
)
from tornasole.types import ModeKeys as modes
from tornasole.xgboost.hook import Hook, get_hook

if TYPE_CHECKING:
    from tornasole.trial import create_trial
    from tornasole.views import create_xgboost_report

__all__ = [
    "Collection",
    "CollectionKeys",
    "Hook",
    "ReductionConfig",
    "SaveConfig",
    "SaveConfigMode",
    "create_trial",
    "create_xgboost_report",
    "del_hook",
    "get_hook",
    "modes",
    "set_hook",
]


def __getattr__(name: str) -> object:
    # The read side is a re-export, and loaded only when used: a training job does not need it.
    if name == "create_trial":
        from tornasole.trial import create_trial

        return create_trial
    if name == "create_xgboost_report":
        from tornasole.views import create_xgboost_report

        return create_xgboost_report
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
