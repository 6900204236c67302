"""What the documentation of ``smdebug`` states about hooks and modes, under both names."""

import json

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn

import tornasole.pytorch  # noqa: E402
from tornasole.errors import TensorUnavailableForStep  # noqa: E402


@pytest.fixture
def run(either_name, out_dir, net):
    """Trains the net with a hook of the given arguments and returns the trial."""
    smd = either_name

    def training(steps=1, prepare=lambda hook: None, mode=None, **options):
        loss = nn.CrossEntropyLoss()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        options = {"save_config": smd.SaveConfig(save_interval=1), **options}
        hook = smd.Hook(out_dir=str(out_dir), **options)
        hook.register_module(net)
        hook.register_loss(loss)
        prepare(hook)
        for _ in range(steps):
            optimizer.zero_grad()
            loss(net(torch.randn(5, 4)), torch.randint(0, 3, (5,))).backward()
            optimizer.step()
        hook.close()
        return smd.create_trial(out_dir=str(out_dir))

    return training


# -- names -----------------------------------------------------------------------------------------


def test_the_old_name_is_the_same_module():
    import smdebug.pytorch

    assert smdebug.pytorch.Hook is tornasole.pytorch.Hook


@pytest.mark.parametrize("name", [
    "Hook", "Collection", "CollectionKeys", "SaveConfig", "SaveConfigMode", "ReductionConfig",
    "modes", "create_trial", "get_hook", "set_hook", "del_hook",
])  # fmt: skip
def test_the_module_has_what_scripts_take_from_it(either_name, name):
    assert getattr(either_name, name)
    assert name in either_name.__all__


def test_a_name_that_does_not_exist_is_an_attribute_error(either_name):
    with pytest.raises(AttributeError, match="KerasHook"):
        _ = either_name.KerasHook


# -- glossary --------------------------------------------------------------------------------------


def test_a_step_is_the_work_done_for_one_batch(run):
    assert run(steps=4).steps() == [0, 1, 2, 3]


def test_the_glossary_works_as_written(either_name, out_dir):
    smd = either_name
    hook = smd.Hook(out_dir=str(out_dir))
    assert smd.modes.TRAIN.name == "TRAIN"
    assert hook.get_collection("losses").name == "losses"
    assert smd.SaveConfig(save_interval=10).save_interval == 10
    smd.ReductionConfig(reductions=["min", "max", "mean"], norms=["l1"])
    hook.close()
    assert smd.create_trial(out_dir=str(out_dir)).tensors() == []


def test_an_out_dir_that_exists_already_is_refused(either_name, out_dir):
    either_name.Hook(str(out_dir)).close()
    with pytest.raises(RuntimeError, match="already"):
        either_name.Hook(str(out_dir))


# -- arguments -------------------------------------------------------------------------------------


def test_the_arguments_have_the_order_of_the_seed(either_name, out_dir):
    smd = either_name
    reduction, save = smd.ReductionConfig(reductions=["min"]), smd.SaveConfig(save_interval=3)
    hook = smd.Hook(
        str(out_dir), False, None, True, reduction, save, ["relu"], ["weights"], True, "all"
    )
    assert hook.out_dir == str(out_dir)
    assert hook.dry_run
    assert hook.reduction_config == reduction
    assert hook.save_config == save
    assert hook.include_regex == ["relu"]
    assert hook.include_collections == ["all", "default", "losses", "weights"]
    assert hook.save_all
    assert hook.save_all_workers
    hook.close()


def test_dry_run_writes_no_files(either_name, out_dir, net):
    with either_name.Hook(str(out_dir), dry_run=True, save_all=True) as hook:
        hook.register_module(net)
        net(torch.randn(5, 4)).sum().backward()
        assert hook.step == 0
    assert not out_dir.exists()


def test_reduction_config_is_the_default_for_what_is_saved(run, either_name):
    trial = run(
        include_collections=["weights"],
        reduction_config=either_name.ReductionConfig(reductions=["mean"]),
    )
    assert trial.tensor("Net_fc1.weight").reduction_value(0, "mean") is not None
    with pytest.raises(TensorUnavailableForStep):
        trial.tensor("Net_fc1.weight").value(0)


