"""How long ``import tornasole`` takes in a fresh process."""

from __future__ import annotations

import statistics
import subprocess
import sys

from benchmarks.measuring import Result

_PROGRAM = """
import time
start = time.perf_counter()
import tornasole
print(time.perf_counter() - start)
"""


def measure() -> list[Result]:
    times = [
        float(
            subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, check=True).stdout
        )
        for _ in range(21)
    ]
    return [Result("import tornasole", round(statistics.median(times) * 1e3, 2), "ms", bound=50.0)]
