"""The hook in sessions: what is saved of each run, and that runs stay what they are without it."""

import copy
import logging

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from tornasole.capture import del_hook  # noqa: E402
from tornasole.capture.recorder import Recorder  # noqa: E402
from tornasole.errors import SMDebugTypeError, SMDebugValueError  # noqa: E402
from tornasole.selection import ReductionConfig, SaveConfig, SaveConfigMode  # noqa: E402
from tornasole.tensorflow.session import EstimatorHook, SessionHook  # noqa: E402
from tornasole.testing.adapter import AdapterContract  # noqa: E402
from tornasole.trial import create_trial  # noqa: E402
from tornasole.types import ModeKeys as modes  # noqa: E402

v1 = tf.compat.v1

EVERY = SaveConfig(save_interval=1)
KERNEL = np.array([[0.1, -0.2], [0.3, 0.4], [-0.5, 0.6]], np.float32)


class Net:
    """A linear model in a graph of its own, made the same each time.

    Args:
        wrap: Given the optimizer before it is used.
        resource: Whether its variables are of today's kind or of the oldest.
    """

    def __init__(self, wrap=lambda optimizer: optimizer, resource=True):
        self.graph = tf.Graph()
        with self.graph.as_default():
            self.x = v1.placeholder(tf.float32, [None, 3], "x")
            self.y = v1.placeholder(tf.float32, [None, 2], "y")
            with v1.variable_scope("layer", use_resource=resource):
                self.kernel = v1.get_variable("kernel", initializer=KERNEL)
                self.bias = v1.get_variable("bias", initializer=np.zeros(2, np.float32))
            self.output = tf.add(tf.matmul(self.x, self.kernel), self.bias, "output")
            self.loss = v1.losses.mean_squared_error(self.y, self.output, scope="mse")
            self.optimizer = wrap(v1.train.MomentumOptimizer(0.1, 0.9))
            self.step = v1.train.get_or_create_global_step()
            self.train = self.optimizer.minimize(self.loss, self.step)
            self.init = v1.global_variables_initializer()

    def batch(self, i):
        numbers = np.random.default_rng(i)
        x = numbers.normal(size=(4, 3)).astype(np.float32)
        return {self.x: x, self.y: x[:, :2] * 2}


GRADIENTS = [
    "gradients/MatMul_grad/tuple/control_dependency_1:0",
    "gradients/output_grad/tuple/control_dependency_1:0",
]
LOSS = "mse/value:0"
SLOTS = ["layer/bias/Momentum:0", "layer/kernel/Momentum:0"]


@pytest.fixture(autouse=True)
def alone():
    del_hook()
    yield
    del_hook()


@pytest.fixture
def out_dir(tmp_path):
    return str(tmp_path / "trial")


@pytest.fixture
def new_hook(out_dir):
    """Makes hooks that save at every step and raise their faults, and closes them at the end."""
    hooks = []

    def make(path=out_dir, **options):
        options = {"on_error": "raise", "save_config": EVERY, **options}
        hooks.append(SessionHook(path, **options))
        return hooks[-1]

    yield make
    for hook in hooks:
        hook.close()


def monitored(net, hook):
    with net.graph.as_default():
        return v1.train.MonitoredSession(hooks=[hook])


def train(net, hook, steps, first=0):
    with monitored(net, hook) as session:
        for i in range(first, first + steps):
            session.run(net.train, net.batch(i))


def trial_of(hook):
    hook.close()
    trial = create_trial(hook.out_dir)
    assert trial.state == "finished"
    return trial


def saved(trial, step):
    return set(trial.tensor_names(step=step))


class CountingSession(v1.Session):
    """Keeps what it was asked for."""

    def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
        self.__dict__.setdefault("asked", []).append(fetches)
        return super().run(fetches, feed_dict, options, run_metadata)


