"""Tapes within a ``tf.function``: the same is saved, and every step runs the same compiled code."""

import gc
import logging
import weakref

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
if keras.backend.backend() != "tensorflow":
    pytest.skip("tapes are TensorFlow's", allow_module_level=True)

from tornasole.capture import del_hook  # noqa: E402
from tornasole.capture.recorder import Recorder  # noqa: E402
from tornasole.selection import SaveConfig  # noqa: E402
from tornasole.tensorflow.keras_hook import KerasHook  # noqa: E402
from tornasole.tensorflow.models import gradient_name, path_of, variables_of  # noqa: E402
from tornasole.trial import create_trial  # noqa: E402
from tornasole.types import ModeKeys as modes  # noqa: E402

X = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
Y = np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32)


@pytest.fixture(autouse=True)
def alone():
    """No hook from another test, the same random numbers, and no setting of TensorFlow changed."""
    del_hook()
    keras.backend.clear_session()
    keras.utils.set_random_seed(0)
    yield
    del_hook()
    assert not tf.config.functions_run_eagerly()


@pytest.fixture
def new_hook(tmp_path):
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


def new_model(built=True):
    first = [keras.layers.Input((4,))] if built else []
    return keras.Sequential(
        [
            *first,
            keras.layers.Dense(8, activation="relu", name="hidden"),
            keras.layers.Dropout(0.3, name="drop"),
            keras.layers.BatchNormalization(name="norm"),
            keras.layers.Dense(3, name="out"),
        ],
        name="net",
    )


class Loop:
    """A training step, compiled; ``traces`` counts how often Python ran it."""

    def __init__(self, hook, model, optimizer, **options):
        self.hook, self.model, self.optimizer = hook, model, optimizer
        self.traces = 0
        self.step = tf.function(self._step, **options)

    def _step(self, x, y):
        self.traces += 1
        tape = tf.GradientTape()
        if self.hook is not None:
            tape = self.hook.wrap_tape(tape)
        with tape:
            outputs = self.model(x, training=True)
            loss = tf.reduce_mean((outputs - y) ** 2)
        variables = self.model.trainable_variables
        gradients = tape.gradient(loss, variables)
        before = [tf.identity(variable) for variable in variables]
        self.optimizer.apply_gradients(zip(gradients, variables))  # noqa: B905 - AutoGraph's has none
        return loss, before, gradients, outputs

    def run(self, steps):
        return [self.step(X, Y) for _ in range(steps)]


def linear(w):
    """A loss with the gradient 2 with respect to each weight."""
    return tf.reduce_sum(w) * 2


def test_steps_that_are_due_are_saved_as_the_compiled_code_computed_them(new_hook):
    hook = new_hook(every=3)
    model, optimizer = new_model(), keras.optimizers.Adam(0.01)
    hook.register_model(model)
    hook.wrap_optimizer(optimizer)
    loop = Loop(hook, model, optimizer)
    results = []
    for _ in range(8):
        results.append((loop.run(1)[0], [v.numpy() for v in _all(optimizer.variables)]))
    assert loop.traces <= 2  # TensorFlow traces twice what makes variables
    trial = read(hook)
    assert trial.steps() == trial.steps(mode=modes.TRAIN) == [0, 3, 6]
    names = {id(variable): name for name, _, variable in variables_of(model)}
    for step in trial.steps():
        (loss, before, gradients, outputs), state = results[step]
        assert value(trial, "loss", step) == loss.numpy()
        np.testing.assert_array_equal(value(trial, "inputs", step), X)
        np.testing.assert_array_equal(value(trial, "hidden/inputs", step), X)
        np.testing.assert_array_equal(value(trial, "predictions", step), outputs.numpy())
        np.testing.assert_array_equal(value(trial, "out/outputs", step), outputs.numpy())
        for i, variable in enumerate(model.trainable_variables):
            saved = value(trial, names[id(variable)], step)
            np.testing.assert_array_equal(saved, before[i].numpy())
            saved = value(trial, gradient_name(variable), step)
            np.testing.assert_array_equal(saved, gradients[i].numpy())
        for variable, after in zip(_all(optimizer.variables), state, strict=True):
            np.testing.assert_array_equal(value(trial, path_of(variable), step), after)
    assert trial.tensor_names(collection="losses") == ["loss"]


