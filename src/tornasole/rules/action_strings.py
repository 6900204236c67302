"""The actions that ``smdebug`` writes as JSON text: ``{"name": "stoptraining", …}``."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

from tornasole.errors import SMDebugError
from tornasole.rules.actions.contract import Action, Occasion, Undone, one_line
from tornasole.rules.actions.email import Email
from tornasole.rules.actions.sms import SMS
from tornasole.rules.actions.stop_training import StopTraining, reason
from tornasole.rules.finding import Finding, Severity
from tornasole.rules.stopping import stop_job
from tornasole.types import ModeKeys

log = logging.getLogger("tornasole")

_MOST_SECONDS = 60.0

# Name -> the parameter without which it is skipped, and the action. Where a job has no name, a
# prefix of it is not asked for: the job that is stopped is the one that writes the trial.
_KINDS: dict[str, tuple[str | None, Callable[[str], Action]]] = {
    "email": ("endpoint", Email),
    "sms": ("endpoint", SMS),
    "stoptraining": (None, StopTraining),
}


def perform(action_str: str | None, rule_name: str, step: int, trial_path: str) -> None:
    """Does what the text asks for, now that a rule has fired. What cannot be done is logged.

    Args:
        action_str: One JSON object or a list of them; in any case of letters. Empty: nothing.
        trial_path: The trial whose job ``stoptraining`` stops.
    """
    if not action_str or not action_str.strip():
        return
    finding = Finding(
        rule=rule_name,
        severity=Severity.WARNING,
        step=step,
        mode=ModeKeys.GLOBAL,
        mode_step=step,
        tensors=(),
        message=f"SMDebugRule:{rule_name} fired at step {step}.",
    )
    deadline = time.monotonic() + _MOST_SECONDS
    for action in parsed(action_str):
        try:
            if isinstance(action, StopTraining):
                stop_job(trial_path, reason(finding))
            else:
                action.perform(Occasion(finding, trial_path, lambda s: _pause(s, deadline)))
        except (Undone, OSError, SMDebugError) as failure:
            name = type(action).__name__
            log.error("The action %s of %s was not done: %s", name, rule_name, failure)


def parsed(action_str: str) -> Iterator[Action]:
    """The actions that a text asks for; what is no action is logged and left out."""
    try:
        content = json.loads(action_str.lower())
    except ValueError as error:
        log.error("%r is not JSON, so there are no actions: %s", one_line(action_str), error)
        return
    for about in content if isinstance(content, list) else [content]:
        try:
            yield _action(about)
        except (Undone, SMDebugError) as error:
            log.error("The action %s is left out: %s", json.dumps(about), error)


def _action(about: Any) -> Action:
    name = about.get("name") if isinstance(about, dict) else None
    if not isinstance(name, str) or name not in _KINDS:
        raise Undone(f"its name must be one of {', '.join(_KINDS)}")
    needed, make = _KINDS[name]
    if needed is None:
        return make("")
    if not isinstance(about.get(needed), str):
        raise Undone(f"{name} needs {needed!r}")
    return make(about[needed])


def _pause(seconds: float, deadline: float) -> bool:
    if time.monotonic() + seconds >= deadline:
        return False
    time.sleep(seconds)
    return True
