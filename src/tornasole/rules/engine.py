"""Runs any number of rules over blocks of steps, in one pass that reads each tensor once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tornasole.rules.contract import StepRule, Symptom
from tornasole.rules.derived import known
from tornasole.rules.finding import Finding, Severity
from tornasole.rules.needs import Need
from tornasole.rules.view import Block, Floats, Group, Ints, Mask, Reading, StepRows, StepView
from tornasole.types import Role

_Key = tuple[str, str | None]
_FAULTS = (Exception, SystemExit)  # the boundary around rules, which others write
_LONGEST_MESSAGE = 500
_MOST_TENSORS = 20  # that a finding names


class Engine:
    """Some rules over one run.

    Findings come in the order of steps. A symptom that goes on from step to step is one finding,
    at the step where it begins. A rule that fails makes a finding about itself and is left out.

    Args:
        trial: Where the run is saved, for rules that want to know.
    """

    def __init__(self, rules: Sequence[StepRule], trial: str | None = None) -> None:
        self._runs = [_Run(rule, trial) for rule in rules]
        self._statistics = frozenset().union(
            *(need.statistics for run in self._runs for need in run.needs.values())
        )
        self._last: StepRows | None = None

    @property
    def last_step(self) -> int:
        """The last step that was judged; -1 before the first."""
        return -1 if self._last is None else self._last.step

    def judge(self, block: Block) -> Iterator[Finding]:
        """Judges the steps of a block."""
        reading = Reading(block, self._statistics)
        for run in self._runs:
            run.enter(block, reading)
        awake = [run for run in self._runs if run.is_awake]
        for i, rows in enumerate(block.steps):
            reading.begin_step()
            self._last = rows
            for run in awake:
                yield from run.judge(i, rows)

    def wait(self, now: float) -> Iterator[Finding]:
        """The run lives and has written nothing new."""
        for run in self._runs:
            yield from run.without_step(self._last, "while_waiting", now)

    def end(self) -> Iterator[Finding]:
        """The run is over."""
        for run in self._runs:
            yield from run.without_step(self._last, "at_end")

    def not_applicable(self) -> dict[str, str]:
        """The rules that could say nothing so far, and why."""
        reasons: dict[str, list[str]] = {}
        for run in self._runs:
            reasons.setdefault(run.rule.name, []).append(run.why_silent())
        return {name: found[0] for name, found in reasons.items() if all(found)}


def failure_message(error: BaseException) -> str:
    """What to say about a rule that failed."""
    cause = f"{type(error).__name__}: {error}"
    if len(cause) > _LONGEST_MESSAGE:
        cause = cause[:_LONGEST_MESSAGE] + "…"
    return f"The rule itself failed and is left out from here on: {cause}"


class _Run:
    """One rule over one run: what it remembers, and which of its symptoms go on."""

    def __init__(self, rule: StepRule, trial: str | None) -> None:
        self.rule, self._trial = rule, trial
        self.needs: dict[str, Need] = {}
        self._memory: dict[str, Any] = {}
        self._going_on: set[_Key] = set()
        self._ended: set[_Key] = set()
        self._fault: BaseException | None = None
        self._failed = False  # and that was told
        try:
            self.needs = dict(rule.needs())
        except _FAULTS as error:
            self._fault = error
        self._found = {name: _Found(need) for name, need in self.needs.items()}

    def enter(self, block: Block, reading: Reading) -> None:
        for found in self._found.values():
            found.enter(block, reading)

    @property
    def is_awake(self) -> bool:
        """Whether it has something to say, or may have, in the block at hand."""
        if self._fault is not None:
            return not self._failed
        return any(found.has_any for found in self._found.values())

    def judge(self, i: int, rows: StepRows) -> Iterator[Finding]:
        if self._fault is not None:
            yield from self._failure(self._fault, rows)
        elif any(found.has_tensors(i) for found in self._found.values()):
            groups = {name: found.group(i) for name, found in self._found.items()}
            try:
                view = StepView(rows, groups, self._trial)
                with np.errstate(all="ignore"):  # what is not finite is data
                    symptoms = list(self.rule.symptoms(view, self._memory))
                if self._going_on:
                    self._forget(list(groups.values()))
                yield from self._tell(symptoms, rows)
            except _FAULTS as error:
                yield from self._failure(error, rows)

    def without_step(self, last: StepRows | None, call: str, *args: Any) -> Iterator[Finding]:
        if self._fault is not None or last is None:
            return
        try:
            symptoms = list(getattr(self.rule, call)(*args, self._memory))
            yield from self._tell(symptoms, last)
        except _FAULTS as error:
            yield from self._failure(error, last)

    def _forget(self, looked_at: Sequence[Group]) -> None:
        """Of what was looked at again, nothing goes on unless it is told again."""
        names = {name for group in looked_at for name in group.names}
        pairs = {
            pair for group in looked_at for pair in zip(group.names, group.workers, strict=True)
        }
        self._ended = {
            (tensor, worker)
            for tensor, worker in self._going_on
            if not tensor or (tensor in names if worker is None else (tensor, worker) in pairs)
        }

    def _tell(self, symptoms: Sequence[Symptom], rows: StepRows) -> Iterator[Finding]:
        shown = {(symptom.tensor, symptom.worker) for symptom in symptoms}
        fresh = [s for s in symptoms if (s.tensor, s.worker) not in self._going_on]
        self._going_on = self._going_on - self._ended | shown
        self._ended = set()
        if not fresh:
            return
        told = self.rule.explain(fresh)
        workers = {symptom.worker for symptom in fresh}
        yield Finding(
            rule=self.rule.name,
            severity=told.severity,
            step=rows.step,
            mode=rows.mode,
            mode_step=rows.mode_step,
            tensors=tuple(dict.fromkeys(s.tensor for s in fresh if s.tensor))[:_MOST_TENSORS],
            message=told.message,
            evidence=told.evidence or dict(fresh[0].numbers),
            causes=told.causes,
            remedies=told.remedies,
            worker=workers.pop() if len(workers) == 1 else None,
            parameters=self.rule.given,
        )

    def _failure(self, error: BaseException, rows: StepRows) -> Iterator[Finding]:
        self._fault = error
        if self._failed:
            return
        self._failed = True
        yield Finding(
            rule=self.rule.name,
            severity=Severity.WARNING,
            step=rows.step,
            mode=rows.mode,
            mode_step=rows.mode_step,
            tensors=(),
            message=failure_message(error),
            evidence={"error": type(error).__name__},
            remedies=("Other rules are not affected. Mend the rule, or report it.",),
            rule_failed=True,
        )

    def why_silent(self) -> str:
        """Why the rule could say nothing; empty if it could."""
        for found in self._found.values():
            if found.need.required and (reason := found.what_is_missing()):
                return reason
        reasons = [found.what_is_missing() for found in self._found.values()]
        if reasons and all(reasons):
            return reasons[0]
        try:
            return str(self.rule.why_silent(self._memory))
        except _FAULTS:
            return ""


class _Found:
    """The tensors of one need in the block at hand."""

    def __init__(self, need: Need) -> None:
        self.need = need
        self._is_one: dict[str, bool] = {}
        self._any = False
        self._known: dict[str, tuple[Floats, Mask]] = {}
        self._positions: Ints = np.zeros(0, np.int64)
        self._bounds: list[int] = [0]

    def enter(self, block: Block, reading: Reading) -> None:
        self._block, self._reading = block, reading
        wanted = np.zeros(len(block.names), np.bool_)
        codes = np.unique(block.codes).tolist()
        wanted[[code for code in codes if self._matches(block, block.names[code])]] = True
        positions = np.flatnonzero(wanted[block.codes])
        if not self.need.every_worker and len(block.worker_names) > 1:
            positions = self._of_first_workers(block, positions)
        self._positions = positions
        firsts = [rows.first for rows in block.steps]
        self._bounds = [*np.searchsorted(positions, firsts).tolist(), len(positions)]
        self._known = {name: known(block, name, positions) for name in self.need.statistics}
        self._any = self._any or len(positions) > 0

    def _matches(self, block: Block, name: str) -> bool:
        if name not in self._is_one:
            role, need = block.role(name), self.need
            # What was saved by hand has no role, but a collection that says what it is.
            by_hand = not need.is_chosen and role in (Role.CUSTOM, Role.SCALAR)
            self._is_one[name] = need.matches(name, role) or any(
                name in block.members(collection)
                for collection in (need.save if by_hand else need.collections)
            )
        return self._is_one[name]

    @staticmethod
    def _of_first_workers(block: Block, positions: Ints) -> Ints:
        """Of each tensor at each step, the row of the first worker that has it."""
        steps = np.repeat(
            np.arange(len(block.steps)), [rows.stop - rows.first for rows in block.steps]
        )
        keys = steps[positions] * len(block.names) + block.codes[positions]
        first: Ints = positions[np.sort(np.unique(keys, return_index=True)[1])]
        return first

    @property
    def has_any(self) -> bool:
        return len(self._positions) > 0

    def has_tensors(self, i: int) -> bool:
        return self._bounds[i] < self._bounds[i + 1]

    def group(self, i: int) -> Group:
        here = slice(self._bounds[i], self._bounds[i + 1])
        block, positions = self._block, self._positions[here]
        return Group(
            [block.names[code] for code in block.codes[positions].tolist()],
            [block.worker_names[worker] for worker in block.workers[positions].tolist()],
            positions,
            {name: (values[here], mask[here]) for name, (values, mask) in self._known.items()},
            self._reading,
        )

    def what_is_missing(self) -> str:
        if self._any:
            return ""
        if self.need.is_chosen:
            asked = [pattern.pattern for pattern in self.need.regex] + list(self.need.collections)
            return f"no tensor that was saved matches {', '.join(map(repr, asked))}"
        cure = f"; add include_collections={list(self.need.save)}" if self.need.save else ""
        return f"no {self.need.what} were saved{cure}"
