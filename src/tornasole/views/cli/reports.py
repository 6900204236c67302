"""From a trial to plain values, for people and programs alike."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow.compute as pc

from tornasole.errors import MissingCollectionFiles, SMDebugError, SMDebugValueError
from tornasole.trial import Trial, create_trial
from tornasole.types import ModeKeys, Role

Report = dict[str, Any]

_DEEPEST = 4
_SCAN_BYTES = 1 << 30
_ABOUT = ("worker", "step", "mode", "mode_step", "order", "name", "role", "collections", "dtype")
_ELSEWHERE = (*_ABOUT, "shape", "time", "value", "payload", "offset", "length", "lost")
_COMPUTED = ("min", "max", "mean", "std")


def opened(path: str) -> Trial:
    """The trial at a path, held still so that all of a report is of one moment."""
    trial = create_trial(path)
    trial.dynamic_refresh = False
    return trial


# -- ls


def trials_under(path: str) -> Iterator[str]:
    """The trials at or below a local folder, sorted; never one inside another."""
    if os.path.isfile(os.path.join(path, "trial.json")):
        yield path
        return
    depth = os.path.normpath(path).count(os.sep)
    for folder, inside, files in os.walk(path):
        is_deep = os.path.normpath(folder).count(os.sep) - depth >= _DEEPEST
        if "trial.json" in files:
            yield folder
        inside[:] = (
            []
            if is_deep or "trial.json" in files
            else sorted(name for name in inside if not name.startswith("."))
        )


def listing(path: str) -> list[Report]:
    """One line for each trial at or below a path. A damaged one among others does not hide them."""
    if not os.path.isdir(path) or os.path.isfile(os.path.join(path, "trial.json")):
        return [summary(opened(path))]
    return [_summary_or_complaint(found) for found in trials_under(path)]


def _summary_or_complaint(path: str) -> Report:
    try:
        return summary(opened(path))
    except SMDebugError as error:
        return {"path": path, "state": "unreadable", "reason": str(error)}


def summary(trial: Trial) -> Report:
    """What one line can say about a trial."""
    written = pc.max(trial.to_arrow(["time"]).column("time")).as_py()
    return {
        "path": trial.path,
        "state": trial.state,
        "reason": trial.state_reason,
        "framework": trial.about.get("framework"),
        "workers": trial.num_workers,
        "steps": len(trial.steps()),
        "tensors": len(trial.tensor_names()),
        "bytes": _bytes_under(trial.path),
        "last_write": written.replace(microsecond=0) if isinstance(written, datetime) else None,
    }


def _bytes_under(path: str) -> int | None:
    """The size of a local folder; unknown for trials elsewhere."""
    if not os.path.isdir(path):
        return None
    total = 0
    for folder, _, files in os.walk(path):
        for name in files:
            try:
                total += os.stat(os.path.join(folder, name)).st_size
            except FileNotFoundError:
                pass  # merged into another while we looked
    return total


# -- show


def overview(trial: Trial, scan: bool | None) -> Report:
    """What there is in a trial.

    Args:
        scan: Whether to read raw values without counts in search of the first that is not finite;
            ``None``: if they are not too many.
    """
    unread = _bytes_without_counts(trial)
    scanned = unread <= _SCAN_BYTES if scan is None else scan or not unread
    found = trial.first_nonfinite() if scanned else None
    roles = [trial.tensor(name).role.value for name in trial.tensor_names()]
    return {
        **summary(trial),
        "versions": trial.about.get("versions"),
        "created": trial.about.get("created"),
        "modes": step_ranges(trial, [ModeKeys.GLOBAL, *trial.modes()]),
        "collections": _collection_sizes(trial),
        "roles": {role: roles.count(role) for role in sorted(set(roles))},
        "first_nonfinite": asdict(found) if found else None,
        "unscanned_bytes": 0 if scanned else unread,
    }


def _bytes_without_counts(trial: Trial) -> int:
    table = trial.to_arrow(["length", "nan_count"])
    lengths = table.filter(pc.is_null(table.column("nan_count"))).column("length")
    return int(pc.sum(lengths).as_py() or 0)


def _collection_sizes(trial: Trial) -> dict[str, int] | None:
    try:
        names = sorted(trial.collections())
    except MissingCollectionFiles:
        return None
    sizes = {name: len(trial.tensor_names(collection=name)) for name in names}
    return {name: count for name, count in sizes.items() if count}


def tensor_report(
    trial: Trial, name: str, mode: ModeKeys, worker: str | None, limit: int | None
) -> Report:
    """One tensor over the steps: its rows, evenly thinned out to ``limit`` of them."""
    tensor = trial.tensor(name)
    table = trial.to_arrow(names=[name])
    table = table.take(np.argsort(np.asarray(table["step"]), kind="stable"))
    if mode is not ModeKeys.GLOBAL:
        table = table.filter(pc.equal(table.column("mode").cast("string"), mode.name))
    if worker is not None:
        table = table.filter(pc.equal(table.column("worker").cast("string"), worker))
    total = table.num_rows
    if limit is not None and total > limit:
        table = table.take(np.unique(np.linspace(0, total - 1, limit).round().astype(np.int64)))
    numbers = [
        c for c in table.column_names if c not in _ELSEWHERE and table[c].null_count < len(table)
    ]
    shown = ["step", "mode", "mode_step", "worker", "dtype", "shape", "value", "lost", *numbers]
    rows = table.select([*shown, "payload"]).to_pylist()
    for row in rows:
        if row.pop("payload") is not None and not numbers and row["dtype"] != "string":
            for statistic in _COMPUTED:
                number = tensor.reduction_value(row["step"], statistic, worker=row["worker"])
                row[statistic] = float(number)
    return {"name": name, "role": tensor.role.value, "saved": total, "rows": rows}


# -- steps and tensors


def step_ranges(trial: Trial, modes: Iterable[ModeKeys]) -> dict[str, Report]:
    """For each mode its steps: how many, from where to where, and as ranges."""
    found = {}
    for mode in modes:
        steps = trial.steps(mode)
        first, last = (steps[0], steps[-1]) if steps else (None, None)
        about = {"count": len(steps), "first": first, "last": last}
        found[mode.name] = about | {"ranges": ranges(steps)}
    return found


def ranges(steps: Sequence[int], most: int = 6) -> str:
    """Steps as people would write them: ``0–90 by 10, 95``."""
    numbers = np.asarray(steps, np.int64)
    distances = np.diff(numbers)
    parts: list[str] = []
    start = 0
    while start < len(numbers):
        if len(parts) == most:
            return ", ".join([*parts, f"… {len(numbers) - start} more"])
        changes = np.flatnonzero(distances[start:] != distances[start : start + 1])
        last = start + int(changes[0]) if len(changes) else len(numbers) - 1
        if last - start < 2:
            last = start
            parts.append(str(numbers[start]))
        else:
            by = f" by {distances[start]}" if distances[start] > 1 else ""
            parts.append(f"{numbers[start]}–{numbers[last]}{by}")
        start = last + 1
    return ", ".join(parts)


def chosen_names(
    trial: Trial,
    *,
    regex: str | None = None,
    collection: str | None = None,
    role: str | None = None,
    step: int | None = None,
    mode: ModeKeys = ModeKeys.GLOBAL,
) -> list[str]:
    """The tensors that pass all filters."""
    names = trial.tensor_names(step=step, mode=mode)
    if regex is not None:
        matching = set(trial.tensor_names(regex=regex))
        names = [name for name in names if name in matching]
    if collection is not None:
        members = set(trial.tensor_names(collection=collection))
        names = [name for name in names if name in members]
    if role is not None:
        known = [each.value for each in Role]
        if role not in known:
            raise SMDebugValueError(f"There is no role {role!r}. There are: {', '.join(known)}.")
        names = [name for name in names if trial.tensor(name).role.value == role]
    return names


def tensor_lines(trial: Trial, names: Iterable[str], mode: ModeKeys) -> list[Report]:
    """One line for each tensor."""
    return [_tensor_line(trial, name, mode) for name in names]


def _tensor_line(trial: Trial, name: str, mode: ModeKeys) -> Report:
    tensor = trial.tensor(name)
    steps = tensor.steps(mode, show_incomplete_steps=True)
    last = steps[-1]
    return {
        "name": name,
        "role": tensor.role.value,
        "dtype": tensor.dtype(last, mode),
        "shape": list(tensor.shape(last, mode)),
        "saved": len(steps),
        "first": steps[0],
        "last": last,
    }
