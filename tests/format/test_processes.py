"""Live and killed runs, with real processes."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tornasole.errors import TrialNotFound
from tornasole.format import TrialReader

SOURCE = Path(__file__).resolve().parent.parent.parent / "src"
KILLS = 60
PATIENCE = 60.0


@pytest.fixture(scope="module")
def start():
    """Starts a process that writes a trial; returns its number."""
    script = Path(__file__).with_name("writing_process.py")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), *sys.path])}
    server = subprocess.Popen(
        [sys.executable, str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )

    def ask(path: Path, steps: int | None = None, pause: float = 0.0005) -> int:
        server.stdin.write(json.dumps({"path": str(path), "steps": steps, "pause": pause}) + "\n")
        server.stdin.flush()
        return int(server.stdout.readline())

    yield ask
    server.stdin.close()
    server.wait(PATIENCE)
    server.stdout.close()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    end = time.monotonic() + PATIENCE
    while is_alive(pid) and time.monotonic() < end:
        time.sleep(0.001)


def wait_for_rows(path: Path) -> None:
    end = time.monotonic() + PATIENCE
    while not list(path.glob("worker_0/*.parquet")):
        assert time.monotonic() < end
        time.sleep(0.002)


def check_whole(reader: TrialReader, first: int = 0) -> int:
    """Every step from a step on is whole and right; returns how many steps there are."""
    steps, names, values = (reader.column(name) for name in ("step", "name", "value"))
    present, codes = np.unique(steps, return_index=True)
    assert present.tolist() == list(range(len(present)))
    assert np.all(np.diff(steps) >= 0)
    bounds = [*codes.tolist(), len(steps)]
    for step in range(first, len(present)):
        rows = range(bounds[step], bounds[step + 1])
        expected = [f"w{i}" for i in range(1 + step % 4)] + ["rows"]
        assert [reader.names[names[row]] for row in rows] == expected
        assert values[rows[-1]] == len(rows)
        for i, row in enumerate(rows[:-1]):
            raw = reader.raw(row)
            assert raw.tolist() == [step * 10 + i] * (1 + (step + i) % 50)
    return len(present)


def check_files(folder: Path) -> None:
    """Beside the segments there is at most one payload without rows, and one temporary file."""
    names = {path.name for path in folder.iterdir()}
    names -= {"collections.json", "end.json"}
    temporary = {name for name in names if name.startswith(".tmp-")}
    rows = {name.partition(".")[0] for name in names if name.endswith(".parquet")}
    payloads = {name.partition(".")[0] for name in names if name.endswith(".safetensors")}
    assert len(temporary) <= 1
    assert len(payloads - rows) <= 1
    assert len(names) == len(temporary) + len(rows) + len(payloads)


@pytest.mark.slow
def test_a_killed_run_opens_and_every_visible_step_is_whole(start, tmp_path):
    chance = random.Random(20261115)
    with_steps = merged = 0
    for number in range(KILLS):
        path = tmp_path / str(number)
        pid = start(path)
        if number % 6:  # the others are killed while they begin
            wait_for_rows(path)
        time.sleep(chance.uniform(0, 0.2))
        kill(pid)
        try:
            reader = TrialReader.open(str(path))
        except TrialNotFound:
            assert not (path / "trial.json").exists()
            continue
        with_steps += check_whole(reader) > 0
        if reader.workers:
            check_files(path / "worker_0")
            assert reader.end("worker_0") is None
            merged += any(each.file.replaces for each in reader._folders["worker_0"].segments)
    assert with_steps >= KILLS * 5 // 6
    assert merged > 5


def test_a_killed_run_says_that_it_did_not_end_cleanly(start, tmp_path):
    from tornasole.trial import create_trial

    pid = start(tmp_path / "t")
    wait_for_rows(tmp_path / "t")
    assert create_trial(str(tmp_path / "t")).state == "running"
    kill(pid)
    trial = create_trial(str(tmp_path / "t"))
    assert trial.state == "interrupted"
    assert len(trial.steps()) > 0


def test_a_reader_of_a_live_run_sees_whole_steps_only_and_all_in_the_end(start, tmp_path):
    steps = 2500
    start(tmp_path / "t", steps, pause=0.0005)
    reader = None
    seen = rounds = 0
    end = time.monotonic() + PATIENCE
    while reader is None or not reader.workers or reader.end("worker_0") is None:
        assert time.monotonic() < end
        try:
            reader = reader or TrialReader.open(str(tmp_path / "t"))
        except TrialNotFound:
            continue
        if reader.refresh():
            rounds += 1
            seen = check_whole(reader, first=max(0, seen - 20))
    assert seen == steps
    assert rounds > 10
    assert check_whole(TrialReader.open(str(tmp_path / "t"))) == steps
    check_files(tmp_path / "t" / "worker_0")


def test_values_can_be_read_while_their_segments_are_merged(start, tmp_path):
    """Rows taken in once stay readable, however long ago: by their new place."""
    pid = start(tmp_path / "t")
    wait_for_rows(tmp_path / "t")
    reader = TrialReader.open(str(tmp_path / "t"))
    steps = check_whole(reader)
    later = time.monotonic() + 1.0
    while time.monotonic() < later:
        assert check_whole(reader) == steps
    kill(pid)
    assert check_whole(reader) == steps
