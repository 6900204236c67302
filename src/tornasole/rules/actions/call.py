"""The action that calls a function of the user's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tornasole.errors import SMDebugTypeError
from tornasole.rules.actions.contract import Action, Occasion
from tornasole.rules.finding import Finding


@dataclass(frozen=True)
class Call(Action):
    """Calls a function with the finding, on a thread of its own."""

    function: Callable[[Finding], Any]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.function):
            raise SMDebugTypeError(f"Call takes a function, not {self.function!r}.")

    @property
    def identity(self) -> str:
        name = getattr(self.function, "__qualname__", type(self.function).__name__)
        return f"Call-{getattr(self.function, '__module__', '')}.{name}"

    def perform(self, occasion: Occasion) -> None:
        self.function(occasion.finding)
