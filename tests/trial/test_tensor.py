"""One tensor: values, statistics and shapes, and the right error where there are none."""

import numpy as np
import pytest

from tornasole.errors import (
    InvalidWorker,
    ShapeUnavailableForStep,
    SMDebugNotImplementedError,
    SMDebugValueError,
    StepNotYetAvailable,
    StepUnavailable,
    TensorUnavailableForStep,
)
from tornasole.format import Record
from tornasole.types import ModeKeys, Role

TRAIN, EVAL = ModeKeys.TRAIN, ModeKeys.EVAL
MATRIX = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_a_raw_value_comes_back_as_it_was(run, records):
    value = run.step(3, records.raw("w", MATRIX)).trial().tensor("w").value(3)
    np.testing.assert_array_equal(value, MATRIX)
    assert value.dtype == np.float32


@pytest.mark.parametrize(
    ("dtype", "number", "expected"),
    [
        ("float32", 1.5, np.float32(1.5)),
        ("float64", 0.1, np.float64(0.1)),
        ("bfloat16", 1.5, np.float32(1.5)),
        ("float8_e4m3fn", 1.5, np.float32(1.5)),
        ("int64", -7, np.int64(-7)),
        ("bool", 1, np.True_),
        ("float32", np.nan, np.float32(np.nan)),
    ],
)
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_a_single_value_comes_with_its_dtype_and_shape(
    run, records, dtype, number, expected, shape
):
    tensor = run.step(0, records.scalar("s", number, dtype, shape)).trial().tensor("s")
    for value in (tensor.value(0), tensor.values()[0]):
        assert isinstance(value, np.ndarray)
        assert (value.dtype, value.shape) == (expected.dtype, shape)
        np.testing.assert_array_equal(value.reshape(()), expected)


def test_values_hold_every_step(run, records):
    for step in range(3):
        run.step(step, records.raw("w", MATRIX + step))
    values = run.trial().tensor("w").values()
    assert [values[step][0, 0] for step in (0, 1, 2)] == [0, 1, 2]


def test_values_may_change_their_kind_over_time(run, records):
    run.step(0, records.scalar("x", 1)).step(1, records.scalar("x", 2, "int64", (1,)))
    run.step(2, records.raw("x", MATRIX)).step(3, records.scalar("x", 4))
    values = run.trial().tensor("x").values()
    kinds = ["float32", "int64", "float32", "float32"]
    assert [values[step].dtype.name for step in range(4)] == kinds
    assert [values[step].shape for step in range(4)] == [(), (1,), (2, 3), ()]
    assert float(values[3]) == 4


def test_values_of_a_mode_come_by_its_steps(run, records):
    run.step(0, records.scalar("x", 1), mode=TRAIN, mode_step=0)
    run.step(1, records.scalar("x", 2), mode=EVAL, mode_step=0)
    run.step(2, records.scalar("x", 3), mode=TRAIN, mode_step=1)
    tensor = run.trial().tensor("x")
    assert tensor.values(TRAIN) == {0: 1, 1: 3}
    assert tensor.value(0, EVAL) == 2
    assert tensor.steps(TRAIN) == [0, 1]
    assert tensor.steps() == [0, 1, 2]


def test_values_leave_out_incomplete_steps(start):
    run = start(workers=2).steps(0, 1, worker="a").steps(0, worker="b")
    assert list(run.trial().tensor("loss").values()) == [0]


@pytest.fixture
def two_workers(start, records):
    run = start(workers=2)
    for worker, value in (("b", 20), ("a", 10)):
        run.step(0, records.scalar("x", value), worker=worker)
        run.step(1, records.scalar("loss", value), worker=worker)
    run.step(2, records.scalar("x", 22), worker="b")
    return run.end("a").end("b").trial().tensor("x")


def test_without_a_worker_the_first_that_wrote_it_answers(two_workers):
    assert two_workers.value(0) == 10
    assert two_workers.value(2) == 22
    assert two_workers.values() == {0: 10, 2: 22}


def test_a_worker_can_be_chosen(two_workers):
    assert two_workers.value(0, worker="b") == 20
    assert two_workers.values(worker="a") == {0: 10}


def test_the_workers_of_a_step(two_workers):
    assert two_workers.workers(0) == ["a", "b"]
    assert two_workers.workers(2) == ["b"]


def test_a_step_that_nobody_wrote_has_no_workers(two_workers):
    with pytest.raises(TensorUnavailableForStep):
        two_workers.workers(1)


def test_a_worker_that_did_not_write_the_step_is_named(two_workers):
    with pytest.raises(InvalidWorker, match=r"'a'.*these did: b") as caught:
        two_workers.value(2, worker="a")
    assert caught.value.worker == "a"