# -- values ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("resource", [True, False])
def test_what_is_saved_of_a_step_is_what_the_step_used_and_computed(new_hook, resource):
    hook = new_hook(include_collections=["weights", "biases", "gradients", "optimizer_variables"])
    net = Net(hook.wrap_optimizer, resource)
    train(net, hook, 4)
    trial = trial_of(hook)

    plain = Net(resource=resource)
    names = ["layer/kernel:0", "layer/bias:0", LOSS, *GRADIENTS, *SLOTS]
    variables = {"layer/kernel:0": plain.kernel, "layer/bias:0": plain.bias}
    with v1.Session(graph=plain.graph) as session:
        with plain.graph.as_default():
            variables |= {v.name: v for v in plain.optimizer.variables()}
        session.run(plain.init)
        for i in range(4):
            fetches = [variables.get(name, name) for name in names]
            by_hand = session.run(fetches, plain.batch(i))
            for name, value in zip(names, by_hand, strict=True):
                np.testing.assert_array_equal(trial.tensor(name).value(i), value, err_msg=name)
            session.run(plain.train, plain.batch(i))
    assert trial.steps() == [0, 1, 2, 3]
    assert saved(trial, 3) == set(names)


def test_each_tensor_is_in_the_collection_of_its_role(new_hook):
    hook = new_hook(
        include_collections=[
            "weights",
            "biases",
            "gradients",
            "optimizer_variables",
            "inputs",
            "buffers",
        ]
    )
    train(Net(hook.wrap_optimizer), hook, 1)
    trial = trial_of(hook)
    found = {name: trial.tensor_names(collection=name) for name in hook.include_collections}
    assert found == {
        "weights": ["layer/kernel:0"],
        "biases": ["layer/bias:0"],
        "gradients": GRADIENTS,
        "optimizer_variables": SLOTS,
        "losses": [LOSS],
        "inputs": ["x:0", "y:0"],
        "buffers": ["global_step:0"],
        "metrics": [],
        "sm_metrics": [],
    }


def test_losses_are_saved_by_default_and_nothing_else(new_hook):
    hook = new_hook()
    train(Net(hook.wrap_optimizer), hook, 1)
    assert saved(trial_of(hook), 0) == {LOSS}


def test_tensors_are_saved_reduced_where_that_is_asked_for(new_hook):
    config = ReductionConfig(reductions=["mean"], abs_norms=["l1"])
    hook = new_hook(include_collections=["weights"], reduction_config=config)
    train(Net(), hook, 1)
    kernel = trial_of(hook).tensor("layer/kernel:0")
    assert kernel.reduction_value(0, "mean") == pytest.approx(KERNEL.mean())
    assert kernel.reduction_value(0, "l1", abs=True) == pytest.approx(np.abs(KERNEL).sum())


def test_sparse_gradients_are_saved_dense(new_hook):
    hook = new_hook(include_collections=["gradients"])
    with tf.Graph().as_default():
        table = v1.get_variable("table", initializer=np.ones((5, 2), np.float32))
        rows = tf.nn.embedding_lookup(table, tf.constant([1, 3, 1]))
        optimizer = hook.wrap_optimizer(v1.train.GradientDescentOptimizer(0.1))
        training = optimizer.minimize(tf.reduce_sum(rows))
        with v1.train.MonitoredSession(hooks=[hook]) as session:
            session.run(training)
    trial = trial_of(hook)
    (name,) = trial.tensor_names(collection="gradients")
    counts = np.array([0, 2, 0, 1, 0], np.float32)
    np.testing.assert_array_equal(trial.tensor(name).value(0), counts[:, None] * [1, 1])


def test_tensors_of_types_that_numpy_lacks_are_saved(new_hook):
    hook = new_hook(include_regex="small")
    with tf.Graph().as_default():
        tensor = tf.constant([0.5, -2.0], tf.bfloat16, name="small")
        with v1.train.MonitoredSession(hooks=[hook]) as session:
            session.run(tensor)
    found = trial_of(hook).tensor("small:0").value(0)
    assert found.astype(np.float32).tolist() == [0.5, -2.0]


def test_arrays_can_be_saved_by_hand_and_tensors_of_a_graph_cannot(new_hook, caplog):
    hook = new_hook()
    net = Net()
    with monitored(net, hook) as session:
        session.run(net.train, net.batch(0))
        hook.save_tensor("mine", np.array([1, 2], ">f4"))
        hook.save_tensor("theirs", net.output)
    assert "has a value only within a run" in caplog.text
    trial = trial_of(hook)
    assert trial.tensor("mine").value(0).tolist() == [1, 2]
    assert saved(trial, 0) == {"mine", LOSS}


# -- steps and modes -------------------------------------------------------------------------------


