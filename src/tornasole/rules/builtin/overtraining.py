"""A training that goes on though neither loss gets better."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tornasole.errors import SMDebugValueError
from tornasole.rules.contract import Explanation, Symptom, parameter
from tornasole.rules.finding import Severity
from tornasole.rules.losses import Validation, ValidationRule
from tornasole.rules.sentences import number


@dataclass(frozen=True)
class Overtraining(ValidationRule):
    """A training that goes on though neither loss gets better.

    At every validation, takes its mean loss and the mean training loss since the validation before
    (what belongs together: see rule overfit). Fires when the training loss has had no new optimum
    for ``patience_train`` validations and the validation loss none for ``patience_validation``. A
    new optimum is a loss that is lower than the best so far by more than ``delta`` of that: 0.01 is
    one per cent, whatever the scale of the loss.

    It is a warning when the validation loss has risen above its best by more than ``delta``, and
    worth knowing otherwise: then training on costs only time. Wrong about a training that rests on
    a plateau before it goes on, for example until the learning rate is lowered. Silent without
    validation.
    """

    name = "overtraining"
    patience_train: int = parameter(
        5, "validations in a row without a new optimum of the training loss"
    )
    patience_validation: int = parameter(
        10, "validations in a row without a new optimum of the validation loss"
    )
    delta: float = parameter(
        0.01, "by what share of the best loss a loss must be lower to be a new optimum"
    )

    def __post_init__(self) -> None:
        for name in ("patience_train", "patience_validation"):
            if getattr(self, name) < 1:
                raise SMDebugValueError(f"{name} must be 1 or more, not {getattr(self, name)!r}.")
        if not 0 <= self.delta < 1:
            raise SMDebugValueError(f"delta must be at least 0 and below 1, not {self.delta!r}.")

    def judged(
        self, validations: Sequence[Validation], memory: dict[str, Any]
    ) -> Iterable[Symptom]:
        pairs: dict[str, _Pair] = memory.setdefault("pairs", {})
        for seen in validations:
            pairs.setdefault(seen.tensor, _Pair()).add(seen, self.delta)
        for tensor, pair in pairs.items():
            training, validation = pair.training, pair.validation
            if training.age >= self.patience_train and validation.age >= self.patience_validation:
                yield Symptom(
                    tensor,
                    {
                        "training loss": training.latest,
                        "best training loss": training.best,
                        "validation loss": validation.latest,
                        "best validation loss": validation.best,
                        "step": validation.step,
                        "step of best validation loss": validation.best_step,
                        "validations since best training loss": training.age,
                        "validations since best validation loss": validation.age,
                    },
                )

    def explain(self, symptoms: Sequence[Symptom]) -> Explanation:
        worst = max(
            symptoms, key=lambda s: s.numbers["validation loss"] - s.numbers["best validation loss"]
        )
        seen = worst.numbers
        now, best = seen["validation loss"], seen["best validation loss"]
        rises = is_better(best, now, self.delta)
        return Explanation(
            f"Neither loss gets better: the best validation loss of {worst.tensor}, "
            f"{number(best)}, was at step {seen['step of best validation loss']}, "
            f"{seen['validations since best validation loss']} validations ago; now it is "
            f"{number(now)}, and the training loss is {number(seen['training loss'])} (best: "
            f"{number(seen['best training loss'])}).",
            Severity.WARNING if rises else Severity.INFO,
            evidence={
                "patience_train": self.patience_train,
                "patience_validation": self.patience_validation,
                "delta": self.delta,
                **seen,
            },
            causes=(
                "the model has learnt what it can from this data",
                "a learning rate that is too high for the last bit of the way",
                "training on past the point where it begins to learn by heart",
            ),
            remedies=(
                "stop, and keep the weights with the lowest validation loss",
                "stop early by the validation loss in runs to come",
                "if it should become better still: lower the learning rate, or add data",
            ),
        )


@dataclass
class _Optimum:
    """The best of a loss so far, and how many validations ago that was."""

    best: float = math.inf
    best_step: int = -1
    age: int = 0
    latest: float = math.nan
    step: int = -1

    def add(self, loss: float, step: int, delta: float) -> None:
        self.latest, self.step = loss, step
        self.age += 1
        if is_better(loss, self.best, delta):
            self.best, self.best_step, self.age = loss, step, 0


@dataclass
class _Pair:
    training: _Optimum = field(default_factory=_Optimum)
    validation: _Optimum = field(default_factory=_Optimum)

    def add(self, seen: Validation, delta: float) -> None:
        self.training.add(seen.training_loss, seen.step, delta)
        self.validation.add(seen.loss, seen.step, delta)


def is_better(loss: float, best: float, delta: float) -> bool:
    """Whether a loss is lower than the best so far by more than that share of it."""
    return loss < best - delta * abs(best) if math.isfinite(best) else loss < best
