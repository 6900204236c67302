"""Many tensors at once: values by the dozen, tables, and the first tensor that is not finite."""

import sys

import numpy as np
import pytest

from tornasole.errors import MissingExtra, SMDebugValueError, TensorUnavailable
from tornasole.trial import NonFinite
from tornasole.types import ModeKeys

NAN, INF = float("nan"), float("inf")


@pytest.fixture
def trial(run, records):
    run.collections(weights={"roles": ["weight"]}, losses={"roles": ["loss"]})
    for step in range(3):
        weights = [records.raw(name, np.float32([step, step])) for name in ("a.w", "b.w")]
        reduced = records.reduced("g", mean=step)
        run.step(step, records.scalar("loss", step), reduced, *weights)
    return run.end().trial()


def test_values_of_all_tensors_that_have_some(trial):
    values = trial.values()
    assert list(values) == ["a.w", "b.w", "g", "loss"]
    assert values["loss"] == {0: 0, 1: 1, 2: 2}
    assert values["g"] == {}


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ({"names": ["b.w", "a.w"]}, ["b.w", "a.w"]),
        ({"names": "loss"}, ["loss"]),
        ({"regex": r"\.w"}, ["a.w", "b.w"]),
        ({"collection": "losses"}, ["loss"]),
    ],
)
def test_tensors_are_chosen_by_name_regex_or_collection(trial, choice, names):
    assert list(trial.values(**choice)) == names


def test_values_at_some_steps(trial):
    assert list(trial.values(["a.w"], steps=[0, 2, 77])["a.w"]) == [0, 2]


def test_values_in_the_steps_of_a_mode(run):
    run.step(7, mode=ModeKeys.EVAL, mode_step=0)
    assert run.trial().values(mode=ModeKeys.EVAL) == {"loss": {0: 7}}
    assert run.trial().values(mode=ModeKeys.TRAIN) == {}


def test_an_unknown_name_among_many_is_told(trial):
    with pytest.raises(TensorUnavailable, match="loss"):
        trial.values(["a.w", "losss"])


def test_names_and_a_regex_together_are_refused(trial):
    with pytest.raises(SMDebugValueError, match="not both"):
        trial.values(["loss"], regex="a")


def test_a_table_has_one_row_per_tensor_step_and_worker(trial):
    table = trial.to_arrow()
    assert table.num_rows == 12
    assert table.column_names[:3] == ["worker", "step", "mode"]


def test_a_table_of_some_columns_and_tensors(trial):
    table = trial.to_arrow(["name", "value"], names=["loss"])
    assert table.to_pydict() == {"name": ["loss"] * 3, "value": [0, 1, 2]}


def test_a_table_keeps_to_the_range(run):
    run.steps(*range(5)).end()
    assert run.trial(range_steps=(1, 3)).to_arrow(["step"]).to_pydict() == {"step": [1, 2]}


def test_an_unknown_column_says_which_there_are(trial):
    with pytest.raises(SMDebugValueError, match=r"'valeu'. Did you mean 'value'"):
        trial.to_arrow(["valeu"])


def test_a_table_of_nothing_is_empty(run):
    assert run.trial().to_arrow().num_rows == 0


def test_pandas_gets_the_same_rows(trial):
    pytest.importorskip("pandas")
    frame = trial.to_pandas(["name", "value"], names=["loss"])
    assert frame["value"].tolist() == [0, 1, 2]


def test_without_pandas_the_extra_is_named(trial, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match=r"tornasole\[pandas\]"):
        trial.to_pandas()


# -- the first tensor that is not finite


def test_a_finite_run_has_no_such_tensor(trial):
    assert trial.first_nonfinite() is None


def test_a_run_without_steps_has_no_such_tensor(run):
    assert run.trial().first_nonfinite() is None


def test_it_is_found_from_counts(run, records):
    run.step(4, records.scalar("ok", 1), records.reduced("g", nan_count=3, inf_count=1))
    assert run.trial().first_nonfinite() == NonFinite(
        name="g",
        step=4,
        mode=ModeKeys.GLOBAL,
        mode_step=4,
        worker="worker_0",
        nan_count=3,
        inf_count=1,
        order=1,
        role="gradient",
    )


@pytest.mark.parametrize(("value", "counts"), [(NAN, (1, 0)), (-INF, (0, 1))])
def test_it_is_found_from_a_single_value(run, records, value, counts):
    run.step(0, records.scalar("x", value))
    found = run.trial().first_nonfinite()
    assert (found.name, found.nan_count, found.inf_count) == ("x", *counts)


def test_it_is_found_in_raw_values(run, records):
    run.step(0, records.raw("w", [1.0, 2.0])).step(1, records.raw("w", [NAN, INF, INF]))
    found = run.trial().first_nonfinite()
    assert (found.step, found.nan_count, found.inf_count) == (1, 1, 2)


def test_raw_values_before_a_known_one_are_looked_at(run, records):
    run.step(0, records.raw("ok", [1.0]), records.raw("w", [NAN]), records.scalar("loss", NAN))
    assert run.trial().first_nonfinite().name == "w"


def test_raw_values_after_a_known_one_are_not_read(run, records, monkeypatch):
    run.step(0, records.scalar("loss", NAN), records.raw("w", [NAN]))
    trial = run.trial()
    monkeypatch.setattr(trial._reader, "raw", None)
    assert trial.first_nonfinite().name == "loss"


def test_the_earlier_step_wins_then_the_earlier_tensor_then_the_first_worker(start, records):
    run = start(workers=2)
    run.step(1, records.scalar("late", NAN), worker="a")
    run.step(0, records.scalar("ok", 1), records.scalar("x", NAN), worker="a")
    run.step(0, records.scalar("ok", 1), records.scalar("y", INF), worker="b")
    found = run.trial().first_nonfinite()
    assert (found.name, found.worker) == ("x", "a")


def test_integers_booleans_and_lost_values_are_passed_over(run, records):
    run.step(0, records.raw("ids", np.int64([1, 2])), records.raw("mask", np.array([True])))
    assert run.trial().first_nonfinite() is None


def test_it_keeps_to_the_range(run, records):
    run.step(0, records.scalar("x", NAN)).step(1, records.scalar("y", NAN))
    assert run.trial(range_steps=(1, None)).first_nonfinite().name == "y"


# -- inputs, labels and predictions


def test_inputs_labels_and_predictions_are_those_of_the_step_in_order(run, records):
    run.collections(inputs={"roles": ["input"]})
    for step in (0, 1):
        run.step(
            step,
            *(records.scalar(f"inputs_{i}", 100 * step + i, role="input") for i in (10, 2, 1)),
            records.scalar("labels", step + 0.5, role="label"),
            *(records.scalar(f"predictions_{i}", step + i, role="prediction") for i in (1, 0)),
        )
    trial = run.trial()
    assert [float(value) for value in trial.inputs(1)] == [101, 102, 110]
    assert [float(value) for value in trial.labels(1)] == [1.5]
    assert [float(value) for value in trial.predictions(1)] == [1, 2]