def _all(variables):
    return variables() if callable(variables) else variables


def test_training_is_the_same_with_and_without_the_hook(new_hook):
    def run(hook):
        keras.utils.set_random_seed(0)
        model, optimizer = new_model(), keras.optimizers.Adam(0.1)
        if hook is not None:
            hook.register_model(model)
            hook.wrap_optimizer(optimizer)
        losses = [loss.numpy() for loss, *_ in Loop(hook, model, optimizer).run(6)]
        return losses, [variable.numpy() for variable in model.weights]

    plain, hooked = run(None), run(new_hook(every=2))
    assert plain[0] == hooked[0]
    for one, other in zip(plain[1], hooked[1], strict=True):
        np.testing.assert_array_equal(one, other)


def test_random_numbers_of_the_graph_are_the_same_with_and_without_the_hook(new_hook):
    def run(hook):
        tf.random.set_seed(3)
        w = tf.Variable(tf.ones([4, 4]), name="w")

        @tf.function
        def step():
            tape = tf.GradientTape()
            with tape if hook is None else hook.wrap_tape(tape):
                loss = tf.reduce_sum(tf.nn.dropout(w, 0.5) * tf.random.normal([4, 4]))
            w.assign_sub(tape.gradient(loss, w))
            return loss

        return [step().numpy() for _ in range(4)]

    assert run(None) == run(new_hook(every=2))


def test_on_a_step_that_saves_nothing_no_tensor_leaves_the_graph(new_hook, monkeypatch):
    hook = new_hook(every=4)
    w = tf.Variable([1.0, 2.0], name="w")

    @tf.function
    def step():
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = linear(w)
        return tape.gradient(loss, w)

    handed_over = []
    record = type(hook._tapes).record_traced
    monkeypatch.setattr(
        type(hook._tapes),
        "record_traced",
        lambda self, items: [handed_over.extend(name for name, *_ in items), record(self, items)],
    )
    counts = []
    for _ in range(6):
        step()
        counts.append(len(handed_over))
        handed_over.clear()
    assert counts == [3, 0, 0, 0, 3, 0]


def test_only_what_is_wanted_leaves_the_graph(new_hook):
    hook = new_hook(save_all=False, include_collections=["gradients"])
    hook.get_collection("gradients").save_config = SaveConfig(save_interval=2)
    w = tf.Variable([1.0, 2.0], name="w")

    @tf.function
    def step():
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = linear(w)
        return tape.gradient(loss, w)

    for _ in range(4):
        step()
    trial = read(hook)
    assert trial.tensor("loss").steps() == [0, 1, 2, 3]
    assert trial.tensor("gradients/wGrad").steps() == [0, 2]
    assert trial.tensor_names() == ["gradients/wGrad", "loss"]


def test_a_model_that_the_trace_builds_is_saved_from_the_first_step_on(hook, warnings_of):
    model, optimizer = new_model(built=False), keras.optimizers.SGD(0.1)
    hook.register_model(model)
    results = Loop(hook, model, optimizer).run(2)
    trial = read(hook)
    kernel = model.get_layer("out").kernel
    position = [variable is kernel for variable in model.trainable_variables].index(True)
    for step, (_, before, gradients, outputs) in enumerate(results):
        name = f"out/weights/{path_of(kernel)}"
        np.testing.assert_array_equal(value(trial, name, step), before[position].numpy())
        saved = value(trial, gradient_name(kernel), step)
        np.testing.assert_array_equal(saved, gradients[position].numpy())
        np.testing.assert_array_equal(value(trial, "out/outputs", step), outputs.numpy())
    assert warnings_of() == []


def test_a_loop_within_the_graph_has_a_step_for_each_turn(new_hook):
    hook = new_hook(every=3)
    w = tf.Variable(1.0, name="w")

    @tf.function
    def epoch(data):
        for x in data:
            with hook.wrap_tape(tf.GradientTape()) as tape:
                loss = w * x
            w.assign_add(tape.gradient(loss, w))

    for _ in range(2):
        epoch(tf.data.Dataset.from_tensor_slices(np.arange(4, dtype=np.float32)))
    trial = read(hook)
    assert trial.steps() == [0, 3, 6]
    weights = 1 + np.cumsum([0, 0, 1, 2, 3, 0, 1, 2])
    for step in trial.steps():
        assert value(trial, "weights/w:0", step) == weights[step]
        assert value(trial, "gradients/wGrad", step) == step % 4
        assert value(trial, "loss", step) == weights[step] * (step % 4)


