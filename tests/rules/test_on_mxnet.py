"""The rules on trainings with MXNet: each finds its fault, and all leave a sound run alone."""

import time

import numpy as np
import pytest

mx = pytest.importorskip("mxnet")
datasets = pytest.importorskip("sklearn.datasets")

from mxnet import autograd, gluon  # noqa: E402

import tornasole.mxnet as smd  # noqa: E402
from tornasole import ReductionConfig  # noqa: E402
from tornasole.rules import Severity, check  # noqa: E402

nn = gluon.nn
TRAIN, EVAL = smd.modes.TRAIN, smd.modes.EVAL
ALL = [
    "weights", "biases", "gradients", "losses", "layers", "inputs", "outputs", "labels",
    "predictions",
]  # fmt: skip
STATISTICS = ReductionConfig(
    reductions=["min", "max", "mean", "std"], abs_reductions=["min", "mean"], norms=["l1", "l2"]
)
FORMS = {"raw": None, "statistics": STATISTICS}
LOSS, LABELS, PREDICTIONS = (
    f"softmaxcrossentropyloss0_{which}" for which in ("output_0", "input_1", "input_0")
)


class Training:
    """A training with a hook that saves every step; its trial is where ``path`` says."""

    def __init__(self, path, net, loss=None, reduction=None, optimizer=None, **options):
        self.path, self._net = str(path), net
        self._loss = loss or gluon.loss.SoftmaxCrossEntropyLoss(prefix="softmaxcrossentropyloss0_")
        self._optimizer = optimizer or ("sgd", {"learning_rate": 0.05})
        self._trainer = None
        options = {"include_collections": ALL, "on_error": "raise", **options}
        options.setdefault("save_config", smd.SaveConfig(save_interval=1))
        self._hook = smd.Hook(self.path, reduction_config=reduction, **options)
        self._hook.register_block(net)
        self._hook.register_loss(self._loss)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._hook.close()
        smd.del_hook()

    def train(self, x, y, times=1, batch=None):
        """Some passes over data: in batches, shuffled, or in one."""
        self._hook.set_mode(TRAIN)
        for _ in range(times):
            order = np.random.permutation(len(x)) if batch else np.arange(len(x))
            for first in range(0, len(x), batch or len(x)):
                part = order[first : first + (batch or len(x))]
                with autograd.record():
                    loss = self._loss(self._net(mx.nd.array(x[part])), mx.nd.array(y[part]))
                loss.backward()
                if self._trainer is None:
                    self._trainer = gluon.Trainer(self._net.collect_params(), *self._optimizer)
                self._trainer.step(len(part))

    def validate(self, x, y):
        self._hook.set_mode(EVAL)
        self._loss(self._net(mx.nd.array(x)), mx.nd.array(y)).wait_to_read()


def sequence(*blocks, initialiser=None):
    """A net named ``net``, whose blocks are made in its scope."""
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        for block in blocks:
            net.add(block())
    net.initialize(initialiser or mx.init.Xavier())
    return net


def dense(*args, **options):
    return lambda: nn.Dense(*args, **options)


def activation(kind):
    return lambda: nn.Activation(kind)


