"""From what people type to rules: a name, a name with parameters, a file and a class, an object."""

from __future__ import annotations

import importlib.util
import inspect
import os
import re
import sys
import zlib
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from tornasole import registry
from tornasole.errors import SMDebugError, SMDebugTypeError, SMDebugValueError
from tornasole.rules.classic import Rule
from tornasole.rules.contract import StepRule
from tornasole.trial import create_trial

AnyRule = StepRule | type[Rule]


def rule_names() -> list[str]:
    """The rules that can be had by name: ours, and those of other packages."""
    return registry.names("rule")


def load_rule(what: Any, **parameters: Any) -> Any:
    """A rule, ready to run.

    Args:
        what: A rule; a class of rules; a name, ``"vanishing_gradient"``; a name with parameters,
            ``"vanishing_gradient:threshold=1e-6"``; or a file and a class,
            ``"my_rules.py:MyRule"``, to which parameters may be added likewise.
        parameters: More parameters.

    Returns:
        A ``StepRule``; of a class in the older style, a function that makes one for a trial.

    Raises:
        SMDebugValueError: There is no such rule or parameter.
    """
    if isinstance(what, StepRule):
        if parameters:
            raise SMDebugTypeError(f"{what.name} has its parameters already.")
        return what
    if isinstance(what, str):
        what, given = _parsed(what)
        parameters = {**given, **parameters}
    if isinstance(what, type) and issubclass(what, StepRule):
        return what.configured(**parameters)
    if isinstance(what, Rule):
        return what
    if isinstance(what, type) and issubclass(what, Rule):
        return ClassicRule(what, parameters)
    raise SMDebugTypeError(f"A rule is a name, a class of rules or a rule, not {what!r}.")


class ClassicRule:
    """A class of rules in the older style, and the arguments to make one for a trial."""

    def __init__(self, kind: type[Rule], parameters: dict[str, Any]) -> None:
        self.kind, self._parameters = kind, parameters
        self.name = kind.__name__
        accepted = inspect.signature(kind.__init__).parameters
        if not any(each.kind is each.VAR_KEYWORD for each in accepted.values()):
            for name in parameters:
                if name not in accepted:
                    known = ", ".join(n for n in accepted if n not in ("self", "base_trial"))
                    raise SMDebugValueError(
                        f"Rule {self.name!r} has no parameter {name!r}; it has: {known or 'none'}."
                    )
        self._takes_action = "action_str" in accepted

    def for_trial(self, trial: Any) -> Rule:
        """The rule on a trial."""
        arguments = dict(self._parameters)
        if self._takes_action:
            arguments.setdefault("action_str", "")
        others = arguments.get("other_trials")
        if isinstance(others, str):
            arguments["other_trials"] = [create_trial(path.strip()) for path in others.split(",")]
        try:
            return self.kind(trial, **arguments)
        except SMDebugError:
            raise
        except Exception as error:
            raise SMDebugValueError(
                f"Rule {self.name!r} cannot be made: {type(error).__name__}: {error}"
            ) from error


def _parsed(text: str) -> tuple[Any, dict[str, str]]:
    """A rule's class, and the parameters after it: ``name:a=1:b=2``."""
    name, *rest = text.split(":")
    if name.endswith(".py"):
        if not rest or "=" in rest[0]:
            raise SMDebugValueError(f"{text!r} names a file but no class: write {name}:MyRule.")
        found = _from_file(name, rest.pop(0))
    else:
        found = registry.load("rule", name)
    given = ":".join(rest).strip()
    # A parameter begins where its name does: values may hold colons and semicolons.
    beginnings = "|".join(map(re.escape, _parameter_names(found)))
    parts = re.split(f"[:;](?=(?:{beginnings})=)", given) if beginnings else [given]
    parameters: dict[str, str] = {}
    for part in filter(None, parts):
        key, equals, value = part.partition("=")
        if not equals:
            raise SMDebugValueError(
                f"{text!r}: {part!r} is no parameter; write them as {name}:threshold=0.1."
            )
        if key.strip() in parameters:
            raise SMDebugValueError(f"{text!r}: {key.strip()!r} is given twice.")
        parameters[key.strip()] = value.strip()
    return found, parameters


def _parameter_names(kind: Any) -> list[str]:
    if not isinstance(kind, type):
        return []
    if issubclass(kind, StepRule):
        return [each.name for each in kind.parameters()]
    return list(inspect.signature(kind.__init__).parameters)


def _from_file(path: str, name: str) -> Any:
    file = Path(path).expanduser()
    if not file.is_file():
        raise SMDebugValueError(f"There is no file {path!r}; the working folder is {Path.cwd()}.")
    module = _imported(file)
    if not hasattr(module, name):
        classes = [n for n, v in vars(module).items() if isinstance(v, type) and _is_rule(v)]
        raise SMDebugValueError(
            f"{path} has no {name!r}; its rules are: {', '.join(classes) or 'none'}."
        )
    return getattr(module, name)


def _is_rule(kind: type) -> bool:
    return issubclass(kind, (Rule, StepRule)) and kind not in (Rule, StepRule)


def _imported(file: Path) -> ModuleType:
    place = file.resolve()
    name = f"tornasole_rules_{file.stem}_{zlib.crc32(os.fsencode(place)):08x}"
    spec = importlib.util.spec_from_file_location(name, place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(place.parent))  # as for a script: it may import what lies beside it
    try:
        spec.loader.exec_module(module)
    except SMDebugError:
        raise
    except (Exception, SystemExit) as error:
        raise SMDebugValueError(
            f"{file} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    finally:
        sys.path.remove(str(place.parent))
    return module


def load_rules(what: Iterable[Any] | str | None) -> list[Any]:
    """The rules asked for; without any, all that have no parameter that must be given."""
    if isinstance(what, str):
        what = [what]
    if what is None or list(what) == ["all"]:
        kinds = [registry.load("rule", name) for name in rule_names()]
        return [
            kind.configured()
            for kind in kinds
            if isinstance(kind, type) and issubclass(kind, StepRule) and kind.runs_by_default
        ]
    return [load_rule(each) for each in what]


def collections_needed(rules: Iterable[Any] | str | None = None) -> list[str]:
    """What a hook should save for rules to judge: ``Hook(include_collections=…)`` takes it."""
    needs = [need for rule in load_rules(rules) for need in rule.needs().values()]
    return sorted({name for need in needs for name in need.save})
