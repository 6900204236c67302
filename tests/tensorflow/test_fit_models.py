"""Every kind of model and of data that people ``fit``."""

import itertools

import numpy as np
import pytest

keras = pytest.importorskip("keras")

import tornasole.tensorflow as smd  # noqa: E402

layers = keras.layers
KERAS_3 = keras.__version__.startswith("3.")
BACKEND = keras.backend.backend()
CORE = {"weights", "gradients", "losses", "inputs", "outputs", "layers"}


def filled(trial):
    return {name for name in CORE if trial.tensor_names(collection=name)}


def names(trial, collection):
    return set(trial.tensor_names(collection=collection))


def assert_layer_by_layer(trial, *order, step=0):
    """What one layer puts out goes into the next."""
    for one, other in itertools.pairwise(order):
        np.testing.assert_array_equal(
            trial.tensor(f"{one}/outputs").value(step), trial.tensor(f"{other}/inputs").value(step)
        )
    np.testing.assert_array_equal(
        trial.tensor(f"{order[-1]}/outputs").value(step), trial.tensor("predictions").value(step)
    )


# -- how models are made ---------------------------------------------------------------------------


def test_a_sequential_model(fit, new_net, data):
    trial = fit(new_net(), *data)
    assert filled(trial) == CORE
    assert_layer_by_layer(trial, "hidden", "norm", "out")


def test_a_functional_model(fit, compiled, data):
    inputs = keras.Input((4,), name="in")
    hidden = layers.Dense(5, name="hidden")(inputs)
    model = compiled(keras.Model(inputs, layers.Dense(3, name="out")(hidden), name="net"))
    trial = fit(model, *data)
    assert filled(trial) == CORE
    assert_layer_by_layer(trial, "hidden", "out")


class Subclassed(keras.Model):
    """A model that is built by the first batch it sees."""

    def __init__(self):
        super().__init__(name="net")
        self.hidden = layers.Dense(5, activation="relu", name="hidden")
        self.out = layers.Dense(3, name="out")

    def call(self, x):
        return self.out(self.hidden(x))


def test_a_subclassed_model(fit, compiled, data):
    trial = fit(compiled(Subclassed()), *data)
    assert filled(trial) == CORE
    assert_layer_by_layer(trial, "hidden", "out")


def test_a_model_built_by_its_first_batch_has_its_first_weights_saved(fit, compiled, data, array):
    trial = fit(compiled(Subclassed()), *data)
    keras.utils.set_random_seed(0)
    twin = Subclassed()
    twin(data[0][:4])
    kernel = trial.tensor(trial.tensor_names(regex="hidden/weights.*kernel")[0])
    assert kernel.steps() == [0, 1, 2]
    np.testing.assert_array_equal(kernel.value(0), array(twin.hidden.kernel))


def test_a_sequential_model_without_inputs_is_built_late_too(fit, compiled, data):
    model = compiled(
        keras.Sequential([layers.Dense(5, name="hidden"), layers.Dense(3, name="out")])
    )
    trial = fit(model, *data)
    assert filled(trial) == CORE
    for name in trial.tensor_names(collection="weights"):
        assert trial.tensor(name).steps() == [0, 1, 2]


def test_models_within_models(fit, compiled, data):
    inner = keras.Sequential([keras.Input((4,)), layers.Dense(5, name="hidden")], name="inner")
    model = compiled(keras.Sequential([keras.Input((4,)), inner, layers.Dense(3, name="out")]))
    trial = fit(model, *data)
    assert {"inner/outputs", "hidden/outputs", "out/outputs"} <= names(trial, "layers")
    assert_layer_by_layer(trial, "inner", "out")


class Stepping(Subclassed):
    """A model with a step and a metric of its own."""

    def __init__(self):
        super().__init__()
        self.mean = keras.metrics.Mean(name="my_loss")

    @property
    def metrics(self):
        return [self.mean]

    def train_step(self, data):
        import tensorflow as tf

        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x, training=True) - y))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        self.mean.update_state(loss)
        return {"my_loss": self.mean.result(), "twice": 2 * self.mean.result()}


