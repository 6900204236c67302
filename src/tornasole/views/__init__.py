"""Room 6: looking at trials: the command line, and pages."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tornasole.views.xgboost_report import create_xgboost_report

__all__ = ["create_xgboost_report"]


def __getattr__(name: str) -> object:
    if name == "create_xgboost_report":
        from tornasole.views.xgboost_report import create_xgboost_report

        return create_xgboost_report
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
