"""The sign by which a job is asked to stop: ``stop.json`` in its trial.

Who wants it stopped writes it without a step. The first worker that sees it writes down at which
step all of them stop, so that none waits for another that is gone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from tornasole.errors import CorruptTrial, ObjectNotFound
from tornasole.format import layout
from tornasole.store import Store, open_store

_KEY = "stop.json"


@dataclass(frozen=True)
class Stop:
    """A wish to stop.

    Attributes:
        reason: Why, for people.
        at_step: The global step that does not begin any more; ``None``: nobody has set one yet.
    """

    reason: str
    at_step: int | None = None


class StopSign:
    """The sign of one trial, to look at and to put up."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @classmethod
    def of(cls, address: str) -> StopSign:
        """The sign of the trial at the address."""
        return cls(open_store(address))

    def look(self) -> Stop | None:
        """The wish to stop, if there is one. A few microseconds where the trial is a folder.

        Raises:
            CorruptTrial: There is something else in its place.
            OSError: It cannot be read.
        """
        try:
            self._store.size(_KEY)
        except ObjectNotFound:
            return None
        where = f"{self._store.url}/{_KEY}"
        content = layout.parse_object(self._store.get(_KEY), where)
        reason, step = content.get("reason"), content.get("at_step")
        if not isinstance(reason, str) or not (step is None or type(step) is int):
            raise CorruptTrial(f"{where} is damaged: it is no wish to stop.")
        return Stop(reason, step)

    def put(self, stop: Stop) -> None:
        """Asks for it. A wish without a step does not take the place of another."""
        content = json.dumps({"reason": stop.reason, "at_step": stop.at_step}).encode()
        try:
            self._store.put(_KEY, [content], overwrite=stop.at_step is not None)
        except FileExistsError:
            pass
