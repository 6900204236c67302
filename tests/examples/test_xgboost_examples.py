"""The examples for XGBoost run, learn, and leave the trials and the report they say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("xgboost")
pytest.importorskip("sklearn")
pytest.importorskip("pandas")

from tornasole import create_trial

SCRIPTS = Path(__file__).resolve().parent.parent.parent / "examples" / "xgboost"


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """Runs an example once for all tests, and returns its trial and what it printed."""
    finished = {}

    def example(name):
        if name not in finished:
            folder = tmp_path_factory.mktemp("example")
            command = [sys.executable, str(SCRIPTS / name), "--out-dir", str(folder / "trial")]
            run = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=300, check=False
            )
            assert run.returncode == 0, run.stderr
            assert run.stderr == ""
            finished[name] = create_trial(str(folder / "trial")), run.stdout
        return finished[name]

    return example


@pytest.mark.parametrize("name", ["train.py", "estimator.py"])
def test_an_example_leaves_a_finished_trial_with_nothing_that_is_not_finite_in_a_metric(done, name):
    trial, _ = done(name)
    assert trial.state == "finished"
    for metric in trial.tensor_names(collection="metrics"):
        _, values = trial.tensor(metric).series()
        assert all(abs(value) < float("inf") for value in values), metric


@pytest.mark.parametrize("name", ["train.py", "estimator.py"])
def test_an_example_saves_metrics_every_round_and_the_rest_every_fifth(done, name):
    trial, _ = done(name)
    rounds = trial.steps()
    assert rounds == list(range(len(rounds)))
    assert trial.tensor("predictions").steps() == rounds[::5]


def test_the_training_learns(done):
    trial, printed = done("train.py")
    _, losses = trial.tensor("valid-logloss").series()
    assert losses[-1] < losses[0] / 4
    areas = [float(area) for area in re.findall(r"auc ([\d.]+)", printed)]
    assert len(areas) == 6
    assert areas[-1] > 0.95


def test_the_training_saves_all_that_the_report_needs(done):
    trial, _ = done("train.py")
    kinds = ("hyperparameters", "feature_importance", "average_shap", "trees")
    for collection in ("metrics", "predictions", "labels", *kinds):
        assert trial.tensor_names(collection=collection), collection


def test_the_training_names_the_features_that_move_predictions_most(done):
    trial, printed = done("train.py")
    _, _, listed = printed.partition("what moves predictions most:\n")
    found = re.findall(r"^  (\w+) +([\d.]+)$", listed, re.MULTILINE)
    assert len(found) == 5
    last = trial.tensor("predictions").steps()[-1]
    for name, value in found:
        saved = trial.tensor(f"average_shap/{name}").value(last)
        assert float(value) == pytest.approx(float(saved), abs=0.001)


def test_the_training_ends_with_a_report(done):
    _, printed = done("train.py")
    path = Path(re.search(r"^report: (.+)$", printed, re.MULTILINE)[1])
    page = path.read_text(encoding="utf-8")
    assert "Confusion matrix" in page
    assert "worst_concave_points" in page


def test_the_estimator_stops_early_and_its_best_round_is_in_the_trial(done):
    trial, printed = done("estimator.py")
    best, error = re.search(r"best round (\d+): rmse ([\d.]+)", printed).groups()
    steps, errors = trial.tensor("validation_1-rmse").series()
    assert steps[errors.argmin()] == int(best)
    assert errors.min() == pytest.approx(float(error), abs=0.005)
    assert len(steps) == int(best) + 1 + 10  # the patience
