"""A hook with nothing to save: a training step as fast as without it, however large the model."""

from __future__ import annotations

import statistics
from functools import partial
from pathlib import Path

import torch
from torch import nn

from benchmarks.measuring import HookClock, Result, scratch, seconds, step_time_with_idle_hook
from benchmarks.transformer import Training
from tornasole.pytorch import Hook, SaveConfig

_STEPS = 3  # in a block, after one that is not counted
_SIZES = (50, 200, 800)


def _idle_hook(folder: Path, number: int) -> Hook:
    return Hook(
        folder / str(number),
        save_config=SaveConfig(start_step=10**9),
        include_collections=["weights", "biases", "gradients", "outputs"],
        save_all=True,
        on_error="raise",
    )


def measure() -> list[Result]:
    with scratch() as folder:
        return [_step_time(folder / "steps"), _growth(folder / "modules")]


def _step_time(folder: Path) -> Result:
    training = Training()
    training.timed_steps(3)

    def with_hook(number: int) -> list[float]:
        with _idle_hook(folder, number) as hook:
            hook.register_module(training.model)
            hook.register_loss(training.loss)
            return training.timed_steps(1 + _STEPS)[1:]

    return step_time_with_idle_hook(with_hook, lambda: training.timed_steps(1 + _STEPS)[1:], 1.01)


def _growth(folder: Path) -> Result:
    """The hook's own time per step for small and large models: what their root's callback takes.

    It is called by itself. Within a run of the model it finds caches that the model has emptied, so
    there it takes longer the larger the model is, whatever it does.
    """
    alone: dict[int, list[float]] = {size: [] for size in _SIZES}
    within: dict[int, list[float]] = {size: [] for size in _SIZES}
    data = torch.zeros(1, 1)
    with torch.no_grad():
        for number in range(9):
            for size in _SIZES:
                model = nn.Sequential(*(nn.Linear(1, 1) for _ in range(size - 1)))
                with _idle_hook(folder / str(size), number) as hook:
                    hook.register_module(model)
                    model(data)
                    (callback,) = model._forward_pre_hooks.values()
                    call = partial(callback, model, (data,), {})
                    alone[size] += [seconds(call) for _ in range(200)]
                    hook_clock = HookClock(hook)
                    for _ in range(20):
                        hook_clock.take()
                        model(data)
                        within[size].append(hook_clock.take())
    micros = {size: statistics.median(times) * 1e6 for size, times in alone.items()}
    details = {f"{size} modules, µs": round(value, 1) for size, value in micros.items()}
    details |= {
        f"{size} modules, within the model, µs": round(statistics.median(times) * 1e6, 1)
        for size, times in within.items()
    }
    return Result(
        f"the hook's time per step with {_SIZES[-1]} modules, of that with {_SIZES[0]}",
        round(micros[_SIZES[-1]] / micros[_SIZES[0]], 3),
        bound=1.2,
        details=details,
    )
