"""What tests of the TensorFlow room may ask for: hooks, a trial, models, and a step done by hand.

Without Keras this file must still load: the tests skip themselves. They run on the backend that
``KERAS_BACKEND`` names; ``test_fit_backends`` runs them on the others.
"""

import logging
import os
from types import SimpleNamespace

import numpy as np
import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

try:
    import keras

    import tornasole.tensorflow as smd
    from tornasole.capture import del_hook

    KERAS_3 = keras.__version__.startswith("3.")
    BACKEND = keras.backend.backend()
except ModuleNotFoundError as error:
    if error.name not in ("keras", "tensorflow"):
        raise
    KERAS_3, BACKEND = False, "none"


def pytest_configure(config):
    config.addinivalue_line("markers", "backend(*names): runs only on these backends of Keras")
    config.addinivalue_line("markers", "keras_3: runs only on Keras 3")
    config.addinivalue_line("markers", "keras_2: runs only on Keras 2")


def pytest_runtest_setup(item):
    wanted = item.get_closest_marker("backend")
    if wanted is not None and BACKEND not in wanted.args:
        pytest.skip(f"is about Keras on {' and '.join(wanted.args)}, and this is {BACKEND}")
    if item.get_closest_marker("keras_3") and not KERAS_3:
        pytest.skip("is about Keras 3")
    if item.get_closest_marker("keras_2") and KERAS_3:
        pytest.skip("is about Keras 2")


@pytest.fixture(autouse=True)
def alone():
    """No hook from another test, and the same random numbers."""
    del_hook()
    keras.utils.set_random_seed(0)
    yield
    del_hook()
    if KERAS_3:
        keras.config.set_dtype_policy("float32")
    else:
        keras.mixed_precision.set_global_policy("float32")


@pytest.fixture
def out_dir(tmp_path):
    return tmp_path / "trial"


@pytest.fixture(scope="session")
def open_hook():
    """Makes a hook that saves all, at every step, and raises its faults."""

    def make(path, **options):
        options = {"save_all": True, "on_error": "raise", **options}
        options.setdefault("save_config", smd.SaveConfig(save_interval=1))
        return smd.KerasHook(str(path), **options)

    return make


@pytest.fixture
def new_hook(open_hook, out_dir):
    """Makes such hooks, and closes them at the end."""
    hooks = []

    def make(path=out_dir, **options):
        hooks.append(open_hook(path, **options))
        return hooks[-1]

    yield make
    for hook in hooks:
        hook.close()


@pytest.fixture
def read(out_dir):
    return lambda path=out_dir: smd.create_trial(str(path))


@pytest.fixture
def fit(new_hook, read):
    """Trains a model with a hook, in batches of four that keep their order; returns the trial."""

    def run(model, x, y=None, hook_options=None, prepare=lambda hook: None, **options):
        hook = new_hook(**(hook_options or {}))
        prepare(hook)
        if isinstance(x, (np.ndarray, dict, list, tuple)):
            options = {"batch_size": 4, "shuffle": False, **options}
        callbacks = [hook, *options.pop("callbacks", [])]
        model.fit(x, y, callbacks=callbacks, verbose=0, **options)
        hook.close()
        return read()

    return run


@pytest.fixture(scope="session")
def data():
    """Twelve examples of four numbers, and their classes out of three."""
    numbers = np.random.default_rng(0)
    return numbers.normal(size=(12, 4)).astype("float32"), np.arange(12) % 3


@pytest.fixture(scope="session")
def compiled():
    """Compiles a model for those data, and returns it."""

    def finish(model, optimizer=None, loss=None, **options):
        model.compile(
            optimizer or keras.optimizers.SGD(0.1),
            loss or keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            **options,
        )
        return model

    return finish


@pytest.fixture(scope="session")
def new_net(compiled):
    """Makes the same small net each time: ``hidden``, ``norm`` and ``out`` in ``net``."""

    def make(*args, **options):
        keras.utils.set_random_seed(0)
        layers = keras.layers
        net = keras.Sequential(
            [
                keras.Input((4,)),
                layers.Dense(5, activation="relu", name="hidden"),
                layers.BatchNormalization(name="norm"),
                layers.Dense(3, name="out"),
            ],
            name="net",
        )
        return compiled(net, *args, **options)

    return make


