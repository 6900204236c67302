"""The rules on trainings with PyTorch: each finds its fault, and all leave a sound run alone."""

import time

import numpy as np
import pytest

torch = pytest.importorskip("torch")
datasets = pytest.importorskip("sklearn.datasets")

import tornasole.pytorch as smd  # noqa: E402
from tornasole import ReductionConfig  # noqa: E402
from tornasole.rules import Severity, check  # noqa: E402

nn = torch.nn
TRAIN, EVAL = smd.modes.TRAIN, smd.modes.EVAL
ALL = [
    "weights", "biases", "gradients", "losses", "layers", "inputs", "outputs", "labels",
    "predictions",
]  # fmt: skip
STATISTICS = ReductionConfig(
    reductions=["min", "max", "mean", "std"], abs_reductions=["min", "mean"], norms=["l1", "l2"]
)
FORMS = {"raw": None, "statistics": STATISTICS}


class Training:
    """A training with a hook that saves every step; its trial is where ``path`` says."""

    def __init__(self, path, model, loss=None, lr=0.05, reduction=None, optimizer=None, **options):
        self.path, self.model = str(path), model
        self.loss = loss or nn.CrossEntropyLoss()
        self._optimizer = optimizer or torch.optim.SGD(model.parameters(), lr)
        options = {"include_collections": ALL, "on_error": "raise", **options}
        options.setdefault("save_config", smd.SaveConfig(save_interval=1))
        self.hook = smd.Hook(self.path, reduction_config=reduction, **options)
        self.hook.register_module(model)
        self.hook.register_loss(self.loss)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.hook.close()
        smd.del_hook()

    def train(self, x, y, times=1, batch=None):
        """Some passes over data: in batches, shuffled, or in one."""
        self.hook.set_mode(TRAIN)
        self.model.train()
        for _ in range(times):
            order = torch.randperm(len(x)) if batch else torch.arange(len(x))
            for part in order.split(batch or len(x)):
                self._optimizer.zero_grad()
                self.loss(self.model(x[part]), y[part]).backward()
                self._optimizer.step()

    def validate(self, x, y):
        self.hook.set_mode(EVAL)
        self.model.eval()
        with torch.no_grad():
            self.loss(self.model(x), y)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Nets as small as these only wait for more of them."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder for trials, with torch's random numbers as they are at the start."""

    def make(name):
        torch.manual_seed(0)
        return tmp_path_factory.mktemp(name) / "trial"

    return make


@pytest.fixture(scope="module")
def points():
    """64 points of ten numbers, and which of three classes each belongs to."""
    random = np.random.RandomState(0)
    y = np.arange(64) % 3
    x = random.randn(64, 10) + 2 * np.eye(10)[y]
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y)