def test_each_run_is_a_step_in_the_mode_that_was_set(new_hook):
    config = {
        modes.TRAIN: SaveConfigMode(save_interval=2),
        modes.EVAL: SaveConfigMode(save_interval=1),
    }
    hook = new_hook(save_config=config)
    net = Net(hook.wrap_optimizer)
    with monitored(net, hook) as session:
        for mode, steps in ((modes.TRAIN, 3), (modes.EVAL, 2)) * 2:
            hook.set_mode(mode)
            for i in range(steps):
                session.run(net.train if mode is modes.TRAIN else net.loss, net.batch(i))
    assert hook.mode_steps == {modes.TRAIN: 5, modes.EVAL: 3, modes.GLOBAL: 9}
    trial = trial_of(hook)
    assert trial.steps() == [0, 2, 3, 4, 6, 8, 9]
    assert trial.steps(mode=modes.EVAL) == [0, 1, 2, 3]


def test_gradients_are_not_saved_when_evaluating(new_hook):
    hook = new_hook(include_collections=["gradients"])
    hook.set_mode(modes.EVAL)
    train(Net(hook.wrap_optimizer), hook, 1)
    assert saved(trial_of(hook), 0) == {LOSS}


def test_without_a_mode_steps_are_global(new_hook):
    hook = new_hook()
    train(Net(), hook, 2)
    assert hook.mode_steps == {modes.GLOBAL: 1}


def test_a_run_that_fails_is_no_step(new_hook):
    hook = new_hook(include_collections=["weights"])
    net = Net()
    with monitored(net, hook) as session:
        session.run(net.train, net.batch(0))
        with pytest.raises(tf.errors.InvalidArgumentError):
            session.run(net.train, {net.x: np.ones((2, 3)), net.y: np.ones((3, 2))})
        session.run(net.train, net.batch(1))
    assert trial_of(hook).steps() == [0, 1]


def test_the_run_that_finds_no_more_data_is_no_step(new_hook):
    hook = new_hook(save_all=True)
    for _ in range(2):
        with tf.Graph().as_default():
            data = v1.data.make_one_shot_iterator(tf.data.Dataset.range(3)).get_next()
            doubled = tf.multiply(data, 2, "doubled")
            with v1.train.MonitoredSession(hooks=[hook]) as session:
                while not session.should_stop():
                    session.run(doubled)
    trial = trial_of(hook)
    assert trial.steps() == [0, 1, 2, 3, 4, 5]
    assert [int(trial.tensor("doubled:0").value(i)) for i in range(6)] == [0, 2, 4, 0, 2, 4]


def test_a_hook_sees_several_graphs_one_after_the_other(new_hook):
    hook = new_hook(include_collections=["weights", "gradients"])
    nets = [Net(hook.wrap_optimizer), Net(hook.wrap_optimizer)]
    train(nets[0], hook, 2)
    train(nets[1], hook, 2)
    trial = trial_of(hook)
    assert trial.steps() == [0, 1, 2, 3]
    kernel = trial.tensor("layer/kernel:0")
    np.testing.assert_array_equal(kernel.value(2), KERNEL)  # of the second graph, untrained
    np.testing.assert_array_equal(kernel.value(3), kernel.value(1))
    assert saved(trial, 0) == saved(trial, 3) == {"layer/kernel:0", LOSS, *GRADIENTS}


# -- what runs are asked for -----------------------------------------------------------------------


def test_a_run_with_nothing_due_is_asked_for_nothing(new_hook):
    hook = new_hook(save_config=SaveConfig(save_interval=3), save_all=True)
    net = Net(hook.wrap_optimizer)
    with CountingSession(graph=net.graph) as session:
        session.run(net.init)
        hook.wrap_session(session)
        session.run(net.train, net.batch(0))
        session.asked.clear()
        session.run(net.train, net.batch(1))
        session.run(net.train, net.batch(2))
        assert session.asked == [net.train, net.train]


def test_a_run_is_asked_for_what_is_due_and_no_more(new_hook):
    hook = new_hook(include_collections=["weights", "gradients"])
    net = Net(hook.wrap_optimizer)
    with v1.Session(graph=net.graph) as session:
        session.run(net.init)
        args = v1.train.SessionRunArgs(net.train, net.batch(0))
        asked = hook.before_run(v1.train.SessionRunContext(args, session))
    assert set(asked.fetches) == {LOSS, *GRADIENTS}  # weights were read before