def test_an_unknown_worker_comes_with_those_there_are(two_workers):
    with pytest.raises(InvalidWorker, match="There are: a, b"):
        two_workers.value(0, worker="nobody")
    with pytest.raises(InvalidWorker):
        two_workers.values(worker="nobody")


def test_a_step_that_was_passed_is_unavailable(run):
    with pytest.raises(StepUnavailable):
        run.steps(0, 2).trial().tensor("loss").value(1)


def test_a_step_that_has_not_come_is_not_yet_available(run):
    trial = run.steps(0).trial()
    with pytest.raises(StepNotYetAvailable):
        trial.tensor("loss").value(5)
    run.end()
    with pytest.raises(StepUnavailable):
        trial.tensor("loss").value(5)


def test_a_step_without_the_tensor_is_unavailable_for_it(run, records):
    tensor = run.step(0, records.raw("w", MATRIX)).steps(1).trial().tensor("w")
    with pytest.raises(TensorUnavailableForStep) as caught:
        tensor.value(1)
    assert (caught.value.tname, caught.value.step) == ("w", 1)
    assert not caught.value.has_reductions


def test_a_tensor_saved_as_reductions_says_so(run, records):
    tensor = run.step(0, records.reduced("g", mean=1)).trial().tensor("g")
    for ask in (lambda: tensor.value(0), tensor.values):
        with pytest.raises(TensorUnavailableForStep, match="reduction_values") as caught:
            ask()
        assert caught.value.has_reductions


def test_a_lost_value_says_why(run):
    lost = Record("w", "weight", (), "float32", (2,), 1e9, lost="The disk was full.")
    with pytest.raises(TensorUnavailableForStep, match=r"The disk was full\."):
        run.step(0, lost).trial().tensor("w").value(0)


# -- statistics


def test_a_saved_reduction_is_read(run, records):
    tensor = run.step(0, records.reduced("g", mean=1.5, abs_max=9.0)).trial().tensor("g")
    assert tensor.reduction_value(0, "mean") == 1.5
    assert tensor.reduction_value(0, "max", abs=True) == 9.0
    assert tensor.reduction_value(0, "abs_max") == 9.0


def test_a_saved_reduction_that_is_nan_is_nan_and_not_missing(run, records):
    tensor = run.step(0, records.reduced("g", mean=np.nan)).trial().tensor("g")
    assert np.isnan(tensor.reduction_value(0, "mean"))


def test_a_saved_reduction_wins_over_the_value(run, records):
    tensor = run.step(0, records.raw("w", MATRIX, statistics={"mean": 99.0})).trial().tensor("w")
    assert tensor.reduction_value(0, "mean") == 99.0


@pytest.mark.parametrize(
    ("name", "absolute", "expected"),
    [
        ("min", False, -2),
        ("max", False, 1),
        ("mean", False, -0.5),
        ("median", False, -0.5),
        ("std", False, 1.5),
        ("variance", False, 2.25),
        ("sum", False, -1),
        ("prod", False, -2),
        ("mean", True, 1.5),
        ("abs_mean", False, 1.5),
        ("l1", False, 3),
        ("l1_norm", False, 3),
        ("l2", False, 5**0.5),
        ("abs_l2_norm", False, 5**0.5),
    ],
)
def test_a_reduction_that_was_not_saved_is_computed_from_the_value(
    run, records, name, absolute, expected
):
    tensor = run.step(0, records.raw("w", np.float32([-2, 1]))).trial().tensor("w")
    assert tensor.reduction_value(0, name, abs=absolute) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("mean", -3), ("std", 0), ("abs_prod", 3), ("l2", 3), ("abs_std", 0), ("median", -3)],
)
def test_a_reduction_of_a_single_value(run, records, name, expected):
    assert run.step(0, records.scalar("x", -3)).trial().tensor("x").reduction_value(0, name) == (
        expected
    )


@pytest.mark.parametrize("name", ["average", "", "l3", None])
def test_an_unknown_reduction_says_which_there_are(run, name):
    with pytest.raises(SMDebugValueError, match="min, max, mean"):
        run.steps(0).trial().tensor("loss").reduction_value(0, name)


def test_a_reduction_of_which_nothing_was_saved_is_unavailable(run, records):
    tensor = run.step(0, records.reduced("g", mean=1)).trial().tensor("g")
    with pytest.raises(TensorUnavailableForStep) as caught:
        tensor.reduction_value(0, "max")
    assert caught.value.has_reductions


def test_reduction_values_are_the_saved_ones_by_name_and_abs(run, records):
    run.step(0, records.reduced("g", mean=1.5, abs_mean=2.5))
    expected = {("mean", False): 1.5, ("mean", True): 2.5}
    assert run.trial().tensor("g").reduction_values(0) == expected


