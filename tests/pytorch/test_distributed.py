"""Several processes that train one model together."""

import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

if not torch.distributed.is_available():
    pytest.skip("torch was built without torch.distributed", allow_module_level=True)

WORKER = """
import sys, torch
import tornasole.pytorch as smd
rank, meeting, out_dir = int(sys.argv[1]), sys.argv[2], sys.argv[3]
torch.distributed.init_process_group(
    "gloo", init_method=f"file://{meeting}", rank=rank, world_size=2
)
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2))
hook = smd.Hook(
    out_dir, save_all=True, include_workers="all", on_error="raise",
    save_config=smd.SaveConfig(save_interval=1),
)
hook.register_module(model)
for step in range(2):
    model.zero_grad()
    model(torch.full((4, 3), rank + step + 1.0)).sum().backward()
    hook.save_tensor("seen", model.module.weight.grad)
hook.close()
torch.distributed.destroy_process_group()
"""


@pytest.fixture(scope="module")
def trial(tmp_path_factory):
    import tornasole

    folder = tmp_path_factory.mktemp("distributed")
    arguments = [str(folder / "meeting"), str(folder / "trial")]
    workers = [
        subprocess.Popen([sys.executable, "-c", WORKER, str(rank), *arguments]) for rank in (0, 1)
    ]
    assert [worker.wait(120) for worker in workers] == [0, 0]
    return tornasole.create_trial(str(folder / "trial"))


def test_every_worker_saves_under_its_name(trial):
    assert trial.workers() == ["worker_0", "worker_1"]
    assert trial.steps() == [0, 1]
    assert trial.state == "finished"


def test_names_have_the_wrapper_as_root(trial):
    assert {
        "DistributedDataParallel_module.weight",
        "gradient/DistributedDataParallel_module.weight",
        "module_input_0",
        "DistributedDataParallel_output_0",
    } <= set(trial.tensor_names())


def test_gradients_are_those_that_all_workers_agreed_on(trial):
    gradient = trial.tensor("gradient/DistributedDataParallel_module.weight")
    for step in (0, 1):
        first, second = (gradient.value(step, worker=f"worker_{rank}") for rank in (0, 1))
        np.testing.assert_array_equal(first, second)
        np.testing.assert_array_equal(first, trial.tensor("seen").value(step, worker="worker_0"))


def test_inputs_are_those_of_each_worker(trial):
    inputs = trial.tensor("DistributedDataParallel_input_0")
    assert [inputs.value(1, worker=f"worker_{rank}")[0, 0] for rank in (0, 1)] == [2, 3]
