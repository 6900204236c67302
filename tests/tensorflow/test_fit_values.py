"""What is saved of ``fit`` is what Keras computed in that batch; here it is computed by hand."""

import itertools

import numpy as np
import pytest

keras = pytest.importorskip("keras")

import tornasole.tensorflow as smd  # noqa: E402

TRAIN = smd.modes.TRAIN


def assert_close(found, value, **tolerance):
    assert found.shape == np.shape(value)
    np.testing.assert_allclose(found, value, **{"rtol": 1e-5, "atol": 1e-6, **tolerance})


def layer_by_layer(model, x):
    """Runs a Sequential model, and keeps what goes into and comes out of each layer."""
    seen = {}
    for layer in model.layers:
        seen[f"{layer.name}/inputs"] = x
        training = {"training": True} if layer.name == "norm" else {}
        x = layer(x, **training)
        seen[f"{layer.name}/outputs"] = x
    return x, seen


def cross_entropy(labels):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return lambda outputs: loss(labels, outputs)


@pytest.fixture(scope="module")
def by_hand(new_net, data, step_by_hand):
    """Two epochs of three batches."""
    x, y = data
    net = new_net(keras.optimizers.SGD(0.1, momentum=0.9))
    parts = [slice(0, 4), slice(4, 8), slice(8, 12)] * 2
    return [step_by_hand(net, cross_entropy(y[p]), x[p], layer_by_layer) for p in parts]


