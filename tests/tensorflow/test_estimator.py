"""The hook among the hooks of an Estimator: training, evaluating, and models made with Keras."""

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from tornasole.capture import del_hook  # noqa: E402
from tornasole.selection import SaveConfig, SaveConfigMode  # noqa: E402
from tornasole.tensorflow.session import EstimatorHook  # noqa: E402
from tornasole.trial import create_trial  # noqa: E402
from tornasole.types import ModeKeys as modes  # noqa: E402

if not hasattr(tf, "estimator"):
    pytest.skip("this TensorFlow has no Estimator", allow_module_level=True)

v1 = tf.compat.v1

KERNEL = np.array([[0.5], [-1.0]], np.float32)
GRADIENT = "gradients/dense/MatMul_grad/tuple/control_dependency_1:0"


@pytest.fixture(autouse=True)
def alone():
    del_hook()
    yield
    del_hook()


@pytest.fixture
def new_hook(tmp_path):
    """Makes hooks that save at every step and raise their faults, and closes them at the end."""
    hooks = []

    def make(**options):
        options = {"on_error": "raise", "save_config": SaveConfig(save_interval=1), **options}
        hooks.append(EstimatorHook(str(tmp_path / "trial"), **options))
        return hooks[-1]

    yield make
    for hook in hooks:
        hook.close()


@pytest.fixture
def new_estimator(tmp_path):
    def make(wrap=lambda optimizer: optimizer, folder="model"):
        def model_fn(features, labels, mode):
            with v1.variable_scope("dense"):
                kernel = v1.get_variable("kernel", initializer=KERNEL)
                bias = v1.get_variable("bias", initializer=np.zeros(1, np.float32))
                output = tf.matmul(features, kernel) + bias
            loss = tf.reduce_mean((output - labels) ** 2, name="the_loss")
            if mode == tf.estimator.ModeKeys.TRAIN:
                optimizer = wrap(v1.train.GradientDescentOptimizer(0.1))
                training = optimizer.minimize(loss, v1.train.get_global_step())
                return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=training)
            v1.losses.add_loss(loss)
            error = v1.metrics.mean_absolute_error(labels, output)
            return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"error": error})

        config = tf.estimator.RunConfig(tf_random_seed=1)
        return tf.estimator.Estimator(model_fn, str(tmp_path / folder), config)

    return make


def numbers(batches=5):
    x = np.random.default_rng(0).normal(size=(4 * batches, 2)).astype(np.float32)
    return x, x.sum(1, keepdims=True)


def data():
    return tf.data.Dataset.from_tensor_slices(numbers()).batch(4)


def trial_of(hook):
    hook.close()
    trial = create_trial(hook.out_dir)
    assert trial.state == "finished"
    return trial


def by_hand(steps):
    """Weights, gradients and losses of gradient descent, step by step."""
    kernel, bias = KERNEL.astype(np.float64), 0.0
    x, y = numbers()
    for i in range(steps):
        features, labels = x[4 * i : 4 * i + 4], y[4 * i : 4 * i + 4]
        error = features @ kernel + bias - labels
        gradient = 2 * features.T @ error / 4
        yield kernel, gradient, (error**2).mean()
        kernel, bias = kernel - 0.1 * gradient, bias - 0.1 * 2 * error.mean()


def test_weights_gradients_and_losses_are_those_of_each_step(new_hook, new_estimator):
    hook = new_hook(include_collections=["weights", "biases", "gradients"])
    new_estimator(hook.wrap_optimizer).train(data, hooks=[hook])
    trial = trial_of(hook)
    assert trial.steps() == [0, 1, 2, 3, 4]
    assert trial.tensor_names(collection="weights") == ["dense/kernel:0"]
    assert trial.tensor_names(collection="biases") == ["dense/bias:0"]
    assert GRADIENT in trial.tensor_names(collection="gradients")
    assert trial.tensor_names(collection="losses") == ["the_loss:0"]
    for step, (kernel, gradient, loss) in enumerate(by_hand(5)):
        np.testing.assert_allclose(trial.tensor("dense/kernel:0").value(step), kernel, 1e-5)
        np.testing.assert_allclose(trial.tensor(GRADIENT).value(step), gradient, 1e-4)
        np.testing.assert_allclose(trial.tensor("the_loss:0").value(step), loss, 1e-5)


