"""Rules in the training process: they judge each saved step as it ends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from tornasole.errors import SMDebugTypeError
from tornasole.format import StepRecords
from tornasole.rules.acting import Acting
from tornasole.rules.contract import StepRule
from tornasole.rules.engine import Engine
from tornasole.rules.finding import Finding
from tornasole.rules.loading import load_rules
from tornasole.rules.recorded import RecordedBlock


class Observable(Protocol):
    """What rules need of a hook."""

    @property
    def out_dir(self) -> str: ...
    @property
    def dry_run(self) -> bool: ...
    @property
    def worker(self) -> str: ...
    def observe(self, observer: Any, at_end: Any) -> None: ...
    def stop_training(self, reason: str) -> None: ...


class Attached:
    """Rules that watch a hook.

    Attributes:
        findings: What they have found so far.
    """

    def __init__(self, hook: Observable, rules: list[StepRule], actions: Iterable[Any]) -> None:
        self._hook, self._engine = hook, Engine(rules, hook.out_dir)
        where = None if hook.dry_run else hook.out_dir
        self._acting = Acting(actions, hook.stop_training, where)
        self.findings: list[Finding] = []
        hook.observe(self._judge, self._end)

    def _judge(self, step: StepRecords) -> None:
        self._take(self._engine.judge(RecordedBlock(step, self._hook.worker)))

    def _take(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self.findings.append(finding)
            self._acting.take(finding)

    def _end(self) -> None:
        self._take(self._engine.end())

    def close(self, timeout: float = 15.0) -> None:
        """Waits until all actions are done; at exit this is done, too."""
        self._acting.close(timeout)


def attach(
    hook: Observable, rules: Iterable[Any] | str | None = None, actions: Iterable[Any] = ()
) -> Attached:
    """Has rules judge each step that a hook saves, as it ends, in the training process.

    They see what the hook saves and when it saves it. Findings are logged and written to the trial;
    actions are run beside the training, which waits for none of them.

    Args:
        hook: The hook, of any framework.
        rules: As in ``check``; rules in the older style need a trial, and are refused.
        actions: What to do about findings: actions, or their names, such as ``"stop"``.
    """
    loaded = load_rules(rules)
    for rule in loaded:
        if not isinstance(rule, StepRule):
            raise SMDebugTypeError(
                f"{rule!r} reads a trial, so it cannot run in the training process. Run it beside "
                "it: tornasole watch."
            )
    return Attached(hook, loaded, actions)
