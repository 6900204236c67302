"""The examples for MXNet run, learn, change nothing in training, and leave the trials they say."""

import difflib
import re
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import pytest

pytest.importorskip("mxnet")
pytest.importorskip("sklearn")

from tornasole import create_trial, modes

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"
SCRIPTS = EXAMPLES / "mxnet"
NOTEBOOK = EXAMPLES / "notebooks" / "mxnet.ipynb"

PARAMETERS = {
    f"hybridsequential0_{layer}_{kind}"
    for layer in ("conv0", "conv1", "dense0", "dense1")
    for kind in ("weight", "bias")
}
GRADIENTS = {f"gradient/{name}" for name in PARAMETERS}
RELUS = {f"hybridsequential0_{layer}_relu_output_0" for layer in ("conv0", "conv1", "dense0")}
LOSS = "softmaxcrossentropyloss0_output_0"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("examples")


@pytest.fixture(scope="module")
def run(folder):
    """Runs an example once for all tests, and returns what it printed."""
    printed = {}

    def example(name):
        if name not in printed:
            out_dir = [] if name == "train.py" else ["--out-dir", str(folder / name)]
            options = ["--epochs", "3", "--seed", "7", *out_dir]
            command = [sys.executable, str(SCRIPTS / name), *options]
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=300, check=False
            )
            assert done.returncode == 0, done.stderr
            printed[name] = done.stdout
        return printed[name]

    return example


@pytest.fixture(scope="module")
def trial_of(run, folder):
    def opened(name):
        run(name)
        return create_trial(str(folder / name))

    return opened


def test_the_plain_script_learns(run):
    losses = [float(number) for number in re.findall(r"loss ([\d.]+)", run("train.py"))]
    accuracies = [float(number) for number in re.findall(r"accuracy ([\d.]+)", run("train.py"))]
    assert len(losses) == 3
    assert losses[-1] < losses[0] / 3
    assert accuracies[-1] > 0.7


@pytest.mark.parametrize("name", ["train_tornasole.py", "train_smdebug.py"])
def test_a_hook_changes_neither_loss_nor_accuracy(run, name):
    assert run(name) == run("train.py")


@pytest.mark.parametrize("name", ["train_tornasole.py", "train_smdebug.py"])
def test_a_hook_only_adds_lines(name):
    plain = (SCRIPTS / "train.py").read_text().splitlines()
    hooked = (SCRIPTS / name).read_text().splitlines()
    changes = list(difflib.ndiff(plain, hooked))
    gone = [line for line in changes if line.startswith("- ")]
    assert gone == ["- " + plain[0]], "only the first line of the docstring"
    added = [line for line in changes if line.startswith("+ ") and line[2:].strip()]
    assert len(added) <= 16


def test_the_original_api_saves_the_default_collections_and_what_the_regexes_match(trial_of):
    trial = trial_of("train_tornasole.py")
    assert set(trial.tensor_names()) == PARAMETERS | GRADIENTS | RELUS | {LOSS}
    assert set(trial.tensor_names(collection="default")) == RELUS | {LOSS}
    assert trial.workers() == ["worker0"]


def test_the_smdebug_script_saves_the_collections_it_names_and_losses(trial_of):
    trial = trial_of("train_smdebug.py")
    assert set(trial.tensor_names()) == PARAMETERS | GRADIENTS | {LOSS}
    assert trial.tensor_names(collection="losses") == [LOSS]
    assert trial.workers() == ["worker_0"]


@pytest.mark.parametrize("name", ["train_tornasole.py", "train_smdebug.py"])
def test_every_tenth_step_of_each_mode_is_saved(trial_of, name):
    trial = trial_of(name)
    steps_of_training = 3 * -(-(1797 - 300) // 64)
    steps_of_evaluation = 3 * -(-300 // 64)
    assert trial.steps(mode=modes.TRAIN) == list(range(0, steps_of_training, 10))
    assert trial.steps(mode=modes.EVAL) == list(range(0, steps_of_evaluation, 10))


@pytest.mark.parametrize("name", ["train_tornasole.py", "train_smdebug.py"])
def test_the_loss_in_the_trial_falls(trial_of, name):
    loss = trial_of(name).tensor(LOSS)
    first, *_, last = loss.steps(mode=modes.TRAIN)
    means = [loss.reduction_value(step, "mean", mode=modes.TRAIN) for step in (first, last)]
    assert means[1] < means[0] / 3


@pytest.mark.parametrize("name", ["train_tornasole.py", "train_smdebug.py"])
def test_the_trial_is_finished_when_the_script_is(trial_of, name):
    assert trial_of(name).state == "finished"


def test_both_hooks_see_the_same_values(trial_of):
    one, other = trial_of("train_tornasole.py"), trial_of("train_smdebug.py")
    for name in sorted(PARAMETERS | GRADIENTS | {LOSS}):
        first, second = one.tensor(name), other.tensor(name)
        step = first.steps(mode=modes.TRAIN)[-1]
        values = [tensor.value(step, mode=modes.TRAIN) for tensor in (first, second)]
        assert (values[0] == values[1]).all(), name


# -- the notebook ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def notebook():
    """The notebook as it is in the repository."""
    nbformat = pytest.importorskip("nbformat")
    return nbformat.read(NOTEBOOK, as_version=4)


@pytest.fixture(scope="module")
def executed(notebook, folder):
    """The cells of a copy, executed."""
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    pytest.importorskip("matplotlib")
    copy = deepcopy(notebook)
    nbclient.execute(copy, cwd=str(folder), timeout=300, kernel_name="python3")
    return copy.cells


def pictures(cell):
    return [output for output in cell.get("outputs", []) if "image/png" in output.get("data", {})]


def text(cell):
    return "".join(output.get("text", "") for output in cell.get("outputs", []))


def test_the_notebook_is_kept_without_outputs(notebook):
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code
    assert all(not cell.outputs and cell.execution_count is None for cell in code)


def test_every_cell_that_draws_makes_a_figure(executed):
    drawing = [cell for cell in executed if "plt.show()" in cell.source]
    assert len(drawing) == 4
    assert [len(pictures(cell)) for cell in drawing] == [1] * len(drawing)


def test_the_network_of_the_notebook_learns(executed):
    printed = "".join(text(cell) for cell in executed)
    accuracies = [float(number) for number in re.findall(r"accuracy ([\d.]+)", printed)]
    assert len(accuracies) == 8
    assert accuracies[-1] > 0.8


def test_the_notebook_says_nothing_on_stderr(executed):
    said = [output for cell in executed for output in cell.get("outputs", [])]
    assert [output.text for output in said if output.get("name") == "stderr"] == []
