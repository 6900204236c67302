"""The rules on trainings with Keras: each finds its fault, and all leave a sound run alone."""

import os
import time

import numpy as np
import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
keras = pytest.importorskip("keras")
datasets = pytest.importorskip("sklearn.datasets")

import tornasole.tensorflow as smd  # noqa: E402
from tornasole import ReductionConfig  # noqa: E402
from tornasole.capture import del_hook  # noqa: E402
from tornasole.rules import Severity, check  # noqa: E402

layers = keras.layers
EVAL = smd.modes.EVAL
ALL = [
    "weights", "biases", "gradients", "losses", "layers", "inputs", "outputs", "metrics", "labels",
    "predictions",
]  # fmt: skip
STATISTICS = ReductionConfig(
    reductions=["min", "max", "mean", "std"], abs_reductions=["min", "mean"], norms=["l1", "l2"]
)
FORMS = {"raw": None, "statistics": STATISTICS}


@pytest.fixture(scope="module")
def fit(tmp_path_factory):
    """Makes a model, trains it with a hook that saves every step, and returns where its trial is.

    Batch by batch without compilation, which takes longer than such trainings.
    """

    def run(make, *data, optimizer=None, loss=None, eagerly=True, hook=(), seed=0, **options):
        path = str(tmp_path_factory.mktemp("run") / "trial")
        del_hook()
        keras.utils.set_random_seed(seed)
        model = keras.Sequential(make(), name="net")
        model.compile(
            optimizer or keras.optimizers.SGD(0.05),
            loss or keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            run_eagerly=eagerly,
        )
        hook = {
            "include_collections": ALL,
            "save_config": smd.SaveConfig(save_interval=1),
            "on_error": "raise",
            **dict(hook),
        }
        options = {"batch_size": 64, "shuffle": False, "verbose": 0, **options}
        with smd.KerasHook(path, **hook) as saving:
            callbacks = [saving, *options.pop("callbacks", ())]
            model.fit(*data, callbacks=callbacks, **options)
        del_hook()
        return path

    return run


@pytest.fixture(scope="module")
def points():
    """64 points of ten numbers, and which of three classes each belongs to."""
    y = np.arange(64) % 3
    return (np.random.RandomState(0).randn(64, 10) + 2 * np.eye(10)[y]).astype("float32"), y


@pytest.fixture(scope="module")
def digits():
    """Images of digits, centred; for training and for validation."""
    x, y = datasets.load_digits(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(x))
    x = ((x - x.mean()) / x.std()).reshape(-1, 8, 8, 1).astype("float32")[order]
    return (x[:1400], y[order][:1400]), (x[1400:], y[order][1400:])


def dense(units, activation=None, name=None, **options):
    return layers.Dense(units, activation, name=name, **options)


def saved(form):
    """How to save in a form."""
    return {"reduction_config": FORMS[form]}


def findings(path, rule):
    return check(path, [rule], save=False).findings


def only(path, rule):
    """The one finding of a rule."""
    (finding,) = findings(path, rule)
    return finding


def named(tensors):
    """Names of tensors, without what depends on the version of Keras."""
    return {name.partition(":")[0].replace("net/", "") for name in tensors}


