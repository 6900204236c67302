"""A hook's configuration as JSON: every key, every precedence, every mistake."""

import json

import pytest

from tornasole.errors import SMDebugValueError
from tornasole.selection import (
    CONFIG_FILE_PATH_ENV_STR,
    DEFAULT_CONFIG_FILE_PATH,
    Collection,
    HookConfig,
    ReductionConfig,
    SaveConfig,
    SaveConfigMode,
)
from tornasole.selection.json_config import parse_bool, parse_list_from_str
from tornasole.types import ModeKeys


def parsed(hook=None, collections=None, environ=None, **arguments):
    config = {"HookParameters": hook, "CollectionConfigurations": collections}
    return HookConfig.from_dict(config, environ=environ or {}, **arguments)


def collection_of(parameters, hook=None, **arguments):
    entry = {"CollectionName": "mine", "CollectionParameters": parameters}
    return parsed(hook, [entry], **arguments).collections[0]


def intervals(config):
    return [config.get_save_config(mode).save_interval for mode in ModeKeys]


def test_an_empty_configuration_is_all_defaults():
    assert HookConfig.from_dict({}, environ={}) == HookConfig(
        out_dir="/opt/ml/output/tensors",
        include_collections=[],
        collections=[],
        save_config=SaveConfig(),
        reduction_config=None,
        include_regex=[],
        save_all=False,
        include_workers="one",
        export_tensorboard=False,
        tensorboard_dir=None,
        dry_run=False,
    )


def test_the_documented_example_is_read_whole():
    text = """{
      "S3OutputPath": "s3://bucket/prefix",
      "LocalPath": "/tmp/tensors",
      "HookParameters": {
        "save_all": "false", "include_regex": "regex1,regex2", "include_workers": "all",
        "save_interval": "100", "save_steps": "1,2,3,4", "start_step": "1", "end_step": "1000000",
        "train.save_interval": "200", "eval.save_steps": "0,5", "predict.end_step": "10",
        "global.start_step": "3",
        "reductions": "min,max,mean,std,abs_variance,abs_sum,l1_norm,abs_l2_norm",
        "save_raw_tensor": true, "save_shape": false,
        "export_tensorboard": "true", "tensorboard_dir": "/tmp/tb", "dry_run": "True"
      },
      "CollectionConfigurations": [
        {"CollectionName": "weights"},
        {"CollectionName": "relu_activations",
         "CollectionParameters": {"include_regex": "relu,tanh", "save_interval": "10",
                                  "eval.save_interval": 1, "reductions": "min,abs_max",
                                  "save_histogram": "false"}}
      ]
    }"""
    fields = {"start_step": 1, "end_step": 1000000, "save_steps": [1, 2, 3, 4]}
    hook = {mode: {"save_interval": 100, **fields} for mode in ModeKeys}
    hook[ModeKeys.TRAIN]["save_interval"] = 200
    hook[ModeKeys.EVAL]["save_steps"] = [0, 5]
    hook[ModeKeys.PREDICT]["end_step"] = 10
    hook[ModeKeys.GLOBAL]["start_step"] = 3
    relu = {mode: {**hook[mode], "save_interval": 10} for mode in ModeKeys}
    relu[ModeKeys.EVAL]["save_interval"] = 1
    assert HookConfig.from_json(text, environ={}) == HookConfig(
        out_dir="/tmp/tensors",
        include_collections=["weights", "relu_activations"],
        collections=[
            Collection("weights"),
            Collection(
                "relu_activations",
                ["relu", "tanh"],
                reduction_config=ReductionConfig(["min"], ["max"]),
                save_config=SaveConfig.from_dict(relu),
                save_histogram=False,
            ),
        ],
        save_config=SaveConfig.from_dict(hook),
        reduction_config=ReductionConfig(
            ["min", "max", "mean", "std"], ["variance", "sum"], ["l1"], ["l2"], save_raw_tensor=True
        ),
        include_regex=["regex1", "regex2"],
        save_all=False,
        include_workers="all",
        export_tensorboard=True,
        tensorboard_dir="/tmp/tb",
        dry_run=True,
    )


@pytest.mark.parametrize("key", ["HookParameters", "CollectionConfigurations"])
def test_a_part_may_be_null(key):
    assert HookConfig.from_dict({key: None}, environ={}) == HookConfig.from_dict({}, environ={})


