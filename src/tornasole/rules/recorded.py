"""The records of a step in the training process itself, as a block that rules can read."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tornasole.format import Record, StepRecords
from tornasole.format.payload import decode
from tornasole.rules.view import Floats, Ints, Mask
from tornasole.stats.moments import statistics_of_one
from tornasole.types import COUNTS, ModeKeys, Role

_ROLES = {role.value: role for role in Role}


class OneStep(NamedTuple):
    """The only step of a block of records."""

    step: int
    mode: ModeKeys
    mode_step: int
    time: float
    first: int
    stop: int


class RecordedBlock:
    """One step, straight from the hook. Good until the hook releases the records.

    Attributes: those of ``rules.view.Block``.
    """

    def __init__(self, step: StepRecords, worker: str) -> None:
        self._records = step.records
        self.names = [record.name for record in step.records]
        self.codes: Ints = np.arange(len(self.names))
        self.workers: Ints = np.zeros(len(self.names), np.int64)
        self.worker_names = [worker]
        time = step.records[0].time if step.records else 0.0
        self.steps = [OneStep(step.step, step.mode, step.mode_step, time, 0, len(self.names))]
        self._roles = {record.name: record.role for record in step.records}

    def role(self, name: str) -> Role:
        return _ROLES.get(self._roles[name], Role.CUSTOM)

    def members(self, collection: str) -> Collection[str]:
        return {record.name for record in self._records if collection in record.collections}

    def known(self, statistic: str, positions: Ints) -> tuple[Floats, Mask]:
        found = [_known(self._records[i], statistic) for i in positions.tolist()]
        mask = np.array([number is not None for number in found], np.bool_)
        return np.array([np.nan if n is None else n for n in found], np.float64), mask

    def shape(self, position: int) -> tuple[int, ...]:
        return self._records[position].shape

    def has_array(self, positions: Ints) -> Mask:
        records = [self._records[i] for i in positions.tolist()]
        return np.array([r.value is not None or r.raw is not None for r in records], np.bool_)

    def array(self, position: int) -> npt.NDArray[Any] | None:
        record = self._records[position]
        if record.value is not None:
            return np.asarray(record.value)
        return (
            None
            if record.raw is None
            else decode(bytearray(record.raw), record.dtype, record.shape)
        )


def _known(record: Record, statistic: str) -> float | None:
    if record.statistics is not None and statistic in record.statistics:
        return record.statistics[statistic]
    if record.value is None:
        return None
    if statistic == "value":
        return record.value
    names = frozenset({statistic} - set(COUNTS))
    return statistics_of_one(record.value, names)[statistic]
