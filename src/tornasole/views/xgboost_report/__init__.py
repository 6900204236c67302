"""One page about a trial of an XGBoost training, complete in itself.

reading ─▶ metrics, importance, outcome, errors_made, trees ─▶ sections ─▶ page
a trial    from numbers to values, without a word of HTML       in words    one document
"""

from __future__ import annotations

import os

from tornasole.trial import Trial, create_trial, no_refresh
from tornasole.views.xgboost_report.reading import Saved
from tornasole.views.xgboost_report.report import report

__all__ = ["create_xgboost_report"]

_FILE = "xgboost_report.html"


def create_xgboost_report(
    trial: Trial | str | os.PathLike[str], out: str | os.PathLike[str] | None = None
) -> str:
    """Writes the report of an XGBoost training: one HTML file that needs nothing else.

    Args:
        trial: The trial or where it lies; its training may still run.
        out: The file to write; without, ``xgboost_report.html`` in the trial's own folder, or here
            if that is no local one.

    Returns:
        The path of the file.

    Raises:
        TrialNotFound: There is no trial at the path.
        SMDebugValueError: It is the trial of something else than XGBoost.
    """
    opened = trial if isinstance(trial, Trial) else create_trial(trial)
    opened.refresh_data()
    with no_refresh(opened):  # all of the report is of one moment
        page = report(Saved(opened))
    path = os.fspath(out) if out is not None else _beside(opened.path)
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(page)
        os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)
    return path


def _beside(address: str) -> str:
    folder = os.path.expanduser(address)
    return os.path.join(folder if os.path.isdir(folder) else os.curdir, _FILE)
