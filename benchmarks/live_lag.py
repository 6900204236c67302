"""How far a reader is behind a live run: from a step's end until another process sees it whole.

A process writes small steps with hardly a pause; this one follows it and compares the time in each
new row with the clock.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

import numpy as np

from benchmarks.measuring import Result
from tornasole.errors import TrialNotFound
from tornasole.format import Record, StepRecords, TrialReader, TrialWriter
from tornasole.types import ModeKeys

_TENSORS = 20
_PAUSE = 0.002


def measure(seconds: float = 30.0) -> list[Result]:
    """Follows a live run; the slowest step counts."""
    found = follow(seconds)
    what = "the slowest step of a live run becomes visible to another process"
    return [Result(what, found["max_s"], "s", bound=2.0, details=found)]


def follow(seconds: float) -> dict[str, Any]:
    """Follows a run of that length.

    Returns:
        The number of steps, how many refreshes saw something new, and the median, 99th percentile
        and maximum of the time from the end of a step until it was seen.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.live_lag", folder, str(seconds)]
        job = subprocess.Popen(command)
        try:
            lags, refreshes = _follow(folder, job, seconds + 60)
        finally:
            job.wait()
    return {
        "steps": len(lags),
        "refreshes": refreshes,
        "median_s": round(statistics.median(lags), 3),
        "p99_s": round(sorted(lags)[len(lags) * 99 // 100], 3),
        "max_s": round(max(lags), 3),
    }


def _follow(folder: str, job: subprocess.Popen[bytes], patience: float) -> tuple[list[float], int]:
    deadline = time.monotonic() + patience
    reader: TrialReader | None = None
    lags: list[float] = []
    refreshes = rows = 0
    while time.monotonic() < deadline:
        over = job.poll() is not None
        try:
            reader = reader or TrialReader.open(folder)
        except TrialNotFound:
            reader = None
        if reader is not None:
            reader.refresh()
            now = time.time()
            new = reader.column("time")[rows:]
            if len(new) % _TENSORS:
                raise AssertionError(f"a step is not whole: {len(new)} new rows")
            if len(new):
                refreshes += 1
                rows += len(new)
                lags += (now - new[::_TENSORS] / 1e6).tolist()
        if over:
            return lags, refreshes
        time.sleep(0.01)
    raise TimeoutError(f"The job at {folder} did not end.")


def _train(folder: str, seconds: float) -> None:
    """The job: raw values, statistics and a scalar in every step."""
    writer = TrialWriter.open(folder, "worker_0")
    writer.claim({"workers": 1, "framework": "none"})
    thread = threading.Thread(target=writer.run)
    thread.start()
    value = np.zeros(1000, np.float32)
    statistics_of_it = {"min": 0.0, "max": 0.0, "mean": 0.0, "count": 1000}
    start, number = time.monotonic(), 0
    while time.monotonic() - start < seconds:
        now = time.time()
        records = [Record("loss", "loss", (), "float32", (), now, value=1.0)]
        for i in range(1, _TENSORS):
            record = Record(f"weight_{i}", "weight", ("weights",), "float32", (1000,), now)
            if i % 10 == 1:
                record.raw = memoryview(value.tobytes())
            else:
                record.statistics = statistics_of_it
            records.append(record)
        writer.submit(StepRecords(number, ModeKeys.TRAIN, number, records))
        number += 1
        time.sleep(_PAUSE)
    writer.finish()
    thread.join()
    writer.put_end({"clean": True})


if __name__ == "__main__":
    _train(sys.argv[1], float(sys.argv[2]))
