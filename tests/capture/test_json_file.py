"""A hook made from a configuration file."""

import json

import pytest

import tornasole
from tornasole import ReductionConfig, modes


@pytest.fixture
def config(tmp_path, out_dir):
    """Writes a configuration and returns its path."""

    def write(**content):
        path = tmp_path / "config.json"
        path.write_text(json.dumps({"LocalPath": str(out_dir), **content}))
        return path

    return write


@pytest.fixture
def from_file():
    hooks = []

    def make(*args, **options):
        hooks.append(tornasole.Hook.create_from_json_file(*args, **options))
        return hooks[-1]

    yield make
    for hook in hooks:
        hook.close()


def test_the_file_says_everything(config, from_file, out_dir):
    hook = from_file(
        config(
            HookParameters={
                "save_interval": "7",
                "eval.save_steps": "1,2",
                "include_regex": "relu,tanh",
                "reductions": "min,abs_l2",
                "include_workers": "all",
            },
            CollectionConfigurations=[
                {"CollectionName": "weights", "CollectionParameters": {"save_interval": 3}},
                {"CollectionName": "mine", "CollectionParameters": {"include_regex": "x"}},
            ],
        )
    )
    assert hook.out_dir == str(out_dir)
    assert hook.save_config.get_save_config(modes.TRAIN).save_interval == 7
    assert hook.save_config.get_save_config(modes.EVAL).save_steps == [1, 2]
    assert hook.reduction_config == ReductionConfig(reductions=["min"], abs_norms=["l2"])
    assert hook.include_collections == ["default", "mine", "weights"]
    assert hook.get_collection("weights").save_config.save_interval == 3
    assert hook.get_collection("weights").roles
    assert hook.get_collection("mine").include_regex == ["x"]
    assert hook.save_all_workers


def test_the_environment_names_the_file(monkeypatch, config, from_file, out_dir):
    monkeypatch.setenv("SMDEBUG_CONFIG_FILE_PATH", str(config(HookParameters={"save_all": "true"})))
    assert from_file().save_all


def test_a_missing_file_is_said_to_be_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.json"):
        tornasole.Hook.create_from_json_file(tmp_path / "none.json")


def test_without_any_path_the_one_of_sagemaker_is_looked_for(monkeypatch):
    monkeypatch.delenv("SMDEBUG_CONFIG_FILE_PATH", raising=False)
    monkeypatch.delenv("TORNASOLE_CONFIG_FILE_PATH", raising=False)
    with pytest.raises(FileNotFoundError, match=r"/opt/ml/input/config/debughookconfig\.json"):
        tornasole.Hook.create_from_json_file()


def test_arguments_that_the_file_does_not_cover_can_be_given(config, from_file):
    hook = from_file(
        config(CollectionConfigurations=[{"CollectionName": "typo"}]), on_error="raise"
    )
    with pytest.raises(tornasole.errors.SMDebugError, match="typo"):
        hook.begin_step()


def test_a_dry_run_can_be_asked_for(config, from_file, out_dir):
    hook = from_file(config(HookParameters={"dry_run": "true"}))
    hook.begin_step()
    hook.close()
    assert not out_dir.exists()
