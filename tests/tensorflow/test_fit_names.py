"""Which tensors of ``fit`` there are, what they are called, and in which collections they are."""

import numpy as np
import pytest

keras = pytest.importorskip("keras")

import tornasole.tensorflow as smd  # noqa: E402
from tornasole.errors import SMDebugTypeError  # noqa: E402

layers = keras.layers
KERAS_3 = keras.__version__.startswith("3.")

WEIGHTS_3 = {
    "hidden/weights/net/hidden/kernel",
    "norm/weights/net/norm/gamma",
    "norm/weights/net/norm/beta",
    "norm/weights/net/norm/moving_mean",
    "norm/weights/net/norm/moving_variance",
    "out/weights/net/out/kernel",
}
WEIGHTS_2 = {
    "hidden/weights/hidden/kernel:0",
    "norm/weights/norm/gamma:0",
    "norm/weights/norm/beta:0",
    "norm/weights/norm/moving_mean:0",
    "norm/weights/norm/moving_variance:0",
    "out/weights/out/kernel:0",
}
BIASES_3 = {"hidden/weights/net/hidden/bias", "out/weights/net/out/bias"}
BIASES_2 = {"hidden/weights/hidden/bias:0", "out/weights/out/bias:0"}
GRADIENTS_3 = {
    "gradients/net/hidden/kernelGrad",
    "gradients/net/hidden/biasGrad",
    "gradients/net/norm/gammaGrad",
    "gradients/net/norm/betaGrad",
    "gradients/net/out/kernelGrad",
    "gradients/net/out/biasGrad",
}
GRADIENTS_2 = {name.replace("/net/", "/") for name in GRADIENTS_3}
LAYERS = {
    f"{layer}/{kind}" for layer in ("hidden", "norm", "out") for kind in ("inputs", "outputs")
}


@pytest.fixture(scope="module")
def trial(new_net, data, open_hook, tmp_path_factory):
    """Two epochs with validation of a net with a metric, everything saved."""
    x, y = data
    out_dir = tmp_path_factory.mktemp("names") / "trial"
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9, name="sgd")
    net = new_net(optimizer, metrics=["accuracy"])
    with open_hook(out_dir) as hook:
        scalar = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: hook.save_scalar("rate", 0.1, sm_metric=True)
        )
        net.fit(x, y, 4, 2, verbose=0, validation_data=(x, y), callbacks=[hook, scalar])
    return smd.create_trial(str(out_dir))


def names(trial, collection):
    return set(trial.tensor_names(collection=collection))


def test_weights_are_named_after_layer_and_variable(trial):
    assert names(trial, "weights") == (WEIGHTS_3 if KERAS_3 else WEIGHTS_2)


def test_biases_have_a_collection_of_their_own(trial):
    assert names(trial, "biases") == (BIASES_3 if KERAS_3 else BIASES_2)


def test_gradients_are_named_after_the_variable(trial):
    assert names(trial, "gradients") == (GRADIENTS_3 if KERAS_3 else GRADIENTS_2)


def test_losses_are_those_of_training_and_of_validation(trial):
    assert names(trial, "losses") == {"loss", "val_loss"}


def test_metrics_are_those_of_training_and_of_validation(trial):
    assert names(trial, "metrics") == {"accuracy", "val_accuracy"}


def test_inputs_are_those_of_the_model(trial):
    assert names(trial, "inputs") == {"inputs"}


def test_outputs_are_labels_and_predictions(trial):
    assert names(trial, "outputs") == {"labels", "predictions"}


def test_layers_are_the_inputs_and_outputs_of_each(trial):
    assert names(trial, "layers") == LAYERS


def test_optimizer_variables_are_all_that_the_optimizer_has(trial):
    found = names(trial, "optimizer_variables")
    if KERAS_3:
        assert {"sgd/iteration", "sgd/learning_rate", "sgd/net_hidden_kernel_momentum"} <= found
    else:
        assert "iteration:0" in found
        assert any("hidden/kernel" in name for name in found)
    assert sum("kernel" in name for name in found) == 2


def test_sm_metrics_are_the_scalars_put_there(trial):
    assert names(trial, "sm_metrics") == {"scalar/rate"}


def test_save_all_puts_everything_into_all(trial):
    assert names(trial, "all") == set(trial.tensor_names())


def test_training_losses_and_metrics_are_not_in_the_wrong_collection(trial):
    groups = ["weights", "biases", "gradients", "losses", "metrics", "inputs", "outputs", "layers"]
    found = [name for group in groups for name in names(trial, group)]
    assert len(found) == len(set(found))


def test_gradients_and_optimizer_variables_are_of_training_only(trial):
    for group in ("gradients", "optimizer_variables"):
        for name in names(trial, group):
            assert trial.tensor(name).steps(mode=smd.modes.EVAL) == []
            assert trial.tensor(name).steps(mode=smd.modes.TRAIN) == list(range(6))


