"""Runs the measurements named on the command line, or all; fails if a bound does not hold."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from benchmarks.measuring import Result

# Each measurement, and what tells the environment that it runs in: torch is in the modern one
# only, MXNet in the legacy one.
_NAMES = {
    "import_time": "torch",
    "nothing_due": "torch",
    "nothing_due_keras": "torch",
    "nothing_due_keras_2": "mxnet",
    "nothing_due_mxnet": "mxnet",
    "xgboost_rounds": "torch",
    "rules_speed": "torch",
    "raw": "torch",
    "reductions": "torch",
    "long_run": "torch",
    "live_lag": "torch",
    "against_smdebug": "torch",
}
_RESULTS = Path(__file__).with_name("results")
_MARKS = {None: "", True: "holds", False: "FAILS"}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"one of {', '.join(_NAMES)}")
    parser.add_argument(
        "--no-fail", action="store_true", help="report only: exit with 0 in any case"
    )
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(_NAMES))
    if unknown:
        parser.error(f"no measurement {', '.join(unknown)}; there are {', '.join(_NAMES)}")

    here = [name for name in _NAMES if find_spec(_NAMES[name])]
    missing = [name for name in arguments.names if name not in here]
    if missing:
        parser.error(f"{missing[0]} needs {_NAMES[missing[0]]}, which is not in this environment")

    failed = False
    for name in arguments.names or here:
        print(f"{name} …", end=" ", flush=True)
        start = time.perf_counter()
        measurement = importlib.import_module(f"benchmarks.{name}")
        results = measurement.measure()
        print(f"{time.perf_counter() - start:.0f} s")
        for result in results:
            print("  " + _line(result))
        machine = _machine(getattr(measurement, "FRAMEWORKS", (_NAMES[name],)))
        failed |= any(result.passed is False for result in results)
        _keep(name, machine, results)
    _write_latest()
    print(f"\nEverything is in {_RESULTS / 'latest.md'}.")
    return 1 if failed and not arguments.no_fail else 0


def _line(result: Result) -> str:
    bound = "" if result.bound is None else f"{result.sense} {result.bound:g} {result.unit}"
    return (
        f"{result.value:>10g} {result.unit:<3} {bound:<12} {_MARKS[result.passed]:<6} {result.what}"
    )


def _machine(frameworks: Sequence[str]) -> str:
    """The machine in words: only what a number depends on."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(
            line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")
        )
    except (OSError, StopIteration):
        pass  # not Linux
    versions = [f"{each} {version(each)}" for each in (*frameworks, "numpy", "pyarrow")]
    return (
        f"{os.cpu_count()} cores of {model}, {memory:.0f} GiB of memory; "
        f"Python {platform.python_version()}, {', '.join(versions)}"
    )


def _keep(name: str, machine: str, results: Sequence[Result]) -> None:
    _RESULTS.mkdir(exist_ok=True)
    now = datetime.now(timezone.utc)
    content = {
        "measurement": name,
        "date": now.isoformat(timespec="seconds"),
        "machine": machine,
        "results": [{**asdict(result), "passed": result.passed} for result in results],
    }
    path = _RESULTS / f"{now.date()}-{name}.json"
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def _write_latest() -> None:
    """One page with the latest result of each measurement."""
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench`. The newest result of each measurement.",
        "",
    ]
    for name in _NAMES:
        kept = sorted(_RESULTS.glob(f"*-{name}.json"))
        if not kept:
            continue
        content = json.loads(kept[-1].read_text())
        lines += [f"## {name}", "", f"{content['date'][:10]}, {content['machine']}.", ""]
        lines += ["| measured | value | bound | |", "|---|---:|---:|---|"]
        for entry in content["results"]:
            bound = "" if entry["bound"] is None else f"{entry['sense']} {entry['bound']:g}"
            value = f"{entry['value']:g} {entry['unit']}"
            lines.append(f"| {entry['what']} | {value} | {bound} | {_MARKS[entry['passed']]} |")
        for entry in content["results"]:
            if entry["details"]:
                numbers = "; ".join(f"{key}: {value}" for key, value in entry["details"].items())
                lines += ["", f"*{entry['what']}*: {numbers}."]
        lines.append("")
    (_RESULTS / "latest.md").write_text("\n".join(lines))


if __name__ == "__main__":
    sys.exit(main())