def test_tapes_one_after_another_in_a_function_are_steps_in_order(hook):
    w = tf.Variable(1.0, name="w")

    @tf.function
    def steps():
        for factor in (2.0, 3.0, 5.0):
            with hook.wrap_tape(tf.GradientTape()) as tape:
                loss = w * factor
            w.assign_sub(tape.gradient(loss, w))

    steps()
    trial = read(hook)
    assert [value(trial, "gradients/wGrad", step) for step in trial.steps()] == [2, 3, 5]
    assert [value(trial, "weights/w:0", step) for step in trial.steps()] == [1, -1, -4]


def test_a_tape_after_a_loop_of_the_graph_is_a_step_after_those_of_the_loop(hook):
    first, last = tf.Variable(1.0, name="first"), tf.Variable(1.0, name="last")

    @tf.function
    def steps():
        for i in tf.range(20.0):
            with hook.wrap_tape(tf.GradientTape()) as tape:
                loss = first * i
            first.assign_add(tape.gradient(loss, first))
        for _ in tf.data.Dataset.range(3):
            with hook.wrap_tape(tf.GradientTape()) as tape:
                loss = first * 100
            tape.gradient(loss, first)
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = last * 7
        tape.gradient(loss, last)

    steps()
    trial = read(hook)
    assert trial.tensor("gradients/lastGrad").steps() == [23]
    expected = [*range(20), 100, 100, 100]
    assert [value(trial, "gradients/firstGrad", step) for step in range(23)] == expected


def test_several_tapes_and_nested_sources_work_as_they_do_outside(hook):
    generator = tf.Variable(2.0, name="generator")
    discriminator = tf.Variable(5.0, name="discriminator")

    @tf.function
    def step():
        with (
            hook.wrap_tape(tf.GradientTape()) as first,
            hook.wrap_tape(tf.GradientTape(persistent=True)) as second,
        ):
            fake = generator * discriminator
            losses = -fake, fake - discriminator
        both = {"d": [discriminator], "g": (generator,)}
        return first.gradient(losses[0], generator), second.gradient(losses[1], both)

    for _ in range(2):
        gradients = step()
    assert gradients[1]["g"][0] == 5
    trial = read(hook)
    assert trial.steps() == [0, 1]
    assert [value(trial, name, 1) for name in ("loss", "loss_1")] == [-10, 5]
    assert value(trial, "gradients/generatorGrad", 1) == 5  # the later one
    assert value(trial, "gradients/discriminatorGrad", 1) == 1


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16"])
def test_values_of_any_type_leave_the_graph_as_they_are(hook, dtype):
    w = tf.Variable(tf.cast([1.5, 2.5], dtype), name="w")

    @tf.function
    def step():
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = linear(w)
        return tape.gradient(loss, w)

    step()
    trial = read(hook)
    assert value(trial, "weights/w:0").astype(np.float64).tolist() == [1.5, 2.5]
    assert value(trial, "gradients/wGrad").astype(np.float64).tolist() == [2, 2]
    assert value(trial, "loss") == 8


def test_sparse_gradients_leave_the_graph_as_the_matrix_that_they_stand_for(hook):
    table = tf.Variable(np.zeros((4, 2), np.float32), name="table")

    @tf.function
    def step(rows):
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = tf.reduce_sum(tf.gather(table, rows))
        return tape.gradient(loss, table)

    assert isinstance(step(tf.constant([1, 3, 1])), tf.IndexedSlices)
    expected = [[0, 0], [2, 2], [0, 0], [1, 1]]
    np.testing.assert_array_equal(value(read(hook), "gradients/tableGrad"), expected)


def test_functions_traced_anew_for_other_shapes_go_on_with_the_count(hook):
    w = tf.Variable(1.0, name="w")

    @tf.function
    def step(x):
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = tf.reduce_sum(w * x)
        return tape.gradient(loss, w)

    for size in (1, 2, 1, 3):
        step(tf.ones([size]))
    trial = read(hook)
    assert [value(trial, "gradients/wGrad", step) for step in trial.steps()] == [1, 2, 1, 3]


