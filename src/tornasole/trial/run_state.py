"""How a run stands, judged from what its workers left behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

StateName = Literal["running", "finished", "failed", "interrupted"]


@dataclass(frozen=True)
class RunState:
    """The state of a run.

    Attributes:
        over: Whether nothing more will be written.
    """

    name: StateName
    reason: str
    over: bool


def judge(
    expected: int, ends: Mapping[str, Mapping[str, Any] | None], gone: frozenset[str]
) -> RunState:
    """Judges a run.

    Args:
        expected: How many workers there should be.
        ends: The last word of each worker seen, if it has been said.
        gone: Workers without a last word whose process is known to have ended.
    """
    open_ends = [worker for worker, end in ends.items() if end is None]
    unheard = max(0, expected - len(ends))
    all_ended = not open_ends and not unheard
    failed = {w: end for w, end in ends.items() if end is not None and end.get("clean") is not True}
    if failed:
        worker, end = next(iter(failed.items()))
        why = f"{worker} did not end cleanly: {end.get('reason') or 'it gave no reason'}"
        return RunState("failed", why, all_ended or _abandoned(open_ends, gone))
    if gone:
        who = f"The process of {', '.join(sorted(gone))}"
        why = f"{who} is gone without a last word: the run did not end cleanly"
        return RunState("interrupted", why, _abandoned(open_ends, gone))
    if not all_ended:
        waiting = ", ".join(open_ends[:3]) + (", …" if len(open_ends) > 3 else "")
        why = (
            f"{waiting} has not ended" if open_ends else f"{unheard} of {expected} workers not seen"
        )
        return RunState("running", why, False)
    return RunState("finished", _last_words(ends), True)


def _abandoned(open_ends: list[str], gone: frozenset[str]) -> bool:
    """Whether nobody is left: workers that were never seen do not outlive those that are gone."""
    return bool(gone) and gone.issuperset(open_ends)


def _last_words(ends: Mapping[str, Mapping[str, Any] | None]) -> str:
    lost = [
        f"{worker}: {what.replace('_', ' ')}: {count}"
        for worker, end in ends.items()
        if end is not None and isinstance(end.get("lost"), dict)
        for what, count in end["lost"].items()
        if count
    ]
    stopped = sorted({str(end["stopped"]) for end in ends.values() if end and end.get("stopped")})
    asked = f", when asked to stop: {'; '.join(stopped)}" if stopped else ""
    return f"All workers ended cleanly{asked}" + (f" ({'; '.join(lost)})" if lost else "")
