"""Arrays of every dtype, storage and kind are saved, or noted with nothing lost beside them."""

import subprocess
import sys

import numpy as np
import pytest

mx = pytest.importorskip("mxnet")

from mxnet import autograd, gluon  # noqa: E402

import tornasole.mxnet as smd  # noqa: E402

nn = gluon.nn


@pytest.fixture
def save(new_hook, read):
    """Saves an array by hand, and another after it, and returns the trial."""

    def run(value, **options):
        hook = new_hook(**options)
        hook.begin_step()
        hook.save_tensor("x", value)
        hook.save_tensor("beside", mx.nd.ones(2))
        hook.close()
        trial = read()
        assert trial.tensor("beside").value(0).tolist() == [1, 1]
        return trial

    return run


@pytest.mark.parametrize(
    "dtype", ["uint8", "int8", "int32", "int64", "float16", "float32", "float64"]
)
def test_a_dtype_comes_back_as_it_was(save, dtype):
    value = mx.nd.array([[0, 1, 2], [3, 4, 5]], dtype=dtype)
    found = save(value).tensor("x").value(0)
    assert found.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(found, value.asnumpy())


@pytest.mark.parametrize(
    "value",
    [
        lambda: mx.nd.arange(6).reshape((2, 3)).T,
        lambda: mx.nd.arange(10)[2:7],
        lambda: mx.nd.arange(10)[::3],
        lambda: mx.nd.ones(1).broadcast_to((2, 3)),
        lambda: mx.nd.array([3.5]),
        lambda: mx.nd.array([[[3.5]]]),
    ],
    ids=["transposed", "slice", "strided", "broadcast", "one", "one3"],
)
def test_an_array_is_saved_in_the_order_it_shows(save, value):
    value = value()
    found = save(value).tensor("x").value(0)
    assert found.shape == value.shape
    np.testing.assert_array_equal(found, value.asnumpy())


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_nan_and_infinity_are_data(save, dtype):
    value = mx.nd.array([np.nan, np.inf, -np.inf, 1], dtype=dtype)
    np.testing.assert_array_equal(save(value).tensor("x").value(0), value.asnumpy())


@pytest.mark.parametrize("stype", ["row_sparse", "csr"])
def test_a_sparse_array_is_saved_dense(save, stype):
    dense = mx.nd.array([[0, 2], [0, 0], [3, 0]])
    found = save(dense.tostype(stype)).tensor("x").value(0)
    np.testing.assert_array_equal(found, dense.asnumpy())


@pytest.mark.parametrize("stype", ["row_sparse", "csr"])
def test_a_sparse_array_without_a_single_value_is_saved(save, stype):
    found = save(mx.nd.sparse.zeros(stype, (3, 2))).tensor("x").value(0)
    np.testing.assert_array_equal(found, np.zeros((3, 2)))


def test_a_sparse_array_too_large_to_be_dense_is_noted(save, warnings_of):
    trial = save(mx.nd.sparse.zeros("row_sparse", (20_000, 20_000)))
    assert "x" not in trial.tensor_names()
    assert any("'x'" in message and "row_sparse" in message for message in warnings_of())


def test_an_array_in_a_recorded_computation_is_saved_and_its_gradient_is_right(save):
    x = mx.nd.array([1.0, 2.0])
    x.attach_grad()
    with autograd.record():
        y = x * x
        trial = save(y)
        z = (y * 3).sum()
    z.backward()
    assert trial.tensor("x").value(0).tolist() == [1, 4]
    assert x.grad.asnumpy().tolist() == [6, 12]


# -- statistics ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "float32", "int32"])
def test_statistics_are_those_of_numpy(record, dtype):
    net = nn.Lambda(lambda x: x, prefix="net_")
    x = (mx.nd.random.normal(shape=(20, 7)) * 10).astype(dtype)
    expected = x.asnumpy().astype("float64")
    config = smd.ReductionConfig(
        reductions=["min", "max", "mean", "std", "variance", "sum", "median"],
        abs_reductions=["max", "mean"],
        norms=["l1", "l2"],
    )
    trial = record(net, lambda hook: net(x), reduction_config=config)
    found = trial.tensor("net_input_0")
    for name, value in {
        "min": expected.min(),
        "max": expected.max(),
        "mean": expected.mean(),
        "std": expected.std(),
        "variance": expected.var(),
        "sum": expected.sum(),
        "median": np.median(expected),
        "l1": np.abs(expected).sum(),
        "l2": np.sqrt((expected**2).sum()),
    }.items():
        assert found.reduction_value(0, name) == pytest.approx(value, rel=1e-6), name
    for name, value in {"max": np.abs(expected).max(), "mean": np.abs(expected).mean()}.items():
        assert found.reduction_value(0, name, abs=True) == pytest.approx(value, rel=1e-6), name


