"""All rules over the statistics of a long run, and following a run while it is written."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.measuring import Result, scratch
from tornasole import Hook, ReductionConfig, SaveConfig
from tornasole.rules import Severity, check
from tornasole.types import Role

FRAMEWORKS = ()

_STEPS, _TENSORS = 1_000, 500
_LIVE_SECONDS = 20
_ROLES = (Role.WEIGHT, Role.GRADIENT, Role.LAYER_OUTPUT, Role.LAYER_INPUT, Role.BIAS)
_STATISTICS = ReductionConfig(
    reductions=["min", "max", "mean", "std", "variance"], norms=["l1", "l2"]
)


def measure() -> list[Result]:
    with scratch() as folder:
        return [_check(folder / "whole"), _watch(folder / "live")]


def _record(hook: Hook, random: np.random.Generator, step: int) -> None:
    hook.begin_step()
    values = random.normal(size=(4, 4))
    for number in range(_TENSORS - 2):
        role = _ROLES[number % len(_ROLES)]
        hook._recorder.record(f"{role.value}/{number}", role, values + number)
    for name in ("loss", "val_loss"):
        hook._recorder.record(name, Role.LOSS, 1 / (step + 1) + random.normal() / 100)


def _check(folder: Path) -> Result:
    random = np.random.default_rng(0)
    every = SaveConfig(save_interval=1)
    with Hook(folder, save_all=True, save_config=every, reduction_config=_STATISTICS) as hook:
        for step in range(_STEPS):
            _record(hook, random, step)
    start = time.perf_counter()
    report = check(folder)
    took = time.perf_counter() - start
    assert report.steps == _STEPS
    failed = [f for f in report.findings if "The rule itself failed" in f.message]
    assert not failed, failed
    return Result(
        f"checking {_STEPS:,} steps × {_TENSORS} tensors of statistics with all rules",
        round(took, 2),
        "s",
        bound=10,
        details={
            "findings": len(report.findings),
            "critical": sum(f.severity is Severity.CRITICAL for f in report.findings),
        },
    )


_LIVE = """
import sys, time
import numpy as np
from tornasole import Hook, SaveConfig
from benchmarks.rules_speed import _STATISTICS, _record

random = np.random.default_rng(0)
every = SaveConfig(save_interval=1)
with Hook(sys.argv[1], save_all=True, save_config=every, reduction_config=_STATISTICS) as hook:
    begin, step = time.monotonic(), 0
    while time.monotonic() < begin + float(sys.argv[2]):
        _record(hook, random, step)
        step += 1
        time.sleep(0.5)
"""


def _watch(folder: Path) -> Result:
    """The processor time of a process that follows a run of a step every half second."""
    job = subprocess.Popen([sys.executable, "-c", _LIVE, str(folder), str(_LIVE_SECONDS)])
    while not (folder / "trial.json").exists():
        time.sleep(0.05)
    code = (
        "import resource, sys, time\n"
        "from tornasole.rules import watch\n"
        "start = time.monotonic(), sum(resource.getrusage(resource.RUSAGE_SELF)[:2])\n"
        "watch(sys.argv[1])\n"
        "used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2]) - start[1]\n"
        "print(used / (time.monotonic() - start[0]))\n"
    )
    output = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True
    ).stdout
    job.wait()
    return Result(
        f"processor time of following a live run with all rules ({_TENSORS} tensors, 2 steps a "
        "second), of one core",
        round(100 * float(output.split()[-1]), 2),
        "%",
        bound=5,
    )
