"""What turns out wrong while a model trains is said once, clearly; the training is unharmed."""

import numpy as np
import pytest

xgb = pytest.importorskip("xgboost")

from tornasole.errors import SMDebugValueError  # noqa: E402


@pytest.fixture
def wrong_rows(matrix, tmp_path):
    """Rows that cannot be predicted on, by what is wrong with them."""
    return {
        "names": matrix(feature_names=["a", "b", "c", "d"]),
        "order": matrix(feature_names=["h", "g", "f", "e"]),
        "too few features": matrix(features=3, feature_names=["e", "f", "g"]),
        "too many features": matrix(features=5, feature_names=list("efghi")),
        "folder": (tmp_path, "csv"),
    }


WRONG = ["names", "order", "too few features", "too many features", "folder"]


@pytest.fixture
def named(matrix):
    return matrix(feature_names=["e", "f", "g", "h"])


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize(
    ("what", "field", "collection"),
    [
        ("predictions", "validation_data", "predictions"),
        ("SHAP values", "train_data", "full_shap"),
    ],
)
def test_rows_that_do_not_fit_are_said_once_and_training_is_unharmed(
    new_hook, read, named, train, warnings_of, wrong_rows, wrong, what, field, collection
):
    options = {field: wrong_rows[wrong], "include_collections": [collection]}
    watched = train(named, new_hook(on_error="warn", **options), rounds=4)
    assert read().tensor_names() == ["train-rmse"]
    assert read().steps() == [0, 1, 2, 3]
    [message] = warnings_of()
    assert message.startswith(f"{what} cannot be had of {field}: ")
    assert "\n" not in message
    assert "Stack trace" not in message
    assert watched.save_raw() == train(named, rounds=4).save_raw()


@pytest.mark.parametrize("wrong", WRONG)
def test_rows_that_do_not_fit_raise_if_asked(new_hook, named, train, wrong_rows, wrong):
    hook = new_hook(include_collections=["predictions"], validation_data=wrong_rows[wrong])
    with pytest.raises(SMDebugValueError, match="predictions cannot be had of validation_data"):
        train(named, hook)


def test_too_many_features_without_names_are_noticed_too(new_hook, matrix, train):
    hook = new_hook(include_collections=["predictions"], validation_data=matrix(features=5))
    with pytest.raises(SMDebugValueError, match="predictions cannot be had of validation_data"):
        train(matrix(), hook)


def test_a_mismatch_names_the_features(new_hook, named, train, wrong_rows):
    hook = new_hook(include_collections=["predictions"], validation_data=wrong_rows["names"])
    with pytest.raises(SMDebugValueError, match=r"\be\b.*\ba\b|\ba\b.*\be\b"):
        train(named, hook)


def test_a_file_that_begins_with_the_names_of_its_columns_is_refused(new_hook, tmp_path):
    file = tmp_path / "header.csv"
    file.write_text("label,a,b,c,d\n1,2,3,4,5\n")
    with pytest.raises(SMDebugValueError, match="does not begin with a number"):
        new_hook(validation_data=(file, "csv"))


def test_labels_that_are_missing_are_said_once_and_the_rest_is_saved(
    new_hook, read, rows, matrix, train, warnings_of
):
    x, _ = rows()
    hook = new_hook(
        on_error="warn",
        include_collections=["labels", "predictions"],
        validation_data=xgb.DMatrix(x),
    )
    train(matrix(), hook)
    assert read().tensor_names() == ["predictions", "train-rmse"]
    [message] = warnings_of()
    assert "labels cannot be had of validation_data: it has none" in message
    assert "label=y" in message


def test_labels_that_are_missing_raise_if_asked(new_hook, rows, matrix, train):
    x, _ = rows()
    hook = new_hook(include_collections=["labels"], validation_data=xgb.DMatrix(x))
    with pytest.raises(SMDebugValueError, match="labels cannot be had"):
        train(matrix(), hook)


@pytest.mark.parametrize(
    ("collection", "field", "what"),
    [
        ("predictions", "validation_data", "predictions"),
        ("labels", "validation_data", "labels"),
        ("full_shap", "train_data", "SHAP values"),
        ("average_shap", "train_data", "SHAP values"),
    ],
)
def test_rows_that_were_not_given_are_asked_for_once(
    new_hook, read, matrix, train, warnings_of, collection, field, what
):
    train(matrix(), new_hook(include_collections=[collection]))
    assert read().tensor_names() == ["train-rmse"]
    [message] = warnings_of()
    assert repr(what) in message
    assert f"hook.{field} = xgboost.DMatrix" in message


