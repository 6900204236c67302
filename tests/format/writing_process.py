"""Forks processes that write trials until they are killed or done; run by ``test_processes.py``.

Reads one JSON object per line: ``path``, ``steps`` (none: without end), ``pause`` in seconds
between steps. Answers with the number of the process. Importing once and forking often makes a
killed run cost milliseconds.
"""

import json
import os
import signal
import socket
import sys
import threading
import time

import numpy as np

from tornasole.format import Record, StepRecords, TrialWriter, segment
from tornasole.format.writer import Limits
from tornasole.store.memory import MemoryStore
from tornasole.types import ModeKeys


def step(number: int) -> StepRecords:
    """Some raw values of sizes that vary, and a scalar that says how many rows there are."""
    now = time.time()
    arrays = [np.full(1 + (number + i) % 50, number * 10 + i, "f4") for i in range(1 + number % 4)]
    records = [
        Record(f"w{i}", "weight", (), "float32", a.shape, now, raw=memoryview(a.tobytes()))
        for i, a in enumerate(arrays)
    ]
    rows = Record("rows", "scalar", (), "float64", (), now, value=float(len(records) + 1))
    return StepRecords(number, ModeKeys.TRAIN, number, [*records, rows])


def write(path: str, steps: int | None, pause: float) -> None:
    writer = TrialWriter.open(path, "worker_0", Limits(seconds=0.003, fan_in=3, rows=600))
    writer.claim({"workers": 1, "framework": "none"})
    process = {"host": socket.gethostname(), "pid": os.getpid()}
    writer.put_collections({"collections": {}, "_meta": {"num_workers": 1, "process": process}})
    thread = threading.Thread(target=writer.run)
    thread.start()
    number = 0
    while steps is None or number < steps:
        writer.submit(step(number))
        number += 1
        time.sleep(pause)
    writer.finish()
    thread.join()
    writer.put_end({"clean": True, "last_step": number - 1})


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the children
    segment.write(MemoryStore(), "worker_0", 0, [step(0)])  # pyarrow imports more on first use
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            try:
                write(**json.loads(line))
            finally:
                os._exit(0)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
