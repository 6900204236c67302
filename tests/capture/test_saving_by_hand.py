"""save_scalar and save_tensor: at the step during which they are called, due or not."""

import json
import logging
import threading

import numpy as np
import pytest

from tornasole import ReductionConfig, SaveConfig, modes
from tornasole.errors import SMDebugTypeError, TensorUnavailableForStep


def test_a_scalar_lands_on_the_step_during_which_it_was_saved(new_hook, read):
    hook = new_hook(save_config=SaveConfig(save_interval=1000))
    for step in range(5):
        hook.begin_step()
        if step in (1, 3):
            hook.save_scalar("lr", step / 10)
    hook.close()
    lr = read().tensor("scalar/lr")
    assert lr.steps() == [1, 3]
    assert [lr.value(step) for step in (1, 3)] == [0.1, 0.3]


def test_scalars_before_the_first_step_belong_to_it(new_hook, read):
    hook = new_hook()
    hook.save_scalar("seed", 42)
    hook.begin_step()
    hook.save_scalar("lr", 1)
    hook.begin_step()
    hook.save_scalar("lr", 2)
    hook.close()
    trial = read()
    assert trial.tensor("scalar/seed").steps() == [0]
    assert trial.tensor("scalar/lr").steps() == [0, 1]


def test_tensors_before_the_first_step_belong_to_it(new_hook, read):
    hook = new_hook()
    hook.save_tensor("x", np.arange(3))
    hook.begin_step()
    hook.begin_step()
    hook.close()
    assert read().tensor("x").value(0).tolist() == [0, 1, 2]


def test_a_scalar_without_any_step_makes_one(new_hook, read, out_dir):
    hook = new_hook()
    hook.set_mode(modes.TRAIN)
    hook.save_scalar("seed", 42)
    hook.close()
    trial = read()
    assert trial.tensor("scalar/seed").value(0) == 42
    assert trial.mode_modestep(0) == (modes.TRAIN, 0)
    assert json.loads((out_dir / "worker_0/end.json").read_text())["last_step"] == 0


