"""A trial of a Gluon job reads the same everywhere: tests/data/make_mxnet_trial.py wrote it."""

from pathlib import Path

import numpy as np
import pytest

import tornasole
from tornasole import modes

FOLDER = Path(__file__).resolve().parents[1] / "data" / "mxnet"


@pytest.fixture(scope="module")
def trial():
    return tornasole.create_trial(str(FOLDER / "trial"))


@pytest.fixture(scope="module")
def expected():
    with np.load(FOLDER / "expected.npz") as file:
        return {tuple(key.replace("|", "/").split(" ", 1)): file[key] for key in file.files}


def test_values_are_those_that_mxnet_had(trial, expected):
    for (step, name), value in expected.items():
        found = trial.tensor(name).value(int(step))
        assert found.dtype == value.dtype
        np.testing.assert_array_equal(found, value, err_msg=f"{name} at {step}")


def test_steps_and_modes_are_those_of_the_job(trial):
    assert trial.steps() == [0, 1, 2]
    assert trial.steps(mode=modes.TRAIN) == [0, 1]
    assert trial.steps(mode=modes.EVAL) == [0]
    assert trial.mode(2) == modes.EVAL


def test_collections_hold_what_they_held(trial):
    assert set(trial.tensor_names(collection="weights")) == {
        "net_embedding0_weight",
        "net_dense0_weight",
        "net_scale",
        "net_lstm0_l0_i2h_weight",
        "net_lstm0_l0_h2h_weight",
    }
    assert len(trial.tensor_names(collection="gradients")) == 8
    assert trial.tensor_names(collection="losses") == ["softmaxcrossentropyloss0_output_0"]


def test_statistics_of_a_value_are_computed_where_it_is_read(trial, expected):
    gradient = expected["1", "gradient/net_embedding0_weight"]
    read = trial.tensor("gradient/net_embedding0_weight").reduction_value(1, "l2")
    assert read == pytest.approx(np.linalg.norm(gradient.astype("f8")), rel=1e-12)
