"""Training is the same with a hook as without, and nothing of ours is left on the model."""

import numpy as np
import pytest

keras = pytest.importorskip("keras")

import tornasole.tensorflow as smd  # noqa: E402
from tornasole.capture.recorder import Recorder  # noqa: E402
from tornasole.errors import SMDebugRuntimeError  # noqa: E402
from tornasole.tensorflow.steps import Capture, Instrumented  # noqa: E402

layers = keras.layers
KERAS_3 = keras.__version__.startswith("3.")
BACKEND = keras.backend.backend()
EVERY_OTHER = smd.SaveConfig(save_interval=2)


def assert_same(some, others):
    """Bit for bit; JAX may compile the same numbers in another order."""
    assert len(some) == len(others)
    for one, other in zip(some, others, strict=True):
        if BACKEND == "jax":
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
        else:
            np.testing.assert_array_equal(one, other)


# -- the same training -----------------------------------------------------------------------------


def dense():
    return [keras.Input((6, 4)), layers.Flatten(), layers.Dense(5, "relu"), layers.Dense(3)]


def convolution():
    return [
        keras.Input((6, 4)), layers.Conv1D(4, 3), layers.BatchNormalization(), layers.ReLU(),
        layers.GlobalAveragePooling1D(), layers.Dense(3),
    ]  # fmt: skip


def recurrent():
    return [keras.Input((6, 4)), layers.LSTM(4, dropout=0.5), layers.Dense(3)]


class SelfAttention(layers.Layer):
    def __init__(self):
        super().__init__()
        self.heads = layers.MultiHeadAttention(2, 2, dropout=0.5)

    def build(self, shape):
        if KERAS_3:
            self.heads.build(shape, shape)
        super().build(shape)

    def call(self, x, training=False):
        return self.heads(x, x, training=training)


def attention():
    return [keras.Input((6, 4)), SelfAttention(), layers.LayerNormalization(), layers.Flatten(),
            layers.Dense(3)]  # fmt: skip


def random():
    return [
        keras.Input((6, 4)), layers.Flatten(), layers.GaussianNoise(0.5), layers.Dropout(0.5),
        layers.Dense(3),
    ]  # fmt: skip


SEVERAL = {"steps_per_execution": 1 if BACKEND == "torch" else 3}  # torch has no more than one
KINDS = [dense, convolution, recurrent, attention, random]


@pytest.fixture(scope="module")
def trained(compiled, weights_of):
    """Gives weights and history of a net after two epochs of three batches."""

    def run(make, *hooks, validate=False, **options):
        keras.utils.set_random_seed(0)
        model = compiled(keras.Sequential(make()), keras.optimizers.Adam(0.01), **options)
        numbers = np.random.default_rng(0)
        x, y = numbers.normal(size=(12, 6, 4)).astype("float32"), np.arange(12) % 3
        validation = (x[:4], y[:4]) if validate else None
        history = model.fit(
            x, y, 4, 2, verbose=0, callbacks=list(hooks), validation_data=validation
        )
        return weights_of(model), history.history

    return run


@pytest.fixture(scope="module")
def alone_trained(trained):
    """The same without a hook, once for each kind of net."""
    found = {}

    def run(make, **options):
        key = (make, *options.items())
        if key not in found:
            found[key] = trained(make, **options)
        return found[key]

    return run


@pytest.mark.parametrize("make", KINDS)
def test_weights_and_history_are_the_same(new_hook, trained, alone_trained, make):
    weights, history = alone_trained(make)
    with new_hook(save_config=EVERY_OTHER) as hook:
        watched, logs = trained(make, hook)
    assert hook.step == 5
    assert_same(watched, weights)
    assert list(logs) == list(history)
    assert_same(list(logs.values()), list(history.values()))


def test_weights_and_history_are_the_same_with_validation(new_hook, trained, alone_trained):
    weights, history = alone_trained(random, validate=True)
    with new_hook(save_config=EVERY_OTHER) as hook:
        watched, logs = trained(random, hook, validate=True)
    assert hook.step == 7
    assert_same(watched, weights)
    assert_same(list(logs.values()), list(history.values()))


