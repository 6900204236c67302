"""The examples for TensorFlow and Keras run, learn, and leave the trials they say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("sklearn")

from tornasole import create_trial  # noqa: E402

SCRIPTS = Path(__file__).resolve().parent.parent.parent / "examples" / "tensorflow"
NEED_ESTIMATOR = pytest.mark.skipif(not hasattr(tf, "estimator"), reason="needs tf.estimator")


@pytest.fixture(scope="module")
def trial_of(tmp_path_factory):
    """Runs an example once for all tests, and returns its trial and what it printed."""
    done = {}

    def example(name):
        if name not in done:
            folder = tmp_path_factory.mktemp("example")
            command = [sys.executable, str(SCRIPTS / name), "--out-dir", str(folder / "trial")]
            run = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=300, check=False
            )
            assert run.returncode == 0, run.stderr
            done[name] = create_trial(str(folder / "trial")), run.stdout
        return done[name]

    return example


EXAMPLES = ["fit.py", "tape.py", "session.py", pytest.param("estimator.py", marks=NEED_ESTIMATOR)]


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_leaves_a_finished_trial_with_losses_weights_and_gradients(trial_of, name):
    trial, _ = trial_of(name)
    assert trial.state == "finished"
    for collection in ("losses", "weights", "gradients"):
        assert trial.tensor_names(collection=collection), collection
    assert trial.first_nonfinite() is None


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_learns(trial_of, name):
    trial, _ = trial_of(name)
    (loss, *_) = trial.tensor_names(collection="losses")
    values = list(trial.tensor(loss).values().values())
    assert float(values[-1]) < float(values[0]) / 2


@pytest.mark.parametrize("name", ["fit.py", "tape.py"])
def test_an_example_says_how_it_goes(trial_of, name):
    _, printed = trial_of(name)
    losses = [float(loss) for loss in re.findall(r"loss ([0-9.]+)", printed)]
    assert len(losses) > 2
    assert losses[-1] < losses[0]