def test_statistics_of_a_sparse_gradient_count_its_zeros(record):
    net = nn.Embedding(10, 2, sparse_grad=True, prefix="net_")
    net.initialize()
    config = smd.ReductionConfig(reductions=["mean"])

    def work(hook):
        with autograd.record():
            loss = net(mx.nd.array([1, 4])).sum()
        loss.backward()

    trial = record(net, work, reduction_config=config)
    found = trial.tensor("gradient/net_weight").reduction_value(0, "mean")
    assert found == pytest.approx(4 / 20)


# -- nets ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hybridised", [False, True])
def test_a_net_in_half_precision_is_saved_with_its_gradients(record, hybridised):
    net = nn.HybridSequential(prefix="net_")  # of layers that MXNet can run so on a CPU
    with net.name_scope():
        net.add(nn.Embedding(6, 4), nn.PReLU())
    net.initialize()
    net.cast("float16")
    net.hybridize(hybridised)
    weight = net[0].weight.data().asnumpy()

    def work(hook):
        with autograd.record():
            loss = net(mx.nd.array([1, 1, 4], dtype="float16")).sum()
        loss.backward()

    trial = record(net, work)
    for name, value in {
        "net_embedding0_weight": weight,
        "gradient/net_embedding0_weight": net[0].weight.grad().asnumpy(),
    }.items():
        assert trial.tensor(name).value(0).dtype == np.float16
        np.testing.assert_array_equal(trial.tensor(name).value(0), value)
    assert trial.tensor("net_embedding0_output_0").dtype(0) == "float16"


@pytest.mark.parametrize("hybridised", [False, True])
def test_sparse_gradients_of_an_embedding_are_saved_dense(record, hybridised):
    net = nn.Embedding(10, 3, sparse_grad=True, prefix="net_")
    net.initialize()
    net.hybridize(hybridised)
    trainer, seen = gluon.Trainer(net.collect_params(), "sgd"), []

    def work(hook):
        for ids in ([1, 1, 4], [0, 9]):
            with autograd.record():
                loss = net(mx.nd.array(ids)).sum()
            loss.backward()
            assert net.weight.grad().stype == "row_sparse"
            seen.append(net.weight.grad().asnumpy())
            trainer.step(1)

    trial = record(net, work)
    for step, gradient in enumerate(seen):
        np.testing.assert_array_equal(trial.tensor("gradient/net_weight").value(step), gradient)


