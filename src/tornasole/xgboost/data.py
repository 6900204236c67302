"""The data that a hook is given to predict on: a matrix, or a file that becomes one when needed."""

from __future__ import annotations

import os
from functools import cached_property
from typing import Any

from xgboost import Booster, DMatrix, collective

from tornasole.errors import ObjectNotFound, SMDebugTypeError, SMDebugValueError

_DISTRIBUTED = (
    "in a distributed training it cannot be a file, which XGBoost would wait for all workers to "
    "read; give an xgboost.DMatrix that every worker has made"
)
_FORMATS = {"csv": "?format=csv&label_column=0", "libsvm": "?format=libsvm"}


class Data:
    """Rows to predict on.

    Args:
        given: What the user gave: a matrix, or a path and the format of the file there.
    """

    def __init__(self, given: DMatrix | tuple[str, str]) -> None:
        self.given = given

    def matrix_for(self, booster: Booster) -> DMatrix:
        """The matrix; the columns of a file are the booster's features in their order.

        Raises:
            ValueError: XGBoost cannot read the file.
        """
        if isinstance(self.given, DMatrix):
            return self.given
        if self.given[1] == "libsvm" and self._read.num_col() < booster.num_features():
            self._read = _widened(self._read, booster.num_features())
        if self._read.num_col() == booster.num_features():
            self._read.feature_names = booster.feature_names
        return self._read

    @cached_property
    def _read(self) -> DMatrix:
        assert isinstance(self.given, tuple)
        if collective.is_distributed():
            raise ValueError(_DISTRIBUTED)
        path, form = self.given
        return DMatrix(path + _FORMATS[form])


def _widened(data: DMatrix, columns: int) -> DMatrix:
    """The same with more columns: a libsvm file need not mention a feature that is nowhere set."""
    values = data.get_data()
    values.resize((data.num_row(), columns))
    return DMatrix(values, label=data.get_label())


def checked_data(field: str, value: Any) -> Data | None:
    """What the user gave as ``train_data`` or ``validation_data``, if it can be predicted on."""
    if value is None:
        return None
    if isinstance(value, DMatrix):
        return Data(value)
    if not (
        isinstance(value, (tuple, list))
        and len(value) == 2
        and isinstance(value[0], (str, os.PathLike))
    ):
        raise SMDebugTypeError(
            f"{field} must be an xgboost.DMatrix, or a path and its format such as "
            f"('valid.csv', 'csv'), not {type(value).__name__}. "
            "Of arrays and data frames xgboost.DMatrix(X, label=y) makes one."
        )
    path, form = os.path.abspath(os.path.expanduser(os.fspath(value[0]))), value[1]
    if not isinstance(form, str) or form not in _FORMATS:
        raise SMDebugValueError(f"{field} is a file of format 'csv' or 'libsvm', not {form!r}.")
    if not os.path.exists(path):
        raise ObjectNotFound(f"{field} names {path!r}, but there is no such file.")
    if collective.is_distributed():
        raise SMDebugValueError(f"{field}: {_DISTRIBUTED}.")
    if any(each in path for each in "?#;") or not path.isascii():
        raise SMDebugValueError(
            f"{field} names {path!r}, but XGBoost opens no path with '?', '#', ';' or letters "
            "beyond ASCII. Give the file another name, or an xgboost.DMatrix."
        )
    if form == "csv" and os.path.isfile(path) and not _begins_with_a_number(path):
        raise SMDebugValueError(
            f"{field}: {path} is empty, or does not begin with a number. XGBoost reads a csv file "
            "without a line of names, its first column as the label."
        )
    return Data((path, form))


def _begins_with_a_number(path: str) -> bool:
    with open(path, encoding="utf-8", errors="replace") as file:
        first = file.readline(10_000).partition(",")[0]
    try:
        float(first)
    except ValueError:
        return False
    return True
