"""From findings to the log, the trial and the actions, beside whoever found them."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from tornasole.errors import SMDebugError
from tornasole.format.findings import acted_upon, mark_acted, write_findings
from tornasole.rules.actions.contract import Action, Occasion, Undone, headline, one_line
from tornasole.rules.actions.naming import load_actions
from tornasole.rules.actions.stop_training import StopTraining, reason
from tornasole.rules.finding import Finding, Severity

log = logging.getLogger("tornasole")

_LEVELS = {
    Severity.INFO: logging.INFO,
    Severity.WARNING: logging.WARNING,
    Severity.CRITICAL: logging.CRITICAL,
}
_SECONDS_AT_EXIT = 15.0


class Acting:
    """Takes findings, and does what is to be done about each, once, in the order they come.

    A thread of its own, started at the first finding, writes them to the trial and performs the
    actions, so that nobody waits for a mail server. Only a stop is asked for at once. When the
    interpreter ends, what is left is still done, within some seconds. An action that fails is a
    line in the log, and nothing stops.

    Args:
        actions: What to do: actions, their names, or functions.
        stop: Asks for the training to stop, for a reason; returns at once.
        where: The trial that the findings are written to; ``None``: to none.
    """

    def __init__(
        self, actions: Iterable[Any], stop: Callable[[str], None], where: str | None
    ) -> None:
        self._actions = load_actions(actions)
        self._stop, self._where = stop, where
        self._done = set() if where is None else acted_upon(where)
        self._stopped = False
        self._news = threading.Condition()
        self._waiting: list[Finding] = []
        self._unwritten: list[Finding] = []
        self._writing = threading.Lock()
        self._undone = 0
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        self._closing = threading.Event()
        self._deadline = float("inf")
        for action in self._actions:
            if obstacle := action.obstacle():
                log.warning("The action %s will not be done: %s.", _name(action), obstacle)

    def take(self, finding: Finding, *, written: bool = False) -> None:
        """Takes care of a finding; returns at once, unless the interpreter is about to end.

        Args:
            written: Whether it stands in the trial already.
        """
        what = one_line(f"{headline(finding)}: {finding.message}")
        log.log(_LEVELS[finding.severity], "%s", what, extra={"finding": finding})
        self._ask_to_stop(finding)
        with self._news:
            if not self._closing.is_set() and self._is_running():
                self._undone += 1
                self._waiting.append(finding)
                if not written:
                    self._unwritten.append(finding)
                self._news.notify()
                return
        if not self._closing.is_set():
            self._deadline = time.monotonic() + _SECONDS_AT_EXIT
            self._closing.set()
        if not written:
            self._unwritten.append(finding)
        self._do([finding])

    def has_actions_for(self, finding: Finding) -> bool:
        """Whether anything is to be done about it."""
        return bool(self._actions_for(finding))

    def close(self, timeout: float = _SECONDS_AT_EXIT) -> None:
        """Waits until everything is done, or for that many seconds."""
        if self._process != os.getpid():
            return  # a forked copy: neither thread nor lock mean anything here
        atexit.unregister(self.close)
        with self._news:
            self._deadline = time.monotonic() + timeout
            self._closing.set()
            self._news.notify()
        if self._thread is None:
            return
        self._thread.join(timeout)
        if self._undone:
            log.error(
                "After %g s, the actions for %d findings were not done yet; they are given up.",
                timeout,
                self._undone,
            )

    def _ask_to_stop(self, finding: Finding) -> None:
        wanted = finding.parameters.get("stop_training_on_fire") is True or any(
            isinstance(action, StopTraining) for action in self._actions_for(finding)
        )
        if wanted and not self._stopped:
            self._stopped = True
            self._stop(reason(finding))

    def _is_running(self) -> bool:
        """Whether the thread runs; it is started if it can be."""
        if self._thread is None or not self._thread.is_alive():
            thread = threading.Thread(target=self._run, name="tornasole-actions", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return False  # the interpreter is about to end
            self._thread = thread
            atexit.register(self.close)
        return True

    def _run(self) -> None:
        while findings := self._next():
            self._do(findings)
            with self._news:
                self._undone -= len(findings)

    def _next(self) -> list[Finding]:
        """What is new, once there is something; nothing: the end."""
        with self._news:
            self._news.wait_for(lambda: self._waiting or self._closing.is_set())
            findings, self._waiting = self._waiting, []
            return findings

    def _do(self, findings: list[Finding]) -> None:
        # Written first: what a restart finds in the trial is not done again.
        self._write()
        for finding in findings:
            for action in self._actions_for(finding):
                if self._perform(action, finding):
                    self._mark(finding, action)
                self._write()  # what came while it was done

    def _actions_for(self, finding: Finding) -> list[Action]:
        """What is to be done about it, and was not done before."""
        return [
            action
            for action in self._actions
            if _is_for(action, finding) and _mark(finding, action) not in self._done
        ]

    def _write(self) -> None:
        with self._writing:
            with self._news:
                findings, self._unwritten = self._unwritten, []
            if self._where is None or not findings:
                return
            try:
                write_findings(self._where, [finding.to_json_dict() for finding in findings])
            except (OSError, SMDebugError) as error:
                log.error("%d findings could not be written to the trial: %s", len(findings), error)

    def _mark(self, finding: Finding, action: Action) -> None:
        mark = _mark(finding, action)
        self._done.add(mark)
        if self._where is None:
            return
        try:
            mark_acted(self._where, [mark])
        except (OSError, SMDebugError) as error:
            log.error("That an action was done could not be noted in the trial: %s", error)

    def _perform(self, action: Action, finding: Finding) -> bool:
        try:
            action.perform(Occasion(finding, self._where, self._pause))
        except (Exception, SystemExit) as failure:  # noqa: BLE001 - the boundary around actions
            kind = "" if isinstance(failure, Undone) else f"{type(failure).__name__}: "
            log.error(
                "The action %s for %s was not done: %s%s.",
                _name(action),
                headline(finding),
                kind,
                one_line(str(failure)),
            )
            return False
        return True

    def _pause(self, seconds: float) -> bool:
        self._closing.wait(seconds)
        if self._closing.is_set():
            left = self._deadline - time.monotonic()
            time.sleep(max(0.0, min(seconds, 0.5, left)))
        return time.monotonic() < self._deadline


def _is_for(action: Action, finding: Finding) -> bool:
    if finding.rule_failed and isinstance(action, StopTraining):
        return False  # a rule that is broken says nothing about the training
    return finding.severity.rank >= action.at.rank


def _name(action: Action) -> str:
    return type(action).__name__


def _mark(finding: Finding, action: Action) -> str:
    return f"{action.identity} {finding.mark}"