@pytest.fixture(scope="module")
def digits():
    """Images of digits, centred; for training and for validation."""
    x, y = datasets.load_digits(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(x))
    x = ((x - x.mean()) / x.std()).reshape(-1, 1, 8, 8)[order]
    x, y = torch.tensor(x, dtype=torch.float32), torch.tensor(y[order])
    return (x[:1400], y[:1400]), (x[1400:], y[1400:])


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
    net = nn.Sequential(
        nn.Conv2d(1, 6, 3),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Conv2d(6, 12, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(108, 24),
        nn.Tanh(),
        nn.Dropout(0.2),
        nn.Linear(24, 10),
    )
    optimizer = torch.optim.Adam(net.parameters(), 3e-3)
    form = FORMS[request.param]
    with Training(path, net, optimizer=optimizer, reduction=form) as training:
        for _ in range(4):
            training.train(*data, batch=50)
            training.validate(*more)
    with torch.no_grad():
        right = (net(more[0]).argmax(1) == more[1]).float().mean().item()
    assert right > 0.93
    return training.path


def test_nothing_is_said_against_a_sound_run(healthy):
    report = check(healthy, save=False)
    assert [f for f in report.findings if f.severity is not Severity.INFO] == []
    assert set(report.not_applicable) == {"tree_depth", "feature_importance_overweight"}


@pytest.mark.xfail(reason="loss_not_decreasing compares two batches, which differ by chance")
def test_a_loss_that_falls_though_batches_differ_is_not_warned_of(place, digits):
    (x, y), _ = digits
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    options = {"include_collections": ["losses"], "lr": 0.03}
    with Training(place("noisy"), net, **options) as training:
        training.train(x, y, times=2, batch=8)
    losses = smd.create_trial(training.path).tensor("CrossEntropyLoss_output_0").values()
    losses = np.array(list(losses.values()))
    assert losses[-50:].mean() < 0.5 * losses[:50].mean()
    assert findings(training.path, "loss_not_decreasing") == []


# -- gradients and values --------------------------------------------------------------------------


@pytest.fixture(scope="module", params=FORMS)
def deep(request, place, points):
    """Fifteen layers of sigmoids."""
    layers = [part for _ in range(14) for part in (nn.Linear(10, 10), nn.Sigmoid())]
    path = place("deep")
    net = nn.Sequential(*layers, nn.Linear(10, 3))
    with Training(path, net, reduction=FORMS[request.param]) as training:
        training.train(*points, times=12)
    return training.path


def test_gradients_vanish_in_a_deep_net_of_sigmoids(deep):
    finding = findings(deep, "vanishing_gradient")[0]
    assert finding.step == 0
    assert "gradient/Sequential_0.weight" in finding.tensors
    assert "gradient/Sequential_28.weight" not in finding.tensors


@pytest.fixture(scope="module", params=FORMS)
def diverging(request, place, points):
    """A learning rate that is far too large, for a net without any bounds."""
    x, y = points
    net = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 1))
    form = FORMS[request.param]
    with Training(place("diverging"), net, nn.MSELoss(), lr=50, reduction=form) as training:
        training.train(x, y[:, None].float(), times=12)
    return training.path


def test_a_learning_rate_that_is_too_large_makes_tensors_explode(diverging):
    found = findings(diverging, "exploding_tensor")
    assert found[0].severity is Severity.CRITICAL
    hit = {name for finding in found for name in finding.tensors}
    assert {"MSELoss_output_0", "Sequential_0.weight", "gradient/Sequential_0.weight"} <= hit


def test_where_it_overflowed_and_that_it_grew(diverging):
    finding = only(diverging, "nan_source")
    assert finding.tensors[0] in findings(diverging, "exploding_tensor")[0].tensors
    assert "learning rate is too high" in finding.causes[0]
    assert finding.evidence["before"]["fastest"]["times"] > 10


def test_weights_change_too_much_before_they_explode(diverging):
    finding = findings(diverging, "weight_update_ratio")[0]
    assert finding.step < findings(diverging, "exploding_tensor")[0].step
    assert "more than 10" in finding.message


class Root(nn.Module):
    def forward(self, x):
        return torch.sqrt(x)


