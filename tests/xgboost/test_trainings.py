"""Every way to train: to the end, stopped, continued, updated, cross-validated, broken off."""

import numpy as np
import pytest

xgb = pytest.importorskip("xgboost")

import tornasole.xgboost as smd  # noqa: E402


class InOrder(xgb.callback.TrainingCallback):
    """Calls callbacks as XGBoost 3 does; XGBoost 1 calls them in an arbitrary order."""

    def __init__(self, *callbacks):
        self._callbacks = callbacks

    def before_training(self, model):
        for each in self._callbacks:
            model = each.before_training(model)
        return model

    def before_iteration(self, *args):
        return any(each.before_iteration(*args) for each in self._callbacks)

    def after_iteration(self, *args):
        return any(each.after_iteration(*args) for each in self._callbacks)

    def after_training(self, model):
        for each in self._callbacks:
            model = each.after_training(model)
        return model


class StopBefore(xgb.callback.TrainingCallback):
    """Ends the training before a round begins."""

    def __init__(self, epoch):
        self._epoch = epoch

    def before_iteration(self, model, epoch, evals_log):
        return epoch == self._epoch


@pytest.fixture
def early_stopping():
    """Stops after some rounds without much progress; the tests' data needs less than 30 rounds."""

    def make(rounds=2, **options):
        return xgb.callback.EarlyStopping(rounds=rounds, min_delta=0.02, **options)

    return make


def check(trial, said, evaluated):
    """Every round is in the trial, with the values XGBoost had then."""
    rounds = len(evaluated["train"]["rmse"])
    assert 1 < rounds < 30
    assert trial.steps() == list(range(rounds))
    for step in range(rounds):
        assert trial.tensor("train-rmse").value(step) == evaluated["train"]["rmse"][step]
        np.testing.assert_array_equal(
            trial.tensor("predictions").value(step), said.predictions[step]
        )
        expected = said.contributions[step][:, 0]
        np.testing.assert_allclose(
            trial.tensor("full_shap/f0").value(step), expected, rtol=1e-5, atol=1e-6
        )
        tree = said.trees[step]["Tree"].tolist()
        assert trial.tensor("trees/Tree").value(step).tolist() == tree


@pytest.fixture
def watched(new_hook, read, matrix, train, look):
    """Trains with a hook that saves everything between other callbacks, and returns what was."""

    def run(before=(), after=(), rounds=30, **options):
        data = matrix()
        said, evaluated = look(data), {}
        hook = new_hook(save_all=True, train_data=data, validation_data=data)
        callbacks = InOrder(said, *before, hook, *after)
        train(data, callbacks, rounds=rounds, evals_result=evaluated, **options)
        return read(), said, evaluated

    return run


# -- to the end ------------------------------------------------------------------------------------


def test_everything_can_be_read_when_train_returns_though_the_hook_is_open(watched):
    check(*watched(rounds=3))


def test_no_round_at_all_is_no_error(new_hook, matrix, train):
    hook = new_hook(save_all=True)
    train(matrix(), hook, rounds=0)
    assert hook.step == -1


def test_a_training_that_evaluates_nothing_is_saved_and_said_once(
    new_hook, read, matrix, train, warnings_of
):
    data = matrix()
    hook = new_hook(include_collections=["predictions"], validation_data=data)
    train(data, hook, evals=())
    assert read().tensor_names() == ["predictions"]
    [message] = warnings_of()
    assert "metrics" in message
    assert "evals=" in message


def test_two_hooks_can_watch_one_training(new_hook, read, tmp_path, matrix, train):
    data, other = matrix(), tmp_path / "other"
    train(data, new_hook(), new_hook(other, include_collections=["feature_importance"]))
    assert read().tensor_names() == ["train-rmse"]
    assert "feature_importance/weight/f0" in read(other).tensor_names()


def test_learning_rates_are_those_of_the_round(new_hook, read, matrix, train):
    rates = [0.5, 0.25, 0.125]
    scheduler = xgb.callback.LearningRateScheduler(rates)
    train(matrix(), InOrder(scheduler, new_hook(include_collections=["hyperparameters"])))
    saved = read().tensor("hyperparameters/learning_rate")
    assert [float(saved.value(step)) for step in range(3)] == rates