def test_a_collection_may_have_its_own_reduction_config(run, either_name):
    def prepare(hook):
        config = either_name.ReductionConfig(reductions=["max"])
        hook.get_collection("biases").reduction_config = config

    trial = run(include_collections=["weights", "biases"], prepare=prepare)
    assert trial.tensor("Net_fc1.weight").value(0).shape == (8, 4)
    with pytest.raises(TensorUnavailableForStep):
        trial.tensor("Net_fc1.bias").value(0)


def test_save_config_says_when(run, either_name):
    trial = run(steps=7, save_config=either_name.SaveConfig(save_interval=3))
    assert trial.steps() == [0, 3, 6]


def test_a_collection_may_have_its_own_save_config(run, either_name):
    def prepare(hook):
        hook.get_collection("weights").save_config = either_name.SaveConfig(save_interval=3)

    trial = run(steps=5, include_collections=["weights"], prepare=prepare)
    assert trial.tensor("Net_fc1.weight").steps() == [0, 3]
    assert trial.tensor("CrossEntropyLoss_output_0").steps() == [0, 1, 2, 3, 4]


def test_include_regex_saves_what_matches(run):
    trial = run(include_regex=["relu", r"fc1\.weight"])
    assert set(trial.tensor_names(collection="default")) == {
        "relu_input_0",
        "relu_output_0",
        "Net_fc1.weight",
        "gradient/Net_fc1.weight",
    }


def test_include_collections_saves_those_named(run):
    trial = run(include_collections=["weights", "gradients"])
    assert len(trial.tensor_names(collection="weights")) == 3
    assert len(trial.tensor_names(collection="gradients")) == 6
    assert len(trial.tensor_names()) == 3 + 6 + 1


def test_include_collections_all_saves_everything(run):
    assert len(run(include_collections=["all"]).tensor_names()) > 25


def test_save_all_saves_all_tensors_and_collections(run):
    names = set(run(save_all=True).tensor_names())
    assert {
        "Net_fc1.weight",
        "Net_fc1.bias",
        "gradient/Net_fc1.weight",
        "relu_output_0",
        "Net_input_0",
        "CrossEntropyLoss_output_0",
    } <= names


def test_include_workers_one_saves_one_worker(run, monkeypatch, either_name, out_dir):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with either_name.Hook(str(out_dir)) as hook:
        assert hook.worker == "worker_1"
    assert not out_dir.exists()


# -- default collections ---------------------------------------------------------------------------


def test_losses_are_saved_whatever_the_configuration(run):
    assert run().tensor_names() == ["CrossEntropyLoss_output_0"]


def test_a_default_collection_is_disabled_by_end_step_0(run):
    def prepare(hook):
        hook.get_collection("losses").save_config.end_step = 0

    trial = run(steps=3, include_collections=["weights"], prepare=prepare)
    assert trial.tensor_names(collection="losses") == []
    assert trial.tensor("Net_fc1.weight").steps() == [0, 1, 2]


def test_a_collection_of_another_framework_can_be_disabled_too(run):
    def prepare(hook):
        hook.get_collection("metrics").save_config.end_step = 0

    assert run(prepare=prepare).tensor_names() == ["CrossEntropyLoss_output_0"]


# -- common API ------------------------------------------------------------------------------------


def test_add_collection_adds_a_collection(run, either_name):
    def prepare(hook):
        hook.add_collection(either_name.Collection("mine", include_regex=["relu_output"]))

    trial = run(include_collections=["mine"], prepare=prepare)
    assert trial.tensor_names(collection="mine") == ["relu_output_0"]


def test_get_collection_makes_one_that_matches_nothing_and_follows_the_hook(either_name, out_dir):
    hook = either_name.Hook(str(out_dir))
    mine = hook.get_collection("mine")
    assert isinstance(mine, either_name.Collection)
    assert mine.include_regex == []
    assert mine.tensor_names == frozenset()
    assert mine.reduction_config is None
    hook.close()


def test_get_collections_returns_all(either_name, out_dir):
    hook = either_name.Hook(str(out_dir))
    built_in = {"all", "default", "weights", "biases", "gradients", "losses"}
    assert built_in <= hook.get_collections().keys()
    hook.close()


