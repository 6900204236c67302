"""Damaged and hostile files: reading works, or says which file is damaged; nothing else."""

import random

import numpy as np
import pytest

from tornasole.errors import SMDebugError
from tornasole.trial import create_trial
from tornasole.types import ModeKeys

FLIPS = 15


@pytest.fixture
def folder(start, records, tmp_path):
    run = start(tmp_path / "job").collections(weights={"roles": ["weight"]})
    for step in range(3):
        run.step(
            step,
            records.raw("w", np.full((2, 3), step, np.float32)),
            records.scalar("loss", step),
            records.reduced("g", mean=step, l2=1.0),
            mode=ModeKeys.TRAIN,
        )
    run.end()
    return tmp_path / "job"


def read_everything(path):
    trial = create_trial(path)
    trial.state, trial.state_reason, repr(trial)
    trial.steps(), trial.steps(ModeKeys.TRAIN), trial.modes(), trial.workers()
    trial.collections()
    trial.tensor_names(collection="weights")
    trial.values()
    trial.to_arrow()
    trial.first_nonfinite()
    for name in trial.tensor_names():
        tensor = trial.tensor(name)
        tensor.shapes(), tensor.role, tensor.series("mean"), tensor.series("value")
        for step in tensor.steps():
            tensor.statistics(step), tensor.dtype(step), tensor.workers(step)


def check(folder, path):
    """Reads the trial after a file of it was changed."""
    told = ""
    try:
        read_everything(folder)
    except SMDebugError as error:
        told = str(error)
    assert not told or str(folder) in told or path.name in told, f"{path.name}: {told}"


def files(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_an_undamaged_trial_reads(folder):
    read_everything(folder)


def test_a_truncated_file_is_named_or_does_no_harm(folder):
    for path in files(folder):
        whole = path.read_bytes()
        for length in {0, 1, len(whole) // 2, len(whole) - 1}:
            path.write_bytes(whole[:length])
            check(folder, path)
        path.write_bytes(whole)


def test_a_missing_file_is_named_or_does_no_harm(folder):
    for path in files(folder):
        whole = path.read_bytes()
        path.unlink()
        check(folder, path)
        path.write_bytes(whole)


@pytest.mark.parametrize("seed", range(2))
def test_flipped_bytes_are_named_or_do_no_harm(folder, seed):
    chance = random.Random(seed)
    for path in files(folder):
        whole = path.read_bytes()
        for _ in range(FLIPS):
            changed = bytearray(whole)
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
            path.write_bytes(changed)
            check(folder, path)
        path.write_bytes(whole)


def test_a_file_full_of_noise_is_named(folder):
    noise = random.Random(0).randbytes(5000)
    for path in files(folder):
        whole = path.read_bytes()
        path.write_bytes(noise)
        check(folder, path)
        path.write_bytes(whole)


@pytest.mark.parametrize("name", ["a/b:c d", "../../x", "x" * 10_000, "[red]", "\x1b[2J\n", "é\0"])
def test_any_name_can_be_read_back(run, records, name):
    run.step(0, records.raw(name, np.float32([1, 2])))
    trial = run.trial()
    assert trial.tensor_names() == [name]
    assert trial.tensor(name).value(0).tolist() == [1, 2]
