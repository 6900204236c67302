"""From what people type to actions: ``stop``, ``webhook:https://…``, ``email:me@example.org``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from tornasole.errors import SMDebugTypeError, SMDebugValueError
from tornasole.rules.actions.call import Call
from tornasole.rules.actions.command import Command
from tornasole.rules.actions.contract import Action, severity
from tornasole.rules.actions.email import Email
from tornasole.rules.actions.sms import SMS
from tornasole.rules.actions.stop_training import StopTraining
from tornasole.rules.actions.webhook import Webhook
from tornasole.selection.patterns import choose_from

# Name -> the action, and an example of what comes after the colon.
_NAMED: dict[str, tuple[Callable[[str], Action], str]] = {
    "command": (Command, "./notify.sh"),
    "email": (Email, "me@example.org"),
    "sms": (SMS, "+15551234567"),
    "webhook": (Webhook, "https://example.org/hook"),
}


def load_action(what: Any, at: str | None = None) -> Action:
    """An action.

    Args:
        what: An action; a function to call with each finding; or a name: ``"stop"``,
            ``"webhook:https://example.org/hook"``, ``"email:me@example.org"``,
            ``"command:./notify.sh"``, ``"sms:+15551234567"``.
        at: The least severity of findings that it is for; default: as it says itself, or warning.

    Raises:
        SMDebugValueError: There is no such action.
    """
    if isinstance(what, str):
        found = _named(what)
    elif isinstance(what, Action):
        found = what
    elif callable(what) and not isinstance(what, type):
        found = Call(what)
    else:
        raise SMDebugTypeError(f"An action is a name, an action or a function, not {what!r}.")
    return found if at is None else replace(found, at=severity(at))


def load_actions(what: Iterable[Any] | Any, at: str | None = None) -> list[Action]:
    """Some actions, or one."""
    if isinstance(what, (str, Action)) or callable(what):
        what = [what]
    return [load_action(each, at) for each in what]


class ActionList(tuple[Action, ...]):
    """Several actions, as scripts for SageMaker write them: ``ActionList(StopTraining(), …)``."""

    __slots__ = ()

    def __new__(cls, *actions: Any) -> ActionList:
        return super().__new__(cls, load_actions(actions))


def _named(text: str) -> Action:
    name, _, rest = text.partition(":")
    name, rest = name.strip().lower(), rest.strip()
    if name in ("stop", "stoptraining"):
        if rest:
            raise SMDebugValueError(f"{text!r}: the action 'stop' takes nothing after its name.")
        return StopTraining()
    if name not in _NAMED:
        raise SMDebugValueError(
            f"There is no action {name!r}: {choose_from(name, ['stop', *_NAMED])}"
        )
    make, example = _NAMED[name]
    if not rest:
        raise SMDebugValueError(f"The action {name!r} needs more: write {name}:{example}.")
    return make(rest)
