"""You pay only on the rounds you save, and only for what you save."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from tornasole.errors import SMDebugValueError

xgb = pytest.importorskip("xgboost")

import tornasole.xgboost as smd  # noqa: E402
from tornasole.xgboost import contributions  # noqa: E402

EVERY_THIRD = smd.SaveConfig(save_interval=3)
SHAP = True
PREDICTIONS = False


@pytest.fixture
def costs(new_hook, matrix, train, count_predictions):
    """Trains, and tells each prediction made: whether SHAP values, and by how many rounds."""

    def run(rounds=6, params=(), classes=None, **options):
        data = matrix(classes=classes)
        options = {"save_all": True, "train_data": data, "validation_data": data, **options}
        train(data, new_hook(**options), rounds=rounds, params=params)
        return count_predictions

    return run


def test_metrics_alone_cost_no_prediction(costs):
    assert costs(save_all=False) == []


def test_nothing_is_predicted_in_rounds_that_are_not_due(costs):
    wanted = {"include_collections": ["predictions"], "save_all": False}
    calls = costs(rounds=7, save_config=EVERY_THIRD, **wanted)
    assert calls == [(PREDICTIONS, 1), (PREDICTIONS, 4), (PREDICTIONS, 7)]


@pytest.fixture
def stopped_clock(monkeypatch):
    """On which nothing takes longer than anything else."""
    monkeypatch.setattr(contributions, "time", SimpleNamespace(perf_counter=lambda: 0.0))


def test_shap_values_come_from_the_new_rounds_only(costs, stopped_clock):
    wanted = {"include_collections": ["average_shap"], "save_all": False}
    calls = costs(rounds=7, save_config=EVERY_THIRD, **wanted)
    assert calls == [(SHAP, 1)] * 7


def test_where_passing_over_the_rows_takes_longest_the_whole_model_is_explained(costs, monkeypatch):
    clock = SimpleNamespace(perf_counter=itertools.count().__next__)  # all calls take as long
    monkeypatch.setattr(contributions, "time", clock)
    wanted = {"include_collections": ["average_shap"], "save_all": False}
    calls = costs(rounds=7, save_config=EVERY_THIRD, **wanted)
    assert calls == [(SHAP, 1), (SHAP, 1), (SHAP, 4), (SHAP, 7)]


def test_of_a_continued_model_the_first_due_round_explains_all(
    new_hook, matrix, train, count_predictions, stopped_clock
):
    data = matrix()
    first = train(data, rounds=5)
    train(data, new_hook(include_collections=["full_shap"], train_data=data), xgb_model=first)
    assert count_predictions == [(SHAP, 6), (SHAP, 1), (SHAP, 1)]


@pytest.mark.parametrize(
    "params",
    [{"booster": "dart"}, {"booster": "gblinear", "updater": "coord_descent"}],
    ids=["dart", "linear"],
)
def test_a_model_whose_rounds_change_is_explained_whole(costs, params):
    calls = costs(rounds=3, include_collections=["full_shap"], save_all=False, params=params)
    assert calls == [(SHAP, 1), (SHAP, 2), (SHAP, 3)]


def test_average_and_full_shap_are_computed_once(costs):
    calls = costs(rounds=1, include_collections=["average_shap", "full_shap"], save_all=False)
    assert calls == [(SHAP, 1)]


@pytest.mark.parametrize(
    ("regex", "expected"),
    [
        ("^predictions$", [(PREDICTIONS, 1)]),
        ("^labels$", []),
        ("^feature_importance/", []),
        ("^trees/Gain$", []),
        ("^hyperparameters/", []),
        ("^full_shap/f2$", [(SHAP, 1)]),
        ("^average_shap/f0$", [(SHAP, 1)]),
        ("^full_shap/no_such_feature$", []),
    ],
)
def test_a_regex_costs_what_it_asks_for(costs, regex, expected):
    assert costs(rounds=1, save_all=False, include_regex=regex) == expected


def test_a_process_that_does_not_save_computes_nothing(costs, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert costs() == []


def test_trees_that_are_not_due_are_not_dumped(new_hook, matrix, train, monkeypatch):
    calls = []
    dump = xgb.Booster.trees_to_dataframe

    def counting(booster, *args, **options):
        calls.append(booster.num_boosted_rounds())
        return dump(booster, *args, **options)

    monkeypatch.setattr(xgb.Booster, "trees_to_dataframe", counting)
    train(matrix(), new_hook(save_all=True, save_config=EVERY_THIRD), rounds=7)
    assert calls == [1, 1, 1]


# -- the size guard --------------------------------------------------------------------------------


def test_beyond_most_shap_bytes_an_even_sample_of_rows_is_explained(
    new_hook, read, matrix, train, look, warnings_of
):
    data = matrix(100)
    hook = new_hook(
        include_collections=["full_shap", "average_shap"],
        train_data=data,
        most_shap_bytes=10 * 5 * 4,  # ten rows of four features and a bias
    )
    said = look(data)
    train(data, hook, said, rounds=3)
    trial = read()
    for step in range(3):
        expected = said.contributions[step][::10, :-1]
        for i in range(4):
            found = trial.tensor(f"full_shap/f{i}").value(step)
            np.testing.assert_allclose(found, expected[:, i], rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(
                trial.tensor(f"average_shap/f{i}").value(step),
                np.abs(expected[:, i]).mean(),
                rtol=1e-5,
                atol=1e-6,
            )
    [message] = warnings_of()
    assert "100 rows" in message
    assert "10 rows, evenly spaced" in message
    assert "most_shap_bytes" in message


@pytest.mark.parametrize(("most", "explained"), [(60 * 20, 60), (60 * 20 - 1, 59), (1, 1)])
def test_the_guard_keeps_as_many_rows_as_fit(new_hook, read, matrix, train, most, explained):
    data = matrix()
    hook = new_hook(include_collections=["full_shap"], train_data=data, most_shap_bytes=most)
    train(data, hook)
    assert np.size(read().tensor("full_shap/f0").value(2)) == explained


def test_the_guard_knows_how_many_outputs_a_model_has(new_hook, read, matrix, train):
    data = matrix(classes=3)
    hook = new_hook(include_collections=["full_shap"], train_data=data, most_shap_bytes=600)
    train(data, hook, params={"objective": "multi:softprob", "num_class": 3})
    assert read().tensor("full_shap/f0").value(2).shape == (10, 3)


def test_a_sample_of_rows_in_groups(new_hook, read, rows, train):
    x, y = rows()
    data = xgb.DMatrix(x, label=(y > y.mean()).astype(int), qid=np.repeat(np.arange(6), 10))
    hook = new_hook(include_collections=["full_shap"], train_data=data, most_shap_bytes=200)
    train(data, hook, params={"objective": "rank:pairwise"})
    assert read().tensor("full_shap/f0").value(2).shape == (10,)


def test_predictions_are_of_all_rows_whatever_the_guard(new_hook, read, matrix, train):
    data = matrix()
    hook = new_hook(save_all=True, train_data=data, validation_data=data, most_shap_bytes=1)
    train(data, hook)
    assert read().tensor("predictions").value(2).shape == (60,)


def test_of_quantised_rows_no_sample_can_be_taken_and_that_is_said(new_hook, rows, train):
    x, y = rows()
    data = xgb.QuantileDMatrix(x, label=y)
    hook = new_hook(include_collections=["full_shap"], train_data=data, most_shap_bytes=200)
    with pytest.raises(SMDebugValueError, match="most_shap_bytes"):
        train(data, hook, params={"tree_method": "hist"})
