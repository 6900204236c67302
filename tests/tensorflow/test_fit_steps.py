"""How the batches of ``fit``, ``evaluate`` and ``predict`` are counted, and when they are saved."""

import numpy as np
import pytest

keras = pytest.importorskip("keras")

import tornasole.tensorflow as smd  # noqa: E402

TRAIN, EVAL, PREDICT = smd.modes.TRAIN, smd.modes.EVAL, smd.modes.PREDICT


@pytest.fixture(scope="module")
def run(new_net, data, open_hook, tmp_path_factory):
    """Two epochs of three batches, each followed by two of validation, then three and two more."""
    x, y = data
    out_dir = tmp_path_factory.mktemp("steps") / "trial"
    net = new_net(metrics=["accuracy"])
    with open_hook(out_dir) as hook:
        history = net.fit(
            x, y, 4, 2, verbose=0, callbacks=[hook], validation_data=(x, y), validation_batch_size=6
        )
        net.evaluate(x, y, batch_size=4, verbose=0, callbacks=[hook])
        net.predict(x, batch_size=6, verbose=0, callbacks=[hook])
    return hook, smd.create_trial(str(out_dir)), history.history


def test_global_steps_count_the_batches_of_all_modes(run):
    assert run[1].steps() == list(range(15))


def test_each_mode_counts_its_own_batches(run):
    trial = run[1]
    assert trial.steps(mode=TRAIN) == list(range(6))
    assert trial.steps(mode=EVAL) == list(range(7))
    assert trial.steps(mode=PREDICT) == [0, 1]


def test_the_steps_of_modes_lie_where_the_batches_were(run):
    trial = run[1]
    steps = {
        mode: [trial.global_step(mode, step) for step in trial.steps(mode=mode)]
        for mode in (TRAIN, EVAL, PREDICT)
    }
    assert steps[TRAIN] == [0, 1, 2, 5, 6, 7]
    assert steps[EVAL] == [3, 4, 8, 9, 10, 11, 12]
    assert steps[PREDICT] == [13, 14]


def test_the_hook_knows_its_steps(run):
    assert run[0].step == 14
    assert run[0].mode_steps == {TRAIN: 5, EVAL: 6, PREDICT: 1, smd.modes.GLOBAL: 14}
    assert run[0].mode is PREDICT


def test_losses_of_validation_are_saved_at_the_last_step_of_the_epoch(run):
    _, trial, history = run
    for name in ("val_loss", "val_accuracy"):
        assert trial.tensor(name).steps() == [4, 9]
        found = [trial.tensor(name).value(step) for step in (4, 9)]
        np.testing.assert_allclose(found, history[name], rtol=1e-6)


def test_the_loss_of_validation_is_that_of_its_batches(run):
    _, trial, history = run
    found = [trial.tensor("loss").value(step, mode=EVAL) for step in (1, 3)]
    np.testing.assert_allclose(found, history["val_loss"], rtol=1e-6)


def test_the_loss_of_an_epoch_is_saved_at_its_last_step_of_training(run):
    _, trial, history = run
    found = [trial.tensor("loss").value(step, mode=TRAIN) for step in (2, 5)]
    np.testing.assert_allclose(found, history["loss"], rtol=1e-6)


def test_without_validation_the_logs_of_an_epoch_are_saved_though_not_due(fit, new_net, data):
    config = {"save_config": smd.SaveConfig(save_interval=3)}
    net = new_net(metrics=["accuracy"])
    trial = fit(net, *data, config, epochs=4, batch_size=3)
    assert trial.tensor("loss").steps() == [0, 3, 6, 7, 9, 11, 12, 15]
    assert trial.tensor("accuracy").steps() == [0, 3, 6, 7, 9, 11, 12, 15]
    assert trial.tensor("predictions").steps() == [0, 3, 6, 9, 12, 15]
    np.testing.assert_allclose(
        [trial.tensor("loss").value(step) for step in (3, 7, 11, 15)],
        net.history.history["loss"],
        rtol=1e-6,
    )