def test_a_monitored_session_is_asked_for_nothing_when_nothing_is_due(new_hook):
    hook = new_hook(save_config=SaveConfig(save_steps=[5], save_interval=100, start_step=5))
    net = Net(hook.wrap_optimizer)
    with v1.Session(graph=net.graph) as session:
        session.run(net.init)
        args = v1.train.SessionRunArgs(net.train, net.batch(0))
        assert hook.before_run(v1.train.SessionRunContext(args, session)) is None


def test_what_depends_on_a_placeholder_without_a_value_is_left_out(new_hook):
    hook = new_hook(include_collections=["weights"], include_regex="^(output|square):0$")
    net = Net()
    with net.graph.as_default():
        z = v1.placeholder(tf.float32, [], "z")
        tf.square(z, "square")
    with monitored(net, hook) as session:
        session.run(net.output, {net.x: np.ones((1, 3))})
        session.run(net.output, {net.x: np.ones((1, 3)), z: 3.0})
        session.run(net.output, {"x:0": np.ones((1, 3)), "y:0": np.ones((1, 2))})
    trial = trial_of(hook)
    assert saved(trial, 0) == {"layer/kernel:0", "output:0"}
    assert saved(trial, 1) == {"layer/kernel:0", "output:0", "square:0"}
    assert saved(trial, 2) == {"layer/kernel:0", "output:0", LOSS}
    assert trial.tensor("square:0").value(1) == 9


def test_a_value_given_for_a_tensor_in_the_middle_makes_what_follows_it_computable(new_hook):
    hook = new_hook()
    net = Net()
    with monitored(net, hook) as session:
        session.run(net.step, {net.output: np.ones((1, 2)), net.y: np.full((1, 2), 3.0)})
    assert trial_of(hook).tensor(LOSS).value(0) == 4


def test_a_placeholder_with_a_default_needs_no_value(new_hook):
    hook = new_hook(include_regex="^doubled")
    with tf.Graph().as_default():
        value = v1.placeholder_with_default(2.0, [])
        tf.multiply(value, 2, "doubled")
        other = tf.constant(1)
        with v1.train.MonitoredSession(hooks=[hook]) as session:
            session.run(other)
    assert trial_of(hook).tensor("doubled:0").value(0) == 4


def test_what_the_run_does_not_compute_is_computed_for_its_data(new_hook):
    hook = new_hook(include_regex="^error:0$")
    net = Net()
    with net.graph.as_default():
        tf.reduce_max(tf.abs(net.output - net.y), name="error")
    train(net, hook, 1)
    x, y = net.batch(0).values()
    expected = np.abs(x @ KERNEL - y).max()
    assert trial_of(hook).tensor("error:0").value(0) == pytest.approx(expected)


def test_what_reads_variables_by_itself_reads_them_before_the_run_writes(new_hook):
    hook = new_hook(include_regex="^total:0$")
    net = Net()
    with net.graph.as_default():
        tf.reduce_sum(net.kernel, name="total")
    train(net, hook, 1)
    assert trial_of(hook).tensor("total:0").value(0) == pytest.approx(KERNEL.sum())


def test_a_run_that_draws_no_data_is_not_made_to(new_hook):
    hook = new_hook(save_all=True)
    drawn = []
    with tf.Graph().as_default():
        data = v1.data.make_one_shot_iterator(tf.data.Dataset.range(10)).get_next()
        tf.multiply(data, 2, "doubled")
        noise = v1.random.normal([], seed=1)
        other = tf.constant(1, name="other")
        with v1.train.MonitoredSession(hooks=[hook]) as session:
            for fetch in (data, other, data, other, data):
                drawn.append(session.run(fetch))
            with_hook = session.run([noise, noise])[0]
        with v1.Session() as session:
            without = session.run(noise)
    assert drawn == [0, 1, 1, 1, 2]
    assert with_hook == without
    trial = trial_of(hook)
    assert "doubled:0" in saved(trial, 2)
    assert "doubled:0" not in saved(trial, 1)


