"""The original API for TensorFlow: the statements of its page, and the hook in sessions."""

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from tornasole.capture import del_hook  # noqa: E402
from tornasole.selection import SaveConfig  # noqa: E402
from tornasole.tensorflow.collection import (  # noqa: E402
    add_to_collection,
    get_collection,
    reset_collections,
)
from tornasole.tensorflow.session import SessionHook, TornasoleHook  # noqa: E402
from tornasole.trial import create_trial  # noqa: E402
from tornasole.types import ModeKeys as modes  # noqa: E402

v1 = tf.compat.v1

LOSS = "mean_squared_error/value:0"


@pytest.fixture(autouse=True)
def own_collections():
    """Collections belong to the process: each test begins with none but the built-in ones."""
    del_hook()
    reset_collections()
    yield
    del_hook()
    reset_collections()


@pytest.fixture
def out_dir(tmp_path):
    return str(tmp_path / "trial")


def train(hook, runs=((modes.TRAIN, 1),)):
    """Trains a model in the modes and for the steps given, and returns the trial."""
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [None, 2], "x")
        kernel = v1.get_variable("kernel", initializer=np.ones((2, 1), np.float32))
        bias = v1.get_variable("bias", initializer=np.zeros(1, np.float32))
        output = tf.nn.relu(tf.matmul(x, kernel) + bias, name="relu")
        loss = v1.losses.mean_squared_error(tf.zeros_like(output), output)
        optimizer = hook.wrap_optimizer(v1.train.GradientDescentOptimizer(0.01))
        training = optimizer.minimize(loss)
        with v1.train.MonitoredSession(hooks=[hook]) as session:
            for mode, steps in runs:
                hook.set_mode(mode)
                for _ in range(steps):
                    session.run(training, {x: np.ones((3, 2))})
    hook.close()
    trial = create_trial(hook.out_dir)
    assert trial.state == "finished"
    return trial


def test_the_statements_of_the_page_run_as_written(out_dir):
    from tornasole.tensorflow import SaveConfigMode, TornasoleHook, get_collection, modes

    scm = {
        modes.TRAIN: SaveConfigMode(save_interval=3),
        modes.EVAL: SaveConfigMode(save_interval=2),
    }
    hook = TornasoleHook(out_dir, save_config=scm)
    get_collection("weights").set_save_config(
        {modes.TRAIN: SaveConfigMode(save_interval=4), modes.EVAL: SaveConfigMode(save_interval=3)}
    )
    trial = train(hook, [(modes.TRAIN, 5), (modes.EVAL, 5)])
    assert trial.tensor("kernel:0").steps(mode=modes.TRAIN) == [0, 4]
    assert trial.tensor("kernel:0").steps(mode=modes.EVAL) == [0, 3]
    assert trial.tensor("bias:0").steps(mode=modes.TRAIN) == [0, 3]
    assert trial.tensor("bias:0").steps(mode=modes.EVAL) == [0, 2, 4]


def test_a_hook_saves_weights_biases_and_gradients_unless_told_otherwise(out_dir):
    trial = train(TornasoleHook(out_dir))
    assert trial.tensor_names(collection="weights") == ["kernel:0"]
    assert trial.tensor_names(collection="bias") == ["bias:0"]
    assert len(trial.tensor_names(collection="gradients")) == 2
    assert len(trial.tensor_names()) == 4


def test_the_default_interval_is_that_of_the_page(out_dir):
    trial = train(TornasoleHook(out_dir), [(modes.TRAIN, 102)])
    assert trial.steps() == [0, 100]


def test_collections_of_the_process_are_saved_by_the_hook_that_includes_them(out_dir):
    get_collection("activations").include("^relu:0$")
    add_to_collection("mine", "x:0")
    hook = TornasoleHook(out_dir, include_collections=["activations", "mine", "losses"])
    trial = train(hook)
    assert trial.tensor_names(collection="activations") == ["relu:0"]
    assert trial.tensor_names(collection="mine") == ["x:0"]
    assert trial.tensor_names(collection="losses") == [LOSS]
    assert len(trial.tensor_names()) == 3


def test_save_steps_are_instead_of_the_interval(out_dir):
    hook = TornasoleHook(out_dir, save_config=SaveConfig(save_steps=[1, 3]))
    assert train(hook, [(modes.TRAIN, 5)]).steps() == [1, 3]


def test_the_worker_is_the_one_named(out_dir):
    assert train(TornasoleHook(out_dir, worker="chief")).workers() == ["chief"]


def test_it_is_a_session_hook(out_dir):
    hook = TornasoleHook(out_dir, dry_run=True)
    assert isinstance(hook, SessionHook)
    assert isinstance(hook, v1.train.SessionRunHook)
    hook.close()