def test_what_is_known_of_the_framework_is_in_the_trial(new_hook, read, new_net, data, out_dir):
    with new_hook() as hook:
        new_net().fit(*data, verbose=0, callbacks=[hook])
    about = (out_dir / "trial.json").read_text()
    assert '"tensorflow"' in about
    assert keras.__version__ in about


# -- what is asked for -----------------------------------------------------------------------------


def test_losses_metrics_and_sm_metrics_are_saved_without_asking(fit, new_net, data):
    trial = fit(new_net(metrics=["accuracy"]), *data, {"save_all": False})
    assert set(trial.tensor_names()) == {"loss", "accuracy"}


@pytest.mark.parametrize(
    ("collection", "expected"),
    [
        ("weights", WEIGHTS_3 if KERAS_3 else WEIGHTS_2),
        ("biases", BIASES_3 if KERAS_3 else BIASES_2),
        ("gradients", GRADIENTS_3 if KERAS_3 else GRADIENTS_2),
        ("inputs", {"inputs"}),
        ("outputs", {"labels", "predictions"}),
        ("layers", LAYERS),
    ],
)
def test_an_included_collection_comes_alone_with_the_loss(fit, new_net, data, collection, expected):
    x, y = data
    asked = {"save_all": False, "include_collections": [collection]}
    trial = fit(new_net(), x[:4], y[:4], asked)
    assert set(trial.tensor_names()) == {"loss", *expected}


def test_tensors_can_be_asked_for_by_pattern(fit, new_net, data):
    x, y = data
    asked = {"save_all": False, "include_regex": ["^out/outputs", "hidden/kernelGrad"]}
    trial = fit(new_net(), x[:4], y[:4], asked)
    gradient = "gradients/net/hidden/kernelGrad" if KERAS_3 else "gradients/hidden/kernelGrad"
    assert names(trial, "default") == {"out/outputs", gradient}
    assert set(trial.tensor_names()) == {"loss", "out/outputs", gradient}


def test_a_collection_can_be_filled_with_layers(fit, new_net, data):
    x, y = data
    net = new_net()

    def prepare(hook):
        hook.get_collection("mine").add_keras_layer(net.get_layer("hidden"))
        hook.get_collection("mine").add_keras_layer(net.get_layer("out"), True, False)

    asked = {"save_all": False, "include_collections": ["mine"]}
    trial = fit(net, x[:4], y[:4], asked, prepare)
    assert names(trial, "mine") == {"hidden/outputs", "out/inputs"}
    assert set(trial.tensor_names()) == {"loss", "hidden/outputs", "out/inputs"}


def test_a_layer_that_is_in_no_model_is_said_to_be_missing(fit, new_net, data, warnings_of):
    def prepare(hook):
        hook.get_collection("mine").add_keras_layer(layers.Dense(3))

    trial = fit(new_net(), *data, {"include_collections": ["mine"]}, prepare)
    assert names(trial, "mine") == set()
    assert any("'mine'" in message for message in warnings_of())


def test_what_is_not_a_layer_is_refused(new_hook):
    with pytest.raises(SMDebugTypeError, match="takes a Keras layer, not str"):
        new_hook().get_collection("mine").add_keras_layer("hidden")


def test_reductions_are_those_of_the_whole_tensor(fit, new_net, data):
    x, y = data
    config = smd.ReductionConfig(reductions=["min", "mean"], abs_norms=["l2"], save_raw_tensor=True)
    trial = fit(new_net(), x[:4], y[:4], {"reduction_config": config})
    checked = [n for n in trial.tensor_names() if "Grad" in n or "puts" in n or "kernel" in n]
    assert len(checked) >= 14
    for name in checked:
        tensor = trial.tensor(name)
        value = tensor.value(0).astype(np.float64)
        assert tensor.reduction_value(0, "min") == pytest.approx(value.min())
        assert tensor.reduction_value(0, "mean") == pytest.approx(value.mean(), abs=1e-7)
        assert tensor.reduction_value(0, "l2", abs=True) == pytest.approx(np.sqrt((value**2).sum()))


def test_a_collection_can_have_its_own_reductions(fit, new_net, data):
    def prepare(hook):
        config = smd.ReductionConfig(reductions=["max"])
        hook.get_collection("gradients").reduction_config = config

    asked = {"save_all": False, "include_collections": ["gradients", "biases"]}
    trial = fit(new_net(), *data, asked, prepare)
    gradient = trial.tensor(sorted(names(trial, "gradients"))[0])
    assert list(gradient.reduction_values(0)) == [("max", False)]
    bias = trial.tensor(sorted(names(trial, "biases"))[0])
    assert bias.value(0).shape in [(3,), (5,)]


def test_a_dry_run_trains_and_writes_nothing(new_hook, out_dir, new_net, data):
    with new_hook(dry_run=True) as hook:
        new_net().fit(*data, verbose=0, callbacks=[hook])
    assert hook.step == 0
    assert not out_dir.exists()


