"""Forks training jobs that go on until they are killed; run by ``test_killed.py``.

Reads a path per line and answers with the number of the process. Importing torch once and forking
often makes a killed job cost a fraction of a second.
"""

import os
import signal
import sys

import torch
import torch._dynamo  # once, not in every child

import tornasole.pytorch as smd
from tornasole.format import Record, StepRecords, segment
from tornasole.format.writer import Limits
from tornasole.store.memory import MemoryStore


def train(path: str) -> None:
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    loss, optimizer = torch.nn.MSELoss(), torch.optim.Adam(model.parameters())
    hook = smd.Hook(path, save_all=True, save_config=smd.SaveConfig(save_interval=1))
    hook._writer._limits = Limits(
        seconds=0.005, fan_in=4
    )  # many segments and merges in little time
    hook.register_module(model)
    hook.register_loss(loss)
    while True:
        optimizer.zero_grad()
        loss(model(torch.randn(4, 8)), torch.zeros(4, 2)).backward()
        optimizer.step()


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the children
    scalar = Record("x", "scalar", (), "float64", (), 0.0, value=1.0)
    step = StepRecords(0, smd.modes.TRAIN, 0, [scalar])
    segment.write(MemoryStore(), "worker_0", 0, [step])  # pyarrow imports more on first use
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            train(line.strip())
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