@pytest.mark.backend("tensorflow")
def test_a_step_of_the_models_own(fit, data):
    model, x = Stepping(), data[0][:4]
    model.compile("sgd")
    trial = fit(model, x, x[:, :3])
    assert names(trial, "losses") == {"my_loss"}
    assert names(trial, "metrics") == {"twice"}
    assert len(names(trial, "gradients")) == 4
    value = np.mean((trial.tensor("predictions").value(0) - x[:, :3]) ** 2)
    np.testing.assert_allclose(trial.tensor("my_loss").value(0), value, rtol=1e-5)


@pytest.mark.backend("torch")
def test_a_step_of_the_models_own_on_torch(fit, data):
    import torch

    class Own(Subclassed):
        def train_step(self, data):
            x, y = data
            self.zero_grad()
            loss = torch.mean((self(x) - y) ** 2)
            loss.backward()
            variables = list(self.trainable_weights)
            with torch.no_grad():
                self.optimizer.apply([v.value.grad for v in variables], variables)
            return {"my_loss": loss.detach()}

    model, x = Own(), data[0][:4]
    model.compile("sgd")
    trial = fit(model, x, x[:, :3])
    assert names(trial, "losses") == {"my_loss"}
    assert len(names(trial, "gradients")) == 4


@pytest.mark.backend("tensorflow")
def test_a_step_that_reports_nothing(fit, data):
    class Own(Stepping):
        def train_step(self, data):
            super().train_step(data)
            return {}

    model, x = Own(), data[0][:4]
    model.compile("sgd")
    trial = fit(model, x, x[:, :3])
    assert len(names(trial, "gradients")) == 4
    assert names(trial, "losses") == set()


def test_layers_with_inputs_by_keyword(fit, data):
    class Adding(layers.Layer):
        def call(self, x, other=None):
            return x + other

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense, self.adding = layers.Dense(4, name="dense"), Adding(name="adding")

        def call(self, x):
            return self.adding(self.dense(x), other=x)

    model, x = Model(), data[0][:4]
    model.compile("sgd", "mse")
    trial = fit(model, x, x)
    np.testing.assert_array_equal(
        trial.tensor("adding/inputs_0").value(0), trial.tensor("dense/outputs").value(0)
    )
    np.testing.assert_array_equal(trial.tensor("adding/inputs_1").value(0), x)


def test_batch_normalisation_saves_its_moving_means(fit, new_net, data):
    trial = fit(new_net(), *data)
    name = next(n for n in trial.tensor_names() if "moving_mean" in n)
    means = [trial.tensor(name).value(step) for step in range(3)]
    assert not means[0].any()
    batch = trial.tensor("norm/inputs").value(0).mean(0)
    np.testing.assert_allclose(means[1], 0.01 * batch, rtol=1e-3, atol=1e-6)


def test_frozen_layers_have_weights_but_no_gradients(fit, new_net, compiled, data):
    net = new_net()
    net.get_layer("hidden").trainable = False
    trial = fit(compiled(net), *data)
    assert any(name.startswith("hidden/") for name in names(trial, "weights"))
    assert len(names(trial, "gradients")) == 4
    assert not any("hidden" in name for name in names(trial, "gradients"))


def test_an_output_that_does_not_count_has_gradients_of_zero(fit, data):
    inputs = keras.Input((4,))
    outputs = [layers.Dense(1, name="left")(inputs), layers.Dense(1, name="right")(inputs)]
    model = keras.Model(inputs, outputs)
    model.compile("sgd", ["mse", "mse"], loss_weights=[1.0, 0.0])
    x = data[0][:4]
    trial = fit(model, x, [x[:, :1], x[:, 1:2]])
    for name in names(trial, "gradients"):
        value = trial.tensor(name).value(0)
        assert bool(value.any()) == ("left" in name)


def test_recurrent_layers_are_saved_and_what_is_in_their_loop_is_noted(
    fit, compiled, data, warnings_of
):
    model = compiled(
        keras.Sequential(
            [keras.Input((6, 2)), layers.LSTM(3, name="lstm"), layers.Dense(3, name="out")]
        )
    )
    x = np.random.default_rng(1).normal(size=(4, 6, 2)).astype("float32")
    trial = fit(model, x, data[1][:4])
    assert filled(trial) == CORE
    assert_layer_by_layer(trial, "lstm", "out")
    assert sum("lstm" in name for name in names(trial, "gradients")) == 3
    if KERAS_3 and BACKEND != "torch":  # there it is no loop, and Keras 2 does not call the cell
        noted = [message for message in warnings_of() if "within a loop" in message]
        assert noted
        assert all("'lstm_cell/" in message for message in noted)


