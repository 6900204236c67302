"""Running rules over a trial: once, or following it while it is written."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tornasole.errors import (
    CorruptTrial,
    NoMoreData,
    RuleEvaluationConditionMet,
    StepUnavailable,
    TensorUnavailable,
    TensorUnavailableForStep,
)
from tornasole.format.findings import read_findings, write_findings
from tornasole.format.layout import parse_object
from tornasole.rules.classic import Rule
from tornasole.rules.contract import StepRule
from tornasole.rules.engine import Engine, failure_message
from tornasole.rules.finding import Finding, Severity
from tornasole.rules.loading import ClassicRule, load_rules
from tornasole.trial import Trial, create_trial
from tornasole.trial.refreshing import no_refresh
from tornasole.types import ModeKeys

log = logging.getLogger("tornasole")

_ROWS_AT_A_TIME = 1 << 18


@dataclass
class Report:
    """What rules said about a trial.

    Attributes:
        findings: In the order of steps.
        not_applicable: The rules that could say nothing, and why.
        steps: How many steps were judged.
        rules: The names of the rules that ran.
    """

    findings: list[Finding] = field(default_factory=list)
    not_applicable: dict[str, str] = field(default_factory=dict)
    steps: int = 0
    rules: tuple[str, ...] = ()

    @property
    def worst(self) -> Severity | None:
        """The highest severity among the findings."""
        return max((f.severity for f in self.findings), key=lambda s: s.rank, default=None)


def findings_of(trial: Trial | str | os.PathLike[str]) -> list[Finding]:
    """The findings that have been written to a trial, oldest first."""
    path = trial.path if isinstance(trial, Trial) else os.fspath(trial)
    found = []
    for where, line in read_findings(path):
        try:
            found.append(Finding.from_json_dict(parse_object(line, where), where))
        except CorruptTrial as error:  # the rest of the trial is not worth less for it
            log.warning("A finding is passed over: %s", error)
    return found


class Checking:
    """Rules over one trial, from its first step on, as far as it has come.

    Args:
        trial: The trial, or its path.
        rules: Names, classes or rules; default: all that apply.

    Attributes:
        trial: The trial.
        report: What they said so far.
        known: What had been found before, and written to the trial.
    """

    def __init__(
        self, trial: Trial | str | os.PathLike[str], rules: Iterable[Any] | str | None = None
    ) -> None:
        self.trial = trial if isinstance(trial, Trial) else create_trial(trial)
        loaded = load_rules(rules)
        by_step = [rule for rule in loaded if isinstance(rule, StepRule)]
        self._engine = Engine(by_step, self.trial.path)
        classic = [
            rule.for_trial(self.trial) if isinstance(rule, ClassicRule) else rule
            for rule in loaded
            if not isinstance(rule, StepRule)
        ]
        self._classic = [_Classic(rule) for rule in classic]
        names = [rule.name for rule in by_step] + [rule.rule_name for rule in classic]
        self.report = Report(rules=tuple(dict.fromkeys(names)))
        self.known = {finding.key for finding in findings_of(self.trial)}
        self._last_step = -1
        self._over = False

    def advance(self) -> Iterator[Finding]:
        """Judges what is new in the trial."""
        self.trial.refresh_data()
        with no_refresh(self.trial):
            while (block := self.trial.block(self._last_step, _ROWS_AT_A_TIME)).steps:
                yield from self._kept(self._engine.judge(block))
                for rows in block.steps:
                    for rule in self._classic:
                        yield from self._kept(rule.judge(rows.step, rows.mode, rows.mode_step))
                self._last_step = block.steps[-1].step
                self.report.steps += len(block.steps)
        if self.trial.loaded_all_steps and not self._over:
            self._over = True
            yield from self._kept(self._engine.end())
        self.report.not_applicable = self._engine.not_applicable()

    def wait(self) -> Iterator[Finding]:
        """Lets rules know that nothing new has come, and since when."""
        yield from self._kept(self._engine.wait(time.time()))

    def _kept(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        for finding in findings:
            self.report.findings.append(finding)
            yield finding


class _Classic:
    """A rule in the older style, invoked step by step; a condition that goes on is told once."""

    def __init__(self, rule: Rule) -> None:
        self._rule, self._going_on, self._failed = rule, False, False

    def judge(self, step: int, mode: ModeKeys, mode_step: int) -> Iterator[Finding]:
        if self._failed:
            return
        met, message, failed = False, "", False
        try:
            met = self._rule.fires(step)
            message = str(RuleEvaluationConditionMet(self._rule.rule_name, step))
            if met and not self._going_on:
                self._rule.act(step)
        except RuleEvaluationConditionMet as condition:
            met, message = True, str(condition)
            self._failed = condition.end_of_rule
        except (TensorUnavailableForStep, StepUnavailable, TensorUnavailable, NoMoreData):
            return
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the boundary around rules
            self._failed = met = failed = True
            message = failure_message(error)
        fresh, self._going_on = met and not self._going_on, met
        if fresh:
            yield Finding(
                rule=self._rule.rule_name,
                severity=Severity.WARNING,
                step=step,
                mode=mode,
                mode_step=mode_step,
                tensors=(),
                message=message,
                rule_failed=failed,
            )


def check(
    trial: Trial | str | os.PathLike[str],
    rules: Iterable[Any] | str | None = None,
    *,
    save: bool = True,
) -> Report:
    """Runs rules over what a trial holds now.

    Args:
        trial: The trial, or its path.
        rules: Names (``"vanishing_gradient:threshold=1e-6"``, ``"my_rules.py:MyRule"``), classes or
            rules; default: all that apply.
        save: Whether to write to the trial what had not been found before.
    """
    run = Checking(trial, rules)
    fresh = [finding for finding in run.advance() if finding.key not in run.known]
    if save:
        save_findings(run.trial, fresh)
    return run.report


def save_findings(trial: Trial, findings: Iterable[Finding]) -> None:
    """Writes findings to a trial."""
    write_findings(trial.path, [finding.to_json_dict() for finding in findings])