def test_collection_parameters_may_be_null():
    assert collection_of(None) == Collection("mine")


def test_where_the_platform_uploads_to_is_ignored():
    paths = {"S3OutputPath": "s3://a", "S3Path": "s3://b"}
    assert HookConfig.from_dict(paths, environ={}).out_dir == "/opt/ml/output/tensors"


# Save configurations


def test_a_collection_key_wins_over_a_hook_key_and_a_prefixed_one_over_a_plain_one():
    config = parsed(
        {"save_interval": 1, "train.save_interval": 2, "eval.save_interval": 3},
        [
            {
                "CollectionName": "losses",
                "CollectionParameters": {"eval.save_interval": 4, "global.save_interval": 5},
            },
            {"CollectionName": "weights", "CollectionParameters": {}},
        ],
    )
    losses, weights = config.collections
    assert intervals(losses.save_config) == [2, 4, 1, 5]
    assert weights.save_config.is_open
    assert intervals(config.save_config) == [2, 3, 1, 1]


def test_a_plain_collection_key_wins_over_a_prefixed_hook_key():
    mine = collection_of({"save_interval": 7}, {"train.save_interval": 2})
    assert intervals(mine.save_config) == [7, 7, 7, 7]


def test_a_collection_takes_the_keys_it_lacks_from_the_hook():
    mine = collection_of({"end_step": 0}, {"save_interval": 2})
    assert mine.save_config == SaveConfig(save_interval=2, end_step=0)


@pytest.mark.parametrize("prefix", ["train.", "eval.", "predict.", "global."])
@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("save_interval", "7", 7),
        ("start_step", 7, 7),
        ("end_step", "7", 7),
        ("save_steps", "7, 8", [7, 8]),
        ("when_nan", "loss", ["loss"]),
    ],
)
def test_every_save_key_can_be_given_for_one_mode(prefix, key, value, expected):
    config = parsed({prefix + key: value}).save_config
    mode = ModeKeys[prefix[:-1].upper()]
    assert getattr(config.get_save_config(mode), key) == expected
    others = [config.get_save_config(other) for other in ModeKeys if other is not mode]
    assert others == [SaveConfigMode()] * 3


def test_the_default_interval_is_that_of_hook_and_collections():
    config = parsed(default_save_interval=10)
    assert intervals(config.save_config) == [10] * 4
    mine = collection_of({"end_step": 50}, default_save_interval=10)
    assert mine.save_config == SaveConfig(save_interval=10, end_step=50)


@pytest.mark.parametrize("steps", ["1,2", " 1 , 2,", [1, 2], ["1", "2"]])
def test_save_steps_may_be_a_string_or_a_list(steps):
    assert parsed({"save_steps": steps}).save_config == SaveConfig(save_steps=[1, 2])


# Forms


@pytest.mark.parametrize("value", [True, "true", "True"])
def test_a_raw_tensor_may_be_asked_for_by_a_string(value):
    config = parsed({"reductions": "l1,abs_median", "save_raw_tensor": value})
    assert config.reduction_config == ReductionConfig(
        abs_reductions=["median"], norms=["l1"], save_raw_tensor=True
    )


def test_a_shape_is_saved_beside_the_raw_tensor_without_reductions():
    expected = ReductionConfig(save_raw_tensor=True, save_shape=True)
    assert parsed({"save_shape": "true"}).reduction_config == expected


def test_a_shape_can_be_saved_instead_of_the_raw_tensor():
    config = parsed({"save_shape": True, "save_raw_tensor": False})
    assert config.reduction_config == ReductionConfig(save_shape=True)


def test_a_flag_of_a_collection_changes_that_of_the_hook():
    mine = collection_of({"save_raw_tensor": "true"}, {"reductions": "mean"})
    assert mine.reduction_config == ReductionConfig(["mean"], save_raw_tensor=True)


def test_reductions_of_a_collection_replace_those_of_the_hook():
    mine = collection_of({"reductions": "min"}, {"reductions": "mean", "save_raw_tensor": True})
    assert mine.reduction_config == ReductionConfig(["min"])


# Collections and regexes