def test_assignments_that_a_run_does_not_do_are_not_done_for_it(new_hook):
    for resource in (True, False):
        hook = new_hook(f"memory://assign{resource}", save_all=True)
        net = Net(hook.wrap_optimizer, resource)
        with net.graph.as_default():
            v1.assign_add(net.bias, [1.0, 1.0], name="one_more")
        with monitored(net, hook) as session:
            for i in range(3):
                session.run(net.loss, net.batch(i))
            assert session.run(net.bias).tolist() == [0, 0]
        hook.close()


def test_training_is_the_same_with_and_without_a_hook(new_hook):
    def trained(hooks, wrap=lambda optimizer: optimizer):
        with tf.Graph().as_default():
            v1.set_random_seed(3)
            numbers = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
            data = tf.data.Dataset.from_tensor_slices(numbers).shuffle(64, seed=1).batch(8)
            x = v1.data.make_one_shot_iterator(data.repeat()).get_next()
            kernel = v1.get_variable("kernel", [3, 8])
            hidden = tf.nn.dropout(tf.nn.relu(tf.matmul(x, kernel)), rate=0.5)
            loss = v1.losses.mean_squared_error(tf.reduce_sum(x, 1), tf.reduce_sum(hidden, 1))
            training = wrap(v1.train.AdamOptimizer(0.05)).minimize(loss)
            with v1.train.MonitoredSession(hooks=hooks) as session:
                for _ in range(10):
                    session.run(training)
                return session.run(kernel)

    hook = new_hook(save_config=SaveConfig(save_interval=3), save_all=True)
    np.testing.assert_array_equal(trained([hook], hook.wrap_optimizer), trained([]))


@pytest.fixture(params=["today's", "the oldest"])
def control_flow(request):
    if request.param == "the oldest":
        v1.disable_control_flow_v2()
    yield
    v1.enable_control_flow_v2()


def test_graphs_with_loops_and_branches_are_saved_around_these(new_hook, control_flow):
    hook = new_hook(save_all=True)
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [], "x")
        grown = v1.while_loop(lambda i: i < 10, lambda i: i * 2, [x], name="loop")
        chosen = v1.cond(x > 1, lambda: grown + 1, lambda: grown - 1, name="branch")
        result = tf.identity(chosen, "result")
        with v1.train.MonitoredSession(hooks=[hook]) as session:
            assert session.run(result, {x: 3.0}) == 13
    trial = trial_of(hook)
    assert trial.tensor("result:0").value(0) == 13
    assert trial.tensor("x:0").value(0) == 3


# -- what users tell -------------------------------------------------------------------------------


def test_a_wrapped_optimizer_is_the_same_and_as_before_after_close(new_hook):
    hook = new_hook()
    optimizer = v1.train.GradientDescentOptimizer(0.1)
    before = dict(optimizer.__dict__)
    assert hook.wrap_optimizer(optimizer) is optimizer
    assert hook.wrap_optimizer(optimizer) is optimizer
    assert optimizer.__dict__ != before
    hook.close()
    assert optimizer.__dict__ == before


def test_two_hooks_may_watch_the_same_optimizer_and_session(new_hook, tmp_path):
    hooks = [new_hook(tmp_path / name, include_collections=["gradients"]) for name in "ab"]
    net = Net(lambda optimizer: hooks[1].wrap_optimizer(hooks[0].wrap_optimizer(optimizer)))
    with v1.Session(graph=net.graph) as session:
        session.run(net.init)
        for hook in hooks:
            hook.wrap_session(session)
        session.run(net.train, net.batch(0))
    for hook in hooks:
        assert saved(trial_of(hook), 0) == {LOSS, *GRADIENTS}
    assert "run" not in session.__dict__
    assert "apply_gradients" not in net.optimizer.__dict__


def test_gradients_are_saved_as_computed_and_as_applied(new_hook):
    hook = new_hook(include_collections=["gradients"])
    with tf.Graph().as_default():
        weight = v1.get_variable("weight", initializer=3.0)
        optimizer = hook.wrap_optimizer(v1.train.GradientDescentOptimizer(0.1))
        pairs = optimizer.compute_gradients(weight**2)
        clipped = [(tf.clip_by_value(g, -1, 1, "clipped"), v) for g, v in pairs]
        training = optimizer.apply_gradients(iter(clipped))
        with v1.train.MonitoredSession(hooks=[hook]) as session:
            session.run(training)
    trial = trial_of(hook)
    found = {name: trial.tensor(name).value(0) for name in trial.tensor_names()}
    assert found.pop("clipped:0") == 1
    assert list(found.values()) == [6]


