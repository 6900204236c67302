"""Tensors that hold values that are not finite."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tornasole.rules.contract import Explanation, StepRule, Symptom, parameter
from tornasole.rules.finding import Severity
from tornasole.rules.needs import Need
from tornasole.rules.parameters import Texts
from tornasole.rules.view import Floats, Group, Ints, Mask, StepView
from tornasole.types import Role

STATISTICS = frozenset({"count", "nan_count", "inf_count", "zero_count", "max"})
"""What ``find_nonfinite`` asks of a group."""

ROLES = frozenset(Role) - {Role.TREE}
"""What has no business to hold NaN. In the table of a tree, leaves have no threshold: NaN."""


@dataclass(frozen=True)
class ExplodingTensor(StepRule):
    """Tensors that hold NaN or infinite values.

    Looks at every tensor of every worker, or at those that you choose. Fires when one holds a NaN,
    or an infinity (unless ``only_nan``): nothing that is computed from it can be trusted, and one
    such gradient makes all weights behind it useless. Where it began, ``nan_source`` tells.

    Wrong about infinities that are meant. A tensor of zeros and minus infinity only is an attention
    mask and is passed over, unless you chose it; other masked tensors are not. In mixed precision
    a gradient scaler provokes a step with such gradients now and then, and skips it: harmless if it
    is rare and the weights stay finite.
    """

    name = "exploding_tensor"
    only_nan: bool = parameter(False, "whether to look for NaN only, and pass over infinities")
    collection_names: Texts | None = parameter(None, "collections to look at, instead of all")
    tensor_regex: Texts | None = parameter(None, "regexes of tensors to look at, instead of all")

    def needs(self) -> Mapping[str, Need]:
        need = Need(
            "tensors",
            roles=ROLES,
            statistics=STATISTICS,
            save=("weights", "gradients", "losses"),
            every_worker=True,
        )
        return {"tensors": need.chosen_by(self.tensor_regex, self.collection_names)}

    def symptoms(self, step: StepView, memory: dict[str, Any]) -> Iterable[Symptom]:
        group = step["tensors"]
        chosen = bool(self.tensor_regex or self.collection_names)
        found = find_nonfinite(group, self.only_nan, masks_too=chosen)
        if not len(found):
            return
        counts = {name: group.statistic(name) for name in ("nan_count", "inf_count", "count")}
        for i in found.tolist():
            nan, infinite, size = (whole(numbers[i]) for numbers in counts.values())
            yield Symptom(
                group.names[i], {"nan": nan, "infinite": infinite, "size": size}, group.workers[i]
            )

    def explain(self, symptoms: Sequence[Symptom]) -> Explanation:
        first = symptoms[0]
        tensors = list(dict.fromkeys(symptom.tensor for symptom in symptoms))
        workers = list(dict.fromkeys(symptom.worker for symptom in symptoms))
        where = f" on {len(workers)} workers" if len(workers) > 1 else ""
        kind = kinds(any(s.numbers["nan"] for s in symptoms), any_infinite(symptoms))
        share = how_many(**first.numbers)
        if len(tensors) == 1:
            message = f"{first.tensor} holds {kind}{where}: {share}."
        else:
            message = f"{len(tensors)} tensors hold {kind}{where}; in {first.tensor}, {share}."
        return Explanation(
            message,
            Severity.CRITICAL,
            evidence={
                "tensors": len(tensors),
                "values": {s.tensor: dict(s.numbers) for s in symptoms[:20]},
                **({"workers": workers} if len(workers) > 1 else {}),
            },
            causes=(
                "a learning rate that is too high: values grew until they overflowed",
                "an operation without a result: log(0), 0/0, the root of a negative number",
                "bad input data: missing values, or a division by a standard deviation of zero",
                "overflow in half precision (float16 ends at 65,504)",
            ),
            remedies=(
                "see what nan_source says: which tensor was first, and what it was computed from",
                "lower the learning rate, clip gradients, warm up",
                "check the inputs for NaN; put a small epsilon into logarithms and divisions",
                "with a gradient scaler: nothing, if only gradients are hit, now and then",
            ),
        )


def nonfinite(nan_counts: Floats, inf_counts: Floats, only_nan: bool) -> Mask:
    """Which tensors hold NaN, or infinities if those count; one that is not known does not."""
    bad: Mask = nan_counts > 0
    return bad if only_nan else bad | (inf_counts > 0)


def masks(
    counts: Floats, zero_counts: Floats, nan_counts: Floats, inf_counts: Floats, highest: Floats
) -> Mask:
    """Which tensors look like attention masks: zeros and minus infinity, and nothing else."""
    only_these = (zero_counts > 0) & (nan_counts == 0) & (zero_counts + inf_counts == counts)
    found: Mask = only_these & ~(highest > 0)
    return found


def find_nonfinite(group: Group, only_nan: bool, masks_too: bool) -> Ints:
    """Which tensors of a group are not finite, in its order."""
    nan, infinite = group.statistic("nan_count"), group.statistic("inf_count")
    bad = nonfinite(nan, infinite, only_nan)
    if bad.any() and not masks_too:
        size, zeros, highest = (group.statistic(n) for n in ("count", "zero_count", "max"))
        bad &= ~masks(size, zeros, nan, infinite, highest)
    return np.flatnonzero(bad)


def kinds(nan: bool, infinite: bool) -> str:
    """What there is, in words."""
    return " and ".join(word for word, there in (("NaN", nan), ("infinities", infinite)) if there)


def any_infinite(symptoms: Iterable[Symptom]) -> bool:
    """Whether some tensor holds infinities."""
    return any(symptom.numbers["infinite"] for symptom in symptoms)


def how_many(nan: int, infinite: int, size: int) -> str:
    """``12 of 64 values are NaN and 3 infinite``."""
    if size == 1:
        return "its only value is " + ("NaN" if nan else "infinite")
    of = f" of {size:,} values are" if size >= 0 else " values are"
    if nan and infinite:
        return f"{nan:,}{of} NaN and {infinite:,} infinite"
    return f"{nan:,}{of} NaN" if nan else f"{infinite:,}{of} infinite"


def whole(number: float) -> int:
    """A count as an integer; -1 if it is not known."""
    return -1 if number != number else int(number)
