"""Losses of training beside those of validation: what belongs together, and when it is complete.

Frameworks tell the two apart in three ways: by the mode of the step, with one name (PyTorch,
MXNet); by ``val_`` before the name (Keras); by the name of the evaluation set (XGBoost).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tornasole.rules.contract import StepRule, Symptom
from tornasole.rules.needs import Need
from tornasole.rules.view import StepView
from tornasole.types import ModeKeys, Role

_OF_TRAINING_SET = re.compile(r"train[^-]*(-.+)", re.IGNORECASE)
VALIDATION = "val_"
"""Before the name of a loss in Keras: that of the validation as a whole."""


class Mean:
    """A mean that grows number by number. Once read, it begins anew with the next number."""

    def __init__(self) -> None:
        self._total, self._count, self._was_read = 0.0, 0, False

    def __bool__(self) -> bool:
        return self._count > 0

    def add(self, value: float) -> None:
        """Adds a number."""
        if self._was_read:
            self._total, self._count, self._was_read = 0.0, 0, False
        self._total += value
        self._count += 1

    def read(self) -> float:
        """The mean of what was added since it began."""
        self._was_read = True
        return self._total / self._count


class Pass:
    """One pass over validation data in the making: consecutive steps of mode EVAL.

    Weights do not change within it, so only its mean says something.

    Attributes:
        mean: Of the losses so far.
        step: The last step so far.
    """

    def __init__(self, step: int, mode_step: int) -> None:
        self.mean = Mean()
        self.step, self._mode_step = step, mode_step

    def goes_on(self, step: int, mode_step: int) -> bool:
        """Whether no step of another mode lies between, saved or not."""
        return step - self.step == mode_step - self._mode_step

    def add(self, step: int, mode_step: int, value: float) -> None:
        """Adds the loss of a step."""
        self.mean.add(value)
        self.step, self._mode_step = step, mode_step


class Validation(NamedTuple):
    """A complete validation of a loss, and the training that led to it.

    Attributes:
        tensor: The tensor that holds the validation's loss.
        step: Its last step.
        loss: The mean loss over it.
        training_loss: The mean training loss since the validation before.
    """

    tensor: str
    step: int
    loss: float
    training_loss: float


class Validations:
    """Pairs the losses of training and validation, as the steps come."""

    def __init__(self) -> None:
        self._training: dict[str, Mean] = {}
        self._passes: dict[str, Pass] = {}

    def of(self, step: StepView, losses: Iterable[tuple[str, float]]) -> Iterator[Validation]:
        """Takes the losses of a step; gives the validations that it completes."""
        known = [(name, loss) for name, loss in losses if math.isfinite(loss)]
        if step.mode not in (ModeKeys.EVAL, ModeKeys.PREDICT):
            yield from self.end()
        rest = []
        for name, loss in known:  # first the training sets: the others are known by them
            of_set = _OF_TRAINING_SET.fullmatch(name)
            if of_set:
                self._train(of_set[1], loss)
            else:
                rest.append((name, loss))
        for name, loss in rest:
            partner = self._partner(name)
            if partner is not None:
                self._passes.pop(partner, None)  # what was seen of it batch by batch
                yield Validation(name, step.step, loss, self._training[partner].read())
            elif step.mode is ModeKeys.EVAL:
                yield from self._validate(name, step, loss)
            elif step.mode is not ModeKeys.PREDICT:
                self._train(name, loss)

    def end(self) -> Iterator[Validation]:
        """The validations that are complete now that training goes on, or is over."""
        passes, self._passes = self._passes, {}
        for name, complete in passes.items():
            yield from self._complete(name, complete)

    def _train(self, loss: str, value: float) -> None:
        self._training.setdefault(loss, Mean()).add(value)

    def _partner(self, name: str) -> str | None:
        """The training loss that a tensor is the whole validation of, by its name."""
        if name.startswith(VALIDATION) and name[len(VALIDATION) :] in self._training:
            return name[len(VALIDATION) :]
        endings = (name[i:] for i, letter in enumerate(name) if letter == "-")
        return next((ending for ending in endings if ending in self._training), None)

    def _validate(self, name: str, step: StepView, loss: float) -> Iterator[Validation]:
        current = self._passes.get(name)
        if current is not None and not current.goes_on(step.step, step.mode_step):
            yield from self._complete(name, current)
            current = None
        if current is None:
            current = self._passes[name] = Pass(step.step, step.mode_step)
        current.add(step.step, step.mode_step, loss)

    def _complete(self, name: str, complete: Pass) -> Iterator[Validation]:
        training = self._training.get(name)
        if training is not None:
            yield Validation(name, complete.step, complete.mean.read(), training.read())


class ValidationRule(StepRule):
    """A rule that judges each validation against the training since the one before."""

    def needs(self) -> Mapping[str, Need]:
        return {
            "losses": Need(
                "losses",
                roles=frozenset({Role.LOSS}),
                statistics=frozenset({"mean"}),
                save=("losses",),
            )
        }

    def symptoms(self, step: StepView, memory: dict[str, Any]) -> Iterable[Symptom]:
        losses = step["losses"]
        found = zip(losses.names, losses.statistic("mean").tolist(), strict=True)
        return self._noted(_validations(memory).of(step, found), memory)

    def at_end(self, memory: dict[str, Any]) -> Iterable[Symptom]:
        return self._noted(_validations(memory).end(), memory)

    def _noted(
        self, validations: Iterable[Validation], memory: dict[str, Any]
    ) -> Iterable[Symptom]:
        complete = list(validations)
        memory["validated"] = memory.get("validated", False) or bool(complete)
        return self.judged(complete, memory)

    def judged(
        self, validations: Sequence[Validation], memory: dict[str, Any]
    ) -> Iterable[Symptom]:
        """What is wrong now that these validations are complete."""
        raise NotImplementedError

    def why_silent(self, memory: dict[str, Any]) -> str:
        if memory.get("validated"):
            return ""
        return "no loss of a validation was saved beside one of the training"


def _validations(memory: dict[str, Any]) -> Validations:
    found: Validations = memory.setdefault("validations", Validations())
    return found