def test_the_copy_of_a_wrapped_optimizer_is_watched_too(new_hook):
    hook = new_hook(include_collections=["gradients"])
    net = Net(lambda optimizer: copy.deepcopy(hook.wrap_optimizer(optimizer)))
    train(net, hook, 1)
    assert saved(trial_of(hook), 0) == {LOSS, *GRADIENTS}


def test_gradients_and_optimizer_variables_can_be_told(new_hook):
    hook = new_hook(include_collections=["gradients", "optimizer_variables"])
    net = Net()
    with net.graph.as_default():
        gradients = tf.gradients(net.loss, [net.kernel, net.bias])
        hook.set_gradients(gradients=gradients[:1])
        hook.set_gradients(gradients_and_variables=[(gradients[1], net.bias), (None, net.kernel)])
        hook.set_optimizer_variables([net.step])
    train(net, hook, 1)
    trial = trial_of(hook)
    assert set(trial.tensor_names(collection="gradients")) == {g.name for g in gradients}
    assert trial.tensor_names(collection="optimizer_variables") == ["global_step:0"]


class PerReplica:
    """What a strategy returns: one value for each device."""

    def __init__(self, *values):
        self.values = values


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (lambda net: net.output, {"output:0"}),
        (lambda net: [net.output, net.x], {"output:0", "x:0"}),
        (lambda net: {net.output.op}, {"output:0"}),
        (lambda net: net.kernel, {"layer/kernel:0"}),
        (lambda net: net.output.op, {"output:0"}),
        (lambda net: PerReplica(net.output, net.x), {"output:0", "x:0"}),
        (lambda net: "output:0", {"output:0"}),
    ],
)
def test_what_is_added_to_a_collection_is_saved_in_it(new_hook, given, names):
    hook = new_hook(include_collections=["mine"])
    net = Net()
    hook.add_to_collection("mine", given(net))
    train(net, hook, 1)
    assert set(trial_of(hook).tensor_names(collection="mine")) == names


def test_what_is_added_for_a_mode_is_saved_in_that_mode(new_hook):
    hook = new_hook(include_collections=["mine"])
    net = Net()
    hook.get_collection("mine").add_for_mode(net.output, modes.EVAL)
    hook.get_collection("mine").add_for_mode([net.x, net.y], modes.TRAIN)
    hook.get_collection("mine").add(net.y)
    with monitored(net, hook) as session:
        for mode in (modes.TRAIN, modes.EVAL):
            hook.set_mode(mode)
            session.run(net.loss, net.batch(0))
    trial = trial_of(hook)
    assert saved(trial, 0) == {"x:0", "y:0", LOSS}
    assert saved(trial, 1) == {"output:0", "y:0", LOSS}


def test_summaries_are_saved_as_the_numbers_they_show(new_hook):
    hook = new_hook(include_collections=["tensorflow_summaries"])
    net = Net()
    with net.graph.as_default():
        v1.summary.scalar("loss", net.loss)
        v1.summary.histogram("outputs", net.output)
        v1.summary.merge_all()
    train(net, hook, 1)
    trial = trial_of(hook)
    assert set(trial.tensor_names(collection="tensorflow_summaries")) == {"loss:0", "outputs:0"}
    assert trial.tensor("loss:0").value(0) == trial.tensor(LOSS).value(0)
    assert trial.tensor("outputs:0").shape(0) == (4, 2)


def test_regexes_find_any_tensor_of_numbers(new_hook):
    hook = new_hook(include_regex=["^output:", "text"])
    net = Net()
    with net.graph.as_default():
        tf.constant("words", name="text")
    train(net, hook, 1)
    assert saved(trial_of(hook), 0) == {"output:0", LOSS}


