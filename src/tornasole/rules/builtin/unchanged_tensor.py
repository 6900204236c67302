"""Tensors that stay the same from step to step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tornasole.errors import SMDebugValueError
from tornasole.rules.biases import is_of_bias
from tornasole.rules.contract import Explanation, StepRule, Symptom, parameter
from tornasole.rules.needs import Need
from tornasole.rules.parameters import Texts
from tornasole.rules.remembered import Numbers, Values
from tornasole.rules.view import Array, Floats, Group, Ints, Mask, StepView
from tornasole.types import ModeKeys, Role

_ROLES = frozenset({Role.WEIGHT, Role.GRADIENT, Role.LOSS, Role.OUTPUT})
_COMPARED = ("min", "max", "mean", "l1", "l2", "variance")
_RUN = len(_COMPARED)  # the column after them: how many steps in a row the tensor was the same
_GLANCE = 1024  # values: what has changed has mostly changed there


@dataclass(frozen=True)
class UnchangedTensor(StepRule):
    """Tensors that stay the same from step to step.

    Looks at the tensors that you choose; without a choice, at weights, their gradients, losses and
    the model's outputs in training steps. Fires when each of the last ``num_steps`` saved values of
    a tensor is close to the one before it: no value differs by more than ``atol`` plus ``rtol``
    times its size. Where only statistics were saved, those must be exactly equal, and at least two
    of them must be known; that is an estimate, as different values can have equal statistics.

    Wrong about what is meant to stay: frozen layers, weights between two updates when gradients are
    accumulated over several steps, a model that is trained on one batch and has learned it.
    """

    name = "unchanged_tensor"
    num_steps: int = parameter(3, "how many saved steps in a row a tensor must be the same")
    rtol: float = parameter(1e-5, "difference that counts as none, relative to the value")
    atol: float = parameter(1e-8, "difference that counts as none, absolute")
    equal_nan: bool = parameter(False, "whether NaN counts as equal to NaN")
    collection_names: Texts | None = parameter(None, "collections to look at")
    tensor_regex: Texts | None = parameter(None, "regexes of tensors to look at")

    def __post_init__(self) -> None:
        if self.num_steps < 2:
            raise SMDebugValueError(f"num_steps must be 2 or more, not {self.num_steps}.")
        for name in ("rtol", "atol"):
            if getattr(self, name) < 0:
                raise SMDebugValueError(f"{name} must be 0 or more, not {getattr(self, name)}.")

    def needs(self) -> Mapping[str, Need]:
        need = Need(
            "weights, gradients, losses or outputs",
            roles=_ROLES,
            statistics=frozenset(_COMPARED),
            save=("weights", "gradients", "losses"),
        )
        return {"tensors": need.chosen_by(self.tensor_regex, self.collection_names)}

    def symptoms(self, step: StepView, memory: dict[str, Any]) -> Iterable[Symptom]:
        chosen = bool(self.tensor_regex or self.collection_names)
        if not chosen and step.mode in (ModeKeys.EVAL, ModeKeys.PREDICT):
            return  # weights do not change there, and are not meant to
        group = step["tensors"]
        last: _Last = memory.setdefault(step.mode.name, _Last())
        rows = last.numbers.rows(group.names)
        same, by_values = self._compared(group, last, rows)
        runs = np.where(same, last.numbers.table[rows, _RUN] + 1, 1)
        last.numbers.table[rows, _RUN] = runs
        for i in np.flatnonzero(runs >= self.num_steps).tolist():
            name = group.names[i]
            if not chosen and group.role(i) is Role.GRADIENT and is_of_bias(name):
                continue  # before a normalisation it is zero by design
            yield Symptom(name, {"steps": int(runs[i]), "by_values": name in by_values})

    def _compared(self, group: Group, last: _Last, rows: Ints) -> tuple[Mask, set[str]]:
        """Which tensors are as they were last, and of which that is known from their values."""
        now = np.stack([group.statistic(name) for name in _COMPARED], axis=1)
        same = equal_statistics(last.numbers.table[rows, :_RUN], now)
        last.numbers.table[rows, :_RUN] = now
        by_values = set()
        for i, name in enumerate(group.names):
            if not last.values.may_have(name):
                continue
            array, before = group.array(i), last.values.get(name)
            if array is not None and before is not None:
                same[i] = close(before, array, self.rtol, self.atol, self.equal_nan)
                by_values.add(name)
            last.values.put(name, array)
        return same, by_values

    def explain(self, symptoms: Sequence[Symptom]) -> Explanation:
        first = symptoms[0]
        steps = min(symptom.numbers["steps"] for symptom in symptoms)
        estimated = [s.tensor for s in symptoms if not s.numbers["by_values"]]
        if len(symptoms) == 1:
            message = f"{first.tensor} is the same at the last {steps} saved steps"
        else:
            message = (
                f"{len(symptoms)} tensors are the same at the last {steps} saved steps, "
                f"{first.tensor} the first of them"
            )
        if estimated:
            message += " (judged by their statistics, which are exactly equal)"
        return Explanation(
            f"{message}.",
            evidence={
                "steps": steps,
                "tensors": len(symptoms),
                "compared by": "statistics" if estimated else "values",
                "rtol": self.rtol,
                "atol": self.atol,
            },
            causes=(
                "the optimizer was not given these parameters, or was made before they were",
                "a frozen or detached part: no gradient arrives",
                "a learning rate of zero, or updates too small for the precision of the weights",
                "every step gets the same batch",
            ),
            remedies=(
                "if it is frozen on purpose, choose other tensors with tensor_regex",
                "check that optimizer.step() is called, and with which parameters it was made",
                "check requires_grad/trainable, and the learning rate and its schedule",
            ),
        )


@dataclass
class _Last:
    """What is remembered of the last step at which each tensor was saved."""

    numbers: Numbers = field(default_factory=lambda: Numbers(_RUN + 1))
    values: Values = field(default_factory=Values)


def equal_statistics(before: Floats, now: Floats) -> Mask:
    """Which tensors have the same statistics: each that is known, and at least two.

    Args:
        before: A row for each tensor, a column for each statistic; NaN where one is not known.
        now: The same at the next step.
    """
    equal, unknown = before == now, np.isnan(before) & np.isnan(now)
    same: Mask = (equal | unknown).all(axis=1) & (equal.sum(axis=1) >= 2)
    return same


def close(before: Array, now: Array, rtol: float, atol: float, equal_nan: bool) -> bool:
    """Whether two values of a tensor are the same, up to the tolerances."""
    if before.shape != now.shape:
        return False
    if before.dtype.kind not in "biufc" or now.dtype.kind not in "biufc":
        return bool(np.array_equal(before, now))
    before, now = before.reshape(-1), now.reshape(-1)
    parts = (slice(0, _GLANCE), slice(_GLANCE, None))
    with np.errstate(invalid="ignore", over="ignore"):
        return all(np.allclose(now[p], before[p], rtol, atol, equal_nan) for p in parts)