@pytest.mark.parametrize(
    "value", [3, 3.0, True, np.float32(3), np.array(3), np.array([3.0]), np.array([[3]]), [3]]
)
def test_a_scalar_may_be_anything_with_one_number(new_hook, read, value):
    hook = new_hook()
    hook.begin_step()
    hook.save_scalar("s", value)
    hook.close()
    assert read().tensor("scalar/s").value(0) == np.asarray(value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_scalar_may_be_nan_or_infinite(new_hook, read, value):
    hook = new_hook()
    hook.begin_step()
    hook.save_scalar("s", value)
    hook.close()
    np.testing.assert_equal(read().tensor("scalar/s").value(0), value)


@pytest.mark.parametrize("value", [2**53 + 1, -(2**62), np.uint64(2**64 - 1)])
def test_large_integers_keep_every_digit(new_hook, read, value):
    hook = new_hook()
    hook.begin_step()
    hook.save_scalar("s", value)
    hook.close()
    assert int(read().tensor("scalar/s").value(0)) == int(value)


@pytest.mark.parametrize("value", ["3", None, [1, 2], np.ones((2, 2)), [], object(), {"a": 1}])
def test_a_scalar_is_not_something_else(new_hook, value):
    hook = new_hook()
    hook.begin_step()
    with pytest.raises(SMDebugTypeError, match="'s'"):
        hook.save_scalar("s", value)
    with pytest.raises(TypeError):
        hook.save_scalar("s", value)


@pytest.mark.parametrize("name", [3, None, b"x"])
def test_names_are_strings(new_hook, name):
    hook = new_hook()
    with pytest.raises(SMDebugTypeError, match="string"):
        hook.save_scalar(name, 1)
    with pytest.raises(SMDebugTypeError, match="string"):
        hook.save_tensor(name, [1, 2])


def test_a_scalar_saved_twice_in_a_step_has_its_last_value(new_hook, read):
    hook = new_hook()
    hook.begin_step()
    hook.save_scalar("s", 1)
    hook.save_scalar("s", 2)
    hook.close()
    assert read().tensor("scalar/s").value(0) == 2


def test_sm_metric_puts_a_scalar_into_sm_metrics_too(new_hook, read):
    hook = new_hook()
    hook.begin_step()
    hook.save_scalar("acc", 0.5, sm_metric=True)
    hook.save_scalar("lr", 0.1)
    hook.close()
    assert read().tensor_names(collection="sm_metrics") == ["scalar/acc"]


def test_a_scalar_carries_the_time_it_was_given(new_hook, read):
    hook = new_hook()
    hook.begin_step()
    hook.save_scalar("s", 1, timestamp=1234.5)
    hook.close()
    assert read().to_arrow().column("time")[0].as_py().timestamp() == 1234.5


def test_a_scalar_may_be_saved_from_another_thread(new_hook, read):
    hook = new_hook()
    hook.begin_step()
    threads = [threading.Thread(target=hook.save_scalar, args=(f"s{i}", i)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    hook.close()
    assert len(read().tensor_names()) == 8


def test_a_tensor_is_saved_as_it_was_when_it_was_saved(new_hook, read):
    hook = new_hook()
    hook.begin_step()
    array = np.arange(6.0).reshape(2, 3)
    hook.save_tensor("x", array)
    array[:] = -1
    hook.close()
    np.testing.assert_array_equal(read().tensor("x").value(0), np.arange(6.0).reshape(2, 3))


def test_a_tensor_goes_into_default_unless_told_otherwise(new_hook, read):
    hook = new_hook()
    hook.begin_step()
    hook.save_tensor("x", [1, 2])
    hook.close()
    assert read().tensor_names(collection="default") == ["x"]


def test_a_tensor_goes_into_several_collections_and_new_ones(new_hook, read):
    hook = new_hook()
    hook.begin_step()
    hook.save_tensor("x", [1, 2], collections_to_write=["metrics", "mine", "bias"])
    hook.close()
    trial = read()
    for name in ("metrics", "mine", "biases"):
        assert trial.tensor_names(collection=name) == ["x"]


def test_a_tensor_saved_again_in_a_step_replaces_the_first(new_hook, read):
    hook = new_hook()
    hook.begin_step()
    hook.save_tensor("x", [1, 2], "a")
    hook.save_tensor("x", [3.0, 4.0, 5.0], "b")
    hook.close()
    trial = read()
    assert trial.tensor("x").value(0).tolist() == [3, 4, 5]
    assert trial.tensor_names(collection="b") == ["x"]


def test_a_tensor_is_saved_in_the_form_of_its_collection(new_hook, read):
    hook = new_hook()
    hook.get_collection("small").reduction_config = ReductionConfig(
        reductions=["max"], norms=["l1"]
    )
    hook.begin_step()
    hook.save_tensor("x", [1.0, -2.0], "small")
    hook.close()
    x = read().tensor("x")
    assert x.reduction_value(0, "max") == 1
    assert x.reduction_value(0, "l1") == 3
    with pytest.raises(TensorUnavailableForStep):
        x.value(0)


@pytest.mark.parametrize(
    "value",
    [object(), None, [[1, 2], [3]], {"a": 1}, np.array([object()]), np.array(["2020"], "M8[D]")],
    ids=["object", "None", "ragged", "dict", "objects", "dates"],
)
def test_what_cannot_be_saved_is_noted_and_nothing_beside_it_is_lost(new_hook, read, caplog, value):
    hook = new_hook()
    hook.begin_step()
    hook.save_tensor("before", [1, 2])
    with caplog.at_level(logging.WARNING, "tornasole"):
        hook.save_tensor("bad", value)
        hook.save_tensor("bad", value)
    hook.save_tensor("after", [3, 4])
    hook.close()
    assert [record.message for record in caplog.records if "'bad'" in record.message][1:] == []
    assert "'bad'" in caplog.text
    assert sorted(read().tensor_names()) == ["after", "before"]


@pytest.mark.parametrize(
    "name",
    ["a/b/c", "a:0", "two words", "../../etc/passwd", "ünï→😀", "x" * 5000, "a\nb", "", "'\"\\"],
    ids=["slash", "colon", "space", "dots", "unicode", "huge", "newline", "empty", "quotes"],
)
def test_a_tensor_may_have_any_name(new_hook, read, out_dir, tmp_path, name):
    hook = new_hook()
    hook.begin_step()
    hook.save_tensor(name, [1.0, 2.0])
    hook.close()
    assert read().tensor_names() == [name]
    assert read().tensor(name).value(0).tolist() == [1, 2]
    assert list(tmp_path.iterdir()) == [out_dir]


@pytest.mark.parametrize("dtype", [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64", "complex128", ">f4", ">i8",
])  # fmt: skip
def test_an_array_comes_back_with_its_dtype_and_bits(new_hook, read, dtype):
    array = np.array([[0, 1, 2], [3, 4, 5]]).astype(dtype)
    hook = new_hook()
    hook.begin_step()
    hook.save_tensor("x", array)
    hook.close()
    found = read().tensor("x").value(0)
    assert found.dtype == array.dtype.newbyteorder("=")
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("array", [np.zeros((0,)), np.zeros((3, 0, 2)), np.zeros(0, np.int64)])
def test_an_empty_array_is_saved(new_hook, read, array):
    hook = new_hook()
    hook.begin_step()
    hook.save_tensor("x", array)
    hook.close()
    found = read().tensor("x").value(0)
    assert (found.shape, found.dtype) == (array.shape, array.dtype)


@pytest.mark.parametrize(
    "array",
    [np.arange(12.0).reshape(3, 4).T, np.arange(12.0)[::-2], np.broadcast_to([1.0, 2.0], (3, 2))],
    ids=["transposed", "backwards", "broadcast"],
)
def test_an_array_that_is_not_contiguous_is_saved(new_hook, read, array):
    hook = new_hook()
    hook.begin_step()
    hook.save_tensor("x", array)
    hook.close()
    np.testing.assert_array_equal(read().tensor("x").value(0), array)


def test_longdouble_is_saved_as_float64(new_hook, read):
    hook = new_hook()
    hook.begin_step()
    hook.save_tensor("x", np.array([1.5, 2.5], np.longdouble))
    hook.close()
    assert read().tensor("x").value(0).dtype == np.float64


@pytest.mark.parametrize("value", [["a", "bc"], np.array([["ü"], ["x\n"]]), [b"bytes", b"\xff"]])
def test_strings_are_saved(new_hook, read, value):
    hook = new_hook()
    hook.begin_step()
    hook.save_tensor("words", value)
    hook.close()
    found = read().tensor("words").value(0)
    assert found.shape == np.shape(value)
    assert found.ravel()[0] in ("a", "ü", "bytes")


def test_reductions_of_integers_and_bools_are_taken(new_hook, read):
    hook = new_hook()
    hook.get_collection("small").reduction_config = ReductionConfig(reductions=["mean", "std"])
    hook.begin_step()
    hook.save_tensor("ints", np.array([1, 2, 3, 4]), "small")
    hook.save_tensor("bools", np.array([True, False]), "small")
    hook.close()
    trial = read()
    assert trial.tensor("ints").reduction_value(0, "mean") == 2.5
    assert trial.tensor("bools").reduction_value(0, "mean") == 0.5


def test_what_is_saved_after_close_is_noted(new_hook, caplog):
    hook = new_hook()
    hook.begin_step()
    hook.close()
    hook.save_scalar("late", 1)
    hook.save_tensor("later", [1, 2])
    hook.begin_step()
    assert "scalar/late" in caplog.text
    assert "later" in caplog.text
    assert hook.step == 0


@pytest.mark.parametrize("timestamp", [float("nan"), float("inf"), -1, 1e30])
def test_a_timestamp_that_is_no_time_is_refused(new_hook, timestamp):
    hook = new_hook()
    hook.begin_step()
    with pytest.raises(ValueError, match="timestamp"):
        hook.save_scalar("x", 1, timestamp=timestamp)


def test_a_name_that_no_file_can_hold_is_spelled_out(new_hook, read):
    hook = new_hook()
    hook.begin_step()
    hook.save_scalar("a\udc80b", 1)
    hook.close()
    assert read().tensor_names() == [r"scalar/a\udc80b"]
