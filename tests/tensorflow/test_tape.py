"""Loops written by hand around a tape: what is saved of each step, and that nothing stays."""

import gc
import logging
import weakref

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
if keras.backend.backend() != "tensorflow":
    pytest.skip("tapes are TensorFlow's", allow_module_level=True)

from tensorflow.python.eager import tape as tf_tapes  # noqa: E402

from tornasole.capture import del_hook  # noqa: E402
from tornasole.capture.recorder import Recorder  # noqa: E402
from tornasole.errors import SMDebugTypeError  # noqa: E402
from tornasole.selection import SaveConfig  # noqa: E402
from tornasole.tensorflow.keras_hook import KerasHook  # noqa: E402
from tornasole.tensorflow.models import gradient_name, path_of, variables_of  # noqa: E402
from tornasole.trial import create_trial  # noqa: E402
from tornasole.types import ModeKeys as modes  # noqa: E402

X = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
Y = np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32)
PUSH = tf.GradientTape._push_tape
POP = tf.GradientTape._pop_tape
GRADIENT = tf.GradientTape.gradient


@pytest.fixture(autouse=True)
def alone():
    """No hook from another test, the same random numbers, and nothing left on TensorFlow."""
    del_hook()
    keras.backend.clear_session()
    keras.utils.set_random_seed(0)
    yield
    del_hook()
    tape = tf.GradientTape
    assert (tape._push_tape, tape._pop_tape, tape.gradient) == (PUSH, POP, GRADIENT)
    assert not tf.config.functions_run_eagerly()


@pytest.fixture
def new_hook(tmp_path):
    """Makes hooks that save everything at every step and raise their faults."""
    hooks = []

    def make(path="trial", every=1, **options):
        given = {"on_error": "raise", "save_all": True, "save_config": SaveConfig(None, every)}
        hooks.append(KerasHook(tmp_path / path, **{**given, **options}))
        return hooks[-1]

    yield make
    for hook in hooks:
        hook.close()


@pytest.fixture
def hook(new_hook):
    return new_hook()


@pytest.fixture
def warnings_of(caplog):
    caplog.set_level(logging.WARNING, "tornasole")
    return lambda: [r.getMessage() for r in caplog.records if r.name == "tornasole"]


def read(hook):
    hook.close()
    return create_trial(hook.out_dir)


def value(trial, name, step=0):
    return trial.tensor(name).value(step)


def parameters():
    kernel = tf.Variable(np.full((4, 3), 0.5, np.float32), name="kernel")
    bias = tf.Variable(np.zeros(3, np.float32), name="bias")
    return kernel, bias


def loss_of(kernel, bias):
    return tf.reduce_mean((tf.constant(X) @ kernel + bias - Y) ** 2)


def gradients_by_hand(kernel, bias):
    error = 2 * (X @ kernel + bias - Y) / Y.size
    return X.T @ error, error.sum(0)


def new_model(name="net", built=True):
    first = [keras.layers.Input((4,))] if built else []
    return keras.Sequential(
        [
            *first,
            keras.layers.Dense(8, activation="relu", name="hidden"),
            keras.layers.BatchNormalization(name="norm"),
            keras.layers.Dense(3, name="out"),
        ],
        name=name,
    )


def names_of(model):
    return {id(variable): name for name, _, variable in variables_of(model)}


def train_step(hook, model, optimizer, x=X, y=Y):
    """One step; returns what it computed."""
    with hook.wrap_tape(tf.GradientTape()) as tape:
        outputs = model(x, training=True)
        loss = tf.reduce_mean((outputs - y) ** 2)
    before = [variable.numpy() for variable in model.trainable_variables]
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return loss.numpy(), before, [gradient.numpy() for gradient in gradients], outputs.numpy()


# -- values and names ------------------------------------------------------------------------------