def test_attention_and_convolution(fit, compiled, data):
    inputs = keras.Input((6, 4), name="in")
    conv = layers.Conv1D(4, 3, padding="same", name="conv")(inputs)
    heads = layers.MultiHeadAttention(2, 2, name="heads")(conv, conv)
    out = layers.Dense(3, name="out")(layers.GlobalAveragePooling1D(name="pool")(heads))
    model = compiled(keras.Model(inputs, out))
    x = np.random.default_rng(1).normal(size=(4, 6, 4)).astype("float32")
    trial = fit(model, x, data[1][:4])
    assert len(names(trial, "gradients")) == len(model.trainable_variables)
    assert {"conv/outputs", "heads/outputs", "pool/outputs"} <= names(trial, "layers")


# -- how they are compiled -------------------------------------------------------------------------


def test_a_model_that_runs_eagerly(fit, new_net, data):
    trial = fit(new_net(run_eagerly=True), *data)
    assert filled(trial) == CORE
    assert trial.tensor("predictions").steps() == [0, 1, 2]


@pytest.mark.backend("tensorflow", "jax")
def test_a_model_compiled_by_xla(fit, new_net, data):
    trial = fit(new_net(jit_compile=True), *data)
    assert filled(trial) == CORE
    assert_layer_by_layer(trial, "hidden", "norm", "out")


@pytest.mark.backend("tensorflow", "jax")
def test_several_batches_in_one_execution_are_one_step_and_the_last_of_them_is_seen(
    fit, new_net, data
):
    x, y = np.concatenate([data[0]] * 2), np.concatenate([data[1]] * 2)
    trial = fit(new_net(steps_per_execution=3), x, y)
    assert trial.steps() == [0, 1]
    np.testing.assert_array_equal(trial.tensor("inputs").value(0), x[8:12])
    np.testing.assert_array_equal(trial.tensor("inputs").value(1), x[20:])


@pytest.mark.keras_2
def test_optimizers_of_the_old_kind(fit, new_net, data):
    trial = fit(new_net(keras.optimizers.legacy.Adam(0.01)), *data)
    assert len(names(trial, "gradients")) == 6
    assert any("Adam" in name for name in names(trial, "optimizer_variables"))


# -- where data come from --------------------------------------------------------------------------


@pytest.fixture
def batches(data):
    """The data as ``tf.data``."""
    tf = pytest.importorskip("tensorflow")
    return tf.data.Dataset.from_tensor_slices(data).batch(4)


def test_a_dataset(fit, new_net, batches, data):
    trial = fit(new_net(), batches, epochs=2)
    assert trial.steps() == list(range(6))
    np.testing.assert_array_equal(trial.tensor("inputs").value(5), data[0][8:])


def of_unknown_length(data):
    tf = pytest.importorskip("tensorflow")
    x, y = data

    def generate():
        for start in (0, 4, 8):
            yield x[start : start + 4], y[start : start + 4]

    kinds = tf.TensorSpec((None, 4), tf.float32), tf.TensorSpec((None,), tf.int64)
    return tf.data.Dataset.from_generator(generate, output_signature=kinds)


@pytest.mark.parametrize("interval", [1, 2])
def test_data_of_unknown_length_end_in_no_step(fit, new_net, data, interval):
    config = {"save_config": smd.SaveConfig(save_interval=interval)}
    trial = fit(new_net(), of_unknown_length(data), None, config, epochs=2)
    assert trial.tensor("predictions").steps() == list(range(0, 6, interval))
    assert max(trial.steps()) == 5


def test_data_of_unknown_length_keep_the_logs_of_the_epoch(new_hook, read, new_net, data):
    with new_hook() as hook:
        history = new_net().fit(of_unknown_length(data), verbose=0, epochs=2, callbacks=[hook])
    assert hook.step == 5
    assert hook.mode_steps[smd.modes.TRAIN] == 5
    loss = read().tensor("loss")
    np.testing.assert_allclose([loss.value(2), loss.value(5)], history.history["loss"], rtol=1e-6)


def test_a_python_generator(fit, new_net, data):
    x, y = data

    def generate():
        while True:
            yield x[:4], y[:4]

    trial = fit(new_net(), generate(), steps_per_epoch=2, epochs=2)
    assert trial.tensor("predictions").steps() == [0, 1, 2, 3]


