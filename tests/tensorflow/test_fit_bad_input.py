"""What people get wrong is said clearly, and training goes on where it can."""

import numpy as np
import pytest

keras = pytest.importorskip("keras")

import tornasole.tensorflow as smd  # noqa: E402
from tornasole.errors import SMDebugError  # noqa: E402

layers = keras.layers
BACKEND = keras.backend.backend()


@pytest.fixture
def uncompiled():
    return keras.Sequential([keras.Input((4,)), layers.Dense(3, name="out")], name="net")


def test_the_error_of_an_uncompiled_model_is_keras_own(new_hook, uncompiled, data):
    hook = new_hook()
    with pytest.raises((ValueError, RuntimeError, AttributeError), match="compile"):
        uncompiled.fit(*data, verbose=0, callbacks=[hook])


def test_after_an_uncompiled_model_the_hook_serves_the_next(
    new_hook, uncompiled, compiled, data, read
):
    hook = new_hook()
    with pytest.raises((ValueError, RuntimeError, AttributeError)):
        uncompiled.fit(*data, verbose=0, callbacks=[hook])
    compiled(uncompiled).fit(*data, verbose=0, callbacks=[hook])
    hook.close()
    trial = read()
    assert trial.steps() == [0]
    assert trial.tensor("out/outputs").value(0).shape == (12, 3)


def test_an_uncompiled_model_can_predict(new_hook, uncompiled, data, read):
    with new_hook() as hook:
        uncompiled.predict(data[0], verbose=0, callbacks=[hook])
    assert read().tensor("out/outputs").value(0).shape == (12, 3)


def test_a_layer_added_after_the_first_fit_is_watched_in_the_next(
    new_hook, compiled, uncompiled, data, read
):
    net = compiled(uncompiled)
    with new_hook() as hook:
        net.fit(*data, verbose=0, callbacks=[hook])
        net.add(layers.Dense(3, name="added"))
        compiled(net)
        net.fit(*data, verbose=0, callbacks=[hook])
    trial = read()
    assert trial.tensor("added/outputs").steps() == [1]
    assert trial.tensor("out/outputs").steps() == [0, 1]
    assert sum("added" in name for name in trial.tensor_names(collection="gradients")) == 2


def test_a_layer_frozen_after_the_first_fit_has_no_gradients_in_the_next(
    new_hook, new_net, compiled, data, read
):
    net = new_net()
    with new_hook() as hook:
        net.fit(*data, verbose=0, callbacks=[hook])
        net.get_layer("hidden").trainable = False
        compiled(net)
        net.fit(*data, verbose=0, callbacks=[hook])
    trial = read()
    for name in trial.tensor_names(collection="gradients"):
        assert trial.tensor(name).steps() == ([0] if "hidden" in name else [0, 1])


@pytest.mark.backend("tensorflow")
def test_a_layer_that_xla_cannot_compile_with_us_or_without_keeps_its_own_error(
    new_hook, compiled, data
):
    import tensorflow as tf

    class Printing(layers.Layer):
        def call(self, x):
            return tf.reshape(tf.py_function(lambda value: value, [x], tf.float32), (-1, 4))

    net = keras.Sequential([keras.Input((4,)), Printing(), layers.Dense(3)])
    compiled(net, jit_compile=True)
    hook = new_hook()
    with pytest.raises(Exception, match=r"(?i)xla|compil|PyFunc"):
        net.fit(*data, verbose=0, callbacks=[hook])
    hook.close()
    assert type(net.train_function).__module__.partition(".")[0] != "tornasole"


def test_a_step_that_cannot_be_run_with_us_inside_is_run_without_and_that_is_said(
    new_hook, new_net, data, read, warnings_of
):
    """Such as one that refuses what is on its layers."""
    net = new_net()
    own = net.train_step

    def refusing(*args):
        if any("call" in vars(layer) for layer in net.layers):
            raise TypeError("there is something on my layers")
        return own(*args)

    net.train_step = refusing
    with new_hook(on_error="warn") as hook:
        net.fit(*data, batch_size=4, verbose=0, callbacks=[hook])
    trial = read()
    assert trial.tensor("loss").steps() == [0, 1, 2]
    assert trial.tensor_names(collection="layers") == []
    said = [message for message in warnings_of() if "train step" in message]
    assert len(said) == 1
    assert "something on my layers" in said[0]


@pytest.mark.backend("tensorflow", "torch")
def test_a_step_that_fails_with_us_inside_loses_no_batch(new_hook, new_net, data, array):
    batches = []
    net = new_net(run_eagerly=True)
    own = net.train_step

    def refusing(*args):
        if any("call" in vars(layer) for layer in net.layers):
            raise TypeError("there is something on my layers")
        batches.append(array(args[-1][0]))
        return own(*args)

    net.train_step = refusing
    with new_hook(on_error="warn") as hook:
        net.fit(*data, batch_size=4, shuffle=False, verbose=0, callbacks=[hook])
    np.testing.assert_array_equal(np.concatenate(batches), data[0])


@pytest.mark.backend("tensorflow")
def test_an_optimizer_of_another_framework_is_refused(new_hook):
    torch = pytest.importorskip("torch")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], 0.1)
    with pytest.raises(SMDebugError, match=r"(?i)optimizer"):
        new_hook().wrap_optimizer(optimizer)


@pytest.mark.backend("tensorflow")
@pytest.mark.parametrize("model", [None, "net", 3])
def test_register_model_refuses_what_is_no_model(new_hook, model):
    with pytest.raises(SMDebugError):
        new_hook().register_model(model)


def test_an_output_folder_in_use_is_refused(new_hook, new_net, data, out_dir):
    with new_hook() as hook:
        new_net().fit(*data, verbose=0, callbacks=[hook])
    with pytest.raises(SMDebugError, match="trial"):
        smd.KerasHook(str(out_dir))


def test_an_output_folder_is_required():
    with pytest.raises((TypeError, SMDebugError)):
        smd.KerasHook()


@pytest.mark.keras_2
def test_inputs_that_are_words_are_saved(new_hook, read):
    net = keras.Sequential([keras.Input((), dtype="string"), layers.StringLookup(vocabulary=["a"]),
                            layers.Embedding(3, 2), layers.Dense(1)])  # fmt: skip
    net.compile("sgd", "mse")
    with new_hook() as hook:
        net.fit(np.array(["a", "b", "a"]), np.zeros(3), verbose=0, callbacks=[hook])
    assert read().tensor("loss").steps() == [0]
    assert read().tensor("inputs").value(0).ravel().tolist() == ["a", "b", "a"]


def test_values_that_are_not_finite_are_saved_as_they_are(fit, compiled, uncompiled, data):
    x, y = data[0][:4].copy(), data[1][:4]
    x[0, 0] = np.nan
    trial = fit(compiled(uncompiled), x, y)
    assert np.isnan(trial.tensor("inputs").value(0)[0, 0])
    assert np.isnan(trial.tensor("loss").value(0))