def test_one_hook_serves_training_and_evaluation_in_turn(new_hook, new_estimator):
    train, evaluate = SaveConfigMode(save_interval=2), SaveConfigMode(save_interval=1)
    hook = new_hook(
        include_collections=["weights"], save_config={modes.TRAIN: train, modes.EVAL: evaluate}
    )
    estimator = new_estimator(hook.wrap_optimizer)
    for _ in range(2):
        hook.set_mode(modes.TRAIN)
        estimator.train(data, hooks=[hook], steps=3)
        hook.set_mode(modes.EVAL)
        found = estimator.evaluate(data, hooks=[hook], steps=2)
    trial = trial_of(hook)
    assert trial.steps() == [0, 2, 3, 4, 6, 8, 9]
    assert trial.steps(mode=modes.EVAL) == [0, 1, 2, 3]
    kernel, loss = trial.tensor("dense/kernel:0"), trial.tensor("the_loss:0")
    np.testing.assert_array_equal(kernel.value(3), kernel.value(4))  # evaluation trains nothing
    assert np.any(kernel.value(4) != kernel.value(6))
    assert found["loss"] == pytest.approx((loss.value(8) + loss.value(9)) / 2)


def test_what_is_fed_from_the_data_is_the_input(new_hook, new_estimator):
    hook = new_hook(include_collections=["inputs"])
    new_estimator().train(data, hooks=[hook], steps=1)
    trial = trial_of(hook)
    features, labels = sorted(trial.tensor_names(collection="inputs"))
    np.testing.assert_array_equal(trial.tensor(features).value(0), numbers()[0][:4])
    np.testing.assert_array_equal(trial.tensor(labels).value(0), numbers()[1][:4])


def test_an_estimator_trains_the_same_with_and_without_a_hook(new_hook, new_estimator):
    hook = new_hook(save_all=True, save_config=SaveConfig(save_interval=2))
    with_hook = new_estimator(hook.wrap_optimizer, "with")
    without = new_estimator(folder="without")
    with_hook.train(data, hooks=[hook])
    without.train(data)
    assert trial_of(hook).steps() == [0, 2, 4]
    for name in without.get_variable_names():
        np.testing.assert_array_equal(
            with_hook.get_variable_value(name), without.get_variable_value(name), err_msg=name
        )


def test_a_ready_made_estimator_is_saved_too(new_hook, tmp_path):
    hook = new_hook(include_collections=["weights", "gradients", "tensorflow_summaries"])
    optimizer = hook.wrap_optimizer(v1.train.AdagradOptimizer(0.1))
    estimator = tf.compat.v1.estimator.DNNRegressor(
        [3],
        [tf.feature_column.numeric_column("x", [2])],
        str(tmp_path / "model"),
        optimizer=optimizer,
    )

    def named():
        return data().map(lambda x, y: ({"x": x}, y))

    estimator.train(named, hooks=[hook], steps=2)
    trial = trial_of(hook)
    assert trial.steps() == [0, 1]
    assert len(trial.tensor_names(collection="weights")) == 2
    assert len(trial.tensor_names(collection="gradients")) == 4
    assert trial.tensor_names(collection="losses")
    assert "loss:0" in trial.tensor_names(collection="tensorflow_summaries")


def test_a_keras_model_made_an_estimator_is_saved_too(new_hook, tmp_path):
    hook = new_hook(include_collections=["weights", "biases"], include_regex="dense/MatMul_grad")
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(2,), name="dense")])
    model.compile(tf.keras.optimizers.legacy.SGD(0.1), "mse")
    before = model.layers[0].kernel.numpy()
    estimator = tf.keras.estimator.model_to_estimator(model, model_dir=str(tmp_path / "model"))

    def named():
        return data().map(lambda x, y: ({"dense_input": x}, y))

    estimator.train(named, hooks=[hook], steps=2)
    trial = trial_of(hook)
    assert trial.steps() == [0, 1]
    kernel = trial.tensor("dense/kernel:0")
    np.testing.assert_array_equal(kernel.value(0), before)
    assert trial.tensor_names(collection="biases") == ["dense/bias:0"]
    gradients = [
        trial.tensor(name).value(0)
        for name in trial.tensor_names(collection="default")
        if trial.tensor(name).shape(0) == (2, 1)
    ]
    np.testing.assert_allclose(kernel.value(1), before - 0.1 * gradients[0], 1e-5)
    assert trial.tensor_names(collection="losses")