@pytest.fixture(scope="session")
def path_of():
    """The name of a variable in names of tensors."""
    return lambda variable: variable.path if KERAS_3 else variable.name


@pytest.fixture(scope="session")
def gradient_of(path_of):
    """The name of the gradient with respect to a variable."""
    return lambda variable: f"gradients/{path_of(variable).partition(':')[0]}Grad"


@pytest.fixture(scope="session")
def array():
    """The numbers in a tensor or variable of any backend."""

    def convert(value):
        if KERAS_3:
            return np.array(keras.ops.convert_to_numpy(value))
        return np.array(value)

    return convert


@pytest.fixture(scope="session")
def weights_of(array):
    return lambda model: [array(variable) for variable in model.weights]


@pytest.fixture
def spy(array, path_of):
    """Makes a callback that copies a model's weights before every batch of training."""

    class Spy(keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.weights, self.logs, self.functions = [], [], []

        def on_train_batch_begin(self, batch, logs=None):
            self.weights.append({path_of(v): array(v) for v in self.model.weights})
            self.functions.append(self.model.train_function)

        def on_train_batch_end(self, batch, logs=None):
            self.logs.append({name: float(value) for name, value in logs.items()})

    return Spy


@pytest.fixture
def warnings_of(caplog):
    """The messages logged so far."""
    caplog.set_level(logging.WARNING, "tornasole")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "tornasole"]


# -- a step, by hand -------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def step_by_hand(array, path_of):
    """Does one step of training a compiled model, without ``fit``.

    Takes the model, its loss as a function of its outputs, and how to run it (by default: call it),
    which may return other tensors too; returns the loss, what running it returned, and gradients by
    the paths of variables.
    """

    def step(model, loss, x, run=None):
        run = run or (lambda model, x: (model(x, training=True), {}))
        how = {"tensorflow": _tensorflow, "torch": _torch, "jax": _jax}[BACKEND]
        value, (outputs, seen), gradients = how(model, loss, x, run)
        pairs = list(zip(gradients, model.trainable_variables, strict=True))
        found = SimpleNamespace(
            loss=float(value),
            outputs=keras.tree.map_structure(array, outputs) if KERAS_3 else array(outputs),
            seen={name: array(tensor) for name, tensor in seen.items()},
            gradients={path_of(v): _dense(g, array) for g, v in pairs if g is not None},
        )
        _apply(model.optimizer, pairs)
        return found

    return step


def _tensorflow(model, loss, x, run):
    import tensorflow as tf

    with tf.GradientTape() as tape:
        outputs, seen = run(model, x)
        value = loss(outputs)
    return value, (outputs, seen), tape.gradient(value, model.trainable_variables)


def _torch(model, loss, x, run):
    model.zero_grad()
    outputs, seen = run(model, x)
    value = loss(outputs)
    value.backward()
    return value, (outputs, seen), [v.value.grad for v in model.trainable_variables]


def _jax(model, loss, x, run):
    import jax

    still = [v.value for v in model.non_trainable_variables]

    def compute(trainable):
        values = [
            *zip(model.trainable_variables, trainable, strict=True),
            *zip(model.non_trainable_variables, still, strict=True),
        ]
        with keras.StatelessScope(state_mapping=values) as scope:
            outputs, seen = run(model, x)
            value = loss(outputs)
        after = [scope.get_current_value(v) for v in model.non_trainable_variables]
        return value, ((outputs, seen), after)

    found = jax.value_and_grad(compute, has_aux=True)
    (value, (run_result, after)), gradients = found([v.value for v in model.trainable_variables])
    for variable, new in zip(model.non_trainable_variables, after, strict=True):
        variable.assign(new)
    return value, run_result, gradients


def _apply(optimizer, pairs):
    if BACKEND == "torch":
        import torch

        with torch.no_grad():
            optimizer.apply([g for g, _ in pairs], [v for _, v in pairs])
    else:
        optimizer.apply_gradients(pairs)


def _dense(gradient, array):
    if hasattr(gradient, "dense_shape"):
        import tensorflow as tf

        gradient = tf.convert_to_tensor(gradient)
    return array(gradient)
