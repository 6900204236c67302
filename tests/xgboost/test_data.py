"""Where the rows may come from: every kind of matrix, and files."""

import numpy as np
import pytest

xgb = pytest.importorskip("xgboost")

from tornasole.errors import ObjectNotFound, SMDebugTypeError, SMDebugValueError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:xgboost")

MAJOR = int(xgb.__version__.split(".")[0])
NAMES = ["width", "height", "bias", "s"]
EXACT = {"rtol": 1e-5, "atol": 1e-6}


def from_numpy(x, y):
    return xgb.DMatrix(x, label=y)


def from_pandas(x, y):
    pandas = pytest.importorskip("pandas")
    return xgb.DMatrix(pandas.DataFrame(x, columns=NAMES), label=y)


def from_arrow(x, y):
    arrow = pytest.importorskip("pyarrow")
    return xgb.DMatrix(arrow.table(dict(zip(NAMES, x.T, strict=True))), label=y)


def from_csr(x, y):
    sparse = pytest.importorskip("scipy.sparse")
    return xgb.DMatrix(sparse.csr_matrix(np.where(x < 0.3, 0, x)), label=y)


def from_csc(x, y):
    sparse = pytest.importorskip("scipy.sparse")
    return xgb.DMatrix(sparse.csc_matrix(np.where(x < 0.3, 0, x)), label=y, feature_names=NAMES)


KINDS = [from_numpy, from_pandas, from_arrow, from_csr, from_csc]


@pytest.mark.parametrize("make", KINDS)
def test_rows_may_come_from_any_kind_of_matrix(new_hook, read, rows, train, look, make):
    data = make(*rows())
    hook, said = new_hook(save_all=True, train_data=data, validation_data=data), look(data)
    train(data, hook, said)
    trial = read()
    np.testing.assert_array_equal(trial.tensor("predictions").value(2), said.predictions[2])
    np.testing.assert_array_equal(trial.tensor("labels").value(2), data.get_label())
    for i, name in enumerate(data.feature_names or ["f0", "f1", "f2", "f3"]):
        expected = said.contributions[2][:, i]
        np.testing.assert_allclose(trial.tensor(f"full_shap/{name}").value(2), expected, **EXACT)


def test_other_rows_than_those_trained_on(new_hook, read, matrix, train, look):
    trained_on, other = matrix(), matrix(17, seed=1)
    said = look(other)
    hook = new_hook(save_all=True, train_data=other, validation_data=other)
    train(trained_on, hook, said)
    np.testing.assert_array_equal(read().tensor("predictions").value(2), said.predictions[2])
    np.testing.assert_array_equal(read().tensor("labels").value(2), other.get_label())
    assert read().tensor("full_shap/f0").value(2).shape == (17,)


@pytest.mark.parametrize("collection", ["predictions", "full_shap"])
def test_rows_with_names_suit_a_model_without(new_hook, read, matrix, train, collection):
    """XGBoost 1 gives the model the names of what it predicts on, and then trains no further."""
    data, named = matrix(), matrix(feature_names=NAMES)
    hook = new_hook(include_collections=[collection], train_data=named, validation_data=named)
    watched = train(data, hook, rounds=4)
    assert len(read().tensor_names(collection=collection)) > 0
    assert read().steps() == [0, 1, 2, 3]
    assert watched.save_raw() == train(data, rounds=4).save_raw()


def test_a_model_of_quantised_rows_is_explained_on_others(new_hook, read, rows, train, look):
    x, y = rows()
    plain, quantised = xgb.DMatrix(x, label=y), xgb.QuantileDMatrix(x, label=y)
    hook, said = new_hook(save_all=True, train_data=plain, validation_data=quantised), look(plain)
    train(quantised, hook, said, params={"tree_method": "hist"})
    expected = said.contributions[2][:, 0]
    np.testing.assert_allclose(read().tensor("full_shap/f0").value(2), expected, **EXACT)
    assert read().tensor("predictions").value(2).shape == (60,)


def test_rows_may_change_between_rounds(new_hook, read, matrix, train):
    hook = new_hook(include_collections=["full_shap", "labels"], train_data=matrix(9))
    hook.validation_data = matrix(9)

    class Changes(xgb.callback.TrainingCallback):
        def before_iteration(self, model, epoch, evals_log):
            if epoch == 2:
                hook.train_data = hook.validation_data = matrix(5)

    train(matrix(), Changes(), hook)
    sizes = [len(read().tensor("full_shap/f0").value(step)) for step in range(3)]
    assert sizes == [9, 9, 5]
    assert len(read().tensor("labels").value(2)) == 5