def test_statistics_are_all_that_was_saved(run, records):
    found = run.step(0, records.reduced("g", mean=1.5)).trial().tensor("g").statistics(0)
    assert found == {"mean": 1.5, "count": 4, "nan_count": 0, "inf_count": 0, "zero_count": 0}
    assert type(found["count"]) is int


def test_a_series_is_two_columns(run, records):
    for step in (0, 10, 20):
        run.step(step, records.scalar("x", step / 10))
    steps, values = run.trial().tensor("x").series()
    assert (steps.tolist(), values.tolist()) == ([0, 10, 20], [0, 1, 2])


def test_a_series_mixes_what_was_saved_and_what_can_be_computed(run, records):
    run.step(0, records.reduced("x", mean=1.0)).step(1, records.raw("x", np.float32([2, 4])))
    run.step(2, records.scalar("x", 5)).step(3, records.reduced("x", max=1.0))
    steps, values = run.trial().tensor("x").series("mean")
    assert (steps.tolist(), values.tolist()) == ([0, 1, 2], [1, 3, 5])


def test_a_series_of_counts(run, records):
    run.step(0, records.raw("x", np.float32([np.nan, 0, 0]))).step(1, records.scalar("x", np.nan))
    tensor = run.trial().tensor("x")
    assert tensor.series("nan_count")[1].tolist() == [1, 1]
    assert tensor.series("zero_count")[1].tolist() == [2, 0]
    assert tensor.series("count")[1].tolist() == [3, 1]


def test_a_series_of_an_unknown_statistic_is_refused(run):
    with pytest.raises(SMDebugValueError, match="no reduction 'mode'"):
        run.steps(0).trial().tensor("loss").series("mode")


# -- the rest


def test_the_shape_is_known_however_the_tensor_was_saved(run, records):
    run.step(0, records.raw("w", MATRIX), records.reduced("g", (5, 4)), records.scalar("s", 1))
    trial = run.trial()
    assert [trial.tensor(name).shape(0) for name in "wgs"] == [(2, 3), (5, 4), ()]


def test_shapes_hold_every_step(run, records):
    run.step(0, records.raw("w", MATRIX)).step(4, records.raw("w", MATRIX.T))
    assert run.trial().tensor("w").shapes() == {0: (2, 3), 4: (3, 2)}


def test_a_step_without_the_tensor_has_no_shape(run, records):
    with pytest.raises(ShapeUnavailableForStep):
        run.step(0, records.raw("w", MATRIX)).steps(1).trial().tensor("w").shape(1)


def test_the_dtype_is_the_one_it_had_in_training(run, records):
    run.step(0, records.raw("w", np.uint16([1, 2]), dtype="bfloat16"))
    assert run.trial().tensor("w").dtype(0) == "bfloat16"


def test_the_role_is_what_the_adapter_reported(run, records):
    assert run.step(0, records.raw("w", MATRIX)).trial().tensor("w").role is Role.WEIGHT


def test_a_role_of_a_later_version_is_custom(run, records):
    run.step(0, records.raw("w", MATRIX, role="hologram"))
    assert run.trial().tensor("w").role is Role.CUSTOM


@pytest.mark.parametrize(
    ("step", "n", "expected"),
    [(25, None, [0, 10, 20]), (20, 2, [10, 20]), (5, 3, [0]), (20, 0, [0, 10, 20]), (99, 1, [30])],
)
def test_prev_steps_are_the_last_ones_up_to_a_step(run, step, n, expected):
    assert run.steps(0, 10, 20, 30).trial().tensor("loss").prev_steps(step, n) == expected


def test_a_negative_number_of_steps_is_refused(run):
    with pytest.raises(SMDebugValueError, match="n must be"):
        run.steps(0).trial().tensor("loss").prev_steps(0, -1)


def test_step_was_removed(run):
    with pytest.raises(SMDebugNotImplementedError, match="value"):
        run.steps(0).trial().tensor("loss").step(0)


def test_a_tensor_knows_its_trial_and_names(run):
    trial = run.steps(0).trial(name="job")
    tensor = trial.tensor("loss")
    assert (tensor.trial, tensor.original_name) == (trial, "loss")
    assert repr(tensor) == "Tensor('loss', trial='job')"


def test_a_cached_value_is_read_once(run, records, monkeypatch):
    trial = run.step(0, records.raw("w", MATRIX)).end().trial(cache=True)
    first = trial.tensor("w").value(0)
    monkeypatch.setattr(trial._reader, "raw", None)
    assert trial.tensor("w").value(0) is first
    assert not first.flags.writeable


def test_strings_come_back_as_strings(run):
    text = memoryview(b'["a", "b"]')
    tree = Record("tree", "tree", (), "string", (2,), 1e9, raw=text)
    tensor = run.step(0, tree).trial().tensor("tree")
    assert tensor.value(0).tolist() == ["a", "b"]
    with pytest.raises(TensorUnavailableForStep):
        tensor.reduction_value(0, "mean")
