"""The one boundary between our faults and the user's training."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from tornasole.errors import SMDebugValueError

log = logging.getLogger("tornasole")

OnError = Literal["warn", "raise"]
T = TypeVar("T")


class Guard:
    """Runs our code for the framework. After the first fault it stands aside: nothing more is run.

    Args:
        on_error: ``"warn"`` logs the fault and lets training go on; ``"raise"`` raises it into training.
        stand_aside: Called once, with the fault, so that the hook lets go of the model.
    """

    def __init__(self, on_error: OnError, stand_aside: Callable[[Exception], None]) -> None:
        if on_error not in ("warn", "raise"):
            raise SMDebugValueError(f"on_error must be 'warn' or 'raise', not {on_error!r}.")
        self._raises = on_error == "raise"
        self._stand_aside = stand_aside
        self._to_raise: Exception | None = None
        self.fault: Exception | None = None

    def run(self, function: Callable[..., T], *args: Any) -> T | None:
        """Calls the function; a fault of it is logged or raised, as the user chose."""
        if self.fault is not None:
            if self._to_raise is not None:
                fault, self._to_raise = self._to_raise, None
                raise fault
            return None
        try:
            return function(*args)
        except Exception as fault:
            self._fail(fault)
            if self._raises:
                raise
            return None

    def run_in_thread(self, function: Callable[[], None]) -> None:
        """Calls the function on a thread of ours; a fault that is to be raised waits for the training thread."""
        try:
            function()
        except Exception as fault:
            if self._raises:
                self._to_raise = fault
            self._fail(fault)

    def _fail(self, fault: Exception) -> None:
        if self.fault is not None:
            return
        self.fault = fault
        if not self._raises:
            log.error(
                "Saving tensors failed and is switched off for the rest of this job; training goes on. What was "
                "saved before is readable. Cause: %s: %s",
                type(fault).__name__,
                fault,
                exc_info=fault,
            )
        self._stand_aside(fault)
