"""What a rule found: a value that says what, where, how bad, on what evidence, and what to try."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tornasole.errors import CorruptTrial
from tornasole.types import ModeKeys


class Severity(str, Enum):
    """How bad it is. ``info`` is worth knowing, ``critical`` means that learning has failed."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """0 for the least."""
        return list(Severity).index(self)


@dataclass(frozen=True)
class Finding:
    """One thing that a rule found.

    Attributes:
        rule: The rule's name.
        step: The global step at which it first held.
        mode_step: That step's number in its mode.
        tensors: The tensors that it is about, the worst first.
        message: One sentence, with the numbers.
        evidence: The numbers behind it, by name.
        causes: What may be behind it, the likeliest first.
        remedies: What to try.
        worker: Whose tensors they are, if not everybody's.
        parameters: Those of the rule that are not what they are by default.
        rule_failed: Whether it is about the rule, which could not judge, and not about the run.
    """

    rule: str
    severity: Severity
    step: int
    mode: ModeKeys
    mode_step: int
    tensors: tuple[str, ...]
    message: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    causes: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()
    worker: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    rule_failed: bool = False

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for two reports of the same thing."""
        parameters = json.dumps(_plain(self.parameters), sort_keys=True)
        return self.rule, parameters, self.step, self.mode, self.tensors, self.worker

    @property
    def mark(self) -> str:
        """The key as a text."""
        return json.dumps([*map(str, self.key[:3]), self.mode.name, *self.tensors, self.worker])

    def to_json_dict(self) -> dict[str, Any]:
        """Plain values; a number that is not finite becomes a word, as JSON has none for it."""
        return {
            "rule": self.rule,
            "severity": self.severity.value,
            "step": self.step,
            "mode": self.mode.name,
            "mode_step": self.mode_step,
            "tensors": list(self.tensors),
            "message": self.message,
            "evidence": _plain(self.evidence),
            "causes": list(self.causes),
            "remedies": list(self.remedies),
            "worker": self.worker,
            "parameters": _plain(self.parameters),
            "rule_failed": self.rule_failed,
        }

    @classmethod
    def from_json_dict(cls, content: Mapping[str, Any], where: str = "a finding") -> Finding:
        """The finding that ``to_json_dict`` described.

        Raises:
            CorruptTrial: It is none.
        """
        try:
            return cls(
                rule=str(content["rule"]),
                severity=Severity(content["severity"]),
                step=int(content["step"]),
                mode=ModeKeys[content["mode"]],
                mode_step=int(content["mode_step"]),
                tensors=tuple(map(str, content["tensors"])),
                message=str(content["message"]),
                evidence=dict(content.get("evidence") or {}),
                causes=tuple(map(str, content.get("causes") or ())),
                remedies=tuple(map(str, content.get("remedies") or ())),
                worker=content.get("worker"),
                parameters=dict(content.get("parameters") or {}),
                rule_failed=content.get("rule_failed") is True,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptTrial(f"{where} is damaged: {type(error).__name__}: {error}.") from None


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, (bool, str)) or value is None:
        return value
    if hasattr(value, "tolist"):  # NumPy's
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value if isinstance(value, (int, float)) else str(value)
