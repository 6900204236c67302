"""How much each feature contributed to each prediction (SHAP values), kept up with a booster.

The contributions of a boosted model are the sum of those of its trees. So when rounds were added
since the last look, it can be enough to go through their trees: one round at a time, in XGBoost's
own order, which makes the sums equal to XGBoost's to the last bit. Each round costs a pass over the
data, though: for many small trees the whole model is faster, and gives the same.
"""

from __future__ import annotations

import logging
import time

import numpy as np
import numpy.typing as npt
from xgboost import Booster, DMatrix
from xgboost.core import XGBoostError

from tornasole.xgboost import model

log = logging.getLogger("tornasole")


class Contributions:
    """The SHAP values of some rows under one booster, from round to round.

    Args:
        data: The rows.
        most_bytes: The size up to which all rows are explained; of more, an even sample that fits.
    """

    def __init__(self, data: DMatrix, most_bytes: int) -> None:
        self.data, self._most_bytes = data, most_bytes
        self._rows: DMatrix | None = None
        self._sum: npt.NDArray[np.float32] | None = None
        self._rounds = 0
        # How long it took to predict with the whole model, and with one round of it.
        self._whole_seconds = self._round_seconds = 0.0

    def at_round_of(self, booster: Booster) -> npt.NDArray[np.float32]:
        """Rows × features; of a model with several outputs, rows × outputs × features.

        Raises:
            ValueError: XGBoost cannot explain this model, or the data does not fit it.
        """
        if self._rows is None:
            self._rows = _sample(self.data, max(1, self._most_bytes // _bytes_per_row(booster)))
        if self._sum is None or not self._add(booster, self._rows, self._sum):
            self._sum, self._whole_seconds = _explained(booster, self._rows)
        self._rounds = booster.num_boosted_rounds()
        return self._sum[..., :-1]  # the last is the bias, which belongs to no feature

    def _add(self, booster: Booster, rows: DMatrix, total: npt.NDArray[np.float32]) -> bool:
        """Adds the rounds since the last look; false: the whole model must be gone through."""
        rounds = booster.num_boosted_rounds()
        if rounds < self._rounds or not model.adds_up(booster):
            return False
        for number in range(self._rounds, rounds):
            if self._round_seconds * (rounds - number) > self._whole_seconds:
                return False  # it would take longer
            one = model.one_round(booster, number)
            if one is None:
                return False
            values, self._round_seconds = _explained(one, rows)
            total += values
        return True


def _explained(booster: Booster, rows: DMatrix) -> tuple[npt.NDArray[np.float32], float]:
    """The contributions, and how many seconds they took."""
    start = time.perf_counter()
    values = model.predicted(booster, rows, pred_contribs=True)
    return values, time.perf_counter() - start


def _bytes_per_row(booster: Booster) -> int:
    return 4 * (booster.num_features() + 1) * model.output_count(booster)


def _sample(data: DMatrix, most_rows: int) -> DMatrix:
    rows = data.num_row()
    if rows <= most_rows:
        return data
    log.warning(
        "SHAP values of all %d rows of train_data would take more than most_shap_bytes: they are "
        "computed for %d rows, evenly spaced.",
        rows,
        most_rows,
    )
    try:
        return data.slice(np.arange(most_rows) * rows // most_rows, allow_groups=True)
    except XGBoostError as error:
        raise ValueError(
            "its SHAP values are larger than most_shap_bytes, and XGBoost takes no sample of such "
            "a matrix; give an xgboost.DMatrix, or a larger most_shap_bytes"
        ) from error
