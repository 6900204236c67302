"""A trial on disk to look at, and the command to look with."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from tornasole.format import Record, StepRecords, segment
from tornasole.format.writer import TrialWriter
from tornasole.store import open_store
from tornasole.types import ModeKeys
from tornasole.views.cli import main

COUNTS = {"count": 2, "nan_count": 0, "inf_count": 0, "zero_count": 0}


def write_trial(path, steps, collections=None, clean=True):
    """Writes a finished trial; ``steps`` are (mode, records) in order."""
    writer = TrialWriter(open_store(str(path)), "worker_0")
    writer.claim({"workers": 1, "framework": "pytorch", "versions": {"torch": "2"}})
    done, counts = [], {}
    for number, (mode, records) in enumerate(steps):
        counts[mode] = counts.get(mode, -1) + 1
        done.append(StepRecords(number, mode, counts[mode], records))
    if done:
        segment.write(open_store(str(path)), "worker_0", 0, done)
    content = {name: {"name": name, **about} for name, about in (collections or {}).items()}
    writer.put_collections({"collections": content, "_meta": {"num_workers": 1}})
    writer.put_end({"clean": clean, "reason": None if clean else "out of memory"})
    return path


def records_of_step(step, loss):
    weights = np.float32([step, -step])
    statistics = COUNTS | {"mean": step / 2, "l2": float(step)}
    return [
        Record(
            "fc.weight", "weight", ("weights",), "float32", (2,), 1e9, raw=weights.data.cast("B")
        ),
        Record("fc.grad", "gradient", (), "float32", (2,), 1e9, statistics=statistics),
        Record("loss", "loss", ("losses",), "float32", (), 1e9, value=loss),
    ]


@pytest.fixture
def trial(tmp_path):
    """Four TRAIN steps, the last with a loss that is NaN, and one EVAL step."""
    losses = [3.0, 2.0, 1.0, float("nan")]
    steps = [(ModeKeys.TRAIN, records_of_step(i, loss)) for i, loss in enumerate(losses)]
    steps.append((ModeKeys.EVAL, records_of_step(9, 0.5)[2:]))
    collections = {"weights": {"roles": ["weight"]}, "losses": {"roles": ["loss"]}, "empty": {}}
    return write_trial(tmp_path / "job", steps, collections)


@pytest.fixture
def write():
    return write_trial


@pytest.fixture
def tornasole(monkeypatch, capsys):
    """Runs the command and returns its exit code, stdout and stderr."""

    def tornasole(*arguments):
        monkeypatch.setattr(sys, "argv", ["tornasole", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        out, err = capsys.readouterr()
        return SimpleNamespace(code=code, out=out, err=err)

    return tornasole


@pytest.fixture
def tornasole_json(tornasole):
    """Runs the command with ``--json`` and returns the document."""

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    def tornasole_json(*arguments):
        done = tornasole(*arguments, "--json")
        assert (done.code, done.err) == (0, "")
        return json.loads(done.out, parse_constant=refuse)

    return tornasole_json


@pytest.fixture
def terminal(monkeypatch):
    """Makes the command believe that it prints to a terminal 120 columns wide."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
