"""Trains, badly: run by ``test_watching.py``, which watches it.

Gradients vanish from step 3 on. As steps of real trainings take their time, each step after that
waits until somebody has asked for a stop, or for a minute.
"""

import sys
import time
from pathlib import Path

import tornasole
from tornasole.types import Role


def main(out_dir: str, obeys: str) -> None:
    hook = tornasole.Hook(out_dir, save_config=tornasole.SaveConfig(save_interval=1), save_all=True)
    deadline = time.monotonic() + 60
    for step in range(1000):
        if step > 4:
            while not Path(out_dir, "stop.json").exists() and time.monotonic() < deadline:
                time.sleep(0.01)
            while obeys == "deaf" and time.monotonic() < deadline:
                time.sleep(0.01)
        hook.begin_step()
        hook._recorder.record("gradient/w", Role.GRADIENT, [1.0 if step < 3 else 1e-9])


if __name__ == "__main__":
    main(*sys.argv[1:])
