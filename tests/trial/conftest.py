"""Runs to read: written step by step, without a framework, a hook or a thread."""

from __future__ import annotations

import itertools
import json
import os

import numpy as np
import pytest

from tornasole.format import Record, StepRecords, segment
from tornasole.format.writer import TrialWriter
from tornasole.store import open_store
from tornasole.trial import create_trial
from tornasole.types import ModeKeys

_addresses = itertools.count()


class Run:
    """A run in the making: every call is on disk when it returns."""

    def __init__(self, address, workers=1, **about):
        self.address, self.store = address, open_store(address)
        self.about = {"workers": workers, "framework": "none", **about}
        self._writers: dict[str, TrialWriter] = {}
        self._segments: dict[str, int] = {}
        self.writer("worker_0").claim(self.about)

    def writer(self, worker):
        return self._writers.setdefault(worker, TrialWriter(self.store, worker))

    def step(self, step, *records, mode=ModeKeys.GLOBAL, mode_step=None, worker="worker_0"):
        number = self._segments[worker] = self._segments.get(worker, -1) + 1
        mode_step = step if mode_step is None else mode_step
        done = StepRecords(step, mode, mode_step, list(records) or [scalar("loss", step)])
        segment.write(self.store, worker, number, [done])
        return self

    def steps(self, *steps, **where):
        for step in steps:
            self.step(step, **where)
        return self

    def collections(self, *, worker="worker_0", process=None, **collections):
        content = {name: {"name": name, **about} for name, about in collections.items()}
        meta = {"num_workers": self.about["workers"], "process": process}
        self.writer(worker).put_collections({"collections": content, "_meta": meta})
        return self

    def end(self, worker="worker_0", clean=True, reason=None, lost=None):
        about = {"clean": clean, "reason": reason, "last_step": 0, "lost": lost or {}}
        self.writer(worker).put_end(about)
        return self

    def write(self, key, content):
        self.store.put(key, [json.dumps(content).encode()])
        return self

    def trial(self, **arguments):
        return create_trial(self.address, **arguments)


def scalar(name, value, dtype="float32", shape=(), role="loss", collections=("losses",)):
    return Record(name, role, collections, dtype, shape, 1e9, value=float(value))


def raw(name, array, role="weight", collections=("weights",), dtype=None, statistics=None):
    array = np.asarray(array)
    data = memoryview(array.tobytes())
    about = (name, role, collections, dtype or str(array.dtype), array.shape, 1e9)
    return Record(*about, raw=data, statistics=statistics)


def reduced(name, shape=(2, 2), role="gradient", collections=("gradients",), **statistics):
    counts = {"count": 4, "nan_count": 0, "inf_count": 0, "zero_count": 0}
    about = (name, role, collections, "float32", shape, 1e9)
    return Record(*about, statistics=counts | statistics)


@pytest.fixture
def records():
    """The three kinds of records: ``scalar``, ``raw`` and ``reduced``."""

    class Records:
        pass

    Records.scalar, Records.raw, Records.reduced = map(staticmethod, (scalar, raw, reduced))
    return Records


@pytest.fixture
def start():
    """Starts a run, in memory unless an address is given."""

    def start(address=None, **about):
        address = address or f"memory://trial-tests-{os.getpid()}-{next(_addresses)}"
        return Run(str(address), **about)

    return start


@pytest.fixture
def run(start):
    """A run of one worker that has just begun."""
    return start()
