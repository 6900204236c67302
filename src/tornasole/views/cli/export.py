"""From a trial to files that other programs read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from tornasole.errors import SMDebugValueError
from tornasole.trial import Trial
from tornasole.views.cli.output import plain

# Where a value lies inside the trial means nothing outside.
_PLACES = ("payload", "offset", "length")


def export(
    trial: Trial, names: list[str], out: Path, form: str | None, force: bool
) -> dict[str, object]:
    """Writes the tensors' rows, or for ``npz`` their values, to a file; returns what it did.

    Args:
        form: The format; without, what the file's ending says.
        force: Whether to write over a file.
    """
    form = form or out.suffix.removeprefix(".")
    if form not in WRITERS:
        raise SMDebugValueError(
            f"There is no export format {form!r}. Choose with --format from: {', '.join(WRITERS)}."
        )
    if out.exists() and not force:
        raise SMDebugValueError(f"{out} is there already; --force writes over it.")
    temporary = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        count = WRITERS[form](trial, names, temporary)
        os.replace(temporary, out)
    finally:
        temporary.unlink(missing_ok=True)
    unit = "values" if form == "npz" else "rows"
    return {"written": str(out), "format": form, "tensors": len(names), unit: count}


def _rows(trial: Trial, names: list[str]) -> pa.Table:
    return trial.to_arrow(names=names).drop_columns(list(_PLACES))


def _write_parquet(trial: Trial, names: list[str], out: Path) -> int:
    table = _rows(trial, names)
    pyarrow.parquet.write_table(table, out)
    return int(table.num_rows)


def _write_csv(trial: Trial, names: list[str], out: Path) -> int:
    """Lists become JSON text, because CSV has none."""
    table = _rows(trial, names)
    for position, field in enumerate(table.schema):
        column = table.column(position)
        if pa.types.is_list(field.type):
            column = pa.array([json.dumps(each) for each in column.to_pylist()], pa.string())
        elif pa.types.is_dictionary(field.type):
            column = column.cast(pa.string())
        table = table.set_column(position, field.name, column)
    pyarrow.csv.write_csv(table, out)
    return int(table.num_rows)


def _write_jsonl(trial: Trial, names: list[str], out: Path) -> int:
    table = _rows(trial, names)
    with open(out, "w", encoding="utf-8") as file:
        for batch in table.to_batches(max_chunksize=10_000):
            for row in batch.to_pylist():
                file.write(json.dumps(plain(row), allow_nan=False) + "\n")
    return int(table.num_rows)


def _write_npz(trial: Trial, names: list[str], out: Path) -> int:
    """Values under ``<step>/<name>``, as in the trial's own payloads."""
    values = trial.values(names)
    arrays = {f"{step}/{name}": array for name in values for step, array in values[name].items()}
    with open(out, "wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    return len(arrays)


WRITERS: dict[str, Callable[[Trial, list[str], Path], int]] = {
    "csv": _write_csv,
    "parquet": _write_parquet,
    "jsonl": _write_jsonl,
    "npz": _write_npz,
}