def test_a_step_has_its_loss_its_gradients_and_its_weights(hook):
    kernel, bias = parameters()
    with hook.wrap_tape(tf.GradientTape()) as tape:
        loss = loss_of(kernel, bias)
    gradients = tape.gradient(loss, [kernel, bias])
    trial = read(hook)
    assert set(trial.tensor_names()) == {
        "loss",
        "gradients/kernelGrad",
        "gradients/biasGrad",
        "weights/kernel:0",
        "weights/bias:0",
    }
    assert value(trial, "loss") == loss.numpy()
    by_hand = gradients_by_hand(kernel.numpy(), bias.numpy())
    for name, computed, expected in zip(("kernel", "bias"), gradients, by_hand, strict=True):
        saved = value(trial, f"gradients/{name}Grad")
        np.testing.assert_array_equal(saved, computed.numpy())
        np.testing.assert_allclose(saved, expected, rtol=1e-5)
    np.testing.assert_array_equal(value(trial, "weights/kernel:0"), kernel.numpy())


def test_tensors_are_in_the_collections_of_their_roles(hook):
    kernel, bias = parameters()
    with hook.wrap_tape(tf.GradientTape()) as tape:
        loss = loss_of(kernel, bias)
    tape.gradient(loss, [kernel, bias])
    trial = read(hook)
    assert trial.tensor_names(collection="losses") == ["loss"]
    assert trial.tensor_names(collection="weights") == ["weights/kernel:0"]
    assert trial.tensor_names(collection="biases") == ["weights/bias:0"]
    assert len(trial.tensor_names(collection="gradients")) == 2


def test_weights_are_those_before_the_optimizer_changes_them(hook):
    kernel, bias = parameters()
    befores = []
    for _ in range(3):
        befores.append(kernel.numpy())
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = loss_of(kernel, bias)
        kernel.assign_sub(0.1 * tape.gradient(loss, kernel))
    trial = read(hook)
    assert trial.steps(mode=modes.TRAIN) == [0, 1, 2]
    for step, before in enumerate(befores):
        np.testing.assert_array_equal(value(trial, "weights/kernel:0", step), before)


def test_the_tape_and_its_results_are_the_users_own(hook):
    kernel, bias = parameters()
    tape = tf.GradientTape()
    assert hook.wrap_tape(tape) is tape
    with tape:
        loss = loss_of(kernel, bias)
    gradients = tape.gradient(target=loss, sources={"k": kernel, "more": [bias, (kernel,)]})
    assert set(gradients) == {"k", "more"}
    assert gradients["k"] is not None
    assert isinstance(gradients["more"][1], tuple)


def test_sources_may_be_nested_and_hold_what_is_no_variable(hook):
    kernel, bias = parameters()
    x = tf.constant(X)
    with hook.wrap_tape(tf.GradientTape()) as tape:
        tape.watch(x)
        loss = tf.reduce_sum(x @ kernel) + tf.reduce_sum(bias)
    unused = tf.Variable(1.0, name="unused")
    sources = {"b": bias, "a": [x, (kernel, unused)]}
    gradients = tape.gradient(loss, sources)
    trial = read(hook)
    assert gradients["a"][1][1] is None
    assert {name for name in trial.tensor_names() if name.startswith("grad")} == {
        "gradients/kernelGrad",
        "gradients/biasGrad",
    }
    np.testing.assert_array_equal(value(trial, "gradients/biasGrad"), np.ones(3, np.float32))
    np.testing.assert_array_equal(
        value(trial, "gradients/kernelGrad"), gradients["a"][1][0].numpy()
    )
    assert value(trial, "weights/unused:0") == 1


def test_a_gradient_with_respect_to_inputs_alone_saves_no_loss(hook):
    x = tf.constant(X)
    with hook.wrap_tape(tf.GradientTape()) as tape:
        tape.watch(x)
        y = tf.reduce_sum(x * x)
    np.testing.assert_allclose(tape.gradient(y, x), 2 * X)
    assert read(hook).tensor_names() == []


def test_sparse_gradients_are_saved_as_the_matrix_that_they_stand_for(hook):
    table = tf.Variable(np.arange(8, dtype=np.float32).reshape(4, 2), name="table")
    with hook.wrap_tape(tf.GradientTape()) as tape:
        loss = tf.reduce_sum(tf.gather(table, [1, 3, 1]))
    gradient = tape.gradient(loss, table)
    assert isinstance(gradient, tf.IndexedSlices)
    trial = read(hook)
    expected = [[0, 0], [2, 2], [0, 0], [1, 1]]
    np.testing.assert_array_equal(value(trial, "gradients/tableGrad"), expected)


