"""A training that saves nothing for a long time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tornasole.errors import SMDebugValueError
from tornasole.rules.contract import Explanation, StepRule, Symptom, parameter
from tornasole.rules.needs import Need
from tornasole.rules.sentences import number
from tornasole.rules.view import StepView
from tornasole.types import Role


@dataclass(frozen=True)
class StalledTrainingRule(StepRule):
    """A training that saves nothing for a long time.

    Looks at when steps were saved, whatever was saved. Fires when the time since the last saved
    step is longer than ``threshold`` seconds: while a live run is followed, as soon as that is so;
    otherwise at the first step after the gap.

    Wrong when steps are saved so rarely that the gap is usual: the message says how long it takes
    as a rule. Choose a threshold a few times longer than that. A run that was killed is not seen
    by reading its trial later, as nothing came after the gap.
    """

    name = "stalled_training_rule"
    threshold: float = parameter(1800.0, "seconds without a saved step")
    stop_training_on_fire: bool = parameter(
        False, "whether to stop the training when it fires, as the action stop does"
    )
    training_job_name_prefix: str | None = parameter(
        None, "accepted for smdebug's sake: the job is the one that writes the trial"
    )

    def __post_init__(self) -> None:
        if not self.threshold > 0:
            raise SMDebugValueError(f"threshold must be above 0, not {self.threshold!r}.")

    def needs(self) -> Mapping[str, Need]:
        return {"tensors": Need("tensors", roles=frozenset(Role), save=("losses",))}

    def symptoms(self, step: StepView, memory: dict[str, Any]) -> Iterable[Symptom]:
        pace: _Pace | None = memory.get("pace")
        if pace is None:
            memory["pace"] = _Pace(step.time, step.step)
            return ()
        found = self._judged(pace, step.time, {"before step": step.step})
        pace.add(step.time, step.step)
        return found

    def while_waiting(self, now: float, memory: dict[str, Any]) -> Iterable[Symptom]:
        pace: _Pace | None = memory.get("pace")
        return () if pace is None else self._judged(pace, now, {})

    def _judged(self, pace: _Pace, now: float, more: dict[str, Any]) -> Iterable[Symptom]:
        gap = now - pace.last
        if not is_stalled(gap, self.threshold):
            return ()
        numbers = {"seconds": gap, "after step": pace.step, "usual seconds": pace.usual}
        return (Symptom("", {**numbers, **more}),)

    def explain(self, symptoms: Sequence[Symptom]) -> Explanation:
        seen = symptoms[0].numbers
        usual = seen["usual seconds"]
        pace = f" Usually it takes {duration(usual)}." if usual is not None else ""
        end = f" until step {seen['before step']}" if "before step" in seen else ""
        return Explanation(
            f"Nothing was saved for {duration(seen['seconds'])} after step {seen['after step']}"
            f"{end}; the limit is {duration(self.threshold)}.{pace}",
            evidence={"threshold": self.threshold, **seen},
            causes=(
                "the process hangs: data that does not come, or a worker that waits for another",
                "the process was killed, or the machine is gone",
                "steps that are saved more rarely than threshold allows",
            ),
            remedies=(
                "see whether the process lives, and what it does (py-spy dump --pid …)",
                "look at the input pipeline, and at the other workers",
                "save something small (losses) more often, or raise threshold",
            ),
        )


@dataclass
class _Pace:
    """When steps were saved: the last, and how long it took from one to the next."""

    last: float
    step: int
    gaps: int = 0
    seconds: float = 0.0

    def add(self, time: float, step: int) -> None:
        self.gaps += 1
        self.seconds += max(time - self.last, 0.0)
        self.last = max(time, self.last)  # times that people hand over may lie in the past
        self.step = step

    @property
    def usual(self) -> float | None:
        """The mean time from one to the next, if there was any."""
        return self.seconds / self.gaps if self.gaps else None


def is_stalled(seconds: float, threshold: float) -> bool:
    """Whether nothing was saved for too long."""
    return seconds > threshold


def duration(seconds: float) -> str:
    """A time as people say it: 12 s, 45 min, 3.5 h."""
    if seconds < 120:
        return f"{number(seconds)} s"
    return f"{number(seconds / 60)} min" if seconds < 7200 else f"{number(seconds / 3600)} h"
