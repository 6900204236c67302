"""The one boundary between our faults and the user's training."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from tornasole.errors import SMDebugValueError

log = logging.getLogger("tornasole")

OnError = Literal["warn", "raise"]
T = TypeVar("T")


class NotOurs(Exception):
    """An error of the user's own computation, which reading its result brought to light.

    Frameworks that compute asynchronously tell it to the first who looks, and to nobody after.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Guard:
    """Runs our code for the framework. After the first fault it stands aside: nothing more is run.

    One thread at a time, with ``lock``: a model may run in several.

    Args:
        on_error: ``"warn"`` logs the fault and lets training go on; ``"raise"`` raises it into
            training.
        stand_aside: Called once after a fault, on the training thread, so that the hook lets go of
            the model.
        what_remains: Says what is saved in spite of a fault.
    """

    def __init__(
        self,
        on_error: OnError,
        stand_aside: Callable[[], None],
        what_remains: Callable[[], str] = lambda: "What was written before is readable.",
    ) -> None:
        if on_error not in ("warn", "raise"):
            raise SMDebugValueError(f"on_error must be 'warn' or 'raise', not {on_error!r}.")
        self._raises = on_error == "raise"
        self._stand_aside, self._what_remains = stand_aside, what_remains
        self.lock = threading.RLock()
        self._unmet: Exception | None = None  # a fault of run_apart that training has not met yet
        self.fault: Exception | None = None
        self.passed_on: Exception | None = None  # the last error that was not ours

    def run(self, function: Callable[..., T], *args: Any) -> T | None:
        """Calls the function; a fault of it is logged or raised, as the user chose."""
        with self.lock:
            if self.fault is not None:
                self.meet()
                return None
            try:
                return function(*args)
            except NotOurs as found:
                self.passed_on = found.error
                raise found.error from None
            except Exception as fault:
                self._note(fault)
                self._stand_aside()
                if self._raises:
                    raise
                return None

    def run_apart(self, function: Callable[..., None], *args: Any) -> None:
        """Calls the function where the model must not be touched: on our thread, in others' loops.

        Training meets a fault of it at the next ``run`` or ``meet``.
        """
        if self.fault is not None:
            return
        try:
            function(*args)
        except Exception as fault:  # noqa: BLE001 - this is the guard
            if self.fault is None:
                self._unmet = fault
                self._note(fault)

    def tell(self, problem: Exception) -> None:
        """A mistake of the user's that need not stop the rest: logged, or raised."""
        if self._raises:
            raise problem
        log.error("%s It is left out; everything else is saved.", problem)

    def meet(self) -> None:
        """On the training thread: stands aside for a fault of ``run_apart``, or raises it."""
        fault, self._unmet = self._unmet, None
        if fault is not None:
            self._stand_aside()
            if self._raises:
                raise fault

    def _note(self, fault: Exception) -> None:
        self.fault = fault
        if not self._raises:
            log.error(
                "Saving tensors failed and is switched off for the rest of this job; training goes "
                "on. %s Cause: %s: %s",
                self._what_remains(),
                type(fault).__name__,
                fault,
                exc_info=fault,
            )


class Callback:
    """What a framework calls: a function of ours, guarded.

    Copies of a model carry an empty one: nobody watches them.
    """

    def __init__(self, guard: Guard, function: Callable[..., None], *bound: Any) -> None:
        self._guard, self._function, self._bound = guard, function, bound

    def __call__(self, *args: Any) -> None:
        self._guard.run(self._function, *self._bound, *args)

    def __reduce__(self) -> tuple[Any, ...]:
        return _empty_callback, ()


def _empty_callback() -> Callable[..., None]:
    return _do_nothing


def _do_nothing(*args: Any) -> None:
    """Stands in a copied or loaded model where a callback of ours was."""