def test_a_layer_of_a_graph_is_saved_by_its_tensors(new_hook):
    if not hasattr(tf, "estimator"):
        pytest.skip("Keras 3 has no layers in graphs")
    hook = new_hook(include_collections=["mine"])
    with tf.Graph().as_default():
        inputs = tf.keras.Input([3], 2)
        layer = tf.keras.layers.Dense(2, name="dense")
        outputs = layer(inputs)
        hook.get_collection("mine").add_keras_layer(layer, inputs=True, outputs=True)
        with v1.train.MonitoredSession(hooks=[hook]) as session:
            session.run(outputs, {inputs: np.ones((2, 3))})
    found = trial_of(hook).tensor_names(collection="mine")
    assert set(found) == {inputs.name, outputs.name}


# -- plain sessions --------------------------------------------------------------------------------


def test_a_plain_session_can_be_wrapped_and_stays_itself(new_hook, tmp_path):
    hook = new_hook(include_collections=["weights"])
    net = Net()
    with v1.Session(graph=net.graph) as session:
        before = session.run
        assert hook.wrap_session(session) is session
        session.run(net.init)
        for i in range(2):
            found = session.run([net.train, {"loss": net.loss}], net.batch(i))
            assert set(found[1]) == {"loss"}
        assert net.step.eval() == 2
        with net.graph.as_default():
            v1.train.Saver().save(session, str(tmp_path / "model"))
        hook.close()
        assert session.run == before
        session.run(net.train, net.batch(2))
    trial = trial_of(hook)
    assert trial.steps() == [1, 2, 3, 4]  # 0 initialised, 3 looked at a variable, 4 was the Saver's
    np.testing.assert_array_equal(trial.tensor("layer/kernel:0").value(1), KERNEL)
    assert saved(trial, 3) == {"layer/kernel:0"}


@pytest.mark.parametrize("resource", [True, False])
def test_runs_before_variables_are_initialised_are_left_as_they_are(new_hook, resource):
    hook = new_hook(save_all=True)
    net = Net(hook.wrap_optimizer, resource)
    with hook.wrap_session(v1.Session(graph=net.graph)) as session:
        with net.graph.as_default():
            assert len(session.run(v1.report_uninitialized_variables())) == 5
        session.run(net.kernel.initializer)
        session.run(net.init)
        session.run(net.train, net.batch(0))
    trial = trial_of(hook)
    assert "layer/kernel:0" not in saved(trial, 1)
    assert "layer/kernel:0" in saved(trial, 2)
    assert "layer/bias:0" not in saved(trial, 2)
    assert {"layer/kernel:0", "layer/bias:0", LOSS, *GRADIENTS} <= saved(trial, 3)


def test_a_graph_may_grow_between_runs(new_hook):
    hook = new_hook(include_regex="^later")
    net = Net()
    with hook.wrap_session(v1.Session(graph=net.graph)) as session:
        session.run(net.init)
        with net.graph.as_default():
            later = tf.constant(7, name="later")
        session.run(later)
    assert trial_of(hook).tensor("later:0").value(1) == 7


def test_an_error_of_a_wrapped_session_is_the_users(new_hook):
    hook = new_hook()
    net = Net()
    with hook.wrap_session(v1.Session(graph=net.graph)) as session:
        session.run(net.init)
        with pytest.raises(tf.errors.InvalidArgumentError):
            session.run(net.train, {net.x: np.ones((1, 3))})
        with pytest.raises(TypeError):
            session.run(3)
        session.run(net.train, net.batch(0))
    assert trial_of(hook).steps() == [1]


# -- faults and bad input --------------------------------------------------------------------------


def test_a_fault_of_ours_is_logged_and_training_goes_on(new_hook, monkeypatch, caplog):
    hook = new_hook(on_error="warn")
    net = Net(hook.wrap_optimizer)

    def broken(*args):
        raise ValueError("a fault on purpose")

    monkeypatch.setattr(Recorder, "record_many", broken)
    caplog.set_level(logging.ERROR, "tornasole")
    with monitored(net, hook) as session:
        for i in range(3):
            session.run(net.train, net.batch(i))
        assert session.run(net.step) == 3
    assert len([each for each in caplog.messages if "a fault on purpose" in each]) == 1
    assert "apply_gradients" not in net.optimizer.__dict__


def test_a_fault_of_ours_is_raised_if_that_was_asked_for(new_hook, monkeypatch):
    hook = new_hook()

    def broken(*args):
        raise ValueError("a fault on purpose")

    monkeypatch.setattr(Recorder, "record_many", broken)
    net = Net()
    with pytest.raises(ValueError, match="on purpose"), monitored(net, hook) as session:
        session.run(net.train, net.batch(0))


