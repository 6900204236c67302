"""What tests of the PyTorch room may ask for: a place, hooks, a trial, a model to train.

Without torch this file must still load: the tests skip themselves.
"""

import logging
from pathlib import Path

import pytest

from tornasole.store.local import LocalStore

try:
    import torch
    from torch.optim.optimizer import _global_optimizer_post_hooks

    import tornasole.pytorch as smd
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise


@pytest.fixture(autouse=True)
def alone():
    """No hook from another test, the same random numbers, and the compiler as torch has it."""
    smd.del_hook()
    torch.manual_seed(0)
    yield
    smd.del_hook()
    left = torch._dynamo.eval_frame._stance.stance
    torch.compiler.set_stance("default")
    assert left == "default"


@pytest.fixture(params=["tornasole.pytorch", "smdebug.pytorch"])
def either_name(request):
    """The module by its new and by its old name."""
    return pytest.importorskip(request.param)


@pytest.fixture
def out_dir(tmp_path) -> Path:
    return tmp_path / "trial"


@pytest.fixture
def new_hook(out_dir):
    """Makes hooks that save at every step and raise their faults, and closes them at the end."""
    hooks = []

    def make(path=out_dir, **options):
        options = {"on_error": "raise", "save_config": smd.SaveConfig(save_interval=1), **options}
        hooks.append(smd.Hook(path, **options))
        return hooks[-1]

    yield make
    for hook in hooks:
        hook.close()


@pytest.fixture
def read(out_dir):
    return lambda path=out_dir: smd.create_trial(str(path))


@pytest.fixture
def record(new_hook, read):
    """Calls a function with a hook that saves all of a model, and returns the trial."""

    def run(model, work, loss=None, **options):
        hook = new_hook(**{"save_all": True, **options})
        hook.register_module(model)
        if loss is not None:
            hook.register_loss(loss)
        work(hook)
        hook.close()
        return read()

    return run


@pytest.fixture
def net():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1 = torch.nn.Linear(4, 8)
            self.bn = torch.nn.BatchNorm1d(8)
            self.relu = torch.nn.ReLU(inplace=True)
            self.fc2 = torch.nn.Linear(8, 3)

        def forward(self, x):
            return self.fc2(self.relu(self.bn(self.fc1(x))))

    return Net()


@pytest.fixture
def train():
    """Trains a model for some steps; what it computes depends on nothing but the seed."""

    def run(model, steps=1, loss=None, optimizer=None, x=None, after=lambda: None):
        loss = loss or torch.nn.CrossEntropyLoss()
        optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(steps):
            optimizer.zero_grad()
            output = model(torch.randn(5, 4) if x is None else x)
            loss(output, torch.randint(0, output.shape[1], (len(output),))).backward()
            optimizer.step()
            after()

    return run


@pytest.fixture
def attached():
    """What of anybody's hangs on a model: hooks on modules, parameters and optimizers."""

    def find(*models):
        found = []
        for model in models:
            for name, module in model.named_modules():
                for kind in ("_forward_pre_hooks", "_forward_hooks", "_backward_hooks"):
                    found += [f"{name}: {kind}"] * len(getattr(module, kind))
                if "compiled_call" in repr(getattr(module, "_compiled_call_impl", None)):
                    found.append(f"{name}: _compiled_call_impl")
            for name, parameter in model.named_parameters():
                if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
                    found.append(f"{name}: gradient hook")
        return found + ["optimizer"] * len(_global_optimizer_post_hooks)

    return find


@pytest.fixture
def warnings_of(caplog):
    """The messages logged so far."""
    caplog.set_level(logging.WARNING, "tornasole")
    return lambda: [record.getMessage() for record in caplog.records]


@pytest.fixture
def full_disk(monkeypatch):
    """From the call on, a disk on which no segment can be written."""
    put = LocalStore.put

    def fill():
        def full(store, key, data, **options):
            if key.endswith((".parquet", ".safetensors")):
                raise OSError(28, "No space left on device", key)
            put(store, key, data, **options)

        monkeypatch.setattr(LocalStore, "put", full)

    return fill
