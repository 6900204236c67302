"""Room 4: reading. A ``Trial`` answers for a run, live or ended; a ``Tensor`` for one name in it.

format ─▶ Index ───────▶ Trial ─▶ Tensor
columns   which rows?      ▲
          Cells            completeness, run state, liveness
          what is in them?
"""

from tornasole.trial.nonfinite import NonFinite
from tornasole.trial.opening import LocalTrial, S3Trial, create_trial
from tornasole.trial.refreshing import no_refresh, refresh
from tornasole.trial.tensor import Tensor
from tornasole.trial.trial import Trial

__all__ = [
    "LocalTrial",
    "NonFinite",
    "S3Trial",
    "Tensor",
    "Trial",
    "create_trial",
    "no_refresh",
    "refresh",
]
