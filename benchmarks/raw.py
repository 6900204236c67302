"""Weights and gradients, whole, at every step: what training pays, how fast they are written."""

from __future__ import annotations

import itertools
import statistics
import time
from pathlib import Path

import torch

from benchmarks.measuring import (
    HookClock,
    Result,
    alternate,
    milliseconds,
    scratch,
    seconds,
    wait_until_written,
)
from benchmarks.transformer import Training
from tornasole.capture.adapter import Bytes
from tornasole.pytorch import Hook, SaveConfig, SaveConfigMode, modes
from tornasole.types import Role

_ROUNDS = 12
_STEPS = 3  # in a block, after one that is not counted
_WRITE_ROUNDS = 16
_WRITE_STEPS = 10


def measure() -> list[Result]:
    training = Training()
    training.timed_steps(3)
    with scratch() as folder:
        return [*_added(training, folder), _throughput(training, folder)]


def _added(training: Training, folder: Path) -> list[Result]:
    """Time in callbacks and of whole steps, in blocks short enough for the queue to have room."""
    tensors = training.tensors()
    places = [torch.zeros_like(tensor) for tensor in tensors]
    in_hook: list[float] = []
    hooked: list[float] = []
    free: list[float] = []
    copies: list[float] = []
    hook = Hook(
        folder / "added",
        save_config=SaveConfig(
            {
                modes.TRAIN: SaveConfigMode(save_interval=1),
                modes.EVAL: SaveConfigMode(start_step=10**9),
            }
        ),
        include_collections=["weights", "biases", "gradients"],
        queue_bytes=8 << 30,
        on_error="raise",
    )
    hook.register_module(training.model)
    clock = HookClock(hook)
    _touch_queue(hook, tensors, _STEPS + 2)

    def saved() -> None:
        hook.set_mode(modes.TRAIN)
        training.timed_steps(1)
        for _ in range(_STEPS):
            clock.take()
            hooked.extend(training.timed_steps(1))
            in_hook.append(clock.take())
        wait_until_written(hook)
        _remove_payloads(folder / "added")

    def unsaved() -> None:
        hook.set_mode(modes.EVAL)
        free.extend(training.timed_steps(1 + _STEPS)[1:])

    def copy() -> None:
        for _ in range(_STEPS):
            copies.append(
                seconds(lambda: [p.copy_(t) for p, t in zip(places, tensors, strict=True)])
            )

    with hook:
        alternate(_ROUNDS, saved, unsaved, copy)
    size = sum(tensor.nbytes for tensor in tensors)
    details = {
        "MB per step": round(size / 1e6, 1),
        "tensors": len(tensors),
        "one copy, ms": milliseconds(copies),
        "in the hook, ms": milliseconds(in_hook),
        "saved step, ms": milliseconds(hooked),
        "unsaved step, ms": milliseconds(free),
    }
    added = statistics.median(hooked) - statistics.median(free)
    copying = statistics.median(copies)
    return [
        Result(
            "time on the training thread for raw weights and gradients, of one copy in memory",
            round(statistics.median(in_hook) / copying, 3),
            bound=2.0,
            details=details,
        ),
        Result(
            "the same by the difference of whole steps, while the writer runs beside them",
            round(added / copying, 3),
        ),
    ]


def _touch_queue(hook: Hook, tensors: list[torch.Tensor], steps: int) -> None:
    """Brings the queue's memory into the state that it has after some saved steps: used before."""
    lease = hook._recorder._pool.lease()
    for tensor in tensors * steps:
        lease.take(tensor.nbytes).fill(0)
    lease.release()


def _throughput(training: Training, folder: Path) -> Result:
    """Bytes per second while the writer is never idle; nothing is computed meanwhile.

    A step's weights and gradients are handed over in two batches, as the adapter does. The median
    time from one written step to the next is compared with the median time in which plain writes
    put the same bytes into one file: medians, because now and then the system has to find memory
    for its page cache, which takes several times as long and meets either side.
    """
    tensors = training.tensors()
    arrays = [tensor.numpy() for tensor in tensors]
    half = len(tensors) // 2
    batches = [
        [(f"{role.value}_{n}", role, tensor) for n, tensor in enumerate(part)]
        for role, part in ((Role.WEIGHT, tensors[:half]), (Role.GRADIENT, tensors[half:]))
    ]
    size = sum(array.nbytes for array in arrays)
    ours: list[float] = []
    plain: list[float] = []
    hook = Hook(
        folder / "throughput",
        save_config=SaveConfig(save_interval=1),
        include_collections=["weights", "gradients"],
        on_error="raise",
    )
    pool = hook._recorder._pool
    give_back, written = pool.give_back, []

    def noting(buffers: list[Bytes]) -> None:
        give_back(buffers)
        written.append(time.perf_counter())

    pool.give_back = noting  # type: ignore[method-assign]

    def with_hook() -> None:
        written.clear()
        for _ in range(_WRITE_STEPS):
            hook.begin_step()
            for batch in batches:
                hook._recorder.record_many(batch)
        hook.begin_step()
        wait_until_written(hook)
        ours.extend(later - earlier for earlier, later in itertools.pairwise(written))
        _remove_payloads(folder / "throughput")

    def to_one_file() -> None:
        path = folder / "plain"
        with open(path, "wb", buffering=0) as file:
            for _ in range(_WRITE_STEPS):
                plain.append(seconds(lambda: [file.write(array) for array in arrays]))
        path.unlink()

    with hook:
        alternate(_WRITE_ROUNDS, with_hook, to_one_file)

    ours_median, plain_median = statistics.median(ours), statistics.median(plain)
    return Result(
        "sustained write throughput, of plain writes of the same bytes to one file",
        round(plain_median / ours_median, 3),
        bound=0.7,
        sense="≥",
        details={
            "MB per step": round(size / 1e6),
            "hook, MB/s": round(size / ours_median / 1e6),
            "plain, MB/s": round(size / plain_median / 1e6),
            "note": "into the page cache, without fsync, both",
        },
    )


def _remove_payloads(folder: Path) -> None:
    """So that no write-back is left to slow what follows."""
    for path in folder.rglob("*.safetensors"):
        path.unlink()
