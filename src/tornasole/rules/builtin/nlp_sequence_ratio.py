"""Sequences in which one token, such as padding, takes up too much room."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tornasole.errors import SMDebugValueError
from tornasole.rules.contract import Explanation, StepRule, Symptom, parameter
from tornasole.rules.needs import Need
from tornasole.rules.parameters import Numbers, Texts
from tornasole.rules.sentences import number, percent
from tornasole.rules.view import Array, Group, StepView
from tornasole.types import ModeKeys, Role

_STAYS = 0.8  # of the threshold: what has begun goes on down to here


@dataclass(frozen=True)
class NlpSequenceRatio(StepRule):
    """Sequences in which one token, such as padding, takes up too much room.

    Looks at what embedding layers are given (layers whose name says so) or, where none was saved,
    at model inputs that are whole numbers. Fires when one of ``token_values`` makes up more than
    its share of ``token_thresholds_percent`` at a step, and holds until the share is below 80 % of
    that. From statistics alone it can count the token 0 only. Wrong about masks and types of words,
    if no tensor with words was saved beside them, and where that token is a word like others.
    """

    name = "nlp_sequence_ratio"
    tensor_regex: Texts | None = parameter(
        None, "which tensors are sequences of tokens; default: inputs of embedding layers"
    )
    token_values: Numbers = parameter((0.0,), "the tokens to count")
    token_thresholds_percent: Numbers = parameter(
        (50.0,), "per cent of all tokens that each of them may make up; one number is for all"
    )

    def __post_init__(self) -> None:
        thresholds = self.token_thresholds_percent
        if not self.token_values:
            raise SMDebugValueError("token_values is empty: say which tokens to count.")
        if len(thresholds) not in (1, len(self.token_values)):
            raise SMDebugValueError(
                f"token_thresholds_percent has {len(thresholds)} numbers for "
                f"{len(self.token_values)} token_values; give one for each, or one for all."
            )
        if not all(0 <= each <= 100 for each in thresholds):
            raise SMDebugValueError(
                f"token_thresholds_percent are numbers from 0 to 100, not {list(thresholds)}."
            )

    def needs(self) -> Mapping[str, Need]:
        return {
            "sequences": Need(
                "inputs of embedding layers",
                roles=frozenset({Role.LAYER_INPUT, Role.INPUT}),
                statistics=frozenset({"min", "max", "count", "zero_count"}),
                save=("inputs",),
            ).chosen_by(self.tensor_regex, None)
        }

    def symptoms(self, step: StepView, memory: dict[str, Any]) -> Iterable[Symptom]:
        sequences = step["sequences"]
        thresholds = dict(self._thresholds())
        all_going_on: dict[str, dict[tuple[ModeKeys, float], dict[str, Any]]]
        all_going_on = memory.setdefault("going on", {})
        for i in self._tokens(sequences, memory):
            name = sequences.names[i]
            going_on = all_going_on.setdefault(name, {})
            for token, share in self._shares(sequences, i).items():
                key = step.mode, token
                if too_much(share, thresholds[token], key in going_on):
                    going_on[key] = {"token": token, "share": share, "limit": thresholds[token]}
                else:
                    going_on.pop(key, None)
            if going_on:
                yield Symptom(name, max(going_on.values(), key=lambda each: float(each["share"])))

    def _thresholds(self) -> Iterable[tuple[float, float]]:
        given = self.token_thresholds_percent
        each = given if len(given) == len(self.token_values) else given * len(self.token_values)
        return ((v, t / 100) for v, t in zip(self.token_values, each, strict=True))

    def _tokens(self, sequences: Group, memory: dict[str, Any]) -> list[int]:
        """Which of the tensors hold tokens."""
        if self.tensor_regex is not None:
            return list(range(len(sequences)))
        names = sequences.names
        embedded = [i for i, name in enumerate(names) if "embed" in name.lower()]
        known: dict[str, bool] = memory.setdefault("are whole", {})
        for among in (embedded, [i for i in range(len(names)) if i not in embedded]):
            whole = []
            for i in among:
                if names[i] not in known:
                    known[names[i]] = self._is_whole(sequences, i, among is embedded)
                if known[names[i]]:
                    whole.append(i)
            if whole:
                largest = sequences.statistic("max")
                words = [i for i in whole if not largest[i] <= 1]  # others are masks and the like
                return words or whole
        return []

    @staticmethod
    def _is_whole(sequences: Group, i: int, embedded: bool) -> bool:
        """Whether a tensor holds a sequence of whole numbers for each sample."""
        if len(sequences.shape(i)) not in (1, 2):
            return False
        array = sequences.array(i)
        if array is None:
            ends = np.array([sequences.statistic("min")[i], sequences.statistic("max")[i]])
            return embedded and bool((ends == np.rint(ends)).all())
        if array.dtype.kind in "iu":
            return True
        return embedded and array.dtype.kind == "f" and bool((array == np.rint(array)).all())

    def _shares(self, sequences: Group, i: int) -> dict[float, float]:
        array = sequences.array(i)
        if array is not None:
            return token_shares(array, self.token_values)
        zeros, count = sequences.statistic("zero_count")[i], sequences.statistic("count")[i]
        known = 0.0 in self.token_values and zeros >= 0 and count > 0
        return {0.0: float(zeros / count)} if known else {}

    def explain(self, symptoms: Sequence[Symptom]) -> Explanation:
        worst = max(symptoms, key=lambda each: float(each.numbers["share"]))
        numbers = worst.numbers
        return Explanation(
            f"Token {number(numbers['token'])} makes up {percent(numbers['share'])} of what enters "
            f"as {worst.tensor}, more than {percent(numbers['limit'])}.",
            evidence={each.tensor: dict(each.numbers) for each in symptoms[:20]},
            causes=(
                "short sequences that are padded to the length of long ones",
                "a vocabulary that lacks many words, if it is the token for unknown ones",
                "sequences that are cut off or empty when the data are prepared",
            ),
            remedies=(
                "put sequences of about the same length into one batch, and pad batch by batch",
                "if it is the token for unknown words: use a larger vocabulary, or parts of words",
                "make sure that the loss and the attention leave padding out",
            ),
        )


def token_shares(sequences: Array, tokens: Sequence[float]) -> dict[float, float]:
    """The share of each token among all; nothing if there are none."""
    if not sequences.size or sequences.dtype.kind not in "biuf":
        return {}
    return {each: float(np.count_nonzero(sequences == each) / sequences.size) for each in tokens}


def too_much(share: float, threshold: float, before: bool) -> bool:
    """Whether a share is above its threshold, or was and is not clearly below it now."""
    return share > (_STAYS * threshold if before else threshold)