class Rooted(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.root, self.fc2 = nn.Linear(10, 8), Root(), nn.Linear(8, 3)

    def forward(self, x):
        return self.fc2(self.root(self.fc1(x) + 40))


@pytest.mark.parametrize("form", FORMS)
def test_the_layer_where_nan_begins_is_named(place, points, form):
    x, y = points
    net = Rooted()
    with Training(place("root"), net, lr=1e-4, reduction=FORMS[form]) as training:
        training.train(x, y, times=3)
        training.train(x * 1000, y)
    finding = only(training.path, "nan_source")
    assert (finding.step, finding.tensors) == (3, ("root_output_0",))
    assert "fc1_output_0" in finding.message or "root_input_0" in finding.message


# -- layers ----------------------------------------------------------------------------------------


class Stuck(nn.Module):
    """ReLUs far below zero, tanhs and sigmoids at their ends, and some that are sound."""

    def __init__(self):
        super().__init__()
        self.fc1, self.act1 = nn.Linear(10, 20), nn.ReLU()
        self.fc2, self.act2 = nn.Linear(20, 20), nn.ReLU()
        self.fc3, self.act3 = nn.Linear(20, 20), nn.Tanh()
        self.fc4, self.act4 = nn.Linear(20, 20), nn.Sigmoid()
        self.fc5, self.act5 = nn.Linear(20, 20), nn.Tanh()
        self.out = nn.Linear(20, 3)
        with torch.no_grad():
            self.fc2.bias.fill_(-50)
            self.fc3.weight.mul_(1e4)
            self.fc3.bias.mul_(1e4)
            self.fc4.weight.mul_(1e4)

    def forward(self, x):
        x = self.act2(self.fc2(self.act1(self.fc1(x))))
        x = self.act4(self.fc4(self.act3(self.fc3(x))))
        return self.out(self.act5(self.fc5(x)))


@pytest.fixture(scope="module", params=FORMS)
def stuck(request, place, points):
    with Training(place("stuck"), Stuck(), reduction=FORMS[request.param]) as training:
        training.train(*points, times=5)
    return training.path


def test_relus_that_are_dead(stuck):
    finding = only(stuck, "dead_relu")
    assert finding.tensors == ("act2_output_0",)
    assert finding.severity is Severity.CRITICAL


def test_activations_that_are_saturated(stuck, request):
    found = findings(stuck, "saturated_activation")
    expected = {"act3", "act4"}
    if request.node.callspec.params["stuck"] == "statistics":
        expected.remove("act4")  # no name says so: from statistics, it may be a softmax
    assert {name.partition("_")[0] for f in found for name in f.tensors} == expected


@pytest.fixture(scope="module", params=FORMS)
def frozen(request, place, points):
    """A learning rate of zero."""
    net = nn.Sequential(nn.Linear(10, 8), nn.ReLU(), nn.Linear(8, 3))
    with Training(place("frozen"), net, lr=0.0, reduction=FORMS[request.param]) as training:
        training.train(*points, times=12)
    return training.path


def test_weights_that_do_not_change(frozen, request):
    unchanged = findings(frozen, "unchanged_tensor")[0]
    assert {"Sequential_0.weight", "Sequential_2.weight"} <= set(unchanged.tensors)
    if request.node.callspec.params["frozen"] == "raw":  # statistics cannot tell
        finding = only(frozen, "weight_update_ratio")
        assert finding.tensors == ("Sequential_0.weight", "Sequential_2.weight")


def test_a_loss_that_does_not_fall(frozen):
    finding = only(frozen, "loss_not_decreasing")
    assert finding.tensors == ("CrossEntropyLoss_output_0",)


@pytest.fixture(scope="module", params=FORMS)
def zeros(request, place, points):
    """Two layers in a row that start at zero, and stay there."""
    net = nn.Sequential(nn.Linear(10, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))
    with torch.no_grad():
        for i in (2, 4):
            net[i].weight.zero_()
            net[i].bias.zero_()
    form = FORMS[request.param]
    with Training(place("zeros"), net, lr=0.5, reduction=form) as training:
        training.train(*points, times=12)
    return training.path


def test_weights_that_start_at_zero_and_stay_there(zeros):
    found = {name for f in findings(zeros, "all_zero") for name in f.tensors}
    assert {"Sequential_2.weight", "Sequential_4.weight", "gradient/Sequential_0.weight"} <= found
    assert "Sequential_0.weight" not in found


def test_a_start_from_which_the_net_does_not_learn(zeros):
    finding = findings(zeros, "poor_weight_initialization")[-1]
    assert finding.evidence["signs"]["gradient"]["tensor"].startswith("gradient/Sequential_")


def test_weights_that_do_not_vary(zeros):
    found = findings(zeros, "tensor_variance:min_threshold=1e-12;collection_names=weights")
    assert set(found[0].tensors) == {"Sequential_2.weight", "Sequential_4.weight"}


# -- losses ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=FORMS)
def by_heart(request, place):
    """Labels without any sense, few of them, and a net that learns them by heart."""
    x, y = torch.randn(60, 10), torch.randint(0, 3, (60,))
    net = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 3))
    optimizer = torch.optim.AdamW(net.parameters(), 0.02, weight_decay=0.5)
    options = {"include_collections": ["losses"], "reduction": FORMS[request.param]}
    with Training(place("by_heart"), net, optimizer=optimizer, **options) as training:
        for _ in range(50):
            training.train(x[:30], y[:30], times=5)
            training.validate(x[30:], y[30:])
    return training.path