# -- several of them -------------------------------------------------------------------------------


def test_several_inputs_labels_and_predictions_are_numbered(fit, data):
    first, second = keras.Input((4,), name="first"), keras.Input((4,), name="second")
    joined = layers.Concatenate(name="join")([first, second])
    outputs = [layers.Dense(1, name="left")(joined), layers.Dense(2, name="right")(joined)]
    model = keras.Model([first, second], outputs, name="two")
    model.compile("sgd", ["mse", "mse"])
    x = data[0][:4]
    trial = fit(model, [x, x + 1], [x[:, :1], x[:, :2]])
    assert names(trial, "inputs") == {"inputs_0", "inputs_1"}
    assert names(trial, "outputs") == {"labels_0", "labels_1", "predictions_0", "predictions_1"}
    assert {"join/inputs_0", "join/inputs_1", "join/outputs"} <= names(trial, "layers")
    assert names(trial, "losses") == {"loss", "left_loss", "right_loss"}
    np.testing.assert_array_equal(trial.tensor("inputs_1").value(0), x + 1)
    np.testing.assert_array_equal(trial.tensor("labels_1").value(0), x[:, :2])
    np.testing.assert_array_equal(
        trial.tensor("predictions_1").value(0), trial.tensor("right/outputs").value(0)
    )


def test_inputs_in_a_dictionary_are_numbered_in_its_order(fit, data):
    first, second = keras.Input((4,), name="first"), keras.Input((2,), name="second")
    joined = layers.Concatenate(name="join")([first, second])
    model = keras.Model({"first": first, "second": second}, layers.Dense(1, name="out")(joined))
    model.compile("sgd", "mse")
    x = data[0][:4]
    trial = fit(model, {"first": x, "second": x[:, :2]}, x[:, :1])
    np.testing.assert_array_equal(trial.tensor("inputs_0").value(0), x)
    np.testing.assert_array_equal(trial.tensor("inputs_1").value(0), x[:, :2])


def test_outputs_in_a_dictionary_have_losses_by_their_keys(fit, data):
    inputs = keras.Input((4,))
    outputs = {
        "left": layers.Dense(1, name="left")(inputs),
        "right": layers.Dense(2, name="right")(inputs),
    }
    model = keras.Model(inputs, outputs)
    model.compile("sgd", {"left": "mse", "right": "mse"})
    x = data[0][:4]
    trial = fit(model, x, {"left": x[:, :1], "right": x[:, :2]})
    assert names(trial, "losses") == {"loss", "left_loss", "right_loss"}
    np.testing.assert_array_equal(
        trial.tensor("predictions_0").value(0), trial.tensor("left/outputs").value(0)
    )
    np.testing.assert_array_equal(trial.tensor("labels_1").value(0), x[:, :2])


@pytest.fixture
def model_of_models():
    def inner(name):
        return keras.Sequential([keras.Input((4,)), layers.Dense(4, name="dense")], name=name)

    inputs = keras.Input((4,), name="in")
    model = keras.Model(inputs, inner("second")(inner("first")(inputs)), name="outer")
    model.compile("sgd", "mse")
    return model


def test_gradients_of_variables_of_equal_names_are_told_apart(fit, data, model_of_models):
    x = data[0][:4]
    trial = fit(model_of_models, x, x)
    assert len(names(trial, "gradients")) == len(model_of_models.trainable_variables)


def test_layers_of_equal_names_in_models_of_a_model_are_told_apart(fit, data, model_of_models):
    model = model_of_models
    x = data[0][:4]
    trial = fit(model, x, x)
    outputs = {name for name in names(trial, "layers") if name.endswith("/outputs")}
    assert {"first/outputs", "second/outputs", "dense/outputs", "second/dense/outputs"} <= outputs
    owners = {name.partition("/weights/")[0] for name in names(trial, "weights")}
    assert owners == {"dense", "second/dense"}
    np.testing.assert_array_equal(
        trial.tensor("second/dense/outputs").value(0), trial.tensor("predictions").value(0)
    )
    np.testing.assert_array_equal(
        trial.tensor("dense/outputs").value(0), trial.tensor("second/inputs").value(0)
    )


def test_a_layer_called_twice_is_numbered_on(fit, data):
    shared = layers.Dense(4, name="shared")
    inputs = keras.Input((4,))
    model = keras.Model(inputs, shared(shared(inputs)))
    model.compile("sgd", "mse")
    x = data[0][:4]
    trial = fit(model, x, x)
    found = names(trial, "layers")
    outputs = sorted(name for name in found if name.startswith("shared/outputs"))
    assert outputs == ["shared/outputs", "shared/outputs_1"]
    np.testing.assert_array_equal(
        trial.tensor(outputs[0]).value(0), trial.tensor("shared/inputs_1").value(0)
    )
    np.testing.assert_array_equal(
        trial.tensor("shared/outputs_1").value(0), trial.tensor("predictions").value(0)
    )