def test_several_targets_are_numbered(hook):
    kernel, bias = parameters()
    with hook.wrap_tape(tf.GradientTape()) as tape:
        losses = {"a": tf.reduce_sum(kernel), "b": tf.reduce_sum(bias) + 7}
    tape.gradient(losses, [kernel, bias])
    trial = read(hook)
    assert value(trial, "loss_0") == 6
    assert value(trial, "loss_1") == 7


def test_variables_of_the_same_name_are_told_apart(hook):
    variables = [tf.Variable(float(i)) for i in range(3)]  # all are called Variable:0
    for _ in range(2):
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = tf.add_n([(i + 1) * v for i, v in enumerate(variables)])
        tape.gradient(loss, variables)
    trial = read(hook)
    for step in (0, 1):
        assert [value(trial, f"weights/Variable{i}:0", step) for i in ("", "_1", "_2")] == [0, 1, 2]
        names = [f"gradients/Variable{i}Grad" for i in ("", "_1", "_2")]
        assert [value(trial, name, step) for name in names] == [1, 2, 3]


# -- steps and modes -------------------------------------------------------------------------------


def test_only_steps_that_are_due_are_saved(new_hook):
    hook = new_hook(every=3)
    kernel, bias = parameters()
    losses = []
    for _ in range(8):
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = loss_of(kernel, bias)
        kernel.assign_sub(0.1 * tape.gradient(loss, kernel))
        losses.append(loss.numpy())
    trial = read(hook)
    assert trial.steps() == [0, 3, 6]
    assert [value(trial, "loss", step) for step in trial.steps()] == losses[::3]


def test_by_default_losses_are_saved_and_nothing_else(new_hook):
    hook = new_hook(save_all=False)
    train_step(hook, new_model(), keras.optimizers.SGD())
    assert read(hook).tensor_names() == ["loss"]


def test_a_mode_that_the_user_set_stays(hook):
    kernel, bias = parameters()
    for mode in (None, modes.EVAL, modes.EVAL, modes.TRAIN):
        if mode is not None:
            hook.set_mode(mode)
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = loss_of(kernel, bias)
        tape.gradient(loss, kernel)
    trial = read(hook)
    assert trial.steps(mode=modes.TRAIN) == [0, 1]
    assert trial.steps(mode=modes.EVAL) == [0, 1]
    assert trial.steps() == [0, 1, 2, 3]


def test_a_tape_within_another_belongs_to_its_step(hook):
    w = tf.Variable(3.0, name="w")
    with hook.wrap_tape(tf.GradientTape()) as outer:
        with hook.wrap_tape(tf.GradientTape()) as inner:
            y = w**3
        slope = inner.gradient(y, w)
    curvature = outer.gradient(slope, w)
    assert hook.step == 0
    trial = read(hook)
    assert curvature == 18
    assert value(trial, "gradients/wGrad") == 18  # the later one replaces the earlier
    assert [value(trial, name) for name in ("loss", "loss_1")] == [27, 27]


def test_two_tapes_side_by_side_are_one_step(hook):
    generator = tf.Variable(2.0, name="generator")
    discriminator = tf.Variable(5.0, name="discriminator")
    for _ in range(2):
        with (
            hook.wrap_tape(tf.GradientTape()) as first,
            hook.wrap_tape(tf.GradientTape()) as second,
        ):
            fake = generator * discriminator
            generator_loss, discriminator_loss = -fake, fake - discriminator
        first.gradient(generator_loss, generator)
        second.gradient(discriminator_loss, [discriminator])
    trial = read(hook)
    assert trial.steps() == [0, 1]
    for step in (0, 1):
        assert value(trial, "loss", step) == -10
        assert value(trial, "loss_1", step) == 5
        assert value(trial, "gradients/generatorGrad", step) == -5
        assert value(trial, "gradients/discriminatorGrad", step) == 1


def test_a_persistent_tape_may_give_several_gradients_in_a_step(hook):
    kernel, bias = parameters()
    with hook.wrap_tape(tf.GradientTape(persistent=True)) as tape:
        loss, other = loss_of(kernel, bias), tf.reduce_sum(kernel)
    tape.gradient(loss, kernel)
    tape.gradient(loss, bias)
    tape.gradient(other, kernel)
    trial = read(hook)
    assert trial.steps() == [0]
    assert {name for name in trial.tensor_names() if "loss" in name} == {"loss", "loss_1"}
    assert value(trial, "loss") == loss.numpy()
    assert value(trial, "loss_1") == 6
    np.testing.assert_array_equal(value(trial, "gradients/kernelGrad"), np.ones((4, 3)))
    assert trial.tensor("gradients/biasGrad").steps() == [0]