# -- stopped early ---------------------------------------------------------------------------------


def test_early_stopping_by_parameter(watched):
    trial, _, evaluated = watched(early_stopping_rounds=2, params={"gamma": 2, "eta": 0.5})
    history = evaluated["train"]["rmse"]
    assert 1 < len(history) < 30
    saved = trial.tensor("train-rmse").values()
    assert [float(saved[step]) for step in trial.steps()] == history


def test_early_stopping_behind_the_hook(watched, early_stopping):
    check(*watched(after=[early_stopping()]))


def test_early_stopping_before_the_hook_hides_no_round(watched, early_stopping):
    """XGBoost calls no callback behind one that stops the training."""
    check(*watched(before=[early_stopping()]))


def test_early_stopping_behind_the_hook_that_keeps_the_best_rounds(watched, early_stopping):
    check(*watched(after=[early_stopping(save_best=True)]))


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_early_stopping_before_the_hook_that_keeps_the_best_rounds(watched, early_stopping, rounds):
    check(*watched(before=[early_stopping(rounds, save_best=True)]))


def test_a_training_stopped_between_rounds_by_a_callback_before_the_hook(watched):
    check(*watched(before=[StopBefore(4)]))


def test_a_training_stopped_between_rounds_by_a_callback_behind_the_hook(watched):
    check(*watched(after=[StopBefore(4)]))


def test_a_training_stopped_between_rounds_leaves_no_hole_in_the_count(
    new_hook, read, matrix, train
):
    hook, data = new_hook(), matrix()
    train(data, InOrder(hook, StopBefore(2)), rounds=5)
    assert hook.step == 1
    train(data, hook, rounds=2)
    assert read().steps() == [0, 1, 2, 3]


# -- continued -------------------------------------------------------------------------------------


def test_a_new_hook_counts_a_continued_training_from_zero(
    new_hook, read, tmp_path, matrix, train, look
):
    data = matrix()
    first = train(data, new_hook(tmp_path / "first"), rounds=4)
    hook, said = new_hook(save_all=True, train_data=data), look(data, trees_before=4)
    train(data, hook, said, xgb_model=first)
    trial = read()
    assert trial.steps() == [0, 1, 2]
    for step in trial.steps():
        np.testing.assert_allclose(
            trial.tensor("full_shap/f0").value(step),
            said.contributions[step][:, 0],
            rtol=1e-5,
            atol=1e-6,
        )
        assert set(trial.tensor("trees/Tree").value(step)) == {4 + step}
        assert trial.tensor("trees/ID").value(step).tolist() == said.trees[step]["ID"].tolist()


def test_the_same_hook_goes_on_counting(new_hook, read, matrix, train, look):
    data = matrix()
    hook = new_hook(save_all=True, train_data=data, validation_data=data)
    first = train(data, hook, rounds=2)
    said = look(data)
    train(data, hook, said, rounds=2, xgb_model=first)
    trial = read()
    assert trial.steps() == [0, 1, 2, 3]
    for step in (2, 3):
        np.testing.assert_array_equal(
            trial.tensor("predictions").value(step), said.predictions[step - 2]
        )


def test_a_model_may_be_continued_from_its_file(new_hook, read, tmp_path, matrix, train):
    file = str(tmp_path / "model.json")
    train(matrix(), rounds=2).save_model(file)
    train(matrix(), new_hook(include_collections=["trees"]), xgb_model=file)
    assert set(read().tensor("trees/Tree").value(0)) == {2}


def test_another_model_on_the_same_data_is_explained_anew(new_hook, read, matrix, train, look):
    data = matrix()
    hook = new_hook(include_collections=["full_shap"], train_data=data)
    train(data, hook, rounds=2)
    said = look(data)
    train(data, hook, said, rounds=3, params={"max_depth": 1, "eta": 1})
    np.testing.assert_allclose(
        read().tensor("full_shap/f0").value(4), said.contributions[2][:, 0], rtol=1e-5, atol=1e-6
    )