def test_rows_of_one(new_hook, read, matrix, train):
    data = matrix(1)
    train(matrix(), new_hook(save_all=True, train_data=data, validation_data=data))
    assert np.size(read().tensor("full_shap/f0").value(2)) == 1
    assert np.size(read().tensor("predictions").value(2)) == 1


def test_categories_may_be_in_another_order_than_in_training(new_hook, read, rows, train, look):
    """XGBoost 3 knows categories by their names, and sorts out an order of their own."""
    pandas = pytest.importorskip("pandas")
    x, y = rows()
    kinds = np.array(["red", "green", "blue"])[(y * 2).astype(int) % 3]

    def matrix_of(order):
        frame = pandas.DataFrame({"kind": pandas.Categorical(kinds, order), "width": x[:, 1]})
        return xgb.DMatrix(frame, label=y, enable_categorical=True)

    data, other = matrix_of(["red", "green", "blue"]), matrix_of(["blue", "green", "red"])
    hook, said = new_hook(include_collections=["full_shap"], train_data=other), look(other)
    train(data, hook, said, params={"tree_method": "hist", "max_cat_to_onehot": 1})
    for step in range(3):
        found = read().tensor("full_shap/kind").value(step)
        np.testing.assert_allclose(found, said.contributions[step][:, 0], **EXACT)


def test_no_rows_at_all_cost_nothing_else(new_hook, read, rows, matrix, train):
    """In a job of many processes one may have none."""
    x, y = rows()
    data = xgb.DMatrix(x[:0], label=y[:0])
    hook = new_hook(on_error="warn", save_all=True, train_data=data, validation_data=data)
    train(matrix(), hook)
    assert read().tensor("train-rmse").steps() == [0, 1, 2]
    hook.close()
    assert read().state == "finished"


@pytest.mark.skipif(MAJOR < 2, reason="XGBoost 1 itself flattens them")
def test_labels_of_several_targets_keep_their_shape(new_hook, read, rows, train):
    x, y = rows()
    data = xgb.DMatrix(x, label=np.stack([y, y], axis=1))
    hook = new_hook(include_collections=["labels"], validation_data=data)
    train(data, hook, params={"tree_method": "hist"})
    assert read().tensor("labels").value(0).shape == (60, 2)


# -- files -----------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path, rows):
    """Writes rows to a file of a format, and returns both."""

    def write(form, name=None):
        x, y = ((values * 64).round() / 64 for values in rows(12, seed=2))  # texts say it exactly
        path = tmp_path / (name or f"rows.{form}")
        if form == "csv":
            lines = [",".join(str(v) for v in (b, *a)) for a, b in zip(x, y, strict=True)]
        else:
            lines = [
                " ".join([str(b), *(f"{i}:{v}" for i, v in enumerate(a))])
                for a, b in zip(x, y, strict=True)
            ]
        path.write_text("\n".join(lines) + "\n")
        return path, x, y

    return write


@pytest.mark.parametrize("form", ["csv", "libsvm"])
@pytest.mark.parametrize("names", [None, NAMES], ids=["unnamed", "named"])
def test_rows_may_come_from_a_file(new_hook, read, matrix, train, look, file, form, names):
    path, x, y = file(form)
    said = look(xgb.DMatrix(x, feature_names=names))
    data = matrix(feature_names=names)
    hook = new_hook(save_all=True, train_data=(path, form), validation_data=(str(path), form))
    train(data, hook, said)
    trial = read()
    np.testing.assert_array_equal(trial.tensor("labels").value(2), y)
    np.testing.assert_array_equal(trial.tensor("predictions").value(2), said.predictions[2])
    for i, name in enumerate(names or ["f0", "f1", "f2", "f3"]):
        expected = said.contributions[2][:, i]
        np.testing.assert_allclose(trial.tensor(f"full_shap/{name}").value(2), expected, **EXACT)


def test_a_file_is_given_back_as_it_was_given(new_hook, file):
    path, _, _ = file("csv")
    assert new_hook(train_data=(str(path), "csv")).train_data == (str(path), "csv")


def test_a_path_may_be_relative_or_of_the_home_folder(new_hook, tmp_path, file, monkeypatch):
    file("csv")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    hook = new_hook(train_data=("rows.csv", "csv"), validation_data=["~/rows.csv", "csv"])
    assert hook.validation_data == (str(tmp_path / "rows.csv"), "csv")


@pytest.mark.parametrize("sign", list("#?;"))
def test_a_sign_in_a_path_that_xgboost_takes_for_its_own_is_refused(new_hook, file, sign):
    path, _, _ = file("csv", f"a{sign}b.csv")
    with pytest.raises(SMDebugValueError, match="opens no path"):
        new_hook(validation_data=(path, "csv"))