def test_a_tape_that_pauses_or_starts_anew_stays_in_its_step(hook, warnings_of):
    model = new_model()
    hook.register_model(model)
    kernel = model.get_layer("out").kernel
    with hook.wrap_tape(tf.GradientTape(persistent=True)) as tape:
        with tape.stop_recording():
            aside = model(X)
        tape.reset()
        outputs = model(X)
        loss = tf.reduce_sum(outputs)
    tape.gradient(loss, kernel)
    tape.jacobian(loss, kernel)
    assert hook.step == 0
    np.testing.assert_array_equal(value(read(hook), "predictions"), outputs.numpy())
    np.testing.assert_array_equal(aside, outputs)
    assert warnings_of() == []


def test_a_tape_entered_again_begins_the_next_step(hook):
    kernel, bias = parameters()
    tape = hook.wrap_tape(hook.wrap_tape(tf.GradientTape()))
    for _ in range(3):
        with tape:
            loss = loss_of(kernel, bias)
        kernel.assign_sub(tape.gradient(loss, kernel))
    assert hook.step == 2


def test_a_tape_wrapped_while_it_records_begins_a_step(hook):
    kernel, bias = parameters()
    for _ in range(2):
        with tf.GradientTape() as tape:
            hook.wrap_tape(tape)
            loss = loss_of(kernel, bias)
        tape.gradient(loss, kernel)
    trial = read(hook)
    assert trial.steps() == [0, 1]
    assert value(trial, "loss", 1) == loss.numpy()


def test_what_is_saved_by_hand_belongs_to_the_step(hook):
    kernel, bias = parameters()
    for i in range(2):
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = loss_of(kernel, bias)
            hook.save_tensor("halves", loss / 2, collections_to_write="mine")
        tape.gradient(loss, kernel)
        hook.save_scalar("turn", i)
        hook.save_scalar("loss", loss)
    trial = read(hook)
    assert [value(trial, "scalar/turn", step) for step in (0, 1)] == [0, 1]
    assert value(trial, "scalar/loss", 1) == loss.numpy()
    assert value(trial, "halves", 1) == loss.numpy() / 2
    assert trial.tensor_names(collection="mine") == ["halves"]


def test_a_body_that_fails_ends_its_step(hook):
    kernel, bias = parameters()
    model = new_model()
    hook.register_model(model)
    with pytest.raises(ZeroDivisionError), hook.wrap_tape(tf.GradientTape()):
        raise ZeroDivisionError
    assert "call" not in model.__dict__
    with hook.wrap_tape(tf.GradientTape()) as tape:
        loss = loss_of(kernel, bias)
    tape.gradient(loss, kernel)
    assert hook.step == 1


def test_a_tape_that_was_never_left_does_not_stop_the_count(hook):
    left = []
    for _ in range(2):
        tape = hook.wrap_tape(tf.GradientTape())
        tape.__enter__()
        left.append(tape._tape)  # TensorFlow goes on recording on it
        del tape
    assert hook.step == 1
    for tape in reversed(left):
        tf_tapes.pop_tape(tape)


# -- models and optimizers -------------------------------------------------------------------------


def test_a_registered_model_shows_its_weights_and_what_flows_through_it(hook):
    model, optimizer = new_model(), keras.optimizers.SGD(0.1)
    hook.register_model(model)
    hook.register_model(model)
    hidden = model.get_layer("hidden")
    expected = []
    for _ in range(2):
        first = np.maximum(X @ hidden.kernel.numpy() + hidden.bias.numpy(), 0)
        moving = model.get_layer("norm").moving_mean.numpy()
        expected.append((first, moving, *train_step(hook, model, optimizer)))
    trial = read(hook)
    names = names_of(model)
    for step, (first, moving, loss, weights, gradients, outputs) in enumerate(expected):
        assert value(trial, "loss", step) == loss
        np.testing.assert_array_equal(value(trial, "inputs", step), X)
        np.testing.assert_array_equal(value(trial, "predictions", step), outputs)
        np.testing.assert_array_equal(value(trial, "out/outputs", step), outputs)
        np.testing.assert_array_equal(value(trial, "hidden/inputs", step), X)
        np.testing.assert_allclose(value(trial, "hidden/outputs", step), first, atol=1e-6)
        moved = names[id(model.get_layer("norm").moving_mean)]
        np.testing.assert_array_equal(value(trial, moved, step), moving)
        for i, variable in enumerate(model.trainable_variables):
            np.testing.assert_array_equal(value(trial, names[id(variable)], step), weights[i])
            saved = value(trial, gradient_name(variable), step)
            np.testing.assert_array_equal(saved, gradients[i])
    assert not any(name.startswith("weights/") for name in trial.tensor_names())


