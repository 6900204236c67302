"""The statistics of torch tensors: the same numbers as NumPy's, for every dtype."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tornasole.stats.torch import statistics  # noqa: E402
from tornasole.types import COUNTS, STATISTICS  # noqa: E402

ALL = frozenset(STATISTICS)
FUSED = frozenset({"min", "max", "mean", "std", "l1", "l2", "abs_mean", "abs_min", "abs_std"})
FLOATS = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.uint16]
SIZES = [1, 2, 255, 8_191, 8_193, 65_536, 65_537, 200_003]


def values(tensor):
    return tensor.detach().to(torch.float64).numpy()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("size", SIZES)
def test_floats_of_any_size_agree_with_float64(dtype, size, check):
    tensor = torch.randn(size, generator=torch.Generator().manual_seed(size)).to(dtype)
    check(statistics([tensor], FUSED)[0], values(tensor))


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, torch.bool], ids=str)
def test_every_statistic_of_every_dtype(dtype, check):
    tensor = (torch.rand(1000, generator=torch.Generator().manual_seed(1)) * 3).to(dtype)
    check(statistics([tensor], ALL)[0], values(tensor))


@pytest.mark.parametrize("size", [10, 100_000])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("place", [0, -1, 7])
def test_what_is_not_finite_is_counted_wherever_it_is(size, bad, place, check):
    tensor = torch.randn(size)
    tensor[place] = bad
    check(statistics([tensor], FUSED)[0], values(tensor))


@pytest.mark.parametrize("size", [100, 100_000])
@pytest.mark.parametrize("scale", [1e-42, 1e-30, 1e-12, 1e12, 1e30])
def test_squares_neither_overflow_nor_vanish(size, scale, check):
    tensor = torch.rand(size) * scale
    check(statistics([tensor], FUSED)[0], values(tensor))


@pytest.mark.parametrize("size", [100, 100_000])
def test_a_small_spread_around_a_large_mean_is_right(size, check):
    tensor = 1e4 + 1e-2 * torch.randn(size)
    check(statistics([tensor], FUSED)[0], values(tensor))


def test_sums_of_halves_do_not_overflow():
    found = statistics([torch.full((100_000,), 60_000, dtype=torch.float16)], frozenset({"sum"}))
    assert found[0]["sum"] == 60_000 * 100_000


def test_many_small_tensors_together_are_as_each_alone(check):
    tensors = [torch.randn(n) for n in (1, 3, 700, 8_000)] + [
        torch.zeros(5),
        torch.tensor([float("nan"), 1.0]),
        torch.arange(4),
        torch.tensor([True, False]),
    ]
    for found, tensor in zip(statistics(tensors, FUSED), tensors, strict=True):
        check(found, values(tensor))


def test_small_large_empty_and_complex_tensors_keep_their_places():
    tensors = [
        torch.ones(3),
        torch.ones(100_000),
        torch.zeros(0),
        torch.tensor([3 + 4j]),
        torch.ones(2),
    ]
    found = statistics(tensors, frozenset({"l1"}))
    assert [each["l1"] for each in found] == [3, 100_000, 0, 5, 2]


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(300, 400).T,
        torch.randn(4, 8, 50, 60).contiguous(memory_format=torch.channels_last),
        torch.randn(500, 500)[::2, 1::3],
        torch.randn(1, 300).expand(400, 300),
        torch.randn(()),
    ],
    ids=["transposed", "channels last", "strided", "expanded", "no dimensions"],
)
def test_the_layout_does_not_matter(tensor, check):
    check(statistics([tensor], FUSED)[0], values(tensor.contiguous()))


def test_a_conjugated_view_is_read_right():
    tensor = torch.tensor([3 + 4j, 1j]).conj()
    assert statistics([tensor], frozenset({"l1"}))[0]["l1"] == 6


def test_only_what_was_asked_for_comes_back_and_the_counts():
    assert set(statistics([torch.randn(9)], frozenset({"max"}))[0]) == {"max", *COUNTS}


def test_autograd_does_not_see_it():
    tensor = torch.randn(100_000, requires_grad=True)
    (tensor * 2).sum().backward()
    statistics([tensor, tensor.grad], FUSED)
    assert tensor.grad is not None
    assert tensor.grad_fn is None


def test_it_works_where_torch_behaves_differently():
    tensor = torch.rand(100_000)
    plain = statistics([tensor], FUSED)
    torch.use_deterministic_algorithms(True)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            assert statistics([tensor], FUSED) == plain
    finally:
        torch.set_default_dtype(torch.float32)
        torch.use_deterministic_algorithms(False)


def test_the_tensor_is_left_as_it_was():
    tensor = torch.randn(100_000)
    before = tensor.clone()
    statistics([tensor], ALL)
    assert torch.equal(tensor, before)


def test_numpy_and_torch_agree():
    from tornasole.stats.numpy import statistics as of_arrays

    tensor = torch.randn(123_457)
    ours, other = statistics([tensor], ALL)[0], of_arrays([tensor.numpy()], ALL)[0]
    assert ours.keys() == other.keys()
    for name in ours:
        np.testing.assert_allclose(ours[name], other[name], rtol=1e-6, atol=1e-6, err_msg=name)