@pytest.mark.parametrize("name", ["two words.csv", "a,b=c&d.csv"])
def test_a_file_may_have_any_name(new_hook, read, matrix, train, file, name):
    path, _, y = file("csv", name)
    train(matrix(), new_hook(include_collections=["labels"], validation_data=(path, "csv")))
    np.testing.assert_array_equal(read().tensor("labels").value(2), y)


@pytest.fixture
def sparse_file(tmp_path):
    """A file without the last features, which occur in none of its rows."""
    path = tmp_path / "sparse.libsvm"
    path.write_text("1 0:0.5\n2 1:0.25\n")
    return path, "libsvm"


def test_a_sparse_file_may_lack_the_last_features(new_hook, read, sparse_file, matrix, train):
    train(matrix(), new_hook(include_collections=["predictions"], validation_data=sparse_file))
    assert read().tensor("predictions").value(2).shape == (2,)


def test_a_sparse_file_may_lack_the_last_features_that_have_names(
    new_hook, read, sparse_file, matrix, train
):
    hook = new_hook(include_collections=["predictions"], validation_data=sparse_file)
    train(matrix(feature_names=NAMES), hook)
    assert read().tensor("predictions").value(2).shape == (2,)


def test_a_sparse_file_that_lacks_the_last_features_is_explained(
    new_hook, read, sparse_file, matrix, train
):
    train(matrix(), new_hook(include_collections=["full_shap"], train_data=sparse_file))
    assert read().tensor("full_shap/f3").value(2).shape == (2,)


def test_a_file_is_read_when_it_is_needed_and_once(
    new_hook, read, matrix, train, file, monkeypatch
):
    path, _, _ = file("csv")
    made = []
    init = xgb.DMatrix.__init__

    def counting(self, data, *args, **options):
        made.append(data)
        init(self, data, *args, **options)

    hook = new_hook(include_collections=["labels", "predictions"], validation_data=(path, "csv"))
    data = matrix()
    monkeypatch.setattr(xgb.DMatrix, "__init__", counting)
    train(data, hook, rounds=4)
    assert len([each for each in made if isinstance(each, str)]) == 1


# -- what cannot be predicted on -------------------------------------------------------------------


@pytest.mark.parametrize("field", ["train_data", "validation_data"])
@pytest.mark.parametrize(
    "bad", [np.ones((3, 2)), "rows.csv", 3, ("rows.csv",), (np.ones(3), np.ones(3)), {}]
)
def test_anything_but_a_matrix_or_a_file_is_refused(new_hook, out_dir, field, bad):
    with pytest.raises(SMDebugTypeError, match=rf"{field} must be an xgboost\.DMatrix"):
        new_hook(**{field: bad})
    assert not out_dir.exists()


@pytest.mark.parametrize("field", ["train_data", "validation_data"])
def test_a_data_frame_is_refused_with_the_cure(new_hook, field):
    pandas = pytest.importorskip("pandas")
    with pytest.raises(SMDebugTypeError, match=r"not DataFrame.*xgboost\.DMatrix\(X, label=y\)"):
        setattr(new_hook(), field, pandas.DataFrame({"a": [1]}))


def test_a_path_that_does_not_exist_is_refused_at_once(new_hook, out_dir, tmp_path):
    with pytest.raises(ObjectNotFound, match=r"validation_data names .*nowhere\.csv"):
        new_hook(validation_data=(tmp_path / "nowhere.csv", "csv"))
    assert not out_dir.exists()


def test_a_path_that_does_not_exist_is_a_missing_file_to_those_who_catch_that(new_hook):
    with pytest.raises(FileNotFoundError):
        new_hook().train_data = ("nowhere.csv", "csv")


@pytest.mark.parametrize("form", ["parquet", None, "CSV", 3])
def test_an_unknown_format_is_refused(new_hook, form):
    with pytest.raises(SMDebugValueError, match="'csv' or 'libsvm', not"):
        new_hook(train_data=("rows.parquet", form))


@pytest.mark.parametrize("form", [["csv"], np.ones(3)])
def test_a_format_that_is_no_string_is_refused(new_hook, form):
    with pytest.raises((SMDebugValueError, SMDebugTypeError)):
        new_hook(train_data=("rows.csv", form))


@pytest.mark.parametrize("bad", [3, "eta=1", [1, 2]])
def test_hyperparameters_that_are_no_dictionary_are_refused(new_hook, bad):
    with pytest.raises(SMDebugTypeError, match="hyperparameters must be a dictionary"):
        new_hook(hyperparameters=bad)


@pytest.mark.parametrize("bad", [0, -1, 1.5, "1 GB", True, None])
def test_a_size_that_is_no_positive_number_is_refused(new_hook, bad):
    with pytest.raises((SMDebugValueError, SMDebugTypeError), match="most_shap_bytes"):
        new_hook(most_shap_bytes=bad)