def test_gradients_may_be_applied_outside_of_the_function(hook):
    w = tf.Variable(1.0, name="w")
    optimizer = hook.wrap_optimizer(tf.compat.v1.train.MomentumOptimizer(0.1, 0.9))

    @tf.function
    def gradients():
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = w * 5
        return tape.gradient(loss, w)

    for _ in range(2):
        optimizer.apply_gradients([(tf.clip_by_norm(gradients(), 1), w)])
        hook.save_scalar("weight", w)
    trial = read(hook)
    for step in (0, 1):
        assert value(trial, "gradients/wGrad", step) == 5
    assert value(trial, "w/Momentum:0", 1) == np.float32(1.9)
    assert value(trial, "scalar/weight", 1) == w.numpy()


def test_a_function_with_a_tape_of_its_own_within_a_tape_is_in_the_same_step(hook):
    w = tf.Variable(3.0, name="w")

    @tf.function
    def slope():
        with hook.wrap_tape(tf.GradientTape()) as inner:
            y = w**3
        return inner.gradient(y, w)

    for _ in range(2):
        with hook.wrap_tape(tf.GradientTape()) as outer:
            first = slope()
        second = outer.gradient(first, w)
    assert (first.numpy(), second.numpy()) == (27, 18)
    assert hook.step == 1


class Branching(keras.Model):
    """Its Python is turned into the graph's own control flow, where Keras does that."""

    def __init__(self):
        super().__init__(name="branching")
        self.layer = keras.layers.Dense(3, name="layer")

    def call(self, x, training=False):
        return self.layer(x) if training else x


class BranchingOnTensors(Branching):
    def call(self, x, training=False):
        y = self.layer(x)
        if tf.reduce_sum(x) > 0:
            y = y * 2
        return y


def test_models_with_python_of_their_own_are_seen(hook):
    model = Branching()
    hook.register_model(model)
    (_, _, _, outputs), *_ = Loop(hook, model, keras.optimizers.SGD(0.1)).run(1)
    np.testing.assert_array_equal(value(read(hook), "layer/outputs"), outputs.numpy())


@pytest.mark.skipif(keras.__version__ >= "3", reason="Keras 3 leaves control flow as it is")
@pytest.mark.parametrize("sign", [1, -1])
def test_models_whose_control_flow_is_converted_are_seen(hook, sign):
    model = BranchingOnTensors()
    hook.register_model(model)
    x = np.abs(X) * sign
    loop = Loop(hook, model, keras.optimizers.SGD(0.1))
    _, _, _, outputs = loop.step(x, Y)
    trial = read(hook)
    factor = 2 if sign > 0 else 1
    np.testing.assert_allclose(value(trial, "layer/outputs") * factor, outputs, rtol=1e-6)
    np.testing.assert_array_equal(value(trial, "predictions"), outputs)


def test_what_a_loop_of_the_graph_computes_inside_is_said_not_to_be_saved(hook, warnings_of):
    cell = keras.layers.Dense(4, name="cell")
    cell.build((None, 4))
    hook.register_model(cell)

    class Wrapped(keras.layers.Layer):
        def __init__(self):
            super().__init__(name="wrapped")
            self.cell = cell

        def call(self, x):
            return tf.while_loop(lambda i, h: i < 3, lambda i, h: (i + 1, self.cell(h)), (0, x))[1]

    layer = Wrapped()
    layer.build((None, 4))
    hook.register_model(layer)

    @tf.function
    def step(x):
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = tf.reduce_sum(layer(x))
        return tape.gradient(loss, cell.kernel)

    gradient = step(X)
    trial = read(hook)
    np.testing.assert_array_equal(value(trial, gradient_name(cell.kernel)), gradient.numpy())
    assert any("graph of its own" in message for message in warnings_of())


def test_functions_that_the_user_runs_eagerly_are_seen_all_the_same(hook):
    model, optimizer = new_model(), keras.optimizers.SGD(0.1)
    hook.register_model(model)
    loop = Loop(hook, model, optimizer)
    tf.config.run_functions_eagerly(True)
    try:
        results = loop.run(2)
        assert tf.config.functions_run_eagerly()
    finally:
        tf.config.run_functions_eagerly(False)
    trial = read(hook)
    assert [value(trial, "loss", step) for step in trial.steps()] == [r[0].numpy() for r in results]