def test_a_net_that_learns_by_heart_overfits(by_heart):
    finding = findings(by_heart, "overfit")[0]
    assert finding.tensors == ("CrossEntropyLoss_output_0",)
    assert finding.evidence["step"] == 5  # the first validation


def test_a_training_that_should_have_ended(by_heart):
    finding = findings(by_heart, "overtraining")[0]
    assert finding.severity is Severity.WARNING
    assert finding.tensors == ("CrossEntropyLoss_output_0",)


def test_a_training_that_stalls(place, points):
    net = nn.Linear(10, 3)
    with Training(place("stalls"), net, include_collections=["losses"]) as training:
        training.train(*points, times=3)
        time.sleep(0.6)
        training.train(*points)
    finding = only(training.path, "stalled_training_rule:threshold=0.5")
    assert "after step 2 until step 3" in finding.message


# -- data ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=FORMS)
def bad_data(request, place):
    """Images as they are stored, 99 of 100 of one class."""
    x = torch.randint(0, 256, (1000, 3, 4, 4)).float()
    y = (torch.arange(1000) % 100 == 0).long()
    net = nn.Sequential(nn.Flatten(), nn.Linear(48, 2))
    path, options = place("bad_data"), {"include_collections": ["inputs", "labels", "predictions"]}
    with Training(path, net, lr=0, reduction=FORMS[request.param], **options) as training:
        training.train(x, y, batch=100)
    return training.path


def test_images_that_are_not_centred(bad_data):
    finding = only(bad_data, "check_input_images")
    assert finding.severity is Severity.WARNING
    assert finding.tensors == ("Sequential_input_0",)


def test_labels_that_are_not_balanced(bad_data):
    finding = findings(bad_data, "class_imbalance")[0]
    assert finding.tensors[0] == "CrossEntropyLoss_input_1"
    assert finding.evidence["labels by class"].keys() == {"0", "1"}


def test_two_classes_that_are_taken_for_one_another(place, digits):
    (x, y), more = digits
    swapped = torch.where(y == 3, 5, torch.where(y == 5, 3, y))
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    options = {
        "optimizer": torch.optim.Adam(net.parameters(), 0.01),
        "include_collections": ["labels", "predictions"],
    }
    with Training(place("swapped"), net, **options) as training:
        for _ in range(5):
            training.train(x, swapped, batch=100)
            training.validate(*more)
    finding = only(training.path, "confusion")
    assert (finding.mode, finding.tensors) == (EVAL, ("CrossEntropyLoss_input_0",))
    worst = finding.evidence["tensors"]["CrossEntropyLoss_input_0"]["worst"]
    assert {(each["class"], each["taken for"]) for each in worst} == {(3, 5), (5, 3)}


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.fc = nn.Embedding(50, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.fc(self.embedding(x).mean(1))


@pytest.mark.parametrize("form", FORMS)
def test_sequences_that_are_mostly_padding(place, points, form):
    x = torch.randint(1, 50, (64, 20))
    options = {"include_collections": ["inputs", "layers"], "reduction": FORMS[form]}
    with Training(place("padded"), Reader(), **options) as training:
        training.train(x, points[1], times=2)
        x[:, 5:] = 0
        training.train(x, points[1], times=2)
    finding = only(training.path, "nlp_sequence_ratio")
    assert (finding.step, finding.tensors) == (2, ("embedding_input_0",))
    assert "75 %" in finding.message


@pytest.mark.parametrize("form", FORMS)
def test_runs_with_other_seeds_differ(place, points, form):
    def run(seed):
        path = place(f"seed_{seed}")
        torch.manual_seed(seed)
        net = nn.Sequential(nn.Linear(10, 8), nn.ReLU(), nn.Linear(8, 3))
        with Training(path, net, reduction=FORMS[form]) as training:
            training.train(*points, times=3)
        return training.path

    first, again, other = run(1), run(1), run(2)
    assert findings(again, f"similar_across_runs:other_trials={first}") == []
    finding = findings(other, f"similar_across_runs:other_trials={first}")[0]
    assert (finding.step, finding.tensors[0]) == (0, "Sequential_0.weight")
    assert "Sequential_input_0" not in finding.tensors