def test_a_model_that_its_first_step_builds_is_saved_from_that_step_on(hook, warnings_of):
    model, optimizer = new_model(built=False), keras.optimizers.SGD(0.1)
    hook.register_model(model)
    expected = [train_step(hook, model, optimizer) for _ in range(2)]
    trial = read(hook)
    names = names_of(model)
    for step, (_, weights, gradients, outputs) in enumerate(expected):
        for i, variable in enumerate(model.trainable_variables):
            np.testing.assert_array_equal(value(trial, names[id(variable)], step), weights[i])
            saved = value(trial, gradient_name(variable), step)
            np.testing.assert_array_equal(saved, gradients[i])
        np.testing.assert_array_equal(value(trial, "out/outputs", step), outputs)
    assert warnings_of() == []


def test_a_model_need_be_neither_registered_nor_compiled(hook):
    model = new_model()
    train_step(hook, model, keras.optimizers.SGD())
    kernel = model.get_layer("hidden").kernel
    trial = read(hook)
    assert trial.tensor(f"weights/{path_of(kernel)}").steps() == [0]
    assert trial.tensor(gradient_name(kernel)).steps() == [0]


def test_several_models_in_a_step_are_all_seen(hook):
    models = [new_model("one"), new_model("two")]
    for model in models:
        hook.register_model(model)
    with hook.wrap_tape(tf.GradientTape(persistent=True)) as tape:
        outputs = [model(X, training=True) for model in models]
        losses = [tf.reduce_sum(output) for output in outputs]
    for model, loss in zip(models, losses, strict=True):
        tape.gradient(loss, model.trainable_variables)
    trial = read(hook)
    for number, (output, loss) in enumerate(zip(outputs, losses, strict=True)):
        suffix = f"_{number}" if number else ""
        np.testing.assert_array_equal(value(trial, f"predictions{suffix}"), output.numpy())
        np.testing.assert_array_equal(value(trial, f"out/outputs{suffix}"), output.numpy())
        assert value(trial, f"loss{suffix}") == loss.numpy()
    kernels = [name for name in trial.tensor_names(collection="weights") if "out" in name]
    assert len({value(trial, name).tobytes() for name in kernels}) == 2


def test_layers_are_called_as_they_are_on_steps_that_save_nothing(new_hook):
    hook = new_hook(every=2)
    model = new_model()
    hook.register_model(model)
    wrapped = []
    for _ in range(4):
        with hook.wrap_tape(tf.GradientTape()):
            wrapped.append("call" in model.get_layer("out").__dict__)
        assert "call" not in model.get_layer("out").__dict__
    assert wrapped == [True, False, True, False]


def test_a_model_that_only_a_compiled_function_calls_is_said_to_be_unseen(hook, warnings_of):
    model = new_model()
    hook.register_model(model)
    function = tf.function(model)
    function(X)
    for _ in range(2):
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = tf.reduce_sum(function(X))
        tape.gradient(loss, model.trainable_variables)
    trial = read(hook)
    assert trial.tensor("loss").steps() == [0, 1]
    assert "predictions" not in trial.tensor_names()
    assert len([m for m in warnings_of() if "within a tf.function" in m]) == 1


def test_an_optimizer_shows_its_variables_after_each_step(hook):
    model, optimizer = new_model(), keras.optimizers.Adam(0.01)
    assert hook.wrap_optimizer(hook.wrap_optimizer(optimizer)) is optimizer
    states = []
    for _ in range(2):
        train_step(hook, model, optimizer)
        variables = optimizer.variables
        states.append({path_of(v): v.numpy() for v in _called(variables)})
    trial = read(hook)
    names = trial.tensor_names(collection="optimizer_variables")
    assert set(names) == set(states[0])
    for step, state in enumerate(states):
        for name in names:
            np.testing.assert_array_equal(value(trial, name, step), state[name])