def test_updated_trees_are_those_of_xgboost(new_hook, read, matrix, train, look):
    data, other = matrix(), matrix(seed=1)
    grown = train(data, rounds=4)
    hook = new_hook(save_all=True, train_data=data, validation_data=data)
    said, evaluated = look(data), {}
    update = {"process_type": "update", "updater": "refresh", "refresh_leaf": True}
    booster = train(
        other, hook, said, rounds=4, params=update, xgb_model=grown, evals_result=evaluated
    )
    check(read(), said, evaluated)
    assert booster.num_boosted_rounds() == 4


def test_a_forest_may_continue_a_model_of_single_trees(new_hook, read, matrix, train, look):
    data = matrix()
    first, said = train(data, rounds=2), look(data, trees_before=2)
    hook = new_hook(include_collections=["trees"])
    train(data, hook, said, params={"num_parallel_tree": 3}, xgb_model=first)
    for step in range(3):
        expected = said.trees[step]["ID"].tolist()
        assert read().tensor("trees/ID").value(step).tolist() == expected


# -- cross-validated -------------------------------------------------------------------------------


@pytest.fixture
def cross_validated(new_hook, matrix):
    def run(rounds=4, params=(), classes=2, hook=None, **options):
        params = {"nthread": 1, "objective": "binary:logistic", "verbosity": 0, **dict(params)}
        data = matrix(classes=classes)
        return xgb.cv(params, data, rounds, nfold=3, as_pandas=False, callbacks=[hook], **options)

    return run


def test_cross_validation_saves_the_table_it_returns(new_hook, read, cross_validated):
    table = cross_validated(
        hook=new_hook(), params={"eval_metric": ["logloss", "auc", "error@0.3"]}
    )
    trial = read()
    assert trial.steps() == [0, 1, 2, 3]
    assert set(trial.tensor_names()) == set(table)
    assert {"test-auc-mean", "test-auc-std", "train-error@0.3-mean"} <= set(table)
    for name, column in table.items():
        saved = trial.tensor(name).values()
        np.testing.assert_allclose([float(saved[step]) for step in range(4)], column, rtol=1e-12)


def test_means_are_losses_and_deviations_are_not(new_hook, read, cross_validated):
    cross_validated(
        hook=new_hook(include_collections=["losses"]), params={"eval_metric": ["logloss", "auc"]}
    )
    losses = read().tensor_names(collection="losses")
    assert losses == ["test-logloss-mean", "train-logloss-mean"]


def test_cross_validation_saves_the_hyperparameters_of_its_models(new_hook, read, cross_validated):
    hook = new_hook(include_collections=["hyperparameters"])
    cross_validated(hook=hook, params={"max_depth": 2})
    assert float(read().tensor("hyperparameters/max_depth").value(0)) == 2


def test_cross_validation_with_everything_asked_for_saves_what_there_is(
    new_hook, read, cross_validated, matrix
):
    data = matrix(classes=2)
    hook = new_hook(save_all=True, train_data=data, validation_data=data)
    cross_validated(hook=hook)
    assert "test-logloss-mean" in read().tensor_names()
    assert "predictions" not in read().tensor_names()


def test_what_cross_validation_cannot_give_is_said(new_hook, cross_validated, matrix, warnings_of):
    hook = new_hook(include_collections=["predictions"], validation_data=matrix(classes=2))
    cross_validated(hook=hook)
    assert any("predictions" in message for message in warnings_of())


def test_cross_validation_stopped_early_has_all_its_rounds(new_hook, read, cross_validated):
    hook = new_hook()
    table = cross_validated(hook=hook, rounds=60, early_stopping_rounds=2, params={"eta": 1})
    best = len(table["test-logloss-mean"])
    assert best + 2 < 60
    assert read().steps() == list(range(best + 2))


# -- broken off ------------------------------------------------------------------------------------


def test_an_objective_that_raises_gives_its_own_error_and_a_readable_trial(
    new_hook, read, matrix, train
):
    class Bang(Exception):
        pass

    def objective(predictions, data):
        objective.calls += 1
        if objective.calls > 3:
            raise Bang("on purpose")
        return predictions - data.get_label(), np.ones_like(predictions)

    objective.calls = 0
    hook, data = new_hook(save_all=True), matrix()
    with pytest.raises(Bang, match="on purpose"), hook:
        train(data, hook, obj=objective, rounds=9)
    trial = read()
    assert trial.steps() == [0, 1, 2]
    assert trial.state == "failed"
    assert "Bang: on purpose" in trial.state_reason
    assert trial.tensor("train-rmse").steps() == [0, 1, 2]


