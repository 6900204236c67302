"""The Python example of the original documentation, as it is written there."""

import importlib
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("keras")
tf = pytest.importorskip("tensorflow")

pytestmark = pytest.mark.backend("tensorflow")


@pytest.fixture(scope="module", params=["smdebug.tensorflow", "tornasole.tensorflow"])
def example(request, tmp_path_factory):
    """Runs it; what it left out is filled in."""
    smd = importlib.import_module(request.param)
    args = SimpleNamespace(epochs=2, out_dir=str(tmp_path_factory.mktemp("example") / "trial"))
    numbers = np.random.default_rng(0)
    x_train, y_train = numbers.normal(size=(64, 8)).astype("float32"), np.arange(64) % 3
    x_test, y_test = x_train[:32], y_train[:32]

    hook = smd.KerasHook(out_dir=args.out_dir)

    model = tf.keras.models.Sequential(
        [tf.keras.layers.Dense(4, activation="relu"), tf.keras.layers.Dense(3, "softmax")]
    )
    model.compile(
        optimizer="adam",
        loss="sparse_categorical_crossentropy",
    )
    fitted = model.fit(x_train, y_train, epochs=args.epochs, callbacks=[hook], verbose=0)
    model.evaluate(x_test, y_test, callbacks=[hook], verbose=0)
    hook.close()

    return smd, fitted, smd.create_trial(out_dir=args.out_dir)


def test_the_trial_names_what_was_saved(example):
    assert list(example[2].tensors()) == ["loss"]


def test_the_trial_gives_the_losses(example):
    smd, fitted, trial = example
    loss = trial.tensor("loss")
    assert loss.steps(mode=smd.modes.TRAIN) == [0, 1, 3]
    assert loss.steps(mode=smd.modes.EVAL) == [0]
    losses = [loss.value(step, mode=smd.modes.TRAIN) for step in (1, 3)]
    np.testing.assert_allclose(losses, fitted.history["loss"], rtol=1e-6)


def test_what_the_example_prints_says_something(example):
    trial = example[2]
    assert "loss" in f"Saved tensor values for {trial.tensors()}"
    assert "loss" in f"Loss values were {trial.tensor('loss')}"


def test_both_names_are_of_the_same_hook():
    ours = importlib.import_module("tornasole.tensorflow")
    theirs = pytest.importorskip("smdebug.tensorflow")
    assert theirs.KerasHook is ours.KerasHook


def test_the_trial_can_be_read_before_the_hook_is_closed(tmp_path):
    import tornasole.tensorflow as smd

    hook = smd.KerasHook(str(tmp_path / "trial"), save_config=smd.SaveConfig(save_interval=1))
    model = tf.keras.models.Sequential([tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(np.ones((8, 2)), np.ones(8), batch_size=4, callbacks=[hook], verbose=0)
    trial = smd.create_trial(str(tmp_path / "trial"))
    assert trial.path == str(tmp_path / "trial")
    hook.close()
    assert trial.tensor("loss").steps() == [0, 1]
