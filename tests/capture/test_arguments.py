"""What a hook is given: where to save, what, in which form, and what it refuses."""

import json
import logging

import numpy as np
import pytest

import tornasole
from tornasole import Collection, ReductionConfig, SaveConfig, SaveConfigMode, modes
from tornasole.errors import (
    InvalidCollectionConfiguration,
    SMDebugError,
    SMDebugRuntimeError,
    SMDebugTypeError,
    SMDebugValueError,
)


def step_with(hook, **tensors):
    hook.begin_step()
    for name, value in tensors.items():
        hook.save_tensor(name, value)


# -- out_dir ---------------------------------------------------------------------------------------


def test_a_hook_needs_a_place():
    with pytest.raises(SMDebugRuntimeError, match="out_dir"):
        tornasole.Hook()


@pytest.mark.parametrize("bad", [3, b"x", ["a"]])
def test_a_place_is_a_path(bad):
    with pytest.raises(SMDebugTypeError, match="out_dir"):
        tornasole.Hook(bad)


def test_an_empty_path_is_no_place():
    with pytest.raises(SMDebugValueError, match="path of a trial"):
        tornasole.Hook("")


def test_an_empty_folder_is_a_fine_place(new_hook, out_dir, read):
    out_dir.mkdir()
    hook = new_hook()
    step_with(hook, x=[1])
    hook.close()
    assert read().steps() == [0]


def test_a_path_object_and_a_home_folder_are_understood(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    tornasole.Hook("~/runs/1").close()
    assert (tmp_path / "runs/1/trial.json").exists()


def test_memory_is_a_place_too(new_hook, read):
    hook = new_hook("memory://test_arguments")
    step_with(hook, x=[1, 2])
    hook.close()
    assert read("memory://test_arguments").tensor("x").value(0).tolist() == [1, 2]


def test_a_finished_trial_is_not_overwritten(new_hook, out_dir):
    new_hook().close()
    before = (out_dir / "trial.json").read_bytes()
    with pytest.raises(SMDebugRuntimeError, match="finished trial"):
        tornasole.Hook(out_dir)
    assert (out_dir / "trial.json").read_bytes() == before


def test_an_unfinished_trial_is_not_mixed_with(new_hook, out_dir):
    new_hook()
    with pytest.raises(SMDebugRuntimeError, match="not ended"):
        tornasole.Hook(out_dir)


def test_a_folder_with_other_files_is_left_alone(out_dir):
    out_dir.mkdir()
    (out_dir / "notes.txt").write_text("mine")
    with pytest.raises(SMDebugRuntimeError, match=r"notes\.txt"):
        tornasole.Hook(out_dir)
    assert [path.name for path in out_dir.iterdir()] == ["notes.txt"]


def test_a_place_that_cannot_be_written_is_refused_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SMDebugRuntimeError, match="cannot be written"):
        tornasole.Hook(tmp_path / "file" / "below")


def test_a_full_disk_is_refused_at_once(full_disk, out_dir):
    full_disk()
    with pytest.raises(SMDebugRuntimeError, match="No space left"):
        tornasole.Hook(out_dir)


def test_a_refused_hook_does_not_become_the_current_one(out_dir):
    with pytest.raises(SMDebugRuntimeError):
        tornasole.Hook()
    assert tornasole.get_hook() is None


# -- wrong arguments -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        ("include_workers", "some"),
        ("when_full", "explode"),
        ("on_error", "ignore"),
        ("reduction_config", {"reductions": ["min"]}),
        ("save_config", 100),
        ("include_regex", 3),
        ("include_regex", ["("]),
        ("include_collections", 3),
        ("include_collections", [None, 3]),
    ],
)
def test_a_wrong_argument_is_refused_by_name_and_leaves_nothing_behind(out_dir, field, bad):
    with pytest.raises(SMDebugError, match=field):
        tornasole.Hook(out_dir, **{field: bad})
    assert not out_dir.exists()


def test_tensorboard_is_said_to_be_missing(new_hook, caplog):
    with caplog.at_level(logging.WARNING, "tornasole"):
        new_hook(export_tensorboard=True)
    assert "TensorBoard" in caplog.text


# -- dry run ---------------------------------------------------------------------------------------


def test_a_dry_run_writes_nothing(new_hook, out_dir):
    hook = new_hook(dry_run=True, save_all=True, save_config=SaveConfig(save_interval=1))
    for _ in range(3):
        step_with(hook, x=[1, 2])
        hook.save_scalar("s", 1)
    hook.close()
    assert hook.step == 2
    assert not out_dir.exists()