def test_sparse_weights_are_saved_dense(record):
    class Linear(gluon.Block):
        def __init__(self):
            super().__init__(prefix="net_")
            self.weight = self.params.get(
                "weight", shape=(6, 2), stype="row_sparse", grad_stype="row_sparse"
            )

        def forward(self, x):
            weight = self.weight.row_sparse_data(mx.nd.arange(6))
            return mx.nd.sparse.dot(x, weight)

    net = Linear()
    net.initialize(mx.init.One())
    trainer = gluon.Trainer(net.collect_params(), "sgd")
    x = mx.nd.array([[1, 0, 0, 2, 0, 0]]).tostype("csr")

    def work(hook):
        for _ in range(2):
            with autograd.record():
                loss = net(x).sum()
            loss.backward()
            trainer.step(1)

    trial = record(net, work)
    assert trial.tensor("net_weight").value(0).shape == (6, 2)
    assert trial.tensor("net_input_0").value(0).tolist() == [[1, 0, 0, 2, 0, 0]]
    assert trial.tensor("gradient/net_weight").value(0).tolist() == [
        [1, 1], [0, 0], [0, 0], [2, 2], [0, 0], [0, 0]
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_integers_that_go_into_a_net_are_saved_as_such(record, dtype):
    net = nn.Embedding(10, 3, prefix="net_")
    net.initialize()
    trial = record(net, lambda hook: net(mx.nd.array([1, 4], dtype=dtype)))
    assert trial.tensor("net_input_0").value(0).dtype == np.dtype(dtype)
    assert trial.tensor("net_input_0").value(0).tolist() == [1, 4]


NUMPY_SEMANTICS = """
import sys
import mxnet as mx
import numpy as onp
from mxnet import autograd, gluon, np, npx
import tornasole.mxnet as smd

npx.set_np()
net = gluon.nn.HybridSequential(prefix="net_")
with net.name_scope():
    net.add(gluon.nn.Dense(3, in_units=2), gluon.nn.Dense(1, in_units=3))
net.initialize()
if sys.argv[2] == "hybridised":
    net.hybridize()
hook = smd.Hook(
    sys.argv[1], save_all=True, on_error="raise", save_config=smd.SaveConfig(save_interval=1)
)
hook.register_block(net)
trainer = gluon.Trainer(net.collect_params(), "sgd")
for _ in range(2):
    with autograd.record():
        loss = net(np.ones((4, 2))).sum()
    loss.backward()
    trainer.step(4)
hook.save_tensor("empty", np.zeros((0, 3)))
hook.save_tensor("scalar", np.array(2.5))
hook.save_tensor("truth", np.array([True, False]))
hook.save_scalar("loss", loss)
hook.close()
onp.save(sys.argv[1] + ".npy", net[0].weight.grad().asnumpy())
"""


@pytest.mark.parametrize("how", ["plain", "hybridised"])
def test_arrays_with_numpy_semantics_are_saved(read, out_dir, how):
    """In a process of its own: the switch is for the whole process."""
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", NUMPY_SEMANTICS, str(out_dir), how], check=True
    )
    trial = read()
    assert trial.steps() == [0, 1]
    assert trial.tensor("net_dense0_output_0").value(1).shape == (4, 3)
    gradient = np.load(f"{out_dir}.npy")
    np.testing.assert_array_equal(trial.tensor("gradient/net_dense0_weight").value(1), gradient)
    assert trial.tensor("empty").value(1).shape == (0, 3)
    assert trial.tensor("scalar").value(1) == 2.5
    assert trial.tensor("truth").value(1).tolist() == [True, False]
    assert trial.tensor("scalar/loss").steps() == [1]


# -- scalars ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32"])
def test_a_scalar_may_be_an_array_with_one_element(new_hook, read, dtype):
    hook = new_hook()
    hook.begin_step()
    hook.save_scalar("s", mx.nd.array([2], dtype=dtype))
    hook.close()
    assert read().tensor("scalar/s").value(0) == 2


@pytest.mark.parametrize("value", [mx.nd.ones(2), mx.nd.sparse.zeros("csr", (2, 2))])
def test_a_scalar_may_not_be_another_array(new_hook, value):
    hook = new_hook()
    hook.begin_step()
    with pytest.raises(TypeError, match="'s'"):
        hook.save_scalar("s", value)


# -- when_nan --------------------------------------------------------------------------------------

NEVER = 10**9


@pytest.fixture
def watched(record, new_net):
    """Five steps, of which one may have NaN in its labels."""

    def run(bad_step, hybridised, **options):
        net, loss = new_net(hybridised), gluon.loss.L2Loss(prefix="loss_")

        def work(hook):
            for step in range(5):
                with autograd.record():
                    label = mx.nd.full((5, 3), np.nan if step == bad_step else 1)
                    value = loss(net(mx.nd.random.normal(shape=(5, 4))), label)
                value.backward()

        config = smd.SaveConfig(start_step=NEVER, when_nan=["loss_output"])
        return record(net, work, loss, save_config=config, **options)

    return run


@pytest.mark.parametrize("hybridised", [False, True])
def test_nothing_is_saved_while_the_watched_loss_is_finite(watched, hybridised):
    assert watched(None, hybridised).steps() == []


@pytest.mark.parametrize("hybridised", [False, True])
def test_everything_included_is_saved_where_the_watched_loss_is_nan(watched, hybridised):
    trial = watched(3, hybridised)
    assert trial.tensor("loss_output_0").steps() == [3]
    assert trial.tensor("net_dense0_weight").steps() == [3]
    assert trial.tensor("net_dense0_output_0").steps() == [3]
    assert trial.tensor("gradient/net_dense0_weight").steps() == [3]


def test_what_is_watched_but_not_included_is_not_saved(watched):
    trial = watched(3, True, save_all=False, include_collections=["weights"])
    assert trial.tensor("net_dense0_weight").steps() == [3]
    assert trial.tensor_names(collection="gradients") == []