def test_listing_a_collection_includes_it_once_under_its_own_name():
    entries = [{"CollectionName": name} for name in ("bias", "biases", "mine")]
    assert parsed(None, entries).include_collections == ["biases", "mine"]


@pytest.mark.parametrize("regexes", ["relu, tanh", ["relu", "tanh"]])
def test_regexes_may_be_a_string_or_a_list(regexes):
    assert parsed({"include_regex": regexes}).include_regex == ["relu", "tanh"]
    assert collection_of({"include_regex": regexes}).include_regex == ["relu", "tanh"]


def test_a_regex_in_a_list_may_have_a_comma():
    assert parsed({"include_regex": ["a{1,2}"]}).include_regex == ["a{1,2}"]


# TensorBoard


def test_on_sagemaker_a_file_of_the_platform_decides_about_tensorboard(tmp_path):
    path = tmp_path / "tensorboard.json"
    environ = {"TRAINING_JOB_NAME": "job", "TENSORBOARD_CONFIG_FILE_PATH": str(path)}
    hook = {"export_tensorboard": True, "tensorboard_dir": "/ignored"}
    without = parsed(hook, environ=environ)
    assert (without.export_tensorboard, without.tensorboard_dir) == (False, None)
    path.write_text('{"LocalPath": "/tmp/tb"}')
    config = parsed(environ=environ)
    assert (config.export_tensorboard, config.tensorboard_dir) == (True, "/tmp/tb")


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_damaged_tensorboard_file_is_refused_by_name(tmp_path, text):
    path = tmp_path / "tensorboard.json"
    path.write_text(text)
    environ = {"TRAINING_JOB_NAME": "job", "TENSORBOARD_CONFIG_FILE_PATH": str(path)}
    with pytest.raises(SMDebugValueError, match=r"tensorboard\.json"):
        parsed(environ=environ)


# Mistakes


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ([], "must be an object"),
        ({"HookParameter": {}}, "'HookParameter'.*mean 'HookParameters'"),
        ({"HookParameters": "save_all"}, "HookParameters must be an object"),
        ({"HookParameters": {"save_intervall": 1}}, "'save_intervall'.*mean 'save_interval'"),
        ({"HookParameters": {"train.save_step": 1}}, "mean 'train.save_steps'"),
        ({"CollectionConfigurations": {"weights": {}}}, "must be a list"),
        ({"CollectionConfigurations": ["weights"]}, "CollectionConfigurations must be an object"),
        ({"CollectionConfigurations": [{}]}, "no CollectionName"),
        ({"CollectionConfigurations": [{"CollectionName": None}]}, "no CollectionName"),
        ({"CollectionConfigurations": [{"Collection": "a"}]}, "mean 'CollectionName'"),
    ],
)
def test_a_wrong_structure_is_refused_with_the_place_and_the_nearest(config, message):
    with pytest.raises(SMDebugValueError, match=message):
        HookConfig.from_dict(config, environ={})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("save_interval", "0"),
        ("train.save_interval", "often"),
        ("eval.start_step", -1),
        ("predict.end_step", True),
        ("save_steps", "1,x"),
        ("save_steps", 5),
        ("save_steps", [1.5]),
        ("when_nan", "("),
        ("include_regex", "*relu"),
        ("include_regex", 5),
        ("reductions", "mean,maen"),
        ("save_raw_tensor", "yes"),
        ("save_shape", 1),
    ],
)
def test_a_wrong_value_is_refused_with_its_key_and_place(key, value):
    with pytest.raises(SMDebugValueError, match=rf"HookParameters: .*{key}"):
        parsed({key: value})
    with pytest.raises(SMDebugValueError, match=rf"CollectionParameters of 'mine': .*{key}"):
        collection_of({key: value})


@pytest.mark.parametrize("key", ["save_all", "dry_run", "export_tensorboard", "include_workers"])
@pytest.mark.parametrize("value", ["maybe", 1])
def test_a_wrong_hook_parameter_is_refused_by_name(key, value):
    with pytest.raises(SMDebugValueError, match=f"HookParameters: {key}"):
        parsed({key: value})