def test_by_default_every_500th_step_is_saved_and_the_end_of_the_epoch(new_net, data, out_dir):
    hook = smd.KerasHook(str(out_dir), on_error="raise")
    new_net().fit(*data, batch_size=4, verbose=0, callbacks=[hook])
    hook.close()
    assert smd.create_trial(str(out_dir)).tensor("loss").steps() == [0, 2]


def test_metrics_can_be_switched_off(fit, new_net, data):
    def prepare(hook):
        hook.get_collection("metrics").save_config.end_step = 0

    net = new_net(metrics=["accuracy"])
    trial = fit(net, *data, {"save_all": False}, prepare, epochs=2, validation_data=data)
    assert set(trial.tensor_names()) == {"loss", "val_loss"}


def test_losses_can_be_switched_off(fit, new_net, data):
    def prepare(hook):
        hook.get_collection("losses").save_config = smd.SaveConfig(end_step=0)

    net = new_net(metrics=["accuracy"])
    trial = fit(net, *data, {"save_all": False}, prepare, validation_data=data)
    assert set(trial.tensor_names()) == {"accuracy", "val_accuracy"}


def test_modes_can_be_saved_at_steps_of_their_own(new_hook, read, new_net, data):
    config = smd.SaveConfig(
        {
            TRAIN: smd.SaveConfigMode(save_interval=2),
            EVAL: smd.SaveConfigMode(save_interval=3),
            PREDICT: smd.SaveConfigMode(start_step=1, save_interval=1),
        }
    )
    net = new_net()
    with new_hook(save_config=config) as hook:
        net.fit(*data, batch_size=4, epochs=2, verbose=0, callbacks=[hook], validation_data=data,
                validation_batch_size=6)  # fmt: skip
        net.predict(data[0], batch_size=4, verbose=0, callbacks=[hook])
    predictions = read().tensor("predictions")
    assert predictions.steps(mode=TRAIN) == [0, 2, 4]
    assert predictions.steps(mode=EVAL) == [0, 3]
    assert predictions.steps(mode=PREDICT) == [1, 2]
    assert predictions.steps() == [0, 2, 3, 6, 9, 11, 12]


def test_collections_can_be_saved_at_steps_of_their_own(fit, new_net, data):
    def prepare(hook):
        hook.get_collection("gradients").save_config = smd.SaveConfig(save_interval=3)
        hook.get_collection("weights").save_config = smd.SaveConfig(save_interval=2)

    asked = {"save_all": False, "include_collections": ["gradients", "weights", "inputs"]}
    trial = fit(new_net(), *data, asked, prepare, epochs=2)
    steps = {
        collection: trial.tensor(trial.tensor_names(collection=collection)[0]).steps()
        for collection in ("gradients", "weights", "inputs")
    }
    assert steps == {"gradients": [0, 3], "weights": [0, 2, 4], "inputs": list(range(6))}


def test_steps_that_are_named_are_saved_beside_the_interval(fit, new_net, data):
    config = {"save_config": smd.SaveConfig(save_steps=[1, 4])}
    trial = fit(new_net(), *data, config, epochs=2)
    assert trial.tensor("predictions").steps() == [0, 1, 4]


def test_evaluation_before_training_comes_first(new_hook, read, new_net, data):
    net = new_net()
    with new_hook() as hook:
        net.evaluate(*data, batch_size=12, verbose=0, callbacks=[hook])
        net.fit(*data, batch_size=12, verbose=0, callbacks=[hook])
    trial = read()
    assert trial.global_step(EVAL, 0) == 0
    assert trial.global_step(TRAIN, 0) == 1


def test_a_batch_after_validation_is_of_training_again(run):
    trial = run[1]
    gradient = trial.tensor(trial.tensor_names(collection="gradients")[0])
    assert gradient.steps() == [0, 1, 2, 5, 6, 7]


def test_training_that_stops_early_ends_where_it_stopped(new_hook, read, new_net, data):
    class Stopping(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 1:
                self.model.stop_training = True

    with new_hook() as hook:
        new_net().fit(*data, batch_size=4, epochs=3, verbose=0, callbacks=[hook, Stopping()])
        steps = hook.step
    assert read().steps() == list(range(steps + 1))
    assert steps < 3