def test_trees_of_a_linear_model_are_said_once(new_hook, read, matrix, train, warnings_of):
    params = {"booster": "gblinear", "updater": "coord_descent"}
    train(matrix(), new_hook(include_collections=["trees"]), params=params)
    assert read().tensor_names() == ["train-rmse"]
    [message] = warnings_of()
    assert "a linear model has none" in message


@pytest.mark.skipif(int(xgb.__version__.split(".")[0]) < 2, reason="needs XGBoost 2")
def test_what_xgboost_cannot_show_of_a_model_is_left_out(new_hook, read, rows, train, warnings_of):
    x, y = rows()
    data = xgb.DMatrix(x, label=np.stack([y, y], axis=1))
    hook = new_hook(on_error="warn", save_all=True, train_data=data, validation_data=data)
    params = {"tree_method": "hist", "multi_strategy": "multi_output_tree"}
    train(data, hook, params=params)
    assert {"predictions", "labels", "train-rmse"} <= set(read().tensor_names())
    assert [message for message in warnings_of() if "\n" in message] == []


def test_a_wrong_parameter_gives_xgboosts_own_error(new_hook, matrix, train):
    with pytest.raises(ValueError, match="objective") as without:
        train(matrix(), params={"objective": "no:such"})
    with pytest.raises(type(without.value), match="objective"):
        train(matrix(), new_hook(save_all=True), params={"objective": "no:such"})


def test_what_one_training_could_not_have_is_tried_anew_in_the_next(
    new_hook, read, matrix, named, train, wrong_rows, warnings_of
):
    hook = new_hook(
        on_error="warn", include_collections=["predictions"], validation_data=wrong_rows["names"]
    )
    train(named, hook, rounds=1)
    hook.validation_data = named
    train(named, hook, rounds=1)
    assert read().tensor("predictions").steps() == [1]
    assert len(warnings_of()) == 1


def test_a_full_disk_does_not_harm_training(new_hook, matrix, train, monkeypatch, warnings_of):
    from tornasole.store.local import LocalStore

    def full(store, key, data, **options):
        raise OSError(28, "No space left on device", key)

    data = matrix()
    hook = new_hook(on_error="warn", save_all=True, train_data=data, validation_data=data)
    monkeypatch.setattr(LocalStore, "put", full)
    watched = train(data, hook, rounds=4)
    monkeypatch.undo()
    assert watched.save_raw() == train(data, rounds=4).save_raw()
    assert any("No space left on device" in message for message in warnings_of())


def test_data_with_more_columns_than_the_model_is_not_given_to_xgboost(new_hook, rows, train):
    """XGBoost 3 would write beyond its memory, and die some time later."""
    x, y = rows()
    wide = xgb.DMatrix(np.hstack([x, x]))
    hook = new_hook(include_collections=["average_shap"], train_data=wide)
    with pytest.raises(SMDebugValueError, match="8 columns, the model 4 features"):
        train(xgb.DMatrix(x, label=y), hook)


def test_a_table_of_text_with_too_few_columns_is_not_guessed_at(
    new_hook, rows, matrix, train, tmp_path
):
    x, y = rows()
    np.savetxt(tmp_path / "few.csv", np.column_stack([y, x[:, 1:]]), delimiter=",")
    data = (tmp_path / "few.csv", "csv")
    hook = new_hook(include_collections=["predictions"], validation_data=data)
    with pytest.raises(SMDebugValueError, match="predictions cannot be had"):
        train(matrix(feature_names=list("abcd")), hook)


def test_better_data_given_during_the_training_is_used(new_hook, read, rows, matrix, train):
    x, _ = rows()
    options = {"include_collections": ["labels"], "validation_data": xgb.DMatrix(x)}
    hook = new_hook(on_error="warn", **options)

    class Mend(xgb.callback.TrainingCallback):
        def after_iteration(self, model, epoch, evals_log):
            if epoch == 0:
                hook.validation_data = matrix()
            return False

    train(matrix(), hook, Mend(), rounds=3)
    assert read().tensor("labels").steps()[-1] == 2