def _called(variables):
    return variables() if callable(variables) else variables


def test_an_optimizer_shows_gradients_that_no_wrapped_tape_has_shown(hook):
    model, optimizer = new_model(), hook.wrap_optimizer(keras.optimizers.SGD(0.1))
    hook.begin_step()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(X))
    gradients = tape.gradient(loss, model.trainable_variables)
    pairs = zip(gradients, model.trainable_variables, strict=True)
    optimizer.apply_gradients(pair for pair in pairs)
    trial = read(hook)
    for gradient, variable in zip(gradients, model.trainable_variables, strict=True):
        saved = value(trial, gradient_name(variable))
        np.testing.assert_array_equal(saved, gradient.numpy())
    assert "loss" not in trial.tensor_names()


def test_gradients_of_a_wrapped_tape_are_not_replaced_by_what_the_optimizer_gets(hook):
    w = tf.Variable(1.0, name="w")
    optimizer = hook.wrap_optimizer(keras.optimizers.SGD(0.1))
    if hasattr(optimizer, "apply"):
        w = keras.Variable(1.0, name="w")
    with hook.wrap_tape(tf.GradientTape()) as tape:
        loss = w * 5
    gradient = tape.gradient(loss, w)
    optimizer.apply_gradients([(tf.clip_by_value(gradient, -1, 1), w)])
    assert value(read(hook), gradient_name(w)) == 5


def test_optimizers_of_tensorflow_1_are_watched_too(hook):
    w = tf.Variable(1.0, name="w")
    optimizer = hook.wrap_optimizer(tf.compat.v1.train.AdamOptimizer(0.1))
    hook.begin_step()
    optimizer.apply_gradients([(tf.constant(2.0), w)])
    trial = read(hook)
    assert value(trial, "gradients/wGrad") == 2
    names = set(trial.tensor_names(collection="optimizer_variables"))
    assert names == {variable.name for variable in optimizer.variables()}


def test_training_is_the_same_with_and_without_the_hook(new_hook):
    def run(hook):
        keras.utils.set_random_seed(0)
        model = keras.Sequential(
            [keras.layers.Input((4,)), keras.layers.Dense(8), keras.layers.Dropout(0.5)]
        )
        optimizer = keras.optimizers.Adam(0.1)
        if hook is not None:
            hook.register_model(model)
            hook.wrap_optimizer(optimizer)
        for _ in range(5):
            tape = tf.GradientTape()
            with tape if hook is None else hook.wrap_tape(tape):
                loss = tf.reduce_sum(model(X, training=True) ** 2)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return [variable.numpy() for variable in model.weights]

    for plain, hooked in zip(run(None), run(new_hook(every=2)), strict=True):
        np.testing.assert_array_equal(plain, hooked)


def test_what_a_tape_watches_is_what_it_would_watch_without_the_hook(hook):
    model = new_model()
    hook.register_model(model)
    with tf.GradientTape() as around, hook.wrap_tape(tf.GradientTape()) as tape:
        tf.reduce_sum(model.get_layer("hidden")(X))
    assert len(tape.watched_variables()) == 2
    assert len(around.watched_variables()) == 2


# -- letting go ------------------------------------------------------------------------------------


def test_after_close_tapes_optimizers_and_models_are_what_they_were(hook):
    model, optimizer = new_model(), keras.optimizers.SGD()
    clean = [set(each.__dict__) for each in (model, *model.layers)]
    tape, plain = tf.GradientTape(), set(tf.GradientTape().__dict__)
    train_step(hook, model, optimizer)
    hook.register_model(model)
    hook.wrap_optimizer(optimizer)
    with hook.wrap_tape(tape):
        model(X)
        hook.close()
        loss = tf.reduce_sum(model(X))
    assert set(tape.__dict__) == plain
    assert not {"apply", "apply_gradients"} & set(optimizer.__dict__)
    assert [set(each.__dict__) for each in (model, *model.layers)] == clean
    assert tape.gradient(loss, model.trainable_variables)[0] is not None


