"""A loss that does not fall."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tornasole.errors import SMDebugValueError
from tornasole.rules.contract import Explanation, StepRule, Symptom, parameter
from tornasole.rules.losses import VALIDATION, Pass
from tornasole.rules.needs import Need
from tornasole.rules.parameters import Texts
from tornasole.rules.sentences import number, percent
from tornasole.rules.view import StepView
from tornasole.selection.patterns import choose_from, compiled
from tornasole.types import ModeKeys, Role

_IN_ORDER = (ModeKeys.GLOBAL, ModeKeys.TRAIN, ModeKeys.EVAL)  # a later one is preferred


@dataclass(frozen=True)
class LossNotDecreasing(StepRule):
    """A loss that does not fall.

    Compares each loss, every ``num_steps`` steps, with the newest one saved at least ``num_steps``
    steps before, and fires unless it has fallen by ``diff_percent`` or more: a flat loss fires,
    whatever ``diff_percent`` is. (smdebug's documentation says the same; an old version of it took
    ``diff_percent`` for the rise to tolerate, and kept silent about a flat loss. That is not what
    this rule does.) A loss that has risen by more than ``increase_threshold_percent`` is told
    apart: it diverges.

    Where a loss is computed in validation, too, only that counts (with Keras: ``val_loss``). The
    steps of one validation are taken together, as weights do not change within it; the steps from
    one validation to the next are counted in all modes.

    Wrong about a loss that is as low as it can get; about one that varies from batch to batch by
    more than it falls (raise ``num_steps``; save all steps of a validation); and about losses that
    are not meant to fall, such as those of two networks that play against each other.
    """

    name = "loss_not_decreasing"
    collection_names: Texts | None = parameter(
        None, "collections that hold the losses; default: the tensors whose role is loss"
    )
    tensor_regex: Texts | None = parameter(None, "regexes for the names of losses, likewise")
    use_losses_collection: bool = parameter(
        True, "whether what was saved by hand to the collection losses is a loss, too"
    )
    num_steps: int = parameter(10, "steps from one comparison to the next, and back to compare")
    diff_percent: float = parameter(0.1, "by how much the loss must fall in that time, in per cent")
    increase_threshold_percent: float = parameter(
        5.0, "a rise of more than so many per cent is told as a loss that diverges"
    )
    mode: str | None = parameter(
        None, "EVAL, TRAIN or GLOBAL; default: of each loss the first of them that it has"
    )

    def __post_init__(self) -> None:
        compiled("tensor_regex", self.tensor_regex)
        if self.num_steps < 1:
            raise SMDebugValueError(f"num_steps must be 1 or more, not {self.num_steps!r}.")
        if not 0 <= self.diff_percent < 100:
            raise SMDebugValueError(
                f"diff_percent must be at least 0 and below 100, not {self.diff_percent!r}."
            )
        if self.increase_threshold_percent < 0:
            raise SMDebugValueError(
                "increase_threshold_percent must be 0 or more, not "
                f"{self.increase_threshold_percent!r}."
            )
        if self.mode is not None and self._mode is None:
            names = [mode.name for mode in ModeKeys]
            raise SMDebugValueError(f"mode {self.mode!r}: {choose_from(self.mode, names)}")

    @property
    def _mode(self) -> ModeKeys | None:
        """The mode that was asked for."""
        word = (self.mode or "").rpartition(".")[2].upper()  # modes.EVAL, ModeKeys.EVAL
        return ModeKeys.__members__.get(word)

    def needs(self) -> Mapping[str, Need]:
        losses = Need(
            "losses",
            roles=frozenset({Role.LOSS}),
            statistics=frozenset({"mean"}),
            save=("losses",) if self.use_losses_collection else (),
        )
        return {"losses": losses.chosen_by(self.tensor_regex, self.collection_names)}

    def symptoms(self, step: StepView, memory: dict[str, Any]) -> Iterable[Symptom]:
        only, losses = self._mode, step["losses"]
        all_series: dict[str, _Series] = memory.setdefault("series", {})
        replaced: set[str] = memory.setdefault("replaced", set())
        if only is not ModeKeys.TRAIN:
            for name in losses.names:
                if name.startswith(VALIDATION) and name[len(VALIDATION) :] in all_series:
                    replaced.add(name[len(VALIDATION) :])  # by Keras' sum of the validation
                    del all_series[name[len(VALIDATION) :]]
        if step.mode not in (ModeKeys.EVAL, ModeKeys.PREDICT):
            for series in all_series.values():
                series.end_pass(self)
        if step.mode is only or (only is None and step.mode in _IN_ORDER):
            for name, loss in zip(losses.names, losses.statistic("mean").tolist(), strict=True):
                if name in replaced:
                    continue
                if math.isfinite(loss):
                    all_series.setdefault(name, _Series()).add(step, loss, self)
                elif name in all_series:
                    all_series[name].lose(step, loss, self)
        return _told(all_series)

    def at_end(self, memory: dict[str, Any]) -> Iterable[Symptom]:
        all_series: dict[str, _Series] = memory.setdefault("series", {})
        for series in all_series.values():
            series.end_pass(self)
        return _told(all_series)

    def explain(self, symptoms: Sequence[Symptom]) -> Explanation:
        worst = max(symptoms, key=lambda symptom: symptom.numbers["change in percent"])
        seen = worst.numbers
        change = seen["change in percent"]
        rises = change > self.increase_threshold_percent
        verb = "rose" if change > 0 else "fell"
        verb = f"{verb} by {number(abs(change))} %" if change else "did not change"
        verb = verb if math.isfinite(seen["loss"]) else f"became {number(seen['loss'])}"
        others = f"; {len(symptoms) - 1} more did not fall either" if len(symptoms) > 1 else ""
        return Explanation(
            f"Loss {worst.tensor} {verb} from step {seen['step before']} to step {seen['step']} "
            f"({number(seen['loss before'])} to {number(seen['loss'])}); it should fall by at "
            f"least {percent(self.diff_percent / 100)} in {self.num_steps} steps{others}.",
            evidence={"num_steps": self.num_steps, **seen, "diverges": rises},
            causes=_CAUSES_OF_RISE if rises else _CAUSES_OF_STANDSTILL,
            remedies=_REMEDIES_FOR_RISE if rises else _REMEDIES_FOR_STANDSTILL,
        )


_CAUSES_OF_RISE = (
    "a learning rate that is too high",
    "gradients that explode, or are never cleared between steps",
    "a batch unlike the others; if it happens now and then, the loss is only noisy",
)
_REMEDIES_FOR_RISE = (
    "divide the learning rate by 10 and compare",
    "clip gradients; check that they are zeroed before each backward pass",
    "raise num_steps if the loss falls over a longer time",
)
_CAUSES_OF_STANDSTILL = (
    "a learning rate that is too low, or far too high",
    "an optimizer that was not given the parameters, or is never stepped",
    "gradients that vanish; frozen layers; weights that all start alike",
    "labels that do not belong to their inputs; a loss that does not fit the outputs",
    "training has converged",
)
_REMEDIES_FOR_STANDSTILL = (
    "see whether the weights change at all (rule unchanged_tensor or weight_update_ratio)",
    "try to over-fit one small batch: a correct program can",
    "try learning rates ten times higher and lower",
    "raise num_steps if the loss falls over a longer time",
)


class _Point(NamedTuple):
    """A loss, and where it stands: by the steps that count, and by the global step."""

    place: int
    step: int
    loss: float


@dataclass
class _Series:
    """What is remembered of one loss, of the mode that counts most so far."""

    mode: ModeKeys | None = None
    points: deque[_Point] = field(default_factory=deque)
    open_pass: Pass | None = None
    verdict: dict[str, Any] | None = None

    def add(self, step: StepView, loss: float, rule: LossNotDecreasing) -> None:
        if self.mode is not step.mode:
            if self.mode in _IN_ORDER and _IN_ORDER.index(step.mode) < _IN_ORDER.index(self.mode):
                return
            self.mode = step.mode  # the verdict stands until there is another
            self.points.clear()
        if step.mode is not ModeKeys.EVAL:
            self._judge(_Point(step.mode_step, step.step, loss), rule)
            return
        if self.open_pass is not None and not self.open_pass.goes_on(step.step, step.mode_step):
            self.end_pass(rule)
        if self.open_pass is None:
            self.open_pass = Pass(step.step, step.mode_step)
        self.open_pass.add(step.step, step.mode_step, loss)

    def lose(self, step: StepView, loss: float, rule: LossNotDecreasing) -> None:
        """A loss that is not finite, and has not been for as long as it is given, does not fall."""
        if self.mode is not step.mode or not self.points:
            return
        before = self.points[-1]
        if step.mode_step - before.place >= rule.num_steps:
            self.verdict = {
                "loss": loss,
                "step": step.step,
                "loss before": before.loss,
                "step before": before.step,
                "change in percent": math.inf,
            }

    def end_pass(self, rule: LossNotDecreasing) -> None:
        """Judges a validation that is complete."""
        if self.open_pass is not None:
            complete, self.open_pass = self.open_pass, None
            self._judge(_Point(complete.step, complete.step, complete.mean.read()), rule)

    def _judge(self, now: _Point, rule: LossNotDecreasing) -> None:
        points = self.points
        if points and now.place <= points[-1].place:  # the run began anew
            points.clear()
        points.append(now)
        # The first point is the last that was judged, or the very first.
        if now.place - points[0].place < rule.num_steps:
            return
        before = points[0]
        for point in points:
            if now.place - point.place >= rule.num_steps:
                before = point
        points.clear()
        points.append(now)
        if is_not_decreasing(now.loss, before.loss, rule.diff_percent):
            self.verdict = {
                "loss": now.loss,
                "step": now.step,
                "loss before": before.loss,
                "step before": before.step,
                "change in percent": change_in_percent(now.loss, before.loss),
            }
        else:
            self.verdict = None


def _told(all_series: Mapping[str, _Series]) -> Iterator[Symptom]:
    for name, series in all_series.items():
        if series.verdict is not None:
            yield Symptom(name, series.verdict)


def is_not_decreasing(loss: float, before: float, diff_percent: float) -> bool:
    """Whether a loss has not fallen by that share of what it was; a loss of 0 that stays is fine.

    A loss that has not fallen at all never has fallen enough.
    """
    if loss == before == 0:
        return False
    fall = before - loss
    return fall <= 0 or fall < abs(before) * diff_percent / 100


def change_in_percent(loss: float, before: float) -> float:
    """By how much a loss has risen, in per cent of what it was."""
    if before == 0:
        return math.copysign(math.inf, loss) if loss else 0.0
    return 100 * (loss - before) / abs(before)