# -- a sound run -----------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=FORMS)
def healthy(request, fit, digits):
    """A small convolutional net that learns digits."""
    data, more = digits

    def net():
        return [
            keras.Input((8, 8, 1)),
            layers.Conv2D(6, 3),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.Conv2D(12, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            dense(24, "tanh"),
            layers.Dropout(0.2),
            dense(10),
        ]

    options = {
        "optimizer": keras.optimizers.Adam(3e-3),
        "epochs": 4,
        "batch_size": 50,
        "shuffle": True,
        "validation_data": more,
        "eagerly": request.param == "statistics",  # compiled in the other form
    }
    return fit(net, *data, hook=saved(request.param), **options)


def test_nothing_is_said_against_a_sound_run(healthy):
    report = check(healthy, save=False)
    assert [f for f in report.findings if f.severity is not Severity.INFO] == []
    assert set(report.not_applicable) == {"tree_depth", "feature_importance_overweight"}
    accuracy = list(smd.create_trial(healthy).tensor("val_accuracy").values().values())[-1]
    assert accuracy > 0.93


# -- gradients and values --------------------------------------------------------------------------


@pytest.fixture(scope="module", params=FORMS)
def deep(request, fit, points):
    """Fifteen layers of sigmoids."""

    def net():
        hidden = [dense(10, "sigmoid", f"hidden_{i}") for i in range(14)]
        return [keras.Input((10,)), *hidden, dense(3, name="out")]

    return fit(net, *points, hook=saved(request.param), epochs=12)


def test_gradients_vanish_in_a_deep_net_of_sigmoids(deep):
    finding = findings(deep, "vanishing_gradient")[0]
    assert finding.step == 0
    assert "gradients/hidden_0/kernelGrad" in named(finding.tensors)
    assert "gradients/out/kernelGrad" not in named(finding.tensors)


@pytest.fixture(scope="module", params=FORMS)
def diverging(request, fit, points):
    """A learning rate that is far too large, for a net without any bounds."""
    x, y = points

    def net():
        return [keras.Input((10,)), dense(16, "relu", "hidden"), dense(1, name="out")]

    options = {"optimizer": keras.optimizers.SGD(50.0), "loss": "mse", "epochs": 12}
    return fit(net, x, y[:, None].astype("float32"), hook=saved(request.param), **options)


def test_a_learning_rate_that_is_too_large_makes_tensors_explode(diverging):
    found = findings(diverging, "exploding_tensor")
    assert found[0].severity is Severity.CRITICAL
    hit = named(name for finding in found for name in finding.tensors)
    assert {"loss", "hidden/weights/hidden/kernel", "gradients/hidden/kernelGrad"} <= hit


def test_where_it_overflowed_and_that_it_grew(diverging):
    finding = only(diverging, "nan_source")
    assert finding.tensors[0] in findings(diverging, "exploding_tensor")[0].tensors
    assert "learning rate is too high" in finding.causes[0]
    assert finding.evidence["before"]["fastest"]["times"] > 10


def test_weights_change_too_much_before_they_explode(diverging):
    finding = findings(diverging, "weight_update_ratio")[0]
    assert finding.step < findings(diverging, "exploding_tensor")[0].step
    assert "more than 10" in finding.message


@pytest.mark.parametrize("form", FORMS)
def test_the_layer_where_nan_begins_is_named(fit, points, form):
    x, y = points
    data = np.concatenate([x, x, x, 1000 * x]), np.concatenate([y] * 4)

    class Root(layers.Layer):
        def call(self, x):
            return (x + 40) ** 0.5

    def net():
        return [keras.Input((10,)), dense(8, name="fc1"), Root(name="root"), dense(3, name="fc2")]

    path = fit(net, *data, optimizer=keras.optimizers.SGD(1e-4), hook=saved(form))
    finding = only(path, "nan_source")
    assert (finding.step, finding.tensors) == (3, ("root/outputs",))
    assert "root/inputs" in finding.message


# -- layers ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=FORMS)
def stuck(request, fit, points):
    """ReLUs far below zero, tanhs and sigmoids at their ends, and some that are sound."""
    low, large = keras.initializers.Constant(-50), keras.initializers.RandomNormal(0, 1e4, seed=1)

    def net():
        return [
            keras.Input((10,)),
            dense(20, "relu", "one"),
            dense(20, "relu", "two", bias_initializer=low),
            dense(20, "tanh", "three", bias_initializer=large),
            dense(20, "sigmoid", "four", kernel_initializer=large),
            dense(20, "tanh", "five"),
            dense(3, name="out"),
        ]

    return fit(net, *points, hook=saved(request.param), epochs=5)


def test_relus_that_are_dead(stuck):
    finding = only(stuck, "dead_relu")
    assert finding.tensors == ("two/outputs",)
    assert finding.severity is Severity.CRITICAL


def test_activations_that_are_saturated(stuck, request):
    found = findings(stuck, "saturated_activation")
    expected = {"three/outputs", "four/outputs"}
    if request.node.callspec.params["stuck"] == "statistics":
        expected.remove("four/outputs")  # no name says so: from statistics, it may be a softmax
    assert {name for f in found for name in f.tensors} == expected


@pytest.fixture(scope="module", params=FORMS)
def frozen(request, fit, points):
    """A learning rate of zero."""

    def net():
        return [keras.Input((10,)), dense(8, "relu", "hidden"), dense(3, name="out")]

    optimizer = keras.optimizers.SGD(0.0)
    return fit(net, *points, optimizer=optimizer, hook=saved(request.param), epochs=12)


def test_weights_that_do_not_change(frozen, request):
    kernels = {"hidden/weights/hidden/kernel", "out/weights/out/kernel"}
    assert kernels <= named(findings(frozen, "unchanged_tensor")[0].tensors)
    if request.node.callspec.params["frozen"] == "raw":  # statistics cannot tell
        assert named(only(frozen, "weight_update_ratio").tensors) == kernels


def test_a_loss_that_does_not_fall(frozen):
    assert only(frozen, "loss_not_decreasing").tensors == ("loss",)


@pytest.fixture(scope="module", params=FORMS)
def zeros(request, fit, points):
    """Two layers in a row that start at zero, and stay there."""

    def net():
        return [
            keras.Input((10,)),
            dense(8, "tanh", "one"),
            dense(8, "tanh", "two", kernel_initializer="zeros"),
            dense(3, name="three", kernel_initializer="zeros"),
        ]

    optimizer = keras.optimizers.SGD(0.5)
    return fit(net, *points, optimizer=optimizer, hook=saved(request.param), epochs=12)


ZEROS = {"two/weights/two/kernel", "three/weights/three/kernel"}


def test_weights_that_start_at_zero_and_stay_there(zeros):
    found = named(name for f in findings(zeros, "all_zero") for name in f.tensors)
    assert ZEROS | {"gradients/one/kernelGrad"} <= found
    assert "one/weights/one/kernel" not in found


def test_a_start_from_which_the_net_does_not_learn(zeros):
    finding = findings(zeros, "poor_weight_initialization")[-1]
    assert finding.evidence["signs"]["gradient"]["tensor"].endswith("kernelGrad")


def test_weights_that_do_not_vary(zeros):
    rule = "tensor_variance:min_threshold=1e-12;collection_names=weights;tensor_regex=kernel$"
    assert named(findings(zeros, rule)[0].tensors) & ZEROS == ZEROS


# -- losses ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def by_heart(fit):
    """Labels without any sense, few of them, and a net that learns them by heart."""
    random = np.random.RandomState(0)
    x, y = random.randn(60, 10).astype("float32"), random.randint(0, 3, 60)

    def net():
        return [keras.Input((10,)), dense(64, "relu"), dense(3)]

    class Rest(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 15:  # it has learned what there is
                self.model.optimizer.learning_rate.assign(0.0)

    options = {
        "optimizer": keras.optimizers.Adam(0.05),
        "validation_data": (x[30:], y[30:]),
        "epochs": 26,
        "callbacks": [Rest()],
    }
    return fit(net, x[:30], y[:30], hook={"include_collections": ["losses"]}, **options)


def test_a_net_that_learns_by_heart_overfits(by_heart):
    assert findings(by_heart, "overfit")[0].tensors == ("val_loss",)


def test_a_training_that_should_have_ended(by_heart):
    finding = only(by_heart, "overtraining")
    assert finding.severity is Severity.WARNING
    assert finding.tensors == ("val_loss",)


# -- data ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=FORMS)
def bad_data(request, fit):
    """Images as they are stored, 99 of 100 of one class; and a pause."""
    x = np.random.RandomState(0).randint(0, 256, (1000, 4, 4, 3)).astype("float32")
    y = (np.arange(1000) % 100 == 0).astype("int64")

    def net():
        return [keras.Input((4, 4, 3)), layers.Flatten(), dense(2)]

    class Pause(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if batch == 3:
                time.sleep(0.8)

    options = {
        "optimizer": keras.optimizers.SGD(0.0),
        "batch_size": 100,
        "callbacks": [Pause()],
        "hook": {"include_collections": ["inputs", "labels", "predictions"]},
    }
    options["hook"] |= saved(request.param)
    return fit(net, x, y, **options)


def test_images_that_are_not_centred(bad_data):
    finding = only(bad_data, "check_input_images")
    assert finding.severity is Severity.WARNING
    assert finding.tensors == ("inputs",)


def test_labels_that_are_not_balanced(bad_data):
    finding = findings(bad_data, "class_imbalance")[0]
    assert finding.tensors[0] == "labels"
    assert finding.evidence["labels by class"].keys() == {"0", "1"}


def test_a_training_that_stalls(bad_data):
    finding = findings(bad_data, "stalled_training_rule:threshold=0.7")[-1]
    assert "after step 2 until step 3" in finding.message


def test_two_classes_that_are_taken_for_one_another(fit, digits):
    (x, y), more = digits
    swapped = np.where(y == 3, 5, np.where(y == 5, 3, y))

    def net():
        return [keras.Input((8, 8, 1)), layers.Flatten(), dense(32, "relu"), dense(10)]

    options = {
        "optimizer": keras.optimizers.Adam(0.01),
        "hook": {"include_collections": ["labels", "predictions"]},
        "batch_size": 100,
        "epochs": 5,
        "validation_data": more,
    }
    finding = only(fit(net, x, swapped, **options), "confusion")
    assert (finding.mode, finding.tensors) == (EVAL, ("predictions",))
    worst = finding.evidence["tensors"]["predictions"]["worst"]
    assert {(each["class"], each["taken for"]) for each in worst} == {(3, 5), (5, 3)}


@pytest.mark.parametrize("form", FORMS)
def test_sequences_that_are_mostly_padding(fit, points, form):
    x = np.random.RandomState(0).randint(1, 50, (256, 20))
    x[128:, 5:] = 0

    def net():
        embedding = layers.Embedding(50, 8, name="embedding")
        return [keras.Input((20,), dtype="int32"), embedding, layers.Flatten(), dense(3)]

    hook = {"include_collections": ["inputs", "layers"], **saved(form)}
    finding = only(fit(net, x, np.arange(256) % 3, hook=hook), "nlp_sequence_ratio")
    assert (finding.step, finding.tensors) == (2, ("embedding/inputs",))
    assert "75 %" in finding.message


@pytest.mark.parametrize("form", FORMS)
def test_runs_with_other_seeds_differ(fit, points, form):
    def net():
        return [keras.Input((10,)), dense(8, "relu", "hidden"), dense(3, name="out")]

    first, again, other = (
        fit(net, *points, seed=seed, epochs=3, hook=saved(form)) for seed in (1, 1, 2)
    )
    assert findings(again, f"similar_across_runs:other_trials={first}") == []
    finding = findings(other, f"similar_across_runs:other_trials={first}")[0]
    assert finding.step == 0
    assert named(finding.tensors[:1]) == {"hidden/weights/hidden/kernel"}
    assert "inputs" not in finding.tensors