@pytest.fixture(scope="module")
def fitted(new_net, data, open_hook, tmp_path_factory, array, path_of):
    """The same with ``fit`` and a hook: the net, its weights before each batch, and the trial."""
    x, y = data
    out_dir = tmp_path_factory.mktemp("values") / "trial"
    weights = []

    class Weights(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            weights.append({path_of(v): (v, array(v)) for v in self.model.weights})

    net = new_net(keras.optimizers.SGD(0.1, momentum=0.9), metrics=["accuracy"])
    with open_hook(out_dir) as hook:
        net.fit(x, y, 4, 2, verbose=0, shuffle=False, callbacks=[hook, Weights()])
    return net, weights, smd.create_trial(str(out_dir))


def test_gradients_are_those_of_the_batch(fitted, by_hand, gradient_of):
    net, _, trial = fitted
    for step, found in enumerate(by_hand):
        assert len(found.gradients) == 6
        for variable, gradient in zip(
            net.trainable_variables, found.gradients.values(), strict=True
        ):
            assert_close(trial.tensor(gradient_of(variable)).value(step), gradient)


def test_weights_are_exactly_those_before_the_batch(fitted):
    _, weights, trial = fitted
    names = trial.tensor_names(regex="/weights/")
    assert len(names) == 8
    for step, before in enumerate(weights):
        for path, (_, value) in before.items():
            name = next(name for name in names if name.endswith(f"/weights/{path}"))
            np.testing.assert_array_equal(trial.tensor(name).value(step), value)


def test_weights_change_from_batch_to_batch(fitted):
    trial = fitted[2]
    kernel = trial.tensor(next(n for n in trial.tensor_names() if "out/weights" in n))
    values = [kernel.value(step) for step in kernel.steps()]
    assert len(values) == 6
    assert not any(np.array_equal(a, b) for a, b in itertools.pairwise(values))


def test_losses_are_means_over_the_epoch_so_far_as_keras_reports_them(fitted, by_hand):
    trial = fitted[2]
    for step in range(6):
        batches = by_hand[3 * (step // 3) : step + 1]
        mean = np.mean([batch.loss for batch in batches])
        np.testing.assert_allclose(trial.tensor("loss").value(step), mean, rtol=1e-5)


def test_metrics_are_means_over_the_epoch_so_far_as_keras_reports_them(fitted, by_hand, data):
    trial, labels = fitted[2], data[1].reshape(3, 4)
    for step in range(6):
        first = 3 * (step // 3)
        right = [by_hand[i].outputs.argmax(-1) == labels[i % 3] for i in range(first, step + 1)]
        np.testing.assert_allclose(trial.tensor("accuracy").value(step), np.mean(right), rtol=1e-5)


def test_inputs_and_labels_are_the_batch_itself(fitted, data):
    x, y = data
    for step in range(6):
        part = slice(4 * (step % 3), 4 * (step % 3) + 4)
        np.testing.assert_array_equal(fitted[2].tensor("inputs").value(step), x[part])
        np.testing.assert_array_equal(fitted[2].tensor("labels").value(step).ravel(), y[part])


def test_predictions_are_the_outputs_of_the_model_before_the_update(fitted, by_hand):
    for step, found in enumerate(by_hand):
        assert_close(fitted[2].tensor("predictions").value(step), found.outputs)


def test_inputs_and_outputs_of_layers_are_those_of_the_batch(fitted, by_hand):
    for step, found in enumerate(by_hand):
        assert len(found.seen) == 6
        for name, value in found.seen.items():
            assert_close(fitted[2].tensor(name).value(step), value)


def test_optimizer_variables_are_those_after_the_batch(fitted, array, path_of):
    net, _, trial = fitted
    variables = net.optimizer.variables
    variables = variables() if callable(variables) else variables
    names = trial.tensor_names(collection="optimizer_variables")
    assert {path_of(v) for v in variables} == set(names)
    for variable in variables:
        np.testing.assert_array_equal(trial.tensor(path_of(variable)).value(5), array(variable))


def test_evaluation_saves_what_it_computes_with_the_weights_it_finds(
    new_net, data, new_hook, read, array
):
    x, y = data
    net = new_net()
    with new_hook() as hook:
        net.evaluate(x, y, batch_size=6, verbose=0, callbacks=[hook])
    expected = array(net(x[6:], training=False))
    trial = read()
    assert_close(trial.tensor("predictions").value(1, mode=smd.modes.EVAL), expected)
    assert_close(trial.tensor("out/outputs").value(1, mode=smd.modes.EVAL), expected)
    np.testing.assert_array_equal(trial.tensor("inputs").value(1), x[6:])
    whole = float(cross_entropy(y)(array(net(x, training=False))))
    np.testing.assert_allclose(trial.tensor("loss").value(1), whole, rtol=1e-5)


def test_prediction_saves_inputs_predictions_and_layers(new_net, data, new_hook, read):
    x = data[0]
    net = new_net()
    with new_hook() as hook:
        predictions = net.predict(x, batch_size=6, verbose=0, callbacks=[hook])
    trial = read()
    for step, part in enumerate((slice(0, 6), slice(6, 12))):
        for name in ("predictions", "out/outputs"):
            found = trial.tensor(name).value(step, mode=smd.modes.PREDICT)
            np.testing.assert_allclose(found, predictions[part], rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(trial.tensor("inputs").value(step), x[part])
    assert "loss" not in trial.tensor_names()
    assert "labels" not in trial.tensor_names()


def test_what_a_step_saves_does_not_depend_on_which_steps_are_saved(fitted, new_net, data, fit):
    x, y = data
    every = fitted[2]
    net = new_net(keras.optimizers.SGD(0.1, momentum=0.9), metrics=["accuracy"])
    some = fit(net, x, y, {"save_config": smd.SaveConfig(save_interval=2)}, epochs=2)
    assert some.tensor("predictions").steps() == [0, 2, 4]
    for name in some.tensor_names(regex="Grad$|puts$|predictions"):
        for step in (0, 2, 4):
            assert_close(some.tensor(name).value(step), every.tensor(name).value(step))


def test_gradients_are_those_before_clipping(new_net, data, fit, step_by_hand, gradient_of):
    x, y = data
    net = new_net(keras.optimizers.SGD(0.1, global_clipnorm=1e-4))
    trial = fit(net, x[:4], y[:4])
    found = step_by_hand(new_net(), cross_entropy(y[:4]), x[:4])
    name = gradient_of(net.layers[-1].kernel)
    assert_close(trial.tensor(name).value(0), list(found.gradients.values())[-2])


def test_mixed_precision_saves_gradients_without_the_scale_of_the_loss(
    new_net, data, fit, step_by_hand, gradient_of
):
    x, y = data
    exact = step_by_hand(new_net(), cross_entropy(y[:4]), x[:4])
    policy = keras.config.set_dtype_policy if hasattr(keras, "config") else None
    (policy or keras.mixed_precision.set_global_policy)("mixed_float16")
    net = new_net()
    assert "LossScale" in type(net.optimizer).__name__
    trial = fit(net, x[:4], y[:4])
    for variable, gradient in zip(net.trainable_variables, exact.gradients.values(), strict=True):
        found = trial.tensor(gradient_of(variable)).value(0)
        fits = np.isfinite(found)  # the scaled ones may be too large for 16 bits
        assert fits.mean() > 0.5
        assert_close(found[fits], gradient[fits], rtol=0.05, atol=5e-3)
    assert trial.tensor("hidden/outputs").value(0).dtype == np.float16


def test_sparse_gradients_of_embeddings_are_saved_dense(compiled, fit, step_by_hand, gradient_of):
    def make():
        keras.utils.set_random_seed(0)
        layers = keras.layers
        return compiled(
            keras.Sequential(
                [
                    keras.Input((2,)),
                    layers.Embedding(7, 3, name="words"),
                    layers.Flatten(name="flat"),
                    layers.Dense(3, name="out"),
                ],
                name="net",
            )
        )

    x, y = np.array([[1, 2], [3, 3], [1, 0], [5, 1]]), np.array([0, 1, 2, 0])
    model = make()
    trial = fit(model, x, y)
    found = step_by_hand(make(), cross_entropy(y), x)
    gradient = trial.tensor(gradient_of(model.layers[0].embeddings)).value(0)
    assert_close(gradient, next(iter(found.gradients.values())))
    assert not gradient[4].any()
    assert not gradient[6].any()


@pytest.mark.parametrize("how", ["class_weight", "sample_weight"])
def test_weighted_examples_count_in_gradients_and_losses(
    new_net, data, fit, step_by_hand, gradient_of, how
):
    x, y = data[0][:4], data[1][:4]
    weights = {0: 1.0, 1: 2.0, 2: 0.5}
    each = np.array([weights[label] for label in y], np.float32)
    net = new_net()
    trial = fit(net, x, y, **{how: weights if how == "class_weight" else each})
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    found = step_by_hand(new_net(), lambda out: loss(y, out, sample_weight=each), x)
    np.testing.assert_allclose(trial.tensor("loss").value(0), found.loss, rtol=1e-5)
    for variable, gradient in zip(net.trainable_variables, found.gradients.values(), strict=True):
        assert_close(trial.tensor(gradient_of(variable)).value(0), gradient)
    assert sorted(trial.tensor_names(collection="inputs")) == ["inputs"]


# -- random layers: what is saved belongs together -------------------------------------------------


def random_net(compiled, layer):
    """A net of which a part is random, and whose weights change by exactly the gradient."""
    keras.utils.set_random_seed(0)
    net = keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(8, name="hidden"),
            layer,
            keras.layers.Dense(3, name="out"),
        ],
        name="net",
    )
    return compiled(net, keras.optimizers.SGD(0.5))


RANDOM = [keras.layers.Dropout, keras.layers.GaussianNoise]


SECOND_RUN = pytest.mark.skipif(
    not hasattr(keras, "config"),
    reason="in Keras 2 what is seen is a second run of the batch, with other random numbers",
)


@SECOND_RUN
@pytest.mark.parametrize("kind", RANDOM)
def test_gradients_of_a_random_net_are_those_that_were_applied(
    compiled, data, fit, gradient_of, path_of, kind
):
    def prepare(hook):
        hook.get_collection("gradients").save_config = smd.SaveConfig(save_interval=2)

    net = random_net(compiled, kind(0.5, name="random"))
    asked = {"save_all": False, "include_collections": ["weights", "biases", "gradients"]}
    trial = fit(net, *data, asked, prepare, epochs=2)
    for layer in (net.layers[0], net.layers[-1]):
        for variable in layer.weights:
            weight = trial.tensor(f"{layer.name}/weights/{path_of(variable)}")
            gradient = trial.tensor(gradient_of(variable))
            assert gradient.steps() == [0, 2, 4]
            for step in gradient.steps():
                change = weight.value(step) - weight.value(step + 1)
                assert_close(0.5 * gradient.value(step), change)


@SECOND_RUN
@pytest.mark.parametrize("kind", RANDOM)
def test_predictions_of_a_random_net_are_those_of_which_the_loss_was_taken(
    compiled, data, fit, kind
):
    config = {"save_config": smd.SaveConfig(save_interval=2)}
    net = random_net(compiled, kind(0.5, name="random"))
    trial = fit(net, data[0][:4], data[1][:4], config, epochs=3)
    for step in (0, 2):
        loss = cross_entropy(data[1][:4])(trial.tensor("predictions").value(step))
        np.testing.assert_allclose(trial.tensor("loss").value(step), float(loss), rtol=1e-5)
    random = trial.tensor("random/outputs").value(0)
    assert (random != trial.tensor("random/inputs").value(0)).any()
