"""A process that ``against_smdebug`` compares with others: trains under one of the two libraries.

    python -m benchmarks.peer tornasole|smdebug nothing|raw|reductions <folder>

Each line on its input asks for a number of steps; it answers with their times in seconds, as JSON.
Runs in either environment, so it needs torch and the library alone.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path

from benchmarks.transformer import Training


def main(library: str, form: str, folder: Path) -> None:
    training = Training()
    if form != "nothing":
        _attach(library, form, folder, training)
    for line in sys.stdin:
        times = training.timed_steps(int(line))
        time.sleep(
            1.0
        )  # what is still being written must not disturb the process whose turn is next
        written = _clear(folder)
        print(json.dumps({"times": times, "bytes": written}), flush=True)


def _attach(library: str, form: str, folder: Path, training: Training) -> None:
    """The same calls for both: one is the other's heir."""
    api = importlib.import_module(f"{library}.pytorch")
    names = {"reductions": ["min", "max", "mean", "std"], "norms": ["l1", "l2"]}
    hook = api.Hook(
        out_dir=str(folder),
        save_config=api.SaveConfig(save_interval=1),
        reduction_config=api.ReductionConfig(**names) if form == "reductions" else None,
        include_collections=["weights", "biases", "gradients"],
    )
    hook.register_module(training.model)


def _clear(folder: Path) -> int:
    """Removes raw values, so that no write-back is left; returns how many bytes they were."""
    files = [path for path in folder.rglob("*") if path.suffix in (".safetensors", ".tfevents")]
    size = sum(path.stat().st_size for path in files)
    for path in files:
        path.unlink()
    return size


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
