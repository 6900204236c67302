"""Rules in the training process judge what the hook saves, and can stop the training."""

import socket
import subprocess
import sys

import numpy as np
import pytest

import tornasole
from tornasole import Hook, ReductionConfig, SaveConfig, create_trial
from tornasole.errors import SMDebugTypeError, TrainingStopped
from tornasole.rules import Rule, attach, check, findings_of
from tornasole.types import Role

EVERY = SaveConfig(save_interval=1)


def train(hook, losses):
    for loss in losses:
        hook.begin_step()
        hook._recorder.record("loss", Role.LOSS, np.asarray(loss))
        hook._recorder.record("gradient/w", Role.GRADIENT, np.full((3, 2), loss))


@pytest.fixture
def hook(tmp_path):
    made = []

    def make(**options):
        options = {"save_all": True, "save_config": EVERY, "on_error": "raise", **options}
        made.append(Hook(tmp_path / "trial", **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_a_finding_is_there_when_the_step_is_over(hook):
    watched = hook()
    attached = attach(watched, ["exploding_tensor"])
    train(watched, [1.0, np.nan, 1.0])
    assert [finding.step for finding in attached.findings] == [1]


@pytest.mark.parametrize(
    "form",
    [None, ReductionConfig(reductions=["min", "max", "mean"], norms=["l1"])],
    ids=["raw", "statistics"],
)
def test_the_findings_are_those_of_a_later_check(hook, tmp_path, form):
    rules = ["exploding_tensor", "vanishing_gradient", "all_zero", "nan_source"]
    with hook(reduction_config=form) as watched:
        attached = attach(watched, rules)
        train(watched, [1.0, 1e-9, 0.0, 0.0, np.inf, 1.0])
    later = check(tmp_path / "trial", rules, save=False)
    assert [f.key for f in attached.findings] == [f.key for f in later.findings]


def test_training_is_stopped_within_two_saved_steps(hook, tmp_path):
    watched = hook()
    attach(watched, ["exploding_tensor"], actions=["stop"])
    with pytest.raises(TrainingStopped, match="exploding_tensor"):
        train(watched, [1.0, 1.0, np.nan] + [1.0] * 20)
    trial = create_trial(tmp_path / "trial")
    assert trial.state == "finished"
    assert trial.steps()[-1] <= 4


def test_findings_are_written_to_the_trial(hook, tmp_path):
    watched = hook()
    attached = attach(watched, ["exploding_tensor"])
    train(watched, [np.nan, 1.0])
    watched.close()
    attached.close()
    assert [finding.step for finding in findings_of(tmp_path / "trial")] == [0]


def test_a_rule_that_reads_a_trial_is_refused(hook):
    class OfATrial(Rule):
        def invoke_at_step(self, step):
            return True

    with pytest.raises(SMDebugTypeError, match="tornasole watch"):
        attach(hook(), [OfATrial])


def test_a_dry_run_finds_and_writes_nothing(hook, tmp_path):
    watched = hook(dry_run=True)
    attached = attach(watched, ["exploding_tensor"])
    train(watched, [np.nan, 1.0])
    attached.close()
    assert len(attached.findings) == 1
    assert not (tmp_path / "trial").exists()


def test_the_old_name_has_it_too():
    import smdebug.rules

    assert smdebug.rules.attach is tornasole.rules.attach


DDP = """
import os, sys
import numpy as np, torch, torch.distributed as dist
import tornasole, tornasole.pytorch as smd
from tornasole.rules import attach

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
hook = smd.Hook(
    sys.argv[1],
    include_collections=["gradients", "losses"],
    save_config=smd.SaveConfig(save_interval=1),
    include_workers=sys.argv[2],
)
hook.register_module(model)
attach(hook, ["exploding_tensor"], actions=["stop"])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
steps = 0
try:
    for step in range(200):
        data = torch.ones(8, 4) * (float("nan") if step == 5 and dist.get_rank() == 1 else 1)
        optimizer.zero_grad()
        model(data).mean().backward()
        optimizer.step()
        steps += 1
except tornasole.TrainingStopped as reason:
    print(f"rank {dist.get_rank()} stopped after {steps}: {reason}", flush=True)
"""


@pytest.mark.parametrize("include_workers", ["one", "all"])
def test_two_workers_stop_together(tmp_path, include_workers):
    pytest.importorskip("torch")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    jobs = [
        subprocess.Popen(
            [sys.executable, "-c", DDP, str(tmp_path / "trial"), include_workers],
            env={
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                "RANK": str(rank), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1",
                "PATH": "", "PYTHONPATH": ":".join(sys.path),
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    said = [job.communicate(timeout=120)[0] for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0]
    counts = [int(each.split("after ")[1].split(":")[0]) for each in said]
    assert counts[0] == counts[1]
    assert counts[0] <= 8
    assert create_trial(tmp_path / "trial").state == "finished"
