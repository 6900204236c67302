"""A long run: a scalar at each of 1,000,000 steps, statistics of 500 tensors at every 1,000th.

How many files that makes, what it costs the training thread, whether the writer's memory grows, and
how fast the trial opens and yields its numbers. Writer and reader are processes of their own.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measuring import Result, scratch, seconds

_STEPS, _EVERY, _TENSORS = 1_000_000, 1_000, 500
_SEGMENTS = 4_000  # of one step each, as if each had been a second's


def measure() -> list[Result]:
    with scratch() as folder:
        written = _in_process("write", folder / "trial")
        closed = _count_files(folder / "trial")
        read = [_in_process("read", folder / "trial") for _ in range(5)]
        slow = _in_process("write_slowly", folder / "slow")
    opening, values, mapping = (
        statistics.median(run[key] for run in read) for key in ("open", "series", "values")
    )
    return [
        Result(
            "files while the run is live",
            max(written["files"], slow["files"]),
            "",
            bound=3000,
            details={
                f"{_STEPS:,} steps at full speed": written["files"],
                f"{_SEGMENTS:,} segments, one per step": slow["files"],
            },
        ),
        Result("files after close", closed, "", bound=50),
        Result(
            "memory in the last quarter of the run, of that in the second quarter",
            written["growth"],
            bound=1.25,  # merging leaves peaks; 200 bytes lost per step would make it 1.3
            details={"resident, MB, at each tenth": written["memory"]},
        ),
        Result("create_trial", round(opening, 3), "s", bound=1.0),
        Result(
            f"{_STEPS:,} values of one tensor, as two arrays",
            round(values, 3),
            "s",
            bound=0.5,
            details={"the same as a dictionary of arrays (Tensor.values), s": round(mapping, 3)},
        ),
        Result(
            "training thread: a step with one scalar",
            written["step"],
            "µs",
            details={
                "the whole run, s": written["total"],
                f"{_TENSORS} tensors' statistics by save_tensor, ms": written["reduced"],
                "close, s": written["close"],
            },
        ),
    ]


def _in_process(role: str, folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.long_run", role, str(folder)]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(answer.splitlines()[-1])


def _write(folder: Path) -> dict[str, Any]:
    from tornasole import Hook, ReductionConfig, SaveConfig

    hook = Hook(folder, save_config=SaveConfig(start_step=2 * _STEPS), on_error="raise")
    config = ReductionConfig(reductions=["min", "max", "mean", "std"], norms=["l1", "l2"])
    hook.get_collection("reduced").reduction_config = config
    tensors = {f"tensor_{i}": np.random.default_rng(i).normal(size=64) for i in range(_TENSORS)}
    memory: list[float] = []
    reduced: list[float] = []
    with _FileCounter(folder) as counter:
        start = time.perf_counter()
        for step in range(_STEPS):
            hook.begin_step()
            hook.save_scalar("loss", step * 0.5)
            if step % _EVERY == _EVERY - 1:
                begin = time.perf_counter()
                for name, value in tensors.items():
                    hook.save_tensor(name, value, "reduced")
                reduced.append(time.perf_counter() - begin)
                memory.append(_resident())
        total = time.perf_counter() - start
        close = seconds(hook.close)
    quarter = len(memory) // 4
    early, late = memory[quarter : 2 * quarter], memory[-quarter:]
    return {
        "files": counter.most,
        # Medians, because the queue may be anywhere between empty and full, and merging has peaks.
        "growth": round(statistics.median(late) / statistics.median(early), 3),
        "memory": [round(value) for value in memory[:: len(memory) // 10]],
        "step": round((total - sum(reduced)) / _STEPS * 1e6, 2),
        "reduced": round(statistics.median(reduced) * 1e3, 2),
        "total": round(total, 1),
        "close": round(close, 2),
    }


def _write_slowly(folder: Path) -> dict[str, Any]:
    """As if the run took hours: every step becomes a segment of its own."""
    from tornasole.format import Record, StepRecords, TrialWriter
    from tornasole.format.writer import Limits
    from tornasole.types import ModeKeys

    writer = TrialWriter.open(str(folder), "worker_0", Limits(seconds=0.0))
    thread = threading.Thread(target=writer.run)
    with _FileCounter(folder) as counter:
        thread.start()
        for step in range(_SEGMENTS):
            written = threading.Event()
            record = Record("loss", "scalar", ("default",), "float64", (), time.time(), 0.5)
            writer.submit(StepRecords(step, ModeKeys.GLOBAL, step, [record], written.set))
            written.wait()
        writer.finish()
        thread.join()
    return {"files": counter.most}


def _read(folder: Path) -> dict[str, Any]:
    from tornasole import create_trial

    start = time.perf_counter()
    trial = create_trial(folder)
    opening = time.perf_counter() - start
    gc.collect()
    start = time.perf_counter()
    steps, numbers = trial.tensor("scalar/loss").series()
    series = time.perf_counter() - start
    if len(steps) != _STEPS or numbers[-1] != (_STEPS - 1) * 0.5:
        raise AssertionError(f"{len(steps)} values, the last {numbers[-1]}")
    values = seconds(lambda: trial.tensor("scalar/loss").values())
    return {"open": opening, "series": series, "values": values}


class _FileCounter:
    """Counts the files in a folder now and then, and keeps the largest number."""

    def __init__(self, folder: Path) -> None:
        self.most = 0
        self._folder, self._over = folder, threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> _FileCounter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.2):
            self.most = max(self.most, _count_files(self._folder))


def _count_files(folder: Path) -> int:
    return sum(len(files) for _, _, files in os.walk(folder))


def _resident() -> float:
    """This process's memory in MB."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    roles = {"write": _write, "write_slowly": _write_slowly, "read": _read}
    print(json.dumps(roles[sys.argv[1]](Path(sys.argv[2]))))