@pytest.mark.parametrize(
    "options",
    [
        {"run_eagerly": True},
        pytest.param(SEVERAL, marks=pytest.mark.skipif(not KERAS_3, reason="documented")),
    ],
    ids=str,
)
def test_weights_are_the_same_however_the_model_is_compiled(
    new_hook, trained, alone_trained, options
):
    weights, _ = alone_trained(random, **options)
    with new_hook(save_config=EVERY_OTHER) as hook:
        watched, _ = trained(random, hook, **options)
    assert_same(watched, weights)


def test_the_same_weights_also_when_the_first_batch_builds_the_model(
    new_hook, compiled, weights_of, data
):
    def run(*callbacks):
        keras.utils.set_random_seed(0)
        model = compiled(keras.Sequential([layers.Dense(4, "relu"), layers.Dense(3)]))
        model.fit(*data, batch_size=4, verbose=0, callbacks=list(callbacks))
        return weights_of(model)

    weights = run()
    with new_hook() as hook:
        assert_same(run(hook), weights)


def test_evaluation_and_prediction_return_the_same(new_hook, new_net, data):
    x, y = data
    net = new_net(metrics=["accuracy"])
    metrics, predictions = net.evaluate(x, y, 4, verbose=0), net.predict(x, 4, verbose=0)
    with new_hook() as hook:
        assert_same([net.evaluate(x, y, 4, verbose=0, callbacks=[hook])], [metrics])
        assert_same([net.predict(x, 4, verbose=0, callbacks=[hook])], [predictions])


def test_logs_of_other_callbacks_hold_nothing_of_ours(new_hook, new_net, data, spy):
    seen = spy()
    with new_hook() as hook:
        new_net(metrics=["accuracy"]).fit(*data, verbose=0, callbacks=[hook, seen])
    assert [set(logs) for logs in seen.logs] == [{"loss", "accuracy"}]


def test_numbers_drawn_elsewhere_are_the_same(new_hook, new_net, data):
    new_net().fit(*data, batch_size=4, verbose=0)
    drawn = np.random.rand(3)
    with new_hook() as hook:
        new_net().fit(*data, batch_size=4, verbose=0, callbacks=[hook])
        np.testing.assert_array_equal(np.random.rand(3), drawn)


# -- the same model --------------------------------------------------------------------------------


def parts_of(model):
    return [model, *model.layers, model.optimizer]


def ours_in(value):
    kind = value if isinstance(value, type) or callable(value) else type(value)
    modules = (getattr(kind, "__module__", None), type(value).__module__)
    return any(str(module).partition(".")[0] == "tornasole" for module in modules)


def test_after_close_nothing_of_ours_is_on_model_layers_or_optimizer(new_hook, new_net, data):
    net, x = new_net(), data[0]
    net.fit(*data, batch_size=4, verbose=0, validation_data=data)
    net.predict(x, verbose=0)
    before = [set(vars(part)) for part in parts_of(net)]
    hook = new_hook()
    net.fit(*data, batch_size=4, verbose=0, validation_data=data, callbacks=[hook])
    net.predict(x, verbose=0, callbacks=[hook])
    hook.close()
    assert [set(vars(part)) for part in parts_of(net)] == before
    for part in parts_of(net):
        assert [name for name, value in vars(part).items() if ours_in(value)] == []


def test_after_close_the_functions_are_the_models_own(new_hook, new_net, data):
    net, x = new_net(), data[0]
    names = ("train_function", "test_function", "predict_function")
    net.fit(*data, batch_size=4, verbose=0, validation_data=data)
    net.predict(x, verbose=0)
    before = [getattr(net, name) for name in names]
    hook = new_hook()
    net.fit(*data, batch_size=4, verbose=0, validation_data=data, callbacks=[hook])
    net.predict(x, verbose=0, callbacks=[hook])
    hook.close()
    for name, function in zip(names, before, strict=True):
        assert getattr(net, name) is function


