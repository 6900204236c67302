"""Verdicts that stand until the next one: for rules that judge only now and then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tornasole.rules.contract import Symptom
from tornasole.types import ModeKeys


class Standing:
    """The last verdict on each tensor, mode by mode."""

    def __init__(self) -> None:
        self._bad: dict[str, dict[ModeKeys, Mapping[str, Any]]] = {}

    def set(self, tensor: str, mode: ModeKeys, numbers: Mapping[str, Any] | None) -> None:
        """A new verdict: the numbers that show what is wrong, or none."""
        modes = self._bad.setdefault(tensor, {})
        if numbers is None:
            modes.pop(mode, None)
        else:
            modes[mode] = numbers

    def symptoms(self, tensors: Iterable[str], mode: ModeKeys) -> Iterator[Symptom]:
        """What stands against tensors: in this mode, or else in another."""
        for tensor in tensors:
            modes = self._bad.get(tensor)
            if modes:
                yield Symptom(tensor, modes.get(mode) or next(iter(modes.values())))
