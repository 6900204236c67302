"""From a path to a trial."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from tornasole.errors import (
    SMDebugNotImplementedError,
    SMDebugTypeError,
    SMDebugValueError,
    TrialNotFound,
)
from tornasole.trial.trial import Trial, pause


def create_trial(
    path: str | os.PathLike[str] | None = None,
    name: str | None = None,
    profiler: bool = False,
    output_dir: str = "/opt/ml/processing/outputs/",
    *,
    out_dir: str | os.PathLike[str] | None = None,
    range_steps: Sequence[int | None] | None = None,
    check: bool = False,
    index_mode: bool = True,
    cache: bool = False,
    parallel: bool = True,
    wait: float | None = 0,
) -> Trial:
    """Opens the trial at a path, whether its run is going on or over.

    Args:
        path: A folder or any address that a store opens; ``out_dir`` is another name for it.
        name: What to call the trial; without, the last part of its path.
        profiler: Profiler data are not read: must be false.
        output_dir: Accepted for old scripts, like ``check``, ``index_mode`` and ``parallel``;
            without effect.
        range_steps: Read only the global steps from the first number on and before the second.
        cache: Whether raw values, once read, stay in memory.
        wait: Seconds to wait for a trial that is not there yet; ``True`` or infinity: as long as it
            takes.

    Raises:
        TrialNotFound: There is no trial at the path.
        WaitTimeout: None appeared there in time.
    """
    if profiler:
        raise SMDebugNotImplementedError(
            "create_trial(profiler=True): profiler data cannot be read, only tensors."
        )
    if (path is None) == (out_dir is None):
        raise SMDebugValueError("create_trial() needs a path: path= or out_dir=, not both.")
    address = _address(path if path is not None else out_dir)
    name = _last_part(address) if name is None else name
    patient = wait is True or wait == float("inf")
    deadline = None if patient else time.monotonic() + (wait or 0)
    while True:
        try:
            return Trial(name, address, range_steps, check, index_mode, cache)
        except TrialNotFound:
            if not wait:
                raise
            pause(deadline, f"No trial appeared at {address} in {wait} s.")


class LocalTrial(Trial):
    """A trial in a local folder, by the constructor of old scripts; ``create_trial`` opens any."""

    def __init__(
        self,
        name: str,
        dirname: str | os.PathLike[str],
        range_steps: Sequence[int | None] | None = None,
        parallel: bool = True,
        check: bool = False,
        index_mode: bool = True,
        cache: bool = False,
    ) -> None:
        super().__init__(name, dirname, range_steps, check, index_mode, cache)


class S3Trial(Trial):
    """A trial in an S3 bucket, by the constructor of old scripts; ``create_trial`` opens any."""

    def __init__(
        self,
        name: str,
        bucket_name: str,
        prefix_name: str,
        range_steps: Sequence[int | None] | None = None,
        check: bool = False,
        index_mode: bool = True,
        cache: bool = False,
    ) -> None:
        path = f"s3://{bucket_name}/{prefix_name}"
        super().__init__(name, path, range_steps, check, index_mode, cache)


def _address(given: object) -> str:
    if not isinstance(given, (str, os.PathLike)):
        kind = type(given).__name__
        raise SMDebugTypeError(f"The path of a trial must be a string or a path, not {kind}.")
    address = os.fspath(given).strip()
    if not address:
        raise SMDebugValueError("The path of a trial is empty.")
    return str(address)


def _last_part(address: str) -> str:
    return address.rstrip("/").rpartition("/")[2]