def test_between_batches_nothing_is_on_layers_and_optimizer(new_hook, new_net, data):
    net = new_net()
    found = []

    class Looking(keras.callbacks.Callback):
        def look(self, batch, logs=None):
            found.extend(
                name for part in parts_of(net)[1:] for name, v in vars(part).items() if ours_in(v)
            )

        on_train_batch_begin = on_train_batch_end = look

    with new_hook() as hook:
        net.fit(*data, batch_size=4, verbose=0, callbacks=[hook, Looking()])
    assert found == []


def test_on_batches_that_save_nothing_the_models_own_function_runs(new_hook, new_net, data, spy):
    net, seen = new_net(), spy()
    net.fit(*data, batch_size=4, verbose=0)
    own = net.train_function
    with new_hook(save_config=EVERY_OTHER) as hook:
        net.fit(*data, batch_size=4, epochs=2, verbose=0, callbacks=[hook, seen])
    assert [function is own for function in seen.functions] == [False, True] * 3


def test_weights_and_losses_alone_need_no_other_function(new_hook, new_net, data, spy):
    net, seen = new_net(), spy()
    net.fit(*data, batch_size=4, verbose=0)
    own = net.train_function
    with new_hook(save_all=False, include_collections=["weights", "biases"]) as hook:
        net.fit(*data, batch_size=4, verbose=0, callbacks=[hook, seen])
    assert all(function is own for function in seen.functions)


def test_evaluation_that_saves_nothing_runs_the_models_own_function(new_hook, new_net, data):
    net, seen = new_net(), []
    config = smd.SaveConfig(
        {smd.modes.EVAL: smd.SaveConfigMode(start_step=100), smd.modes.TRAIN: smd.SaveConfigMode()}
    )

    class Looking(keras.callbacks.Callback):
        def on_test_batch_begin(self, batch, logs=None):
            function = self.model.test_function
            swapped = getattr(function, "instead", None)  # Keras 2 is given one that can swap
            seen.append(swapped is None and not isinstance(function, Instrumented))

    with new_hook(save_config=config) as hook:
        net.evaluate(*data, batch_size=4, verbose=0, callbacks=[hook, Looking()])
    assert seen == [True] * 3


def test_a_model_trains_on_after_its_hook_is_closed(new_hook, new_net, data, weights_of):
    net = new_net()
    hook = new_hook()
    net.fit(*data, batch_size=4, verbose=0, callbacks=[hook])
    hook.close()
    before = weights_of(net)
    net.fit(*data, batch_size=4, verbose=0, callbacks=[hook])
    assert hook.step == 2
    assert any((a != b).any() for a, b in zip(before, weights_of(net), strict=True))


