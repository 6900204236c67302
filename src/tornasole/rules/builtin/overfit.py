"""A validation loss that is far above the training loss."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tornasole.errors import SMDebugValueError
from tornasole.rules.contract import Explanation, Symptom, parameter
from tornasole.rules.losses import Validation, ValidationRule
from tornasole.rules.needs import Need
from tornasole.rules.parameters import Texts
from tornasole.rules.sentences import number, percent
from tornasole.selection.patterns import compiled


@dataclass(frozen=True)
class Overfit(ValidationRule):
    """A validation loss that is far above the training loss: the model learns by heart.

    At every validation, compares its mean loss with the mean training loss since the validation
    before. Fires when it is more than ``ratio_threshold`` of the training loss above that, in
    ``patience`` validations in a row. What belongs together: the same loss at steps of mode TRAIN
    and EVAL; Keras' ``loss`` and ``val_loss``; XGBoost's ``train-rmse`` and ``validation-rmse``,
    where the evaluation set whose name begins with "train" is training's, and every saved round is
    a validation.

    Wrong when the two losses are not the same thing (weight decay is part of only one, validation
    data is harder), and touchy when the training loss is close to 0: a small gap is a large ratio
    then. Silent when there is no validation, or training's evaluation set has another name.
    """

    name = "overfit"
    tensor_regex: Texts | None = parameter(
        None, "regexes for the names of losses; default: the tensors whose role is loss"
    )
    start_step: int = parameter(0, "validations before this step are not judged")
    patience: int = parameter(1, "validations in a row that must be too high")
    ratio_threshold: float = parameter(
        0.1, "how far validation may be above training, as a share of the training loss"
    )

    def __post_init__(self) -> None:
        compiled("tensor_regex", self.tensor_regex)
        if self.start_step < 0:
            raise SMDebugValueError(f"start_step must be 0 or more, not {self.start_step!r}.")
        if self.patience < 1:
            raise SMDebugValueError(f"patience must be 1 or more, not {self.patience!r}.")
        if self.ratio_threshold < 0:
            raise SMDebugValueError(
                f"ratio_threshold must be 0 or more, not {self.ratio_threshold!r}."
            )

    def needs(self) -> Mapping[str, Need]:
        losses = super().needs()["losses"]
        return {"losses": losses.chosen_by(self.tensor_regex, None)}

    def judged(
        self, validations: Sequence[Validation], memory: dict[str, Any]
    ) -> Iterable[Symptom]:
        too_high: dict[str, int] = memory.setdefault("too high", {})
        verdicts: dict[str, Mapping[str, Any]] = memory.setdefault("verdicts", {})
        for seen in validations:
            if seen.step < self.start_step:
                continue
            excess = excess_of(seen.loss, seen.training_loss)
            in_a_row = too_high.get(seen.tensor, 0) + 1 if excess > self.ratio_threshold else 0
            too_high[seen.tensor] = in_a_row
            verdicts.pop(seen.tensor, None)
            if in_a_row >= self.patience:
                verdicts[seen.tensor] = {
                    "validation loss": seen.loss,
                    "training loss": seen.training_loss,
                    "excess": excess,
                    "validations in a row": in_a_row,
                    "step": seen.step,
                }
        return [Symptom(tensor, numbers) for tensor, numbers in verdicts.items()]

    def explain(self, symptoms: Sequence[Symptom]) -> Explanation:
        worst = max(symptoms, key=lambda symptom: symptom.numbers["excess"])
        seen = worst.numbers
        rows = seen["validations in a row"]
        lasting = f", {rows} validations in a row" if rows > 1 else ""
        return Explanation(
            f"The validation loss {worst.tensor} is {number(100 * seen['excess'])} % above the "
            f"training loss at step {seen['step']} ({number(seen['validation loss'])} against "
            f"{number(seen['training loss'])}){lasting}; up to {percent(self.ratio_threshold)} is "
            "allowed.",
            evidence={"ratio_threshold": self.ratio_threshold, **seen},
            causes=(
                "the model learns the training data by heart: too large, or trained too long",
                "too little training data, or too little regularisation",
                "validation data that differs from training data in kind or in preparation",
            ),
            remedies=(
                "stop here, or go back to the weights with the lowest validation loss",
                "add data, augmentation, dropout or weight decay; or take a smaller model",
                "check that both sets are prepared alike, and that both losses mean the same",
            ),
        )


def excess_of(validation: float, training: float) -> float:
    """How far validation is above training, as a share of the training loss."""
    if training == 0:
        return math.copysign(math.inf, validation) if validation else 0.0
    return (validation - training) / abs(training)