def set_parameter(net, name, value):
    net.collect_params()[name].set_data(mx.nd.array(value))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder for trials, with random numbers as they are at the start."""

    def make(name, seed=0):
        mx.random.seed(seed)
        np.random.seed(seed)
        return tmp_path_factory.mktemp(name) / "trial"

    return make


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
    x = ((x - x.mean()) / x.std()).reshape(-1, 1, 8, 8).astype("float32")[order]
    return (x[:1400], y[order][:1400]), (x[1400:], y[order][1400:])


def findings(path, rule):
    return check(path, [rule], save=False).findings


def only(path, rule):
    """The one finding of a rule."""
    (finding,) = findings(path, rule)
    return finding


# -- a sound run -----------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=FORMS)
def healthy(request, place, digits):
    """A small convolutional net that learns digits."""
    data, more = digits
    path = place(f"healthy_{request.param}")
    net = sequence(
        lambda: nn.Conv2D(6, 3),
        nn.BatchNorm,
        activation("relu"),
        lambda: nn.Conv2D(12, 3, padding=1, activation="relu"),
        nn.MaxPool2D,
        nn.Flatten,
        dense(24, activation="tanh"),
        lambda: nn.Dropout(0.2),
        dense(10),
    )
    optimizer, form = ("adam", {"learning_rate": 3e-3}), FORMS[request.param]
    with Training(path, net, optimizer=optimizer, reduction=form) as training:
        for _ in range(4):
            training.train(*data, batch=50)
            training.validate(*more)
    right = (net(mx.nd.array(more[0])).asnumpy().argmax(1) == more[1]).mean()
    assert right > 0.93
    return training.path


def test_nothing_is_said_against_a_sound_run(healthy):
    report = check(healthy, save=False)
    assert [f for f in report.findings if f.severity is not Severity.INFO] == []
    assert set(report.not_applicable) == {"tree_depth", "feature_importance_overweight"}


# -- gradients and values --------------------------------------------------------------------------


@pytest.fixture(scope="module", params=FORMS)
def deep(request, place, points):
    """Fifteen layers of sigmoids."""
    path = place("deep")
    net = sequence(*[dense(10, activation="sigmoid")] * 14, dense(3))
    with Training(path, net, reduction=FORMS[request.param]) as training:
        training.train(*points, times=12)
    return training.path


def test_gradients_vanish_in_a_deep_net_of_sigmoids(deep):
    finding = findings(deep, "vanishing_gradient")[0]
    assert finding.step == 0
    assert "gradient/net_dense0_weight" in finding.tensors
    assert "gradient/net_dense14_weight" not in finding.tensors


@pytest.fixture(scope="module", params=FORMS)
def diverging(request, place, points):
    """A learning rate that is far too large, for a net without any bounds."""
    x, y = points
    path, net = place("diverging"), sequence(dense(16, activation="relu"), dense(1))
    options = {
        "loss": gluon.loss.L2Loss(prefix="l2loss0_"),
        "optimizer": ("sgd", {"learning_rate": 50}),
        "reduction": FORMS[request.param],
    }
    with Training(path, net, **options) as training:
        training.train(x, y[:, None].astype("float32"), times=12)
    return training.path


def test_a_learning_rate_that_is_too_large_makes_tensors_explode(diverging):
    found = findings(diverging, "exploding_tensor")
    assert found[0].severity is Severity.CRITICAL
    hit = {name for finding in found for name in finding.tensors}
    assert {"l2loss0_output_0", "net_dense0_weight", "gradient/net_dense0_weight"} <= hit


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
def test_the_layer_where_nan_begins_is_named(place, points, form):
    x, y = points
    path = place("root")
    net = sequence(
        dense(8),
        lambda: nn.HybridLambda(lambda F, x: F.sqrt(x + 40), prefix="root_"),
        dense(3),
    )
    optimizer = ("sgd", {"learning_rate": 1e-4})
    with Training(path, net, optimizer=optimizer, reduction=FORMS[form]) as training:
        training.train(x, y, times=3)
        training.train(x * 1000, y)
    finding = only(training.path, "nan_source")
    assert (finding.step, finding.tensors) == (3, ("net_root_output_0",))
    assert "net_root_input_0" in finding.message


# -- layers ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=FORMS)
def stuck(request, place, points):
    """ReLUs far below zero, tanhs and sigmoids at their ends, and some that are sound."""
    path = place("stuck")
    net = sequence(
        dense(20, activation="relu", in_units=10),
        dense(20, activation="relu", in_units=20),
        dense(20, activation="tanh", in_units=20),
        dense(20, activation="sigmoid", in_units=20),
        dense(20, activation="tanh", in_units=20),
        dense(3, in_units=20),
    )
    random = np.random.RandomState(0)
    set_parameter(net, "net_dense1_bias", np.full(20, -50))
    set_parameter(net, "net_dense2_bias", 1e4 * random.randn(20))
    set_parameter(net, "net_dense3_weight", 1e4 * random.randn(20, 20))
    with Training(path, net, reduction=FORMS[request.param]) as training:
        training.train(*points, times=5)
    return training.path


def test_relus_that_are_dead(stuck):
    finding = only(stuck, "dead_relu")
    assert finding.tensors == ("net_dense1_relu_output_0",)
    assert finding.severity is Severity.CRITICAL


def test_activations_that_are_saturated(stuck):
    found = findings(stuck, "saturated_activation")
    assert {name for f in found for name in f.tensors} == {
        "net_dense2_tanh_input_0",
        "net_dense3_sigmoid_input_0",
    }


@pytest.fixture(scope="module", params=FORMS)
def frozen(request, place, points):
    """A learning rate of zero."""
    path, net = place("frozen"), sequence(dense(8, activation="relu"), dense(3))
    optimizer = ("sgd", {"learning_rate": 0.0})
    with Training(path, net, optimizer=optimizer, reduction=FORMS[request.param]) as training:
        training.train(*points, times=12)
    return training.path


def test_weights_that_do_not_change(frozen, request):
    unchanged = findings(frozen, "unchanged_tensor")[0]
    assert {"net_dense0_weight", "net_dense1_weight"} <= set(unchanged.tensors)
    if request.node.callspec.params["frozen"] == "raw":  # statistics cannot tell
        finding = only(frozen, "weight_update_ratio")
        assert finding.tensors == ("net_dense0_weight", "net_dense1_weight")


def test_a_loss_that_does_not_fall(frozen):
    assert only(frozen, "loss_not_decreasing").tensors == (LOSS,)


@pytest.fixture(scope="module", params=FORMS)
def zeros(request, place, points):
    """Two layers in a row that start at zero, and stay there."""
    path = place("zeros")
    net = sequence(
        dense(8, activation="tanh", in_units=10),
        dense(8, activation="tanh", in_units=8, weight_initializer="zeros"),
        dense(3, in_units=8, weight_initializer="zeros"),
    )
    optimizer = ("sgd", {"learning_rate": 0.5})
    with Training(path, net, optimizer=optimizer, reduction=FORMS[request.param]) as training:
        training.train(*points, times=12)
    return training.path


def test_weights_that_start_at_zero_and_stay_there(zeros):
    found = {name for f in findings(zeros, "all_zero") for name in f.tensors}
    assert {"net_dense1_weight", "net_dense2_weight", "gradient/net_dense0_weight"} <= found
    assert "net_dense0_weight" not in found


def test_a_start_from_which_the_net_does_not_learn(zeros):
    finding = findings(zeros, "poor_weight_initialization")[-1]
    assert finding.evidence["signs"]["gradient"]["tensor"].startswith("gradient/net_dense")


def test_weights_that_do_not_vary(zeros):
    found = findings(zeros, "tensor_variance:min_threshold=1e-12;collection_names=weights")
    assert set(found[0].tensors) == {"net_dense1_weight", "net_dense2_weight"}


# -- losses ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=FORMS)
def by_heart(request, place):
    """Labels without any sense, few of them, and a net that learns them by heart."""
    path = place("by_heart")
    x, y = np.random.randn(60, 10).astype("float32"), np.random.randint(0, 3, 60)
    net = sequence(dense(64, activation="relu"), dense(3))
    options = {
        "optimizer": ("adam", {"learning_rate": 0.02, "wd": 0.01}),
        "include_collections": ["losses"],
        "reduction": FORMS[request.param],
    }
    with Training(path, net, **options) as training:
        for _ in range(50):
            training.train(x[:30], y[:30], times=5)
            training.validate(x[30:], y[30:])
    return training.path


def test_a_net_that_learns_by_heart_overfits(by_heart):
    finding = findings(by_heart, "overfit")[0]
    assert finding.tensors == (LOSS,)
    assert finding.evidence["step"] == 5  # the first validation


def test_a_training_that_should_have_ended(by_heart):
    finding = findings(by_heart, "overtraining")[0]
    assert finding.severity is Severity.WARNING
    assert finding.tensors == (LOSS,)


def test_a_training_that_stalls(place, points):
    path = place("stalls")
    with Training(path, sequence(dense(3)), include_collections=["losses"]) as training:
        training.train(*points, times=3)
        time.sleep(0.6)
        training.train(*points)
    finding = only(training.path, "stalled_training_rule:threshold=0.5")
    assert "after step 2 until step 3" in finding.message


# -- data ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=FORMS)
def bad_data(request, place):
    """Images as they are stored, 99 of 100 of one class."""
    path = place("bad_data")
    x = np.random.randint(0, 256, (1000, 3, 4, 4)).astype("float32")
    y = (np.arange(1000) % 100 == 0).astype("float32")
    options = {
        "optimizer": ("sgd", {"learning_rate": 0.0}),
        "include_collections": ["inputs", "labels", "predictions"],
        "reduction": FORMS[request.param],
    }
    with Training(path, sequence(nn.Flatten, dense(2)), **options) as training:
        training.train(x, y, batch=100)
    return training.path


def test_images_that_are_not_centred(bad_data):
    finding = only(bad_data, "check_input_images")
    assert finding.severity is Severity.WARNING
    assert finding.tensors == ("net_input_0",)


def test_labels_that_are_not_balanced(bad_data):
    finding = findings(bad_data, "class_imbalance")[0]
    assert finding.tensors[0] == LABELS
    assert finding.evidence["labels by class"].keys() == {"0", "1"}


def test_two_classes_that_are_taken_for_one_another(place, digits):
    (x, y), more = digits
    swapped = np.where(y == 3, 5, np.where(y == 5, 3, y))
    path, net = place("swapped"), sequence(dense(32, activation="relu"), dense(10))
    options = {
        "optimizer": ("adam", {"learning_rate": 0.01}),
        "include_collections": ["labels", "predictions"],
    }
    with Training(path, net, **options) as training:
        for _ in range(5):
            training.train(x, swapped, batch=100)
            training.validate(*more)
    finding = only(training.path, "confusion")
    assert (finding.mode, finding.tensors) == (EVAL, (PREDICTIONS,))
    worst = finding.evidence["tensors"][PREDICTIONS]["worst"]
    assert {(each["class"], each["taken for"]) for each in worst} == {(3, 5), (5, 3)}


@pytest.mark.parametrize("form", FORMS)
def test_sequences_that_are_mostly_padding(place, points, form):
    path = place("padded")
    x = np.random.randint(1, 50, (64, 20)).astype("float32")
    net = sequence(lambda: nn.Embedding(50, 8), dense(3))
    options = {"include_collections": ["inputs", "layers"], "reduction": FORMS[form]}
    with Training(path, net, **options) as training:
        training.train(x, points[1], times=2)
        x[:, 5:] = 0
        training.train(x, points[1], times=2)
    finding = only(training.path, "nlp_sequence_ratio")
    assert (finding.step, finding.tensors) == (2, ("net_embedding0_input_0",))
    assert "75 %" in finding.message


@pytest.mark.parametrize("form", FORMS)
def test_runs_with_other_seeds_differ(place, points, form):
    def run(seed):
        path = place(f"seed_{seed}", seed)
        net = sequence(dense(8, activation="relu"), dense(3))
        with Training(path, net, reduction=FORMS[form]) as training:
            training.train(*points, times=3)
        return training.path

    first, again, other = run(1), run(1), run(2)
    assert findings(again, f"similar_across_runs:other_trials={first}") == []
    finding = findings(other, f"similar_across_runs:other_trials={first}")[0]
    assert (finding.step, finding.tensors[0]) == (0, "net_dense0_weight")
    assert "net_input_0" not in finding.tensors
