"""How much each feature contributed to each prediction (SHAP values), kept up with a booster.

The contributions of a boosted model are the sum of those of its trees. So when rounds were added
since the last look, only their trees are gone through; one round at a time, in XGBoost's own order,
which makes the sums equal to XGBoost's to the last bit; with several trees in a round, to rounding.
"""

from __future__ import annotations

import logging

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

    def at_round_of(self, booster: Booster) -> npt.NDArray[np.float32]:
        """Rows × features; of a model with several outputs, rows × outputs × features.

        Raises:
            ValueError: XGBoost cannot explain this model, or the data does not fit it.
        """
        if self._rows is None:
            self._rows = _sample(self.data, max(1, self._most_bytes // _bytes_per_row(booster)))
        added = None if self._sum is None else self._added_to(booster)
        if self._sum is None or added is None:
            self._sum = model.predicted(booster, self._rows, pred_contribs=True)
        else:
            for one in added:
                self._sum += model.predicted(one, self._rows, pred_contribs=True)
        self._rounds = booster.num_boosted_rounds()
        return self._sum[..., :-1]  # the last is the bias, which belongs to no feature

    def _added_to(self, booster: Booster) -> list[Booster] | None:
        """The rounds since the last look; none if earlier ones may have changed, too."""
        rounds = booster.num_boosted_rounds()
        if rounds < self._rounds or not model.adds_up(booster):
            return None
        added = [model.one_round(booster, number) for number in range(self._rounds, rounds)]
        return None if None in added else [one for one in added if one is not None]


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
