"""``tornasole demo``: trains a small real model, and finds what its loss curve does not tell.

The model classifies scikit-learn's handwritten digits. One line of the script is wrong, as it
happens: the optimizer does not get all parameters. The model learns all the same, so the loss looks
healthy.
"""

from __future__ import annotations

import shutil
import sys
from collections import OrderedDict
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.datasets import load_digits
from torch import nn

from tornasole.pytorch import Hook, ReductionConfig, SaveConfig, modes
from tornasole.trial import Trial, create_trial

_EPOCHS = 12
_BATCH = 64


def run(out_dir: Path | None = None, console: Console | None = None) -> None:
    """Trains, then looks at the trial.

    Args:
        out_dir: Where the trial goes; by default the first free ``runs/demo-<n>``.
        console: Where to talk to.
    """
    console = console or Console()
    path = out_dir or next(
        p for n in range(1, 10_000) if not (p := Path("runs") / f"demo-{n}").exists()
    )
    console.print(
        f"\nTraining a digit classifier with a hook; the trial goes to [bold]{path}[/].\n"
    )
    accuracy = train(path)
    console.print()
    tell(create_trial(str(path)), accuracy, console)
    console.print("\nThe whole script is in src/tornasole/demo.py. Next, try:\n")
    tornasole = "tornasole" if shutil.which("tornasole") else sys.argv[0]
    for command in (
        f"{tornasole} check {path}",
        f"{tornasole} show {path}",
        f"{tornasole} tensors {path} --collection gradients",
        f"{tornasole} show {path} gradient/Sequential_hidden.weight",
    ):
        console.print(f"  {command}", highlight=False, soft_wrap=True)


def train(path: Path) -> float:
    """Trains the classifier and returns its accuracy on data that it has not seen."""
    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.data, dtype=torch.float32) / 16
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(images))
    seen, unseen = order[:-300], order[-300:]

    first, hidden, last = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 10)
    layers = OrderedDict(first=first, relu1=nn.ReLU(), hidden=hidden, relu2=nn.ReLU(), last=last)
    model = nn.Sequential(layers)
    loss_function = nn.CrossEntropyLoss()
    # The fault: the hidden layer is missing here.
    optimizer = torch.optim.Adam([*first.parameters(), *last.parameters()], lr=3e-3)

    hook = Hook(
        out_dir=str(path),
        save_config=SaveConfig(save_interval=10),
        reduction_config=ReductionConfig(
            reductions=["mean", "std"], norms=["l2"], save_raw_tensor=True
        ),
        include_collections=["weights", "gradients"],
    )
    hook.get_collection("losses").save_config = SaveConfig(save_interval=1)
    hook.register_module(model)
    hook.register_loss(loss_function)

    hook.set_mode(modes.TRAIN)
    for _ in track(range(_EPOCHS), description="epochs"):
        for batch in torch.split(seen[torch.randperm(len(seen))], _BATCH):
            optimizer.zero_grad()
            loss_function(model(images[batch]), labels[batch]).backward()
            optimizer.step()
    hook.set_mode(modes.EVAL)
    with torch.no_grad():
        right = model(images[unseen]).argmax(1) == labels[unseen]
    accuracy = float(right.float().mean())
    hook.save_scalar("accuracy", accuracy)
    hook.close()
    return accuracy


def tell(trial: Trial, accuracy: float, console: Console) -> None:
    """Shows what was saved, and what is wrong."""
    steps = trial.steps(mode=modes.TRAIN)
    console.print(
        f"Saved: weights, gradients and losses, {len(trial.tensor_names())} tensors, "
        f"over {len(steps)} training steps."
    )
    _, losses = trial.tensor("CrossEntropyLoss_output_0").series(mode=modes.TRAIN)
    console.print(
        f"The loss fell from {losses[0]:.2f} to {losses[-1]:.2f}; {accuracy:.0%} of unseen digits "
        "are right. Everything looks fine. But look at the layers:\n"
    )
    table = Table("weights of", "gradient (l2)", "changed by", "")
    for name in trial.tensor_names(collection="weights"):
        weights = trial.tensor(name)
        saved = weights.steps(mode=modes.TRAIN)
        before = weights.value(saved[0], mode=modes.TRAIN)
        after = weights.value(saved[-1], mode=modes.TRAIN)
        change = abs(after - before).mean() / abs(before).mean()
        _, gradients = trial.tensor(f"gradient/{name}").series("l2", mode=modes.TRAIN)
        verdict = "" if change else "[bold red]never changes[/]"
        layer = name.removeprefix("Sequential_").removesuffix(".weight")
        table.add_row(layer, f"{gradients.mean():.2f}", f"{change:.0%}", verdict)
    console.print(table)
    console.print(
        "\nThe hidden layer gets gradients but still has its first random weights; nobody clears "
        "its gradients, which pile up: the optimizer was not given this layer. The loss would "
        "never have told."
    )