@pytest.mark.parametrize("key", ["save_all", "dry_run", "include_workers", "tensorboard_dir"])
def test_a_hook_parameter_is_not_one_of_a_collection(key):
    with pytest.raises(SMDebugValueError, match=f"'mine' has no key '{key}'"):
        collection_of({key: "true"})


def test_a_histogram_flag_is_not_a_hook_parameter():
    with pytest.raises(SMDebugValueError, match="no key 'save_histogram'"):
        parsed({"save_histogram": "true"})


# Files


def write(path, interval):
    path.write_text(json.dumps({"HookParameters": {"save_interval": interval}}))
    return path


def test_the_file_is_the_argument_then_our_variable_then_the_old_one(tmp_path):
    paths = [write(tmp_path / f"{i}.json", i) for i in (1, 2, 3)]
    environ = {
        "TORNASOLE_CONFIG_FILE_PATH": str(paths[1]),
        "SMDEBUG_CONFIG_FILE_PATH": str(paths[2]),
    }
    assert HookConfig.from_file(paths[0], environ=environ).save_config.save_interval == 1
    assert HookConfig.from_file(environ=environ).save_config.save_interval == 2
    del environ["TORNASOLE_CONFIG_FILE_PATH"]
    assert HookConfig.from_file(environ=environ).save_config.save_interval == 3


def test_the_variable_is_read_from_the_environment_of_the_process(tmp_path, monkeypatch):
    monkeypatch.delenv("TORNASOLE_CONFIG_FILE_PATH", raising=False)
    monkeypatch.setenv(CONFIG_FILE_PATH_ENV_STR, str(write(tmp_path / "a.json", 7)))
    assert HookConfig.from_file().save_config.save_interval == 7


def test_the_default_interval_reaches_a_file(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("{}")
    config = HookConfig.from_file(path, default_save_interval=10, environ={})
    assert config.save_config.save_interval == 10


@pytest.mark.parametrize(
    ("argument", "environ", "reason"),
    [
        ("/nowhere/a.json", {}, "/nowhere/a.json.*argument"),
        (None, {CONFIG_FILE_PATH_ENV_STR: "/nowhere/b.json"}, "b.json.*SMDEBUG_CONFIG_FILE_PATH"),
        (None, {"TORNASOLE_CONFIG_FILE_PATH": "/nowhere/c.json"}, "c.json.*TORNASOLE_CONFIG"),
        (None, {}, f"{DEFAULT_CONFIG_FILE_PATH}.*default"),
    ],
)
def test_a_missing_file_is_reported_with_why_it_was_looked_for(argument, environ, reason):
    with pytest.raises(FileNotFoundError, match=reason):
        HookConfig.from_file(argument, environ=environ)


def test_a_file_that_is_not_json_is_reported_with_name_and_position(tmp_path):
    path = tmp_path / "broken.json"
    path.write_text('{\n "LocalPath": }')
    with pytest.raises(
        SMDebugValueError, match=r"broken\.json: not valid JSON at line 2, column 15"
    ):
        HookConfig.from_file(path, environ={})


def test_a_file_that_is_not_text_is_reported_by_name(tmp_path):
    path = tmp_path / "broken.json"
    path.write_bytes(b'{"LocalPath": "\xff\xfe"}')
    with pytest.raises(SMDebugValueError, match=r"broken\.json: not text"):
        HookConfig.from_file(path, environ={})


def test_a_mistake_in_a_file_is_reported_with_the_name_of_the_file(tmp_path):
    path = write(tmp_path / "wrong.json", 0)
    with pytest.raises(SMDebugValueError, match=r"wrong\.json: HookParameters: .*save_interval"):
        HookConfig.from_file(path, environ={})


@pytest.mark.parametrize(
    ("arg", "flag"), [(None, True), (False, False), ("True", True), ("false", False)]
)
def test_parse_bool_reads_flags_as_configurations_spell_them(arg, flag):
    assert parse_bool(arg, True) is flag


def test_parse_bool_refuses_anything_else():
    with pytest.raises(ValueError, match="perhaps"):
        parse_bool("perhaps", True)


@pytest.mark.parametrize(
    ("arg", "items"), [(None, []), ("", []), ("a, b", ["a", " b"]), (["a"], ["a"])]
)
def test_parse_list_from_str_splits_at_commas(arg, items):
    assert parse_list_from_str(arg) == items
