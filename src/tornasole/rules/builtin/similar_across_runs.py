"""Tensors that are not the same in two runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tornasole.errors import SMDebugValueError
from tornasole.rules.builtin.nan_source import execution_order
from tornasole.rules.contract import Explanation, StepRule, Symptom, parameter
from tornasole.rules.derived import known
from tornasole.rules.finding import Severity
from tornasole.rules.needs import Need
from tornasole.rules.parameters import Texts
from tornasole.rules.sentences import number
from tornasole.rules.view import (
    Array,
    Block,
    Floats,
    Group,
    Ints,
    Mask,
    Reading,
    StepRows,
    StepView,
)
from tornasole.trial import Trial, create_trial
from tornasole.types import Role

_COMPARED = (
    "min",
    "max",
    "mean",
    "std",
    "l1",
    "l2",
    "abs_max",
    "abs_mean",
    "nan_count",
    "inf_count",
)
_ROWS_AT_A_TIME = 1 << 16


@dataclass(frozen=True)
class SimilarAcrossRuns(StepRule):
    """Tensors that are not the same in two runs.

    Compares each tensor with the one of the same name, at the same step and in the same mode, of
    each run in ``other_trials``: value by value (numbers that are both NaN are the same) or, where
    values were not saved in both, by their statistics: then equal ones are no proof. Fires when
    they differ by more than ``atol`` plus ``rtol`` times the other's value, at the step where that
    begins. What only one of the runs saved is not compared. Wrong about runs that are not meant to
    be repeatable: other seeds, data, devices or numbers of workers.
    """

    name = "similar_across_runs"
    runs_by_default = False
    other_trials: Texts = field(metadata={"about": "the paths of the runs to compare with"})
    collection_names: Texts | None = parameter(None, "collections to compare, instead of all")
    tensor_regex: Texts | None = parameter(None, "regexes of tensors to compare, instead of all")
    rtol: float = parameter(1e-5, "difference that counts as none, relative to the other's value")
    atol: float = parameter(1e-8, "difference that counts as none, absolute")

    def __post_init__(self) -> None:
        if not self.other_trials:
            raise SMDebugValueError(
                "other_trials is empty: give the path of a run to compare with."
            )
        for given in ("rtol", "atol"):
            if not getattr(self, given) >= 0:
                raise SMDebugValueError(
                    f"{given} must not be negative; it is {getattr(self, given)}."
                )

    def needs(self) -> Mapping[str, Need]:
        return {
            "tensors": Need(
                "tensors", roles=frozenset(Role), statistics=frozenset(_COMPARED)
            ).chosen_by(self.tensor_regex, self.collection_names)
        }

    def symptoms(self, step: StepView, memory: dict[str, Any]) -> Iterable[Symptom]:
        if "others" not in memory:
            memory["others"] = [_Other(create_trial(path)) for path in self.other_trials]
        mine, told = step["tensors"], set()
        for other in memory["others"]:
            there = other.at(step)
            pairs = [(i, there[name]) for i, name in enumerate(mine.names) if name in there]
            other.compared += len(pairs)
            differences = dict(self._differences(mine, other, pairs))
            for i in _in_order(mine) if differences else ():
                if i in differences and i not in told:
                    told.add(i)
                    yield Symptom(mine.names[i], {"run": other.trial.path, **differences[i]})

    def _differences(
        self, mine: Group, other: _Other, pairs: Sequence[tuple[int, int]]
    ) -> Iterable[tuple[int, Mapping[str, Any]]]:
        reduced, before = [], len(other.reduced)
        for i, position in pairs:
            here, there = None, None
            if mine.names[i] not in other.reduced:
                here, there = mine.array(i), other.array(position)
            if here is None or there is None:
                other.reduced.add(mine.names[i])
                reduced.append((i, position))
            elif numbers := difference(here, there, self.rtol, self.atol):
                yield i, numbers
        if not reduced:
            return
        places = np.array([i for i, _ in reduced])
        positions = np.array([position for _, position in reduced])
        found: dict[int, Mapping[str, Any]] = {}
        if len(other.reduced) > before:  # others have come, of which others may be known
            other.statistics = _COMPARED
        for statistic in other.statistics:
            a, b = mine.statistic(statistic)[places], other.statistic(statistic, positions)
            if np.isnan(a).all() or np.isnan(b).all():  # looking for it costs time at every step
                if len(other.reduced) > before:
                    other.statistics = tuple(s for s in other.statistics if s != statistic)
                continue
            for k in np.flatnonzero(apart(a, b, self.rtol, self.atol)).tolist():
                found.setdefault(
                    int(places[k]),
                    {"statistic": statistic, "here": float(a[k]), "there": float(b[k])},
                )
        yield from found.items()

    def at_end(self, memory: dict[str, Any]) -> Iterable[Symptom]:
        for other in memory.get("others", ()):
            if not other.compared:
                yield Symptom("", {"run": other.trial.path, "compared": 0})

    def explain(self, symptoms: Sequence[Symptom]) -> Explanation:
        first = symptoms[0]
        if not first.tensor:
            return Explanation(
                f"Nothing could be compared with {first.numbers['run']}: no tensor was saved at "
                "the same step in both runs.",
                severity=Severity.INFO,
                evidence=dict(first.numbers),
                causes=("other tensors, names or save intervals in the two runs",),
                remedies=("save the same collections at the same steps in both runs",),
            )
        differ = "1 tensor differs" if len(symptoms) == 1 else f"{len(symptoms)} tensors differ"
        return Explanation(
            f"{differ} from {first.numbers['run']} at the same step; the first in the order of "
            f"execution is {first.tensor}: {_in_words(first.numbers)}.",
            evidence={
                "rtol": self.rtol,
                "atol": self.atol,
                "tensors": {each.tensor: dict(each.numbers) for each in symptoms[:20]},
            },
            causes=(
                "other seeds, data or order of data, if inputs or first weights differ",
                "other hyperparameters or code, if gradients or weights differ after equal inputs",
                "operations that are not repeatable, or another device, if differences are tiny",
            ),
            remedies=(
                "look at the first tensor that differs: what is computed before it is the same",
                "set all seeds and ask the framework for deterministic operations",
                "give a larger rtol if the difference is no more than rounding",
            ),
        )


def _in_order(group: Group) -> list[int]:
    """The places of tensors in the order of execution: some are shown late, as weights by MXNet."""
    return execution_order([(name, group.role(i)) for i, name in enumerate(group.names)])


class _Other:
    """A run to compare with, read along in order.

    Attributes:
        compared: How many tensors could be compared so far, over all steps.
        reduced: Tensors of which a value is lacking, here or there.
        statistics: The statistics of these that are known.
    """

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.compared = 0
        self.reduced: set[str] = set()
        self.statistics: tuple[str, ...] = _COMPARED
        self._block: Block | None = None
        self._reading: Reading | None = None
        self._rows: dict[int, StepRows] = {}

    def at(self, step: StepView) -> dict[str, int]:
        """Where each tensor is at a step: the first worker's; none if it is of another mode."""
        if self._block is None or step.step > max(self._rows, default=-1):
            self.trial.refresh_data()
            block: Block = self.trial.block(step.step - 1, _ROWS_AT_A_TIME)
            self._block, self._rows = block, {rows.step: rows for rows in block.steps}
            self._reading = Reading(block, frozenset(_COMPARED))
        assert self._reading is not None
        self._reading.begin_step()
        rows = self._rows.get(step.step)
        if rows is None or rows.mode is not step.mode:
            return {}
        codes = self._block.codes[rows.first : rows.stop].tolist()
        names = self._block.names
        return {
            names[code]: rows.stop - 1 - k for k, code in enumerate(reversed(codes))
        }  # of two rows, the first is put in last, and stays

    def array(self, position: int) -> Array | None:
        """The value in a row, if it was saved."""
        assert self._reading is not None
        return self._reading.array(position)

    def statistic(self, name: str, positions: Ints) -> Floats:
        """A statistic in rows, as saved or of the value; NaN where it cannot be known."""
        assert self._block is not None
        assert self._reading is not None
        values, there = known(self._block, name, positions)
        for k in np.flatnonzero(~there).tolist():
            found = self._reading.number(name, int(positions[k]))
            values[k] = np.nan if found is None else found
        return values


