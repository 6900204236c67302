"""What scripts written for smdebug's XGBoost hook rely on."""

import json

import pytest

xgb = pytest.importorskip("xgboost")

import tornasole  # noqa: E402
import tornasole.xgboost as smd  # noqa: E402


@pytest.fixture
def config_file(tmp_path, out_dir):
    """Writes a configuration as SageMaker does."""

    def write(**parameters):
        collections = [
            {"CollectionName": "metrics", "CollectionParameters": {"save_interval": "2"}},
            {"CollectionName": "predictions"},
            {"CollectionName": "feature_importance", "CollectionParameters": {"save_steps": "1"}},
        ]
        file = tmp_path / "debughookconfig.json"
        content = {
            "LocalPath": str(out_dir),
            "HookParameters": parameters,
            "CollectionConfigurations": collections,
        }
        file.write_text(json.dumps(content))
        return file

    return write


def test_the_old_name_is_the_same_module():
    import smdebug.xgboost

    assert smdebug.xgboost is smd
    assert smdebug.xgboost.Hook is smd.Hook
    from smdebug.xgboost.singleton_utils import get_hook

    assert get_hook is smd.get_hook


def test_names_that_scripts_import():
    for name in ("Hook", "SaveConfig", "ReductionConfig", "Collection", "modes", "get_hook"):
        assert name in smd.__all__
    assert smd.create_trial is tornasole.create_trial


def test_a_hook_is_a_callback_of_xgboost(new_hook):
    assert isinstance(new_hook(), xgb.callback.TrainingCallback)


@pytest.mark.parametrize("make", [smd.Hook.create_from_json_file, smd.Hook.hook_from_config])
def test_a_hook_from_a_configuration_file(config_file, read, matrix, train, make):
    data = matrix()
    hook = make(str(config_file(save_interval=3)))
    assert isinstance(hook, smd.Hook)
    hook.validation_data = data
    with hook:
        train(data, hook, rounds=5)
    trial = read()
    assert trial.tensor("train-rmse").steps() == [0, 2, 4]
    assert trial.tensor("predictions").steps() == [0, 3]
    assert 1 in trial.tensor("feature_importance/weight/f0").steps()


def test_the_default_interval_of_a_configuration_file_is_ten(config_file, read, matrix, train):
    data = matrix()
    options = {"validation_data": data, "hyperparameters": {"eta": 1}}
    with smd.Hook.create_from_json_file(config_file(), **options) as hook:
        train(data, hook, rounds=12)
    assert read().tensor("predictions").steps() == [0, 10]


def test_get_hook_makes_a_hook_of_the_file_that_the_environment_names(
    config_file, monkeypatch, matrix, train, read
):
    monkeypatch.setenv("SMDEBUG_CONFIG_FILE_PATH", str(config_file()))
    hook = smd.get_hook()
    assert isinstance(hook, smd.Hook)
    assert smd.get_hook() is hook
    with hook:
        train(matrix(), hook)
    assert read().steps() == [0, 1, 2]


def test_get_hook_gives_the_hook_there_is(new_hook):
    hook = new_hook()
    assert smd.get_hook() is hook
    hook.close()
    assert smd.get_hook(create_if_not_exists=False) is None


def test_get_hook_without_a_file_gives_none(monkeypatch, tmp_path):
    monkeypatch.setenv("SMDEBUG_CONFIG_FILE_PATH", str(tmp_path / "nowhere.json"))
    assert smd.get_hook() is None


def test_get_hook_can_be_switched_off(config_file, monkeypatch):
    monkeypatch.setenv("USE_SMDEBUG", "0")
    assert smd.get_hook(config_file()) is None


def test_the_script_of_the_original(out_dir, read, matrix):
    """As its page has it; only data, paths and the number of rounds are smaller."""
    dtrain, dvalidation = matrix(), matrix(20, seed=1)
    params = {"objective": "reg:squarederror", "eta": 0.2, "nthread": 1}
    hook = smd.Hook(
        out_dir=str(out_dir),
        save_config=smd.SaveConfig(save_interval=5),
        hyperparameters=params,
        train_data=dtrain,
        validation_data=dvalidation,
        include_collections=[
            "metrics", "feature_importance", "full_shap", "average_shap", "predictions", "labels",
            "hyperparameters",
        ],
    )  # fmt: skip
    xgb.train(
        params=params,
        dtrain=dtrain,
        num_boost_round=11,
        evals=[(dtrain, "train"), (dvalidation, "validation")],
        callbacks=[hook],
        verbose_eval=False,
    )
    trial = read()
    assert trial.steps() == [0, 5, 10]
    assert trial.tensor_names(collection="metrics") == ["train-rmse", "validation-rmse"]
    assert trial.tensor("hyperparameters/eta").value(0) == 0.2
    assert trial.tensor("predictions").value(10).shape == trial.tensor("labels").value(10).shape
    assert trial.tensor("average_shap/f0").value(10) > trial.tensor("average_shap/f3").value(10)
    assert trial.about["framework"] == "xgboost"
    assert trial.about["versions"]["xgboost"] == xgb.__version__
    hook.close()


def test_metrics_can_be_switched_off_by_their_save_config(new_hook, read, matrix, train):
    hook = new_hook(include_collections=["feature_importance"])
    hook.get_collection("metrics").save_config.end_step = 0
    train(matrix(), hook)
    assert "train-rmse" not in read().tensor_names()
    assert "feature_importance/gain/f0" in read().tensor_names()


def test_scalars_and_tensors_can_be_saved_by_hand(new_hook, read, matrix, train):
    hook = new_hook()

    class ByHand(xgb.callback.TrainingCallback):
        def after_iteration(self, model, epoch, evals_log):
            hook.save_scalar("depth", epoch)
            hook.save_tensor("extra", [1.0, epoch])

    train(matrix(), hook, ByHand())
    assert read().tensor("scalar/depth").value(2) == 2
    assert read().tensor("extra").value(2).tolist() == [1, 2]
