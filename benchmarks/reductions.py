"""Statistics of all weights and gradients at every step, beside torch's functions one by one."""

from __future__ import annotations

import statistics
from pathlib import Path

import torch

from benchmarks.measuring import HookClock, Result, alternate, milliseconds, scratch, seconds
from benchmarks.transformer import Training
from tornasole.pytorch import Hook, ReductionConfig, SaveConfig, SaveConfigMode, modes

_ROUNDS = 12
_STEPS = 3  # in a block, after one that is not counted


def measure() -> list[Result]:
    training = Training()
    training.timed_steps(3)
    with scratch() as folder:
        return _compare(training, folder)


def _compare(training: Training, folder: Path) -> list[Result]:
    in_hook: list[float] = []
    hooked: list[float] = []
    in_torch: list[float] = []
    free: list[float] = []
    hook = Hook(
        folder / "trial",
        save_config=SaveConfig(
            {
                modes.TRAIN: SaveConfigMode(save_interval=1),
                modes.EVAL: SaveConfigMode(start_step=10**9),
            }
        ),
        reduction_config=ReductionConfig(
            reductions=["min", "max", "mean", "std"], norms=["l1", "l2"]
        ),
        include_collections=["weights", "biases", "gradients"],
        on_error="raise",
    )
    hook.register_module(training.model)
    clock = HookClock(hook)

    def saved() -> None:
        hook.set_mode(modes.TRAIN)
        training.timed_steps(1)
        for _ in range(_STEPS):
            clock.take()
            hooked.extend(training.timed_steps(1))
            in_hook.append(clock.take())

    def one_by_one() -> None:
        hook.set_mode(modes.EVAL)
        tensors = training.tensors()
        for number in range(1 + _STEPS):
            training.step()
            taken = seconds(lambda: _naive(tensors))
            if number:
                in_torch.append(taken)

    def unsaved() -> None:
        hook.set_mode(modes.EVAL)
        free.extend(training.timed_steps(1 + _STEPS)[1:])

    with hook:
        alternate(_ROUNDS, saved, one_by_one, unsaved)
    added = statistics.median(hooked) - statistics.median(free)
    naive = statistics.median(in_torch)
    return [
        Result(
            "time for six statistics and counts, of torch's six functions on each tensor",
            round(statistics.median(in_hook) / naive, 3),
            bound=0.5,
            details={
                "in the hook, ms": milliseconds(in_hook),
                "torch one by one, ms": milliseconds(in_torch),
                "saved step, ms": milliseconds(hooked),
                "unsaved step, ms": milliseconds(free),
            },
        ),
        Result("the same by the difference of whole steps", round(added / naive, 3)),
    ]


@torch.no_grad()
def _naive(tensors: list[torch.Tensor]) -> list[list[torch.Tensor]]:
    return [[t.min(), t.max(), t.mean(), t.std(), t.norm(1), t.norm(2)] for t in tensors]