def test_a_function_for_xla_trains_and_is_said_not_to_be_saved(hook, warnings_of):
    model, optimizer = new_model(), keras.optimizers.SGD(0.1)
    hook.register_model(model)
    hook.wrap_optimizer(optimizer)
    before = model.get_layer("out").kernel.numpy()
    Loop(hook, model, optimizer, jit_compile=True).run(2)
    assert (model.get_layer("out").kernel.numpy() != before).any()
    assert hook.step == -1
    assert [m for m in warnings_of() if "jit_compile" in m and "neither counted nor saved" in m]


def test_fit_is_not_slowed_by_a_wrapped_optimizer(hook):
    model = new_model()
    optimizer = hook.wrap_optimizer(keras.optimizers.SGD(0.1))
    model.compile(optimizer, "mse", jit_compile=False)
    model.fit(X, Y, verbose=0)
    step = tf.function(model.train_step).get_concrete_function((X, Y))
    assert not any("tornasole" in op.name for op in step.graph.get_operations())
    assert hook.step == -1


# -- letting go ------------------------------------------------------------------------------------


def test_after_close_a_function_goes_on_and_nothing_is_counted(hook):
    model, optimizer = new_model(), keras.optimizers.SGD(0.1)
    clean = [set(each.__dict__) for each in model.layers]
    hook.register_model(model)
    hook.wrap_optimizer(optimizer)
    loop = Loop(hook, model, optimizer)
    loop.run(2)
    hook.close()
    traces = loop.traces
    before = model.get_layer("out").kernel.numpy()
    loop.run(2)
    assert loop.traces == traces
    assert (model.get_layer("out").kernel.numpy() != before).any()
    assert hook.step == 1
    assert [set(each.__dict__) for each in model.layers] == clean
    assert create_trial(hook.out_dir).steps() == [0, 1]


def test_neither_hook_nor_graph_keeps_the_other(new_hook):
    hook = new_hook()
    w = tf.Variable(1.0, name="w")

    def new_step(hook):
        reference = weakref.ref(hook)  # else the function itself would keep it

        @tf.function
        def step():
            with reference().wrap_tape(tf.GradientTape()) as tape:
                loss = w * 2
            return tape.gradient(loss, w)

        return step

    step = new_step(hook)
    step()
    graph = weakref.ref(step.get_concrete_function().graph)
    adapter = weakref.ref(hook._tapes)
    del step
    gc.collect()
    assert graph() is None
    step = new_step(hook)
    step()
    hook._tapes.detach()
    hook._tapes = None
    gc.collect()
    assert adapter() is None
    assert step() == 2


# -- faults ----------------------------------------------------------------------------------------


def broken(*args, **kwargs):
    raise OSError("the disk is gone")


@pytest.mark.parametrize("method", ["begin_step", "record_many", "wants"])
def test_a_fault_of_ours_does_not_stop_the_function(new_hook, monkeypatch, warnings_of, method):
    hook = new_hook(on_error="warn")
    model, optimizer = new_model(), keras.optimizers.SGD(0.1)
    hook.register_model(model)
    loop = Loop(hook, model, optimizer)
    loop.run(2)
    monkeypatch.setattr(Recorder, method, broken)
    before = model.get_layer("out").kernel.numpy()
    loop.run(2)
    assert (model.get_layer("out").kernel.numpy() != before).any()
    assert len([m for m in warnings_of() if "the disk is gone" in m]) == 1
    monkeypatch.undo()
    assert read(hook).steps()[0] == 0


def test_a_fault_of_ours_is_raised_if_the_user_says_so(hook, monkeypatch):
    loop = Loop(hook, new_model(), keras.optimizers.SGD(0.1))
    loop.run(1)
    monkeypatch.setattr(Recorder, "begin_step", broken)
    with pytest.raises(tf.errors.OpError, match="the disk is gone"):
        loop.run(1)


def test_errors_of_the_users_graph_are_the_users(hook):
    w = tf.Variable(1.0, name="w")

    @tf.function
    def step(x):
        with hook.wrap_tape(tf.GradientTape()) as tape:
            loss = w * tf.debugging.check_numerics(x, "not finite")
        return tape.gradient(loss, w)

    with pytest.raises(tf.errors.InvalidArgumentError, match="not finite"):
        step(float("nan"))
    assert step(2.0) == 2
    assert hook.step == 1