def test_a_callback_that_raises_behind_the_hook_does_not_cost_the_round(
    new_hook, read, matrix, train
):
    class Interrupts(xgb.callback.TrainingCallback):
        def after_iteration(self, model, epoch, evals_log):
            if epoch == 2:
                raise KeyboardInterrupt

    hook = new_hook()
    with pytest.raises(KeyboardInterrupt):
        train(matrix(), InOrder(hook, Interrupts()), rounds=9)
    hook.close()
    assert read().steps() == [0, 1, 2]


def test_a_hook_can_watch_another_training_after_one_that_raised(new_hook, read, matrix, train):
    def objective(predictions, data):
        raise ValueError("on purpose")

    hook, data = new_hook(), matrix()
    with pytest.raises(ValueError, match="on purpose"):
        train(data, hook, obj=objective)
    train(data, hook, rounds=2)
    assert len(read().tensor("train-rmse").steps()) == 2


def test_a_closed_hook_says_that_it_saves_nothing_and_lets_training_go_on(
    new_hook, read, matrix, train, warnings_of
):
    hook = new_hook()
    train(matrix(), hook, rounds=1)
    hook.close()
    assert train(matrix(), hook, rounds=2).num_boosted_rounds() == 2
    assert read().steps() == [0]
    assert any("closed" in message for message in warnings_of())


def test_a_dry_run_writes_nothing(new_hook, out_dir, matrix, train, caplog):
    caplog.set_level("INFO", "tornasole")
    hook = new_hook(dry_run=True)
    train(matrix(), hook, rounds=2)
    hook.close()
    assert not out_dir.exists()
    assert sum("would save 1 tensors: train-rmse" in message for message in caplog.messages) == 2


def test_modes_are_those_of_the_hook(new_hook, read, matrix, train):
    hook = new_hook()
    hook.set_mode(smd.modes.TRAIN)
    train(matrix(), hook)
    assert read().steps(mode=smd.modes.TRAIN) == [0, 1, 2]


def test_a_loop_that_only_tells_of_the_end_of_a_round_is_saved(new_hook, read, matrix):
    hook, data = new_hook(), matrix()
    booster = xgb.Booster({}, [data])
    for number in range(3):
        booster.update(data, number)
        hook.after_iteration(booster, number, {"train": {"rmse": [1.0 - number]}})
    hook.close()
    assert read().tensor("train-rmse").values() == {0: 1.0, 1: 0.0, 2: -1.0}


def test_a_training_within_a_training_has_steps_of_its_own(new_hook, read, matrix, train):
    hook, data = new_hook(on_error="raise"), matrix()

    def metric(predictions, matrix):
        train(data, hook, rounds=2)
        return "outer", 0.0

    train(data, hook, rounds=1, custom_metric=metric)
    inner, outer = read().tensor("train-rmse"), read().tensor("train-outer")
    assert len(inner.steps()) == 3  # the outer training has it, too
    assert len(outer.steps()) == 1
    assert outer.steps()[0] > inner.steps()[1]


def test_what_was_saved_by_hand_survives_a_training_that_did_not_begin(new_hook, read, matrix):
    class Stop(xgb.callback.TrainingCallback):
        def before_iteration(self, model, epoch, evals_log):
            return True

    hook, data = new_hook(), matrix()
    hook.save_scalar("early", 1.0)
    xgb.train({}, data, 3, callbacks=[hook, Stop()])
    xgb.train({}, data, 1, evals=[(data, "train")], callbacks=[hook], verbose_eval=False)
    hook.close()
    assert "scalar/early" in read().tensor_names()


def test_a_fault_while_writing_is_raised_into_training_if_asked(new_hook, matrix, train):
    hook = new_hook(on_error="raise")

    def broken(steps):
        raise OSError("the disk is full, on purpose")

    hook._writer._write = broken
    with pytest.raises(OSError, match="on purpose"):
        train(matrix(), hook, rounds=3)