def test_a_closed_hook_hands_tapes_and_optimizers_back_as_they_are(hook):
    hook.close()
    tape, optimizer = tf.GradientTape(), keras.optimizers.SGD()
    assert hook.wrap_tape(tape) is tape
    assert hook.wrap_optimizer(optimizer) is optimizer
    hook.register_model(new_model())
    assert "gradient" not in tape.__dict__


def test_methods_of_the_users_own_on_a_tape_are_called_and_put_back(hook):
    tape, calls = tf.GradientTape(), []

    def gradient(*args, **kwargs):
        calls.append("mine")
        return tf.GradientTape.gradient(tape, *args, **kwargs)

    tape.gradient = gradient
    w = tf.Variable(2.0, name="w")
    with hook.wrap_tape(tape):
        loss = w * w
    tape.gradient(loss, w)
    assert calls == ["mine"]
    assert value(read(hook), "gradients/wGrad") == 4
    assert tape.gradient is gradient


def test_two_hooks_may_share_a_tape(new_hook):
    first, second = new_hook("first"), new_hook("second")
    w = tf.Variable(2.0, name="w")
    tape = second.wrap_tape(first.wrap_tape(tf.GradientTape()))
    plain = set(tf.GradientTape().__dict__)
    for _ in range(2):
        with tape:
            loss = w * w
        tape.gradient(loss, w)
    trial = read(first)
    assert trial.steps() == [0, 1]
    with tape:
        loss = w * w
    tape.gradient(loss, w)
    assert read(second).steps() == [0, 1, 2]
    assert set(tape.__dict__) == plain


def test_a_tape_goes_as_soon_as_the_loop_lets_go_of_it(hook):
    w = tf.Variable(2.0, name="w")
    gc.collect()
    gc.disable()
    try:
        with hook.wrap_tape(tf.GradientTape(persistent=True)) as tape:
            loss = w * w
        tape.gradient(loss, w)
        gone = weakref.ref(tape)
        del tape
        assert gone() is None
    finally:
        gc.enable()


# -- faults and bad input --------------------------------------------------------------------------


def broken(*args, **kwargs):
    raise OSError("the disk is gone")


@pytest.mark.parametrize("method", ["begin_step", "record_many", "wants", "wants_role"])
def test_a_fault_of_ours_does_not_stop_the_loop(new_hook, monkeypatch, warnings_of, method):
    hook = new_hook(on_error="warn")
    model, optimizer = new_model(), keras.optimizers.SGD()
    hook.register_model(model)
    hook.wrap_optimizer(optimizer)
    for _ in range(2):
        train_step(hook, model, optimizer)
    monkeypatch.setattr(Recorder, method, broken)
    for _ in range(2):
        train_step(hook, model, optimizer)
    assert "call" not in model.__dict__
    assert len([m for m in warnings_of() if "the disk is gone" in m]) == 1
    monkeypatch.undo()
    assert read(hook).steps()[0] == 0


def test_a_fault_of_ours_is_raised_if_the_user_says_so(hook, monkeypatch):
    model, optimizer = new_model(), keras.optimizers.SGD()
    monkeypatch.setattr(Recorder, "record_many", broken)
    with pytest.raises(OSError, match="the disk is gone"):
        train_step(hook, model, optimizer)


@pytest.mark.parametrize(
    ("method", "thing", "named"),
    [
        ("wrap_tape", "tape", "str"),
        ("wrap_tape", tf.GradientTape, "the class GradientTape"),
        ("wrap_optimizer", "adam", "str"),
        ("wrap_optimizer", keras.optimizers.Adam, "the class Adam"),
        ("wrap_optimizer", object(), "object"),
        ("register_model", None, "NoneType"),
        ("register_model", keras.Model, "the class"),
    ],
)
def test_what_is_none_is_refused_by_its_type(hook, method, thing, named):
    with pytest.raises(SMDebugTypeError, match=named):
        getattr(hook, method)(thing)


def test_errors_of_the_tape_are_the_users(hook):
    w = tf.Variable(2.0)
    with hook.wrap_tape(tf.GradientTape()) as tape:
        loss = w * w
        with pytest.raises(ValueError, match="still recording"), tape:
            pass
    tape.gradient(loss, w)
    with pytest.raises(RuntimeError, match="non-persistent"):
        tape.gradient(loss, w)
    assert hook.step == 0
