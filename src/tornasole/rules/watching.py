"""Following a live run with rules, and acting on what they find."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tornasole.errors import SMDebugValueError
from tornasole.rules.acting import Acting
from tornasole.rules.actions.naming import load_actions
from tornasole.rules.checking import Checking, Report
from tornasole.rules.finding import Finding
from tornasole.rules.stopping import GRACE_SECONDS, Stopping
from tornasole.trial import Trial, create_trial
from tornasole.trial.refreshing import no_refresh

POLL_SECONDS = 0.5
_LONGEST_POLL = 2.0
_BUSY = 0.04  # of one core, at most: where a look costs much, looks are rarer
_LONGEST_REST = 30.0


@dataclass(frozen=True)
class Progress:
    """How far a watch has come.

    Attributes:
        state: How the run stands, as ``Trial.state``.
        reason: Why, as ``Trial.state_reason``.
        steps: How many steps have been judged.
        last_step: The last of them; -1: none yet.
        quiet: Seconds since the last one came.
        stopping: Whether the job has been asked to stop.
    """

    state: str
    reason: str
    steps: int
    last_step: int
    quiet: float
    stopping: bool


def watch(
    trial: Trial | str | os.PathLike[str],
    rules: Iterable[Any] | str | None = None,
    actions: Iterable[Any] = (),
    *,
    at: str | None = None,
    wait: float | None = 0,
    timeout: float | None = None,
    grace: float | None = GRACE_SECONDS,
    poll: float = POLL_SECONDS,
    on_finding: Callable[[Finding], Any] | None = None,
    on_progress: Callable[[Progress], Any] | None = None,
) -> Report:
    """Follows a run until it is over, beside it: in another process, or on another machine.

    New findings are logged, written to the trial and acted upon, once each: what stands in the
    trial already is not told again, and not acted upon again if it was. So a watch can be ended and
    begun anew.

    Args:
        trial: The trial, or its path.
        rules: As in ``check``.
        actions: What to do about findings: actions, their names, such as ``"stop"``, or functions.
        at: The least severity that the actions are for; default: as each says, or warning.
        wait: Seconds to wait for a trial that is not there yet; infinity: as long as it takes.
        timeout: Seconds after which to watch no longer; default: until the run is over.
        grace: Seconds after which a job that was asked to stop and has not is sent SIGTERM, if it
            runs on this machine; ``None``: never.
        poll: Seconds between two looks; longer when nothing happens, or when a look takes long.
        on_finding: Called with each new finding.
        on_progress: Called after each look.

    Returns:
        All findings of the run so far, the known ones among them.
    """
    if not poll > 0:
        raise SMDebugValueError(f"poll must be a number of seconds above 0, not {poll!r}.")
    todo = load_actions(actions, at)
    end = float("inf") if timeout is None else time.monotonic() + timeout
    opened = trial if isinstance(trial, Trial) else create_trial(trial, wait=wait)
    run = Checking(opened, rules)
    stopping = Stopping(run.trial, grace)
    acting = Acting(todo, stopping.ask, run.trial.path)

    def take(findings: Iterable[Finding]) -> None:
        for finding in findings:
            if finding.key not in run.known:
                run.known.add(finding.key)
                acting.take(finding)
                if on_finding is not None:
                    on_finding(finding)
            elif acting.has_actions_for(finding):  # who found it did not do them
                acting.take(finding, written=True)

    news, pause, is_first = time.monotonic(), poll, True
    try:
        while True:
            before, busy = run.report.steps, time.process_time()
            take(run.advance())
            now = time.monotonic()
            if run.report.steps > before:
                news, pause = now, poll
            else:
                take(run.wait())
                pause = min(pause * 1.25, max(poll, min(4 * poll, _LONGEST_POLL)))
            if on_progress is not None:
                on_progress(_progress(run, now - news, stopping.is_asked))
            if run.trial.loaded_all_steps or now >= end:
                return run.report
            stopping.insist()
            busy = 0.0 if is_first else time.process_time() - busy
            rest = min(busy / _BUSY, _LONGEST_REST)
            is_first = False
            time.sleep(min(max(pause, rest), max(0.0, end - now)))
    finally:
        acting.close()


def _progress(run: Checking, quiet: float, stopping: bool) -> Progress:
    with no_refresh(run.trial) as trial:
        return Progress(
            trial.state,
            trial.state_reason,
            run.report.steps,
            trial.last_complete_step,
            quiet,
            stopping,
        )
