"""A training job that is killed leaves a trial of whole steps that says so."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from tornasole.trial import create_trial

KILLS = 50
PATIENCE = 60.0


@pytest.fixture
def start():
    """Starts a training job; returns its number."""
    script = Path(__file__).with_name("training_process.py")
    server = subprocess.Popen(
        [sys.executable, str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )

    def ask(path: Path) -> int:
        server.stdin.write(f"{path}\n")
        server.stdin.flush()
        return int(server.stdout.readline())

    yield ask
    server.stdin.close()
    server.wait(PATIENCE)
    server.stdout.close()


def wait_until(condition) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_killed_training_job_leaves_whole_steps_and_says_that_it_was_interrupted(start, tmp_path):
    chance = random.Random(0)
    for number in range(KILLS):
        path = tmp_path / str(number)
        job = start(path)
        wait_until(lambda path=path: list(path.glob("worker_0/*.parquet")))
        time.sleep(chance.random() * 0.1)  # the moment must be any
        os.kill(job, signal.SIGKILL)
        wait_until(lambda job=job: is_gone(job))
        trial = create_trial(path)
        assert trial.state == "interrupted"
        assert trial.loaded_all_steps
        steps = trial.steps()
        assert steps == list(range(len(steps)))
        assert steps
        counts = np.bincount(trial.to_arrow(["step"]).column("step").to_numpy())
        assert len(set(counts.tolist())) == 1
        for name, values in trial.values(steps=[steps[0], steps[-1]]).items():
            assert len(values) == len({steps[0], steps[-1]}), name
            assert all(np.isfinite(value).all() for value in values.values()), name
