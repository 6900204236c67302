"""Tensors of every dtype, layout and device are saved, or noted with nothing lost beside them."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
nn = torch.nn


@pytest.fixture
def save(new_hook, read):
    """Saves a tensor by hand, and another after it, and returns the trial."""

    def run(value, **options):
        hook = new_hook(**options)
        hook.begin_step()
        hook.save_tensor("x", value)
        hook.save_tensor("beside", torch.ones(2))
        hook.close()
        trial = read()
        assert trial.tensor("beside").value(0).tolist() == [1, 1]
        return trial

    return run


@pytest.mark.parametrize("dtype", [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.uint16, torch.uint32, torch.uint64,
    torch.float16, torch.float32, torch.float64, torch.complex64, torch.complex128,
])  # fmt: skip
def test_a_dtype_that_numpy_knows_comes_back_as_it_was(save, dtype):
    value = torch.tensor([[0, 1, 2], [3, 4, 5]]).to(dtype)
    found = save(value).tensor("x").value(0)
    assert found.dtype == value.numpy().dtype
    np.testing.assert_array_equal(found, value.numpy())


@pytest.mark.parametrize("dtype", [
    torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz, torch.float8_e8m0fnu,
])  # fmt: skip
def test_a_dtype_that_numpy_lacks_comes_back_as_float32_of_the_same_value(save, dtype):
    bits = torch.arange(256, dtype=torch.uint8)
    if dtype is torch.bfloat16:
        bits = torch.stack([bits, bits.flip(0)], 1).flatten()
    value = bits.view(dtype)
    trial = save(value)
    found = trial.tensor("x").value(0)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, value.float().numpy())
    assert trial.tensor("x").dtype(0) == str(dtype).removeprefix("torch.")


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_half_complex_is_saved_as_complex64(save):
    value = torch.tensor([1 + 2j, 3 - 1j]).to(torch.complex32)
    assert save(value).tensor("x").value(0).tolist() == [1 + 2j, 3 - 1j]


def test_conjugated_and_negated_views_are_saved_as_they_look(save):
    value = torch.tensor([1 + 2j, 3 - 1j]).conj()
    assert save(value).tensor("x").value(0).tolist() == [1 - 2j, 3 + 1j]


def test_the_imaginary_part_of_a_conjugate_is_saved_as_it_looks(save):
    value = torch.tensor([1 + 2j, 3 - 1j]).conj().imag
    assert save(value).tensor("x").value(0).tolist() == [-2, 1]


@pytest.mark.parametrize(
    "value",
    [
        torch.arange(24.0).view(2, 3, 2, 2).to(memory_format=torch.channels_last),
        torch.arange(6.0).view(2, 3).T,
        torch.arange(10.0)[::3],
        torch.ones(1).expand(2, 3),
        torch.empty(0),
        torch.empty(3, 0, 2),
        torch.tensor(3.5),
        torch.tensor([[3.5]]),
    ],
    ids=["channels_last", "transposed", "strided", "expanded", "empty", "empty3", "0d", "single"],
)
def test_a_layout_is_saved_in_the_order_it_shows(save, value):
    found = save(value).tensor("x").value(0)
    assert found.shape == tuple(value.shape)
    np.testing.assert_array_equal(found, value.numpy())


def test_a_tensor_that_needs_gradients_is_saved(save):
    assert save(nn.Parameter(torch.ones(2))).tensor("x").value(0).tolist() == [1, 1]


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_a_sparse_tensor_is_saved_dense(save, layout):
    dense = torch.tensor([[0.0, 2.0], [3.0, 0.0]])
    value = dense.to_sparse() if layout == "coo" else dense.to_sparse_csr()
    assert save(value).tensor("x").value(0).tolist() == dense.tolist()


@pytest.mark.filterwarnings("ignore:.*quantize.*")
def test_a_quantised_tensor_is_saved_as_the_numbers_it_means(save):
    value = torch.quantize_per_tensor(torch.tensor([0.5, 1.0]), 0.5, 0, torch.qint8)
    assert save(value).tensor("x").value(0).tolist() == [0.5, 1.0]


def nested():
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])


def wrapper():
    two_tensor = pytest.importorskip("torch.testing._internal.two_tensor")
    return two_tensor.TwoTensor(torch.ones(2), torch.ones(2))


def fake():
    with torch._subclasses.FakeTensorMode():
        return torch.ones(2)


@pytest.mark.filterwarnings("ignore:.*nested tensors", "ignore:Sparse invariant")
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: torch.empty(3, device="meta"), "meta"),
        (nested, "nested"),
        (lambda: huge_sparse(), "sparse"),
        (lambda: nn.LazyLinear(3).weight, "initialised"),
        (wrapper, "TwoTensor"),
        (fake, "FakeTensor"),
    ],
    ids=["meta", "nested", "sparse", "lazy", "wrapper", "fake"],
)
def test_a_tensor_without_readable_values_is_noted(save, warnings_of, make, reason):
    trial = save(make())
    assert "x" not in trial.tensor_names()
    assert any("'x'" in message and reason in message for message in warnings_of())


def huge_sparse():
    return torch.sparse_coo_tensor(torch.tensor([[0], [0]]), torch.ones(1), (100_000, 100_000))


def test_a_subclass_that_is_an_ordinary_tensor_is_saved(save):
    class Image(torch.Tensor):
        pass

    assert save(torch.ones(2).as_subclass(Image)).tensor("x").value(0).tolist() == [1, 1]


def test_tensors_inside_a_functional_transform_are_noted_and_the_model_works(record, warnings_of):
    model = nn.Linear(3, 2)
    x = torch.randn(4, 3)

    def work(hook):
        found = torch.func.vmap(model)(x)
        torch.testing.assert_close(found, nn.functional.linear(x, model.weight, model.bias))

    trial = record(model, work)
    assert "Linear_weight" in trial.tensor_names()
    assert warnings_of()


def test_a_submodule_on_the_meta_device_is_noted_and_the_rest_is_saved(record, warnings_of):
    model = nn.Linear(2, 2)
    model.ghost = nn.Linear(3, 3, device="meta")
    trial = record(model, lambda hook: model(torch.ones(1, 2)))
    assert trial.tensor("Linear_weight").value(0).shape == (2, 2)
    assert any("Linear_ghost.weight" in message for message in warnings_of())


def test_a_lazy_layer_is_saved_once_it_has_values(record):
    model = nn.Sequential(nn.LazyLinear(3))
    trial = record(model, lambda hook: [model(torch.ones(1, 2)) for _ in range(2)])
    assert trial.tensor("Sequential_0.weight").steps() == [1]
    assert trial.tensor("0_output_0").steps() == [0, 1]


def test_a_buffer_in_eight_bits_is_saved(record):
    model = nn.Linear(2, 2)
    model.register_buffer("scale", torch.tensor([0.5, 2.0]).to(torch.float8_e4m3fn))
    trial = record(model, lambda hook: model(torch.ones(1, 2)))
    assert trial.tensor("Linear_scale").value(0).tolist() == [0.5, 2]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_model_in_half_precision_is_saved_with_its_gradients(record, dtype):
    model = nn.Linear(4, 3).to(dtype)
    weight = model.weight.detach().clone()
    trial = record(model, lambda hook: model(torch.randn(2, 4, dtype=dtype)).sum().backward())
    for name, value in [
        ("Linear_weight", weight),
        ("gradient/Linear_weight", model.weight.grad),
    ]:
        assert trial.tensor(name).dtype(0) == str(dtype).removeprefix("torch.")
        np.testing.assert_array_equal(trial.tensor(name).value(0), value.float().numpy())


def test_reductions_of_half_precision_are_taken(record):
    import tornasole.pytorch as smd

    model = nn.Linear(4, 3).to(torch.bfloat16)
    expected = model.weight.detach().double().mean().item()
    config = smd.ReductionConfig(reductions=["mean"])
    trial = record(
        model, lambda hook: model(torch.ones(2, 4, dtype=torch.bfloat16)), reduction_config=config
    )
    found = trial.tensor("Linear_weight").reduction_value(0, "mean")
    assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_gives_outputs_in_half_and_weights_in_full_precision(record, net, dtype):
    def work(hook):
        with torch.autocast("cpu", dtype=dtype):
            loss = net(torch.randn(5, 4)).float().sum()
        loss.backward()

    trial = record(net, work)
    assert trial.tensor("fc1_output_0").dtype(0) == str(dtype).removeprefix("torch.")
    assert trial.tensor("Net_fc1.weight").dtype(0) == "float32"
    assert trial.tensor("gradient/Net_fc1.weight").dtype(0) == "float32"


@pytest.mark.parametrize("value", [torch.tensor(2.5), torch.tensor([2.5], requires_grad=True)])
def test_a_scalar_may_be_a_tensor_with_one_element(new_hook, read, value):
    hook = new_hook()
    hook.begin_step()
    hook.save_scalar("s", value)
    hook.close()
    assert read().tensor("scalar/s").value(0) == 2.5


@pytest.mark.parametrize("value", [torch.ones(2), torch.empty(0), torch.empty((), device="meta")])
def test_a_scalar_may_not_be_another_tensor(new_hook, value):
    hook = new_hook()
    hook.begin_step()
    with pytest.raises(TypeError, match="'s'"):
        hook.save_scalar("s", value)
