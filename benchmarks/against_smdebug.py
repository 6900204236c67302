"""The same training under smdebug 1.0.34 and under Tornasole, side by side.

smdebug needs an old NumPy, so it has an environment of its own, ``.venv-smdebug``, built on demand.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.measuring import Result, alternate, milliseconds, scratch

_ROOT = Path(__file__).parents[1]
_ENVIRONMENT = _ROOT / ".venv-smdebug"
_REQUIREMENTS = (
    "smdebug==1.0.34", "torch==2.13.0", "numpy==1.26.4", "protobuf==3.20.3", "pandas<2.3",
    "setuptools<81", "requests", "psutil", "boto3", "bokeh",
)  # fmt: skip
_FORMS = ("nothing", "raw", "reductions")
_ROUNDS = 9
_STEPS = 3  # in a block, of which the first is not counted


def measure() -> list[Result]:
    pythons = {"tornasole": sys.executable, "smdebug": _smdebug_python()}
    times: dict[tuple[str, str], list[float]] = {}
    sizes: dict[tuple[str, str], list[float]] = {}
    with scratch() as folder, ExitStack() as stack:
        peers = {}
        for library, python in pythons.items():
            for form in _FORMS:
                key = (library, form)
                times[key], sizes[key] = [], []
                peers[key] = stack.enter_context(
                    _peer(python, library, form, folder / f"{library}-{form}")
                )

        def block(key: tuple[str, str]) -> None:
            answer = _ask(peers[key])
            times[key] += answer["times"][1:]
            sizes[key].append(answer["bytes"] / _STEPS)

        for process in peers.values():
            _ask(process)  # warms it up
        alternate(_ROUNDS, *(lambda key=key: block(key) for key in peers))

    medians = {key: statistics.median(values) for key, values in times.items()}
    results = []
    for form, bound in (("raw", 5.0), ("reductions", 10.0)):
        ours, theirs = (
            medians[each, form] - medians[each, "nothing"] for each in ("tornasole", "smdebug")
        )
        details = {
            f"{each} {form}, step in ms": milliseconds(times[each, form]) for each in pythons
        }
        details |= {
            f"{each} without hook, step in ms": milliseconds(times[each, "nothing"])
            for each in pythons
        }
        details |= {
            f"added by {each}, ms": round(t * 1e3, 2)
            for each, t in zip(pythons, (ours, theirs), strict=True)
        }
        if form == "raw":
            details |= {
                f"{each}, MB per step": round(statistics.median(sizes[each, form]) / 1e6)
                for each in pythons
            }
        results.append(
            Result(
                f"time that smdebug adds to a step for {form}, of what Tornasole adds",
                round(theirs / max(ours, 1e-6), 2),
                bound=bound,
                sense="≥",
                details=details,
            )
        )
    return results


def _smdebug_python() -> str:
    python = _ENVIRONMENT / "bin" / "python"
    ready = _ENVIRONMENT / ".ready"
    if not ready.exists() or ready.read_text().split("\n") != list(_REQUIREMENTS):
        print("building .venv-smdebug …", end=" ", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", _ENVIRONMENT], check=True)
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, *_REQUIREMENTS], check=True)
        ready.write_text("\n".join(_REQUIREMENTS))
    return str(python)


@contextmanager
def _peer(python: str, library: str, form: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    # Without PYTHONPATH: our own src/ holds a package named smdebug as well.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [python, "-m", "benchmarks.peer", library, form, str(folder)]
    with open(folder.with_suffix(".log"), "w") as log, subprocess.Popen(
        command, cwd=_ROOT, env=environment, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.stdin.close()
            process.wait()


def _ask(process: subprocess.Popen[str]) -> dict[str, list[float]]:
    process.stdin.write(f"{_STEPS}\n")
    process.stdin.flush()
    for line in process.stdout:
        if line.startswith("{"):
            return json.loads(line)
    raise RuntimeError(f"{process.args} ended with {process.wait()}.")