def test_a_dry_run_may_point_at_a_trial(new_hook, out_dir):
    new_hook().close()
    new_hook(dry_run=True).close()


# -- collections -----------------------------------------------------------------------------------


def test_get_collection_returns_the_same_one_each_time(new_hook):
    hook = new_hook()
    assert hook.get_collection("mine") is hook.get_collection("mine")
    assert hook.get_collections()["mine"] is hook.get_collection("mine")


def test_get_collection_can_refuse_to_make_one(new_hook):
    with pytest.raises(SMDebugError, match="mine"):
        new_hook().get_collection("mine", create=False)


def test_both_spellings_of_a_collection_are_one(new_hook):
    hook = new_hook(include_collections=["bias", "input"])
    assert hook.get_collection("bias") is hook.get_collection("biases")
    assert hook.include_collections == ["biases", "inputs"]


def test_the_name_of_a_collection_is_a_string(new_hook):
    with pytest.raises(SMDebugTypeError):
        new_hook().get_collection(3)


def test_add_collection_replaces_the_one_of_that_name(new_hook):
    hook = new_hook()
    mine = Collection("mine", include_regex="x")
    hook.get_collection("mine")
    hook.add_collection(mine)
    assert hook.get_collection("mine") is mine


def test_add_collection_leaves_a_built_in_one_its_roles(new_hook):
    hook = new_hook()
    roles = hook.get_collection("weights").roles
    hook.add_collection(Collection("weights", include_regex="x"))
    assert hook.get_collection("weights").roles == roles != frozenset()


@pytest.mark.parametrize("bad", ["weights", None, 3])
def test_add_collection_takes_collections_only(new_hook, bad):
    with pytest.raises(SMDebugTypeError, match="Collection"):
        new_hook().add_collection(bad)


def test_include_collections_may_be_a_string_or_nested_lists(new_hook, tmp_path):
    nested = new_hook(include_collections=["weights", ["biases", ["gradients"]]])
    assert nested.include_collections == ["biases", "gradients", "weights"]
    assert new_hook(tmp_path / "2", include_collections="weights").include_collections == [
        "weights"
    ]


def test_an_unknown_included_collection_is_an_error_at_the_first_step(new_hook):
    hook = new_hook(include_collections=["weigths"])
    with pytest.raises(SMDebugValueError, match=r"'weigths'.*'weights'"):
        hook.begin_step()


def test_an_unknown_included_collection_is_logged_and_training_goes_on(new_hook, caplog):
    hook = new_hook(include_collections=["weigths"], on_error="warn")
    hook.begin_step()
    assert "'weigths'" in caplog.text


def test_an_included_collection_may_be_made_before_the_first_step(new_hook):
    hook = new_hook(include_collections=["mine"])
    hook.get_collection("mine").include("x")
    hook.begin_step()
    assert hook.step == 0


def test_an_included_collection_that_can_hold_nothing_is_an_error(new_hook):
    hook = new_hook(include_collections=["mine"])
    hook.get_collection("mine")
    with pytest.raises(InvalidCollectionConfiguration, match="mine"):
        hook.begin_step()


def test_include_regex_fills_and_includes_the_default_collection(new_hook):
    hook = new_hook(include_regex=["relu", ["tanh"]])
    assert hook.include_regex == ["relu", "tanh"]
    assert hook.include_collections == ["default"]
    assert hook.get_collection("default").include_regex == ["relu", "tanh"]


def test_save_all_includes_all(new_hook):
    hook = new_hook(save_all=True)
    assert hook.save_all
    assert hook.include_collections == ["all"]


def test_the_defaults_are_those_of_the_seed(new_hook):
    hook = new_hook()
    assert hook.save_config == SaveConfig(save_interval=500)
    assert hook.reduction_config == ReductionConfig(save_raw_tensor=True)
    assert not hook.dry_run
    assert not hook.save_all
    assert hook.include_workers == "one"


@pytest.mark.parametrize(
    "given",
    [
        SaveConfig(save_interval=3),
        SaveConfigMode(save_interval=3),
        {"TRAIN": {"save_interval": 3}},
        {modes.TRAIN: SaveConfigMode(save_interval=3)},
    ],
)
def test_save_config_may_be_given_in_several_forms(new_hook, given):
    assert new_hook(save_config=given).save_config.get_save_config(modes.TRAIN).save_interval == 3


# -- what the trial says about itself --------------------------------------------------------------