def difference(here: Array, there: Array, rtol: float, atol: float) -> dict[str, Any]:
    """In which numbers two values differ; empty if they are close enough.

    NaN is the same as NaN, and a text as the same text.
    """
    if here.shape != there.shape:
        return {"shape here": list(here.shape), "shape there": list(there.shape)}
    numeric = here.dtype.kind in "biufc" and there.dtype.kind in "biufc"
    if not numeric:
        apart_at = np.asarray(here != there)
        if not apart_at.any():
            return {}
        at = int(np.flatnonzero(apart_at)[0])
        return {"here": str(here.reshape(-1)[at]), "there": str(there.reshape(-1)[at])}
    with np.errstate(invalid="ignore", over="ignore"):
        far = ~np.isclose(here, there, rtol=rtol, atol=atol, equal_nan=True)
        if not far.any():
            return {}
        kind = np.complex128 if "c" in here.dtype.kind + there.dtype.kind else np.float64
        gaps = np.abs(here.astype(kind) - there.astype(kind))
    gaps = np.where(far, np.nan_to_num(gaps, nan=np.inf, posinf=np.inf), -1)
    at = int(gaps.argmax())
    return {
        "largest difference": float(gaps.reshape(-1)[at]),
        "here": _plain(here.reshape(-1)[at]),
        "there": _plain(there.reshape(-1)[at]),
        "values that differ": int(np.count_nonzero(far)),
        "values": int(far.size),
    }


def apart(here: Floats, there: Floats, rtol: float, atol: float) -> Mask:
    """Which statistics differ; those that are not known, or are NaN, do not."""
    with np.errstate(invalid="ignore"):
        close = np.isclose(here, there, rtol=rtol, atol=atol)
    far: Mask = ~close & ~np.isnan(here) & ~np.isnan(there)
    return far


def _plain(value: Any) -> float | str:
    return str(value) if np.iscomplexobj(value) else float(value)


def _in_words(numbers: Mapping[str, Any]) -> str:
    if "shape here" in numbers:
        return f"of shape {numbers['shape here']} here and {numbers['shape there']} there"
    here, there = (
        each if isinstance(each, str) else number(each)
        for each in (numbers["here"], numbers["there"])
    )
    if "statistic" in numbers:
        return f"its {numbers['statistic']} is {here} here and {there} there (values not saved)"
    if "values" not in numbers:
        return f"{here!r} here and {there!r} there"
    many = f"{numbers['values that differ']} of {numbers['values']} values"
    return f"{here} here and {there} there, where they are furthest apart ({many})"