@pytest.mark.parametrize("mode", ["TRAIN", "EVAL", "PREDICT", "GLOBAL"])
def test_set_mode_sets_the_mode_of_the_job(run, either_name, mode):
    mode = either_name.modes[mode]
    trial = run(prepare=lambda hook: hook.set_mode(mode))
    assert trial.mode(0) is mode


def test_global_is_the_mode_when_none_was_set(run, either_name):
    assert run().mode(0) is either_name.modes.GLOBAL


def test_the_modes_are_also_in_the_top_module(either_name):
    import smdebug

    assert smdebug.modes is either_name.modes


def test_create_from_json_file_takes_a_path(either_name, tmp_path, out_dir):
    path = tmp_path / "hook.json"
    path.write_text(
        json.dumps(
            {
                "S3OutputPath": "s3://bucket/prefix",
                "LocalPath": str(out_dir),
                "HookParameters": {"save_interval": "5"},
                "CollectionConfigurations": [
                    {"CollectionName": "losses", "CollectionParameters": {"end_step": "0"}}
                ],
            }
        )
    )
    hook = either_name.Hook.create_from_json_file(str(path))
    assert isinstance(hook, either_name.Hook)
    assert hook.save_config.save_interval == 5
    assert hook.get_collection("losses").save_config.end_step == 0
    hook.close()


def test_create_from_json_file_takes_the_path_from_the_environment(
    either_name, tmp_path, out_dir, monkeypatch
):
    path = tmp_path / "hook.json"
    path.write_text(json.dumps({"LocalPath": str(out_dir)}))
    monkeypatch.setenv("SMDEBUG_CONFIG_FILE_PATH", str(path))
    hook = either_name.Hook.create_from_json_file()
    assert hook.out_dir == str(out_dir)
    hook.close()


def test_close_closes(either_name, out_dir):
    hook = either_name.Hook(str(out_dir))
    hook.close()
    assert either_name.create_trial(str(out_dir)).state == "finished"


@pytest.mark.parametrize("sm_metric", [False, True])
def test_save_scalar_saves_a_scalar(run, sm_metric):
    trial = run(prepare=lambda hook: hook.save_scalar("lr", 0.1, sm_metric=sm_metric))
    assert trial.tensor("scalar/lr").value(0) == 0.1
    assert trial.tensor_names(collection="sm_metrics") == ["scalar/lr"] * sm_metric


@pytest.mark.parametrize("collections", ["mine", ["mine", "other"]])
def test_save_tensor_saves_an_array(run, collections):
    import numpy as np

    trial = run(prepare=lambda hook: hook.save_tensor("x", np.arange(3), collections))
    assert trial.tensor("x").value(0).tolist() == [0, 1, 2]
    assert trial.tensor_names(collection="mine") == ["x"]


# -- the current hook ------------------------------------------------------------------------------


def test_the_hook_made_is_the_current_one(either_name, out_dir):
    hook = either_name.Hook(str(out_dir))
    assert either_name.get_hook() is hook
    either_name.del_hook()
    assert either_name.get_hook() is None
    either_name.set_hook(hook)
    assert either_name.get_hook() is hook
    hook.close()


def test_get_hook_makes_one_from_a_file_if_asked(either_name, tmp_path, out_dir):
    path = tmp_path / "hook.json"
    path.write_text(json.dumps({"LocalPath": str(out_dir)}))
    assert either_name.get_hook(str(path)) is None
    hook = either_name.get_hook(str(path), create_if_not_exists=True)
    assert hook.out_dir == str(out_dir)
    assert either_name.get_hook(create_if_not_exists=True) is hook
    hook.close()


def test_get_hook_makes_none_without_a_file(either_name, tmp_path):
    assert either_name.get_hook(str(tmp_path / "none"), create_if_not_exists=True) is None


def test_get_hook_makes_none_when_switched_off(either_name, tmp_path, out_dir, monkeypatch):
    path = tmp_path / "hook.json"
    path.write_text(json.dumps({"LocalPath": str(out_dir)}))
    monkeypatch.setenv("USE_SMDEBUG", "0")
    assert either_name.get_hook(str(path), create_if_not_exists=True) is None


def test_the_trial_names_framework_and_version(run, out_dir):
    run()
    about = json.loads((out_dir / "trial.json").read_text())
    assert about["framework"] == "pytorch"
    assert about["versions"]["torch"] == torch.__version__