def test_data_without_labels(fit, data):
    class Rebuilding(Subclassed):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, **kwargs):
            return (y_pred**2).mean() if BACKEND == "torch" else (y_pred * y_pred)[0, 0]

    model = Rebuilding()
    model.compile("sgd")
    trial = fit(model, data[0][:4])
    assert names(trial, "outputs") == {"predictions"}
    assert len(names(trial, "gradients")) == 4


# -- again and again -------------------------------------------------------------------------------


def test_two_fits_are_one_sequence_of_steps(new_hook, read, new_net, data):
    net = new_net()
    with new_hook() as hook:
        for _ in range(2):
            net.fit(*data, batch_size=4, verbose=0, callbacks=[hook])
    trial = read()
    assert trial.steps() == list(range(6))
    for name in trial.tensor_names(regex="Grad|puts|/weights/"):
        assert trial.tensor(name).steps() == list(range(6))


def test_a_model_compiled_again_between_fits_is_followed(new_hook, read, new_net, compiled, data):
    net = new_net()
    with new_hook() as hook:
        net.fit(*data, batch_size=4, verbose=0, callbacks=[hook])
        compiled(net, keras.optimizers.Adam(0.01), metrics=["accuracy"])
        net.fit(*data, batch_size=4, verbose=0, callbacks=[hook])
    trial = read()
    assert trial.tensor("predictions").steps() == list(range(6))
    assert trial.tensor("accuracy").steps() == [3, 4, 5]
    for name in names(trial, "gradients"):
        assert trial.tensor(name).steps() == list(range(6))


def test_two_models_with_one_hook(new_hook, read, new_net, compiled, data):
    other = compiled(keras.Sequential([keras.Input((4,)), layers.Dense(3, name="alone")]))
    net = new_net()
    with new_hook() as hook:
        for model in (net, other, net):
            model.fit(*data, batch_size=12, verbose=0, callbacks=[hook])
    trial = read()
    assert trial.tensor("alone/outputs").steps() == [1]
    assert trial.tensor("out/outputs").steps() == [0, 2]
    assert trial.tensor("predictions").steps() == [0, 1, 2]


@pytest.fixture
def both(new_hook, new_net, data, tmp_path):
    """A model trained with two hooks, the second of which saves every other step."""
    net = new_net()
    first = new_hook(tmp_path / "first")
    second = new_hook(tmp_path / "second", save_config=smd.SaveConfig(save_interval=2))
    net.fit(*data, batch_size=4, epochs=2, shuffle=False, verbose=0, callbacks=[first, second])
    left = net.train_function
    first.close()
    second.close()
    trials = [smd.create_trial(str(tmp_path / name)) for name in ("first", "second")]
    return net, left, trials


def test_two_hooks_on_one_model_both_save(both):
    for trial, interval in zip(both[2], (1, 2), strict=True):
        for name in ("predictions", "out/outputs", "inputs"):
            assert trial.tensor(name).steps() == list(range(0, 6, interval))
        for name in names(trial, "gradients"):
            assert trial.tensor(name).steps() == list(range(0, 6, interval))


def test_two_hooks_on_one_model_leave_its_function_alone(both):
    net, left, _ = both
    assert type(left).__module__.partition(".")[0] != "tornasole"
    assert net.train_function is left


def test_training_by_batches_calls_no_callback_and_saves_nothing(new_hook, out_dir, new_net, data):
    net = new_net()
    with new_hook() as hook:
        net.fit(*data, batch_size=12, verbose=0, callbacks=[hook])
        net.train_on_batch(*data)
        assert hook.step == 0
    assert smd.create_trial(str(out_dir)).steps() == [0]


@pytest.mark.backend("tensorflow", "jax")
def test_a_step_that_is_due_again_is_not_traced_again(new_hook, data, compiled):
    traces = []

    class Counting(Subclassed):
        def call(self, x):
            traces.append(1)
            return super().call(x)

    model = compiled(Counting())
    with new_hook(save_config=smd.SaveConfig(save_interval=2)) as hook:
        model.fit(*data, batch_size=4, epochs=2, verbose=0, callbacks=[hook])
        before = len(traces)
        model.fit(*data, batch_size=4, epochs=2, verbose=0, callbacks=[hook])
    assert len(traces) == before