def test_the_trial_says_what_was_asked_for(new_hook, read):
    hook = new_hook(
        include_collections=["mine"],
        save_config=SaveConfig(save_interval=7),
        reduction_config=ReductionConfig(reductions=["min"]),
    )
    hook.get_collection("mine").include("x")
    hook.begin_step()
    hook.close()
    mine = read().collection("mine")
    assert mine.include_regex == ["x"]
    assert mine.save_config.get_save_config(modes.EVAL).save_interval == 7
    assert mine.reduction_config.reductions == ["min"]


def test_what_was_asked_for_can_be_read_from_the_first_step_on(new_hook, read):
    hook = new_hook()
    hook.get_collection("mine").include("x")
    hook.begin_step()
    assert "mine" in read().collections()


def test_the_trial_names_its_framework_and_versions(new_hook, out_dir):
    new_hook()
    about = json.loads((out_dir / "trial.json").read_text())
    assert about["framework"] == "numpy"
    assert about["versions"]["tornasole"] == tornasole.__version__
    assert {"python", "numpy"} <= about["versions"].keys()


# -- workers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rank", "size"),
    [
        ("RANK", "WORLD_SIZE"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMI_RANK", "PMI_SIZE"),
    ],
)
def test_the_launcher_says_which_worker_this_is(monkeypatch, new_hook, rank, size):
    monkeypatch.setenv(rank, "2")
    monkeypatch.setenv(size, "4")
    hook = new_hook(include_workers="all")
    assert hook.worker == "worker_2"
    assert hook.chief_worker == "worker_0"
    assert hook.save_all_workers


@pytest.mark.parametrize(("rank", "size"), [("x", "4"), ("4", "4"), ("", ""), ("-1", "2")])
def test_a_launcher_that_makes_no_sense_is_not_believed(monkeypatch, new_hook, rank, size):
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", size)
    assert new_hook().worker == "worker_0"


def test_of_several_workers_one_saves(monkeypatch, new_hook, out_dir):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    hook = new_hook(include_workers="one")
    step_with(hook, x=[1, 2])
    hook.close()
    assert not out_dir.exists()


def test_of_several_workers_all_save_if_asked(monkeypatch, new_hook, read):
    monkeypatch.setenv("WORLD_SIZE", "2")
    hooks = []
    for rank in "01":
        monkeypatch.setenv("RANK", rank)
        hooks.append(new_hook(include_workers="all"))
    for hook in hooks:
        step_with(hook, x=[1, 2])
        hook.close()
    assert read().workers() == ["worker_0", "worker_1"]
    assert read().tensor("x").workers(0) == ["worker_0", "worker_1"]


def test_a_collection_that_cannot_be_saved_does_not_keep_the_others_from_it(new_hook, read):
    hook = new_hook(include_collections=["weigths"], include_regex=["loss"], on_error="warn")
    hook.begin_step()
    hook.save_tensor("loss", 1.0)
    hook.close()
    assert read().tensor_names() == ["loss"]


def test_what_is_saved_by_hand_belongs_to_all_when_all_is_saved(new_hook, read):
    hook = new_hook(save_all=True)
    hook.begin_step()
    hook.save_tensor("mine", 1.0)
    hook.save_scalar("two", 2)
    hook.close()
    assert read().tensor_names(collection="all") == ["mine", "scalar/two"]


def test_a_collection_added_under_the_singular_name_is_found_under_the_plural(new_hook):
    hook = new_hook()
    mine = Collection("bias")
    hook.add_collection(mine)
    assert hook.get_collection("biases") is mine


@pytest.mark.parametrize("field", ["dry_run", "save_all", "export_tensorboard"])
def test_a_flag_that_is_no_flag_is_refused_by_name(out_dir, field):
    with pytest.raises(TypeError, match=field):
        tornasole.Hook(out_dir, **{field: "false"})


@pytest.mark.parametrize("size", ["x", None, -1, 0, 1.5])
def test_a_queue_of_no_size_is_refused(out_dir, size):
    with pytest.raises(ValueError, match="queue_bytes"):
        tornasole.Hook(out_dir, queue_bytes=size)


def test_a_process_that_does_not_save_copies_nothing(out_dir, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with tornasole.Hook(out_dir) as hook:
        hook.begin_step()
        hook.save_tensor("x", np.ones(10))
        assert hook._recorder._pool._lent == 0
    assert not out_dir.exists()


def test_a_tensor_of_one_element_has_the_reductions_asked_for(new_hook, read):
    config = ReductionConfig(reductions=["min", "std"], norms=["l1"])
    hook = new_hook()
    hook.get_collection("mine").reduction_config = config
    hook.begin_step()
    hook.save_tensor("x", np.array([-2.0]), "mine")
    hook.close()
    found = read().tensor("x").reduction_values(0)
    assert found == {("min", False): -2, ("std", False): 0, ("l1", False): 2}