def test_a_machine_that_was_lost_is_the_sessions_affair(new_hook):
    hook = new_hook(include_collections=["weights"])
    net = Net()
    context = v1.train.SessionRunContext(v1.train.SessionRunArgs(net.train), None)

    class Lost:
        graph = net.graph

        def run(self, *args):
            raise tf.errors.AbortedError(None, None, "gone")

    context._session = Lost()
    with pytest.raises(tf.errors.AbortedError):
        hook.before_run(context)
    train(net, hook, 1)
    assert trial_of(hook).steps() == [0]


def test_after_close_runs_are_not_watched(new_hook):
    hook = new_hook()
    net = Net(hook.wrap_optimizer)
    with monitored(net, hook) as session:
        session.run(net.train, net.batch(0))
        hook.close()
        session.run(net.train, net.batch(1))
    assert create_trial(hook.out_dir).steps() == [0]


@pytest.mark.parametrize("other", [object(), None, "adam", v1.train.AdamOptimizer])
def test_what_is_no_optimizer_is_refused(new_hook, other):
    with pytest.raises(SMDebugTypeError, match="wrap_optimizer takes an optimizer"):
        new_hook().wrap_optimizer(other)


def test_what_is_no_plain_session_is_refused(new_hook):
    hook = new_hook()
    with pytest.raises(SMDebugTypeError, match="hooks="), monitored(Net(), hook) as session:
        hook.wrap_session(session)


def test_what_is_in_no_graph_is_refused(new_hook):
    hook = new_hook()
    with pytest.raises(SMDebugTypeError, match="tensors and variables of a graph"):
        hook.set_gradients([tf.constant(1.0)])
    with pytest.raises(SMDebugTypeError, match="tensors and variables of a graph"):
        hook.set_optimizer_variables([tf.Variable(1.0)])
    with pytest.raises(SMDebugValueError, match="needs gradients"):
        hook.set_gradients()
    with pytest.raises(SMDebugTypeError, match="takes tensors"):
        hook.add_to_collection("mine", 3)


def test_the_hook_of_estimators_is_the_same():
    assert EstimatorHook is SessionHook


# -- the contract of all adapters ------------------------------------------------------------------


class SessionJob:
    """Trains ``Net`` in a plain session."""

    def __init__(self):
        self._net = Net()
        self._session = v1.Session(graph=self._net.graph)
        self._session.run(self._net.init)
        self._steps, self._seen = 0, {}

    def hook(self, out_dir, **options):
        hook = SessionHook(str(out_dir), **options)
        hook.wrap_optimizer(self._net.optimizer)
        with self._net.graph.as_default():
            hook.set_optimizer_variables(self._net.optimizer.variables())
        hook.set_gradients([self._net.graph.get_tensor_by_name(name) for name in GRADIENTS])
        hook.wrap_session(self._session)
        return hook

    def train(self, steps):
        net = self._net
        names = ["layer/kernel:0", "layer/bias:0", LOSS, *GRADIENTS]
        fetches = [net.kernel, net.bias, *names[2:]]
        for _ in range(steps):
            batch = net.batch(self._steps)
            values = v1.Session.run(self._session, fetches, batch)
            self._seen = dict(zip(names, values, strict=True))
            self._session.run(net.train, batch)
            self._steps += 1

    def seen(self):
        return self._seen

    def result(self):
        return v1.Session.run(self._session, self._net.kernel)

    def attached(self):
        objects = (self._session, self._net.optimizer)
        return [name for each in objects for name in each.__dict__ if hasattr(type(each), name)]


class TestContract(AdapterContract):
    @pytest.fixture
    def job(self):
        return SessionJob

    def test_every_tensor_has_a_role(self, job, out_dir):
        """In a graph, all but the model's own tensors are just outputs of operations."""
        trial = self._trained(job(), out_dir, 1, EVERY)
        known = {"layer/kernel:0", "layer/bias:0", LOSS, "x:0", "y:0", *GRADIENTS, *SLOTS}
        known.add("global_step:0")
        roles = {name: trial.tensor(name).role.value for name in trial.tensor_names()}
        assert {name for name, role in roles.items() if role != "custom"} == known
