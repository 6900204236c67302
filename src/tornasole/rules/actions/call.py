"""The action that calls a function of the user's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tornasole.errors import SMDebugTypeError
from tornasole.rules.actions.contract import Action, Occasion, Undone
from tornasole.rules.finding import Finding


@dataclass(frozen=True)
class Call(Action):
    """Calls a function with the finding, on a thread of its own."""

    function: Callable[[Finding], Any]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.function):
            raise SMDebugTypeError(f"Call takes a function, not {self.function!r}.")

    def perform(self, occasion: Occasion) -> None:
        try:
            self.function(occasion.finding)
        except Exception as error:
            # The one boundary around a user's callable: whatever it raises, nothing stops.
            name = getattr(self.function, "__name__", repr(self.function))
            raise Undone(f"{name} raised {type(error).__name__}: {error}") from error
