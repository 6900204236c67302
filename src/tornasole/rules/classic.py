"""Rules in the style of ``smdebug``: a class with ``invoke_at_step``, and the loop that runs it."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from tornasole.errors import (
    NoMoreProfilerData,
    RuleEvaluationConditionMet,
    StepUnavailable,
    TensorUnavailable,
    TensorUnavailableForStep,
)
from tornasole.rules.action_strings import perform
from tornasole.trial import Tensor, Trial
from tornasole.trial.refreshing import no_refresh

log = logging.getLogger("tornasole")


class RequiredTensors:
    """What a rule wants to have read before it is invoked at a step."""

    def __init__(self, trials: Sequence[Trial]) -> None:
        self._trials = trials
        self._steps: dict[Trial, dict[str, list[int]]] = {trial: {} for trial in trials}

    def add(
        self,
        name: str,
        steps: Iterable[int],
        trial: Trial | None = None,
        should_match_regex: bool = False,
    ) -> None:
        """Requires a tensor, or those that a regex matches, at some steps.

        Raises:
            TensorUnavailable: There is no tensor of that name.
        """
        trial = self._trials[0] if trial is None else trial
        if should_match_regex:
            names = trial.tensor_names(regex=name)
        else:
            names = [trial.tensor(name).name]
        for each in names:
            self._steps.setdefault(trial, {}).setdefault(each, []).extend(steps)

    def get(self, trial: Trial | None = None) -> list[Tensor]:
        """The tensors required of a trial."""
        trial = self._trials[0] if trial is None else trial
        return [trial.tensor(name) for name in self._steps.get(trial, {})]

    def get_names(self, trial: Trial | None = None) -> list[str]:
        """Their names."""
        return list(self._steps.get(self._trials[0] if trial is None else trial, {}))

    def get_tensor_steps(self, name: str, trial: Trial | None = None) -> list[int] | None:
        """The steps at which a tensor is required."""
        return self._steps.get(self._trials[0] if trial is None else trial, {}).get(name)

    def clear(self) -> None:
        """Requires nothing any more."""
        for names in self._steps.values():
            names.clear()

    def fetch(self) -> None:
        """Waits for all that is required.

        Raises:
            StepUnavailable, TensorUnavailableForStep, NoMoreData: Some of it will not come.
        """
        for trial, names in self._steps.items():
            steps = sorted({step for each in names.values() for step in each})
            trial.wait_for_steps(steps)
            for name, wanted in names.items():
                tensor = trial.tensor(name)
                for step in wanted:
                    tensor.value(step)


class Rule(ABC):
    """Base of rules in the style of ``smdebug``.

    Args:
        base_trial: The trial to look at.
        action_str: What to do when the rule fires, as JSON; may be left out.
        other_trials: Trials to compare it with.
    """

    def __init__(
        self,
        base_trial: Trial,
        action_str: str = "",
        other_trials: Sequence[Trial] | None = None,
    ) -> None:
        self.base_trial = base_trial
        self.other_trials = other_trials
        self.trials = [base_trial, *(other_trials or ())]
        self.req_tensors = RequiredTensors(self.trials)
        self.rule_name = type(self).__name__
        self.logger = logging.getLogger(f"tornasole.rules.{self.rule_name}")
        self.action_str = action_str
        self.report: dict[str, Any] = {
            "RuleTriggered": 0,
            "Violations": 0,
            "Details": {},
            "Datapoints": 0,
            "RuleParameters": "",
        }

    def set_required_tensors(self, step: int) -> None:  # noqa: B027 - may be left as it is
        """Override: calls ``self.req_tensors.add`` for what ``invoke_at_step`` will read."""

    @abstractmethod
    def invoke_at_step(self, step: int) -> bool:
        """Whether the rule's condition holds at a global step."""

    def invoke(self, step: int) -> None:
        """Waits for a step and judges it.

        Raises:
            RuleEvaluationConditionMet: The condition holds.
            StepUnavailable: The step was not saved.
            NoMoreData: It will never come.
        """
        if self.fires(step):
            self.act(step)
            raise RuleEvaluationConditionMet(self.rule_name, step)

    def fires(self, step: int) -> bool:
        """Waits for a step, and for what is required, and judges it."""
        self.base_trial.wait_for_steps([step])
        with no_refresh(self.trials):
            self.req_tensors.clear()
            self.set_required_tensors(step)
            self.req_tensors.fetch()
            return bool(self.invoke_at_step(step))

    def act(self, step: int) -> None:
        """Does what ``action_str`` says."""
        if self.action_str:
            perform(self.action_str, self.rule_name, step, self.base_trial.path)


def invoke_rule(
    rule_obj: Rule,
    start_step: int = 0,
    end_step: int | None = None,
    raise_eval_cond: bool = False,
) -> None:
    """Invokes a rule at one step after the other, until the run is over.

    Args:
        end_step: The first step not to invoke it at.
        raise_eval_cond: Whether to raise when the rule fires, instead of logging and going on.

    Raises:
        NoMoreData: The run is over, and every step has been judged.
        RuleEvaluationConditionMet: The rule fired, and ``raise_eval_cond`` is true.
    """
    step = start_step
    while end_step is None or step < end_step:
        try:
            rule_obj.invoke(step)
        except (TensorUnavailableForStep, StepUnavailable, TensorUnavailable) as missing:
            log.debug("%s is not judged at step %d: %s", rule_obj.rule_name, step, missing)
        except RuleEvaluationConditionMet as met:
            if raise_eval_cond:
                raise
            log.warning("%s", met)
            if met.end_of_rule:
                return
        except NoMoreProfilerData:
            return
        step += 1
