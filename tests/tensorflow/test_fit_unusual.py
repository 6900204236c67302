"""Models that do not hold what most hold: built late, with several optimizers, with equal names."""

import numpy as np
import pytest

keras = pytest.importorskip("keras")
tf = pytest.importorskip("tensorflow")
if keras.backend.backend() != "tensorflow":
    pytest.skip("tapes are TensorFlow's", allow_module_level=True)

import tornasole.tensorflow as smd  # noqa: E402

X = np.random.default_rng(0).normal(size=(16, 3)).astype("float32")
Y = X[:, :1]


class Rivals(keras.Model):
    """As a GAN has it: two parts, two optimizers, and a step of its own."""

    def __init__(self):
        super().__init__(name="rivals")
        self.one = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(3)], name="one")
        self.two = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)], name="two")

    def compile(self):
        super().compile()
        self.first, self.second = keras.optimizers.SGD(0.1), keras.optimizers.Adam(0.1)

    def train_step(self, data):
        x, y = data
        for part, optimizer in ((self.one, self.first), (self.two, self.second)):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self.two(self.one(x)) - y) ** 2)
            variables = part.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return {"loss": loss}


def trained(hook=None):
    keras.utils.set_random_seed(0)
    model = Rivals()
    model.compile()
    callbacks = [] if hook is None else [hook]
    model.fit(X, Y, batch_size=4, epochs=2, verbose=0, shuffle=False, callbacks=callbacks)
    return [np.asarray(weight) for part in (model.one, model.two) for weight in part.get_weights()]


def new_hook(path, interval=2, **options):
    config = smd.SaveConfig(save_interval=interval)
    return smd.KerasHook(path, save_config=config, on_error="raise", **options)


def test_gradients_and_weights_of_all_parts_are_saved_and_training_is_unharmed(tmp_path):
    with new_hook(tmp_path, include_collections=["gradients", "weights", "biases"]) as hook:
        watched = trained(hook)
    for with_hook, without in zip(watched, trained(), strict=True):
        np.testing.assert_array_equal(with_hook, without)
    trial = smd.create_trial(str(tmp_path))
    assert len(trial.tensor_names(collection="gradients")) == 4
    assert len(trial.tensor_names(collection="weights")) == 2
    assert len(trial.tensor_names(collection="biases")) == 2


def test_the_state_of_all_optimizers_is_saved(tmp_path):
    with new_hook(tmp_path, include_collections=["optimizer_variables"]) as hook:
        trained(hook)
    names = smd.create_trial(str(tmp_path)).tensor_names(collection="optimizer_variables")
    assert any("adam" in name.lower() for name in names)


@pytest.mark.parametrize("wanted", ["gradients", "weights", "layers", "inputs"])
def test_a_model_that_its_first_batch_builds(tmp_path, wanted):
    def final(*callbacks):
        keras.utils.set_random_seed(0)
        layers = [keras.layers.Dense(4), keras.layers.Dropout(0.5), keras.layers.Dense(1)]
        model = keras.Sequential(layers)
        model.compile("adam", "mse")
        model.fit(X, Y, batch_size=4, verbose=0, shuffle=False, callbacks=list(callbacks))
        return model.get_weights()

    with new_hook(tmp_path, include_collections=[wanted]) as hook:
        watched = final(hook)
    for with_hook, without in zip(watched, final(), strict=True):
        np.testing.assert_array_equal(with_hook, without)
    trial = smd.create_trial(str(tmp_path))
    names = trial.tensor_names(collection=wanted)
    assert names
    assert trial.tensor(names[0]).steps() == [0, 2]


def test_variables_of_one_name_in_a_layer_are_told_apart(tmp_path):
    class Twice(keras.layers.Layer):
        def build(self, shape):
            self.a = self.add_weight(name="w", shape=(3, 1))
            self.b = self.add_weight(name="w", shape=(3, 1))

        def call(self, x):
            return x @ tf.convert_to_tensor(self.a) + x @ tf.convert_to_tensor(self.b)

    model = keras.Sequential([keras.layers.Input((3,)), Twice(name="twice")])
    model.compile("sgd", "mse")
    with new_hook(tmp_path, include_collections=["weights", "gradients"]) as hook:
        model.fit(X, Y, verbose=0, callbacks=[hook])
    trial = smd.create_trial(str(tmp_path))
    assert len(trial.tensor_names(collection="weights")) == 2
    assert len(trial.tensor_names(collection="gradients")) == 2


def test_metrics_that_a_model_holds_are_no_weights(tmp_path):
    class Tracking(Rivals):
        def __init__(self):
            super().__init__()
            self.tracker = keras.metrics.Mean(name="tracker")

        @property
        def metrics(self):
            return [self.tracker]

    model = Tracking()
    model.compile()
    with new_hook(tmp_path, include_collections=["weights"]) as hook:
        model.fit(X, Y, verbose=0, callbacks=[hook])
    names = smd.create_trial(str(tmp_path)).tensor_names(collection="weights")
    assert names
    assert not any("total" in name or "count" in name for name in names)


def test_what_is_saved_is_not_said_to_be_lost(tmp_path, caplog):
    class Plain(keras.Model):
        def __init__(self):
            super().__init__(name="plain")
            self.d = keras.layers.Dense(1, name="d")

        def call(self, x):
            return self.d(x)

    model = Plain()
    model.compile("sgd", "mse")
    with new_hook(tmp_path, save_all=True, interval=1) as hook:
        model.fit(X, Y, batch_size=8, verbose=0, callbacks=[hook])
    assert [record.message for record in caplog.records if record.name == "tornasole"] == []
    assert smd.create_trial(str(tmp_path)).tensor("d/outputs").steps() == [0, 1]
