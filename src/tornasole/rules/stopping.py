"""Stopping a job from outside: a sign in its trial and, where that does not help, a signal."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Mapping
from typing import Any

from tornasole.errors import SMDebugError
from tornasole.format import Stop, StopSign, TrialReader
from tornasole.trial import Trial, create_trial
from tornasole.trial.collection_files import CollectionFiles
from tornasole.trial.liveness import is_here
from tornasole.trial.refreshing import no_refresh

log = logging.getLogger("tornasole")

GRACE_SECONDS = 30.0


def stop_job(trial: Trial | str | os.PathLike[str], reason: str) -> None:
    """Asks the job that writes a trial to stop: its hook does so where the next step would begin.

    Does nothing if the job is over.
    """
    trial = trial if isinstance(trial, Trial) else create_trial(trial)
    with no_refresh(trial):
        trial.refresh_data()
        if not trial.loaded_all_steps:
            StopSign.of(trial.path).put(Stop(reason))


class Stopping:
    """Stops one job, and insists.

    A job that has not ended some time after it was asked to is sent SIGTERM, if it certainly runs
    on this machine, in this space of process numbers.

    Args:
        grace: Seconds to wait for the job; ``None``: for ever.
    """

    def __init__(self, trial: Trial, grace: float | None = GRACE_SECONDS) -> None:
        self._trial, self._grace = trial, grace
        self._asked: float | None = None
        self._insisted = False

    @property
    def is_asked(self) -> bool:
        """Whether the job has been asked to stop."""
        return self._asked is not None

    def ask(self, reason: str) -> None:
        """Asks the job to stop."""
        if self._asked is not None:
            return
        self._asked = time.monotonic()
        try:
            StopSign.of(self._trial.path).put(Stop(reason))
        except (OSError, SMDebugError) as error:
            log.error("The job cannot be asked to stop: %s", error)

    def insist(self) -> None:
        """Sends the signal if it is time. To be called now and then."""
        if self._asked is None or self._insisted or self._grace is None:
            return
        if time.monotonic() - self._asked < self._grace:
            return
        self._insisted = True
        for worker, process in _unfinished(self._trial.path).items():
            if _terminate(process):
                log.warning(
                    "%s has not stopped within %g s; its process %s was sent SIGTERM.",
                    worker,
                    self._grace,
                    process["pid"],
                )
            else:
                log.warning(
                    "%s has not stopped within %g s; its process is not known to be on this "
                    "machine, so it was not sent a signal.",
                    worker,
                    self._grace,
                )


def _unfinished(path: str) -> dict[str, Mapping[str, Any]]:
    """The workers without a last word, and their processes."""
    reader = TrialReader.open(path)
    files = CollectionFiles(reader)
    return {
        worker: files.process(worker) for worker in reader.workers if reader.end(worker) is None
    }


def _terminate(process: Mapping[str, Any]) -> bool:
    """Sends SIGTERM to a process, if it is surely the one that is meant."""
    if not hasattr(os, "pidfd_open") or not is_here(process):
        return False
    try:
        handle = os.pidfd_open(process["pid"])
    except OSError:
        return False
    try:
        # The handle stays with the process that has the number now: look again whose it is.
        if not is_here(process):
            return False
        signal.pidfd_send_signal(handle, signal.SIGTERM)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True
