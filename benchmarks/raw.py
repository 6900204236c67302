"""Weights and gradients, whole, at every step: what training pays, how fast they are written."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import torch

from benchmarks.measuring import (
    HookClock,
    Result,
    alternate,
    clock,
    milliseconds,
    scratch,
    seconds,
    wait_until_written,
)
from benchmarks.transformer import Training
from tornasole.pytorch import Hook, SaveConfig, SaveConfigMode, modes

_ROUNDS = 12
_STEPS = 3  # in a block, after one that is not counted
_WRITE_ROUNDS = 11
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

    Counted from when it is handed the first step until all are written, by the writer thread's
    clock, because it is what limits. What other ways of counting give is in the details.
    """
    tensors = training.tensors()
    arrays = [tensor.numpy() for tensor in tensors]
    size = _WRITE_STEPS * sum(array.nbytes for array in arrays)
    ours: list[float] = []
    ours_from_first_copy: list[float] = []
    ours_wall: list[float] = []
    plain: list[float] = []
    plain_wall: list[float] = []
    hook = Hook(folder / "throughput", on_error="raise")

    def save_step() -> None:
        for number, tensor in enumerate(tensors):
            hook.save_tensor(f"tensor_{number}", tensor)

    def with_hook() -> None:
        writer = hook._thread.native_id
        hook.begin_step()
        first_copy, first_copy_wall = clock(writer), time.perf_counter()
        save_step()
        handed_over = clock(writer)
        for _ in range(_WRITE_STEPS - 1):
            hook.begin_step()
            save_step()
        wait_until_written(hook)
        ours.append(clock(writer) - handed_over)
        ours_from_first_copy.append(clock(writer) - first_copy)
        ours_wall.append(time.perf_counter() - first_copy_wall)
        _remove_payloads(folder / "throughput")

    def to_one_file() -> None:
        path = folder / "plain"
        start, start_wall = clock(), time.perf_counter()
        with open(path, "wb", buffering=0) as file:
            for _ in range(_WRITE_STEPS):
                for array in arrays:
                    file.write(array)
        plain.append(clock() - start)
        plain_wall.append(time.perf_counter() - start_wall)
        path.unlink()

    with hook:
        hook.begin_step()
        hook.save_tensor("first", tensors[0])
        wait_until_written(hook)  # so that there is a writer thread
        _touch_queue(hook, tensors, 2)
        alternate(_WRITE_ROUNDS, with_hook, to_one_file)

    median = statistics.median
    return Result(
        "sustained write throughput, of plain writes of the same bytes to one file",
        round(median(plain) / median(ours), 3),
        bound=0.7,
        sense="≥",
        details={
            "MB": round(size / 1e6),
            "hook, MB/s": round(size / median(ours) / 1e6),
            "plain, MB/s": round(size / median(plain) / 1e6),
            "with the first step's copy counted": round(
                median(plain) / median(ours_from_first_copy), 3
            ),
            "likewise, by the wall clock": round(median(plain_wall) / median(ours_wall), 3),
            "note": "into the page cache, without fsync, both",
        },
    )


def _remove_payloads(folder: Path) -> None:
    """So that no write-back is left to slow what follows."""
    for path in folder.rglob("*.safetensors"):
        path.unlink()