def test_a_hook_closed_in_the_middle_of_a_batch_lets_go(new_hook, new_net, data, read):
    net = new_net()
    hook = new_hook()

    class Closing(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if batch == 1:
                hook.close()

    net.fit(*data, batch_size=4, verbose=0, callbacks=[hook, Closing()])
    assert not ours_in(net.train_function)
    assert read().tensor("predictions").steps() == [0]


def test_a_model_can_be_saved_while_a_batch_is_watched(new_hook, new_net, data, tmp_path):
    saved = tmp_path / ("net.keras" if KERAS_3 else "net.h5")

    class Saving(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            self.model.save(str(saved))

    net = new_net()
    with new_hook() as hook:
        net.fit(*data, batch_size=6, verbose=0, callbacks=[hook, Saving()])
    loaded = keras.models.load_model(str(saved))
    assert loaded.get_layer("out").kernel.shape == (5, 3)


# -- what goes wrong -------------------------------------------------------------------------------


class Fault(Exception):
    pass


def fail(*args, **kwargs):
    raise Fault("ours")


FAULTS = [(Recorder, "record_many"), (Recorder, "begin_step"), (Recorder, "wants_role")]


@pytest.mark.parametrize(("kind", "name"), FAULTS, ids=lambda value: str(value)[-20:])
def test_a_fault_of_ours_stops_no_training(
    new_hook, trained, alone_trained, monkeypatch, warnings_of, kind, name
):
    weights, history = alone_trained(dense)
    hook = new_hook(on_error="warn")
    monkeypatch.setattr(kind, name, fail)
    watched, logs = trained(dense, hook)
    assert_same(watched, weights)
    assert list(logs) == list(history)
    assert any("training goes on" in message for message in warnings_of())
    monkeypatch.undo()


@pytest.mark.parametrize(("kind", "name"), FAULTS, ids=lambda value: str(value)[-20:])
def test_a_fault_of_ours_is_raised_if_asked(new_hook, new_net, data, monkeypatch, kind, name):
    hook = new_hook()
    monkeypatch.setattr(kind, name, fail)
    with pytest.raises(Fault):
        new_net().fit(*data, verbose=0, callbacks=[hook])
    monkeypatch.undo()


def test_a_fault_within_a_step_stops_no_training(
    new_hook, trained, alone_trained, monkeypatch, warnings_of
):
    weights, _ = alone_trained(convolution)
    hook = new_hook(on_error="warn")
    monkeypatch.setattr(Capture, "_keep", fail)
    watched, _ = trained(convolution, hook)
    assert_same(watched, weights)
    assert any("Fault" in message for message in warnings_of())


def test_a_fault_within_a_step_is_raised_if_asked(new_hook, new_net, data, monkeypatch):
    hook = new_hook()
    monkeypatch.setattr(Capture, "_keep", fail)
    with pytest.raises((Fault, SMDebugRuntimeError), match="ours"):
        new_net().fit(*data, verbose=0, callbacks=[hook])


@pytest.mark.parametrize("make", [random, convolution])
def test_a_fault_within_a_step_that_runs_eagerly_stops_no_training(
    new_hook, trained, alone_trained, monkeypatch, make
):
    weights, _ = alone_trained(make, run_eagerly=True)
    hook = new_hook(on_error="warn")
    seen = Capture._keep

    def fail_late(self, name, role, tensor):
        if name.startswith("gradients/"):  # when the layers have run, and before the update
            raise Fault("ours")
        return seen(self, name, role, tensor)

    monkeypatch.setattr(Capture, "_keep", fail_late)
    watched, _ = trained(make, hook, run_eagerly=True)
    assert_same(watched, weights)


def test_an_error_of_the_users_reaches_the_user(new_hook, new_net, data):
    class Mistake(Exception):
        pass

    class Failing(layers.Layer):
        def call(self, x):
            if calls:
                raise Mistake("theirs")
            return x

    calls = []
    net = keras.Sequential([keras.Input((4,)), Failing(), layers.Dense(3)])
    net.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    calls.append(1)
    hook = new_hook()
    with pytest.raises(Exception, match="theirs"):
        net.fit(*data, verbose=0, callbacks=[hook])
    hook.close()
    assert not ours_in(net.train_function)


def interrupted(net, data, hook):
    class Interrupting(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if batch == 1:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        net.fit(*data, batch_size=4, verbose=0, callbacks=[hook, Interrupting()])


def test_after_an_interrupted_fit_the_next_one_goes_on(new_hook, new_net, data, read):
    net = new_net()
    with new_hook() as hook:
        interrupted(net, data, hook)
        net.fit(*data, batch_size=4, verbose=0, callbacks=[hook])
    trial = read()
    assert trial.tensor("predictions").steps() == [0, 1, 2, 3]
    assert not ours_in(net.train_function)


def test_after_an_interrupted_fit_one_without_the_hook_soon_is_as_it_would_be(
    new_hook, new_net, data
):
    net = new_net()
    with new_hook() as hook:
        interrupted(net, data, hook)
        net.fit(*data, batch_size=4, verbose=0)
        assert not ours_in(net.train_function)
