"""Several processes of one machine that train one model together."""

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

xgb = pytest.importorskip("xgboost")
pytest.importorskip("xgboost.collective")

import tornasole.xgboost as smd  # noqa: E402

# The tracker and the workers that it waits for. All end with the process that runs this.
JOB = """
import json, subprocess, sys
from xgboost.tracker import RabitTracker

worker, count = sys.argv[1], int(sys.argv[2])
tracker = RabitTracker(host_ip="127.0.0.1", n_workers=count, sortby="task")
if hasattr(tracker, "worker_args"):
    tracker.start()
    meeting = tracker.worker_args()
else:
    tracker.start(count)
    meeting = tracker.worker_envs()
workers = [
    subprocess.Popen([sys.executable, "-c", worker, json.dumps(meeting), str(n), *sys.argv[3:]])
    for n in range(count)
]
try:
    codes = [each.wait(90) for each in workers]
finally:
    for each in workers:
        each.kill()
sys.exit(max(abs(code) for code in codes))
"""

WORKER = """
import json, sys
import numpy as np
import xgboost as xgb
from xgboost import collective
import tornasole.xgboost as smd

meeting, number = json.loads(sys.argv[1]), int(sys.argv[2])
out_dir, workers, collections = sys.argv[3], sys.argv[4], sys.argv[5].split()
names = ("dmlc_task_id", "DMLC_TASK_ID")
task = {name: f"[{number:02d}]" for name in names[: 1 if "dmlc_tracker_uri" in meeting else 2]}
with collective.CommunicatorContext(**meeting, **task):
    rank = collective.get_rank()
    random = np.random.RandomState(rank)
    x = random.rand(30 + rank, 4)
    data = xgb.DMatrix(x, label=x[:, 0] + rank)
    hook = smd.Hook(
        out_dir, include_workers=workers, include_collections=collections, on_error="raise",
        train_data=data, validation_data=data, save_config=smd.SaveConfig(save_interval=2),
    )
    params = {"nthread": 1, "tree_method": "hist", "max_depth": 2, "eval_metric": ["rmse", "mae"]}
    booster = xgb.train(
        params, data, 5, evals=[(data, "train")], callbacks=[hook], verbose_eval=False
    )
    hook.close()
    try:
        smd.Hook(out_dir + ".other", train_data=(sys.executable, "csv"))
    except ValueError as error:
        assert "distributed" in str(error)
    else:
        sys.exit("A file was accepted.")
    np.save(f"{out_dir}.{rank}.npy", booster.predict(data))
    with open(f"{out_dir}.{rank}.model", "wb") as file:
        file.write(booster.save_raw("json"))
"""

EVERYTHING = (
    "metrics losses hyperparameters predictions labels feature_importance average_shap full_shap"
    " trees"
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Trains with some workers, and returns where they left what."""

    def run(count, workers, collections=EVERYTHING):
        out_dir = tmp_path_factory.mktemp("workers") / "trial"
        arguments = [WORKER, str(count), str(out_dir), workers, collections]
        job = subprocess.run(
            [sys.executable, "-c", JOB, *arguments],
            timeout=120,
            check=False,
            capture_output=True,
            text=True,
        )
        assert job.returncode == 0, job.stderr
        return SimpleNamespace(
            out_dir=out_dir,
            trial=smd.create_trial(str(out_dir)),
            predictions=[np.load(f"{out_dir}.{rank}.npy") for rank in range(count)],
            models=[out_dir.with_name(f"trial.{rank}.model").read_bytes() for rank in range(count)],
        )

    return run


@pytest.fixture(scope="module")
def all_save(trained):
    return trained(3, "all")


@pytest.fixture(scope="module")
def one_saves(trained):
    return trained(2, "one")


def test_every_worker_saves_under_its_name(all_save):
    trial = all_save.trial
    assert trial.workers() == ["worker_0", "worker_1", "worker_2"]
    assert trial.steps() == [0, 2, 4]
    assert trial.state == "finished"


@pytest.mark.parametrize("metric", ["train-rmse", "train-mae"])
def test_metrics_are_those_that_all_workers_agreed_on(all_save, metric):
    tensor = all_save.trial.tensor(metric)
    for step in (0, 2, 4):
        values = {float(tensor.value(step, worker=f"worker_{rank}")) for rank in range(3)}
        assert len(values) == 1


def test_trees_are_the_same_in_all_workers(all_save):
    tensor = all_save.trial.tensor("trees/Gain")
    for rank in (1, 2):
        np.testing.assert_array_equal(
            tensor.value(4, worker="worker_0"), tensor.value(4, worker=f"worker_{rank}")
        )


def test_labels_and_predictions_are_those_of_each_worker(all_save):
    trial = all_save.trial
    for rank in range(3):
        worker = f"worker_{rank}"
        labels = trial.tensor("labels").value(4, worker=worker)
        assert labels.shape == (30 + rank,)
        assert rank <= labels.min() <= labels.max() <= rank + 1
        found = trial.tensor("predictions").value(4, worker=worker)
        np.testing.assert_array_equal(found, all_save.predictions[rank])


def test_shap_values_are_of_the_rows_of_each_worker(all_save):
    tensor = all_save.trial.tensor("full_shap/f0")
    assert [tensor.value(4, worker=f"worker_{rank}").shape for rank in range(3)] == [
        (30,), (31,), (32,)
    ]  # fmt: skip


def test_the_trial_knows_the_number_of_its_workers(all_save, one_saves):
    assert all_save.trial.about["workers"] == 3
    assert one_saves.trial.about["workers"] == 1


def test_by_default_only_the_first_worker_saves(one_saves):
    assert one_saves.trial.workers() == ["worker_0"]
    assert one_saves.trial.steps() == [0, 2, 4]
    assert sorted(path.name for path in one_saves.out_dir.glob("worker_*")) == ["worker_0"]
    np.testing.assert_array_equal(
        one_saves.trial.tensor("predictions").value(4), one_saves.predictions[0]
    )
    assert "full_shap/f0" in one_saves.trial.tensor_names()


def test_a_file_of_rows_is_refused_as_reading_it_would_wait_for_all(one_saves):
    """The workers tried; they would have failed otherwise."""
    assert not one_saves.out_dir.with_name("trial.other").exists()


def test_what_one_worker_computes_alone_does_not_change_the_model(one_saves):
    """XGBoost's workers wait for one another: nothing of the hook may do so."""
    assert one_saves.models[0] == one_saves.models[1]
