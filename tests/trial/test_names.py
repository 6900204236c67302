"""Which tensors there are, by step, mode, regex and collection; what the collections are."""

import pytest

from tornasole.errors import (
    CorruptTrial,
    MissingCollectionFiles,
    SMDebugTypeError,
    SMDebugValueError,
    TensorUnavailable,
)
from tornasole.selection import Collection
from tornasole.types import ModeKeys, Role


@pytest.fixture
def trial(run, records):
    run.collections(
        weights={"roles": ["weight"]},
        losses={"roles": ["loss"]},
        biases={"roles": ["bias"]},
        relu={"include_regex": ["relu"]},
        chosen={"tensor_names": ["conv.weight", "absent"]},
    )
    loss = records.scalar("loss", 1)
    weight = records.raw("conv.weight", [1.0])
    bias = records.scalar("conv.bias", 1, role="bias", collections=("biases",))
    relu = records.reduced("relu.out", role="layer_output", collections=("mine",), mean=1)
    run.step(0, loss, weight, mode=ModeKeys.TRAIN, mode_step=0)
    run.step(1, loss, bias, mode=ModeKeys.TRAIN, mode_step=1)
    run.step(2, relu, mode=ModeKeys.EVAL, mode_step=0)
    return run.end().trial()


def test_all_names_come_sorted(trial):
    assert trial.tensor_names() == ["conv.bias", "conv.weight", "loss", "relu.out"]
    assert trial.tensors() == trial.tensor_names()


def test_names_of_a_step(trial):
    assert trial.tensor_names(step=1) == ["conv.bias", "loss"]
    assert trial.tensor_names(step=99) == []


def test_names_of_a_mode(trial):
    assert trial.tensor_names(mode=ModeKeys.EVAL) == ["relu.out"]
    assert trial.tensor_names(mode=ModeKeys.PREDICT) == []


def test_names_of_a_step_of_a_mode(trial):
    assert trial.tensor_names(step=0, mode=ModeKeys.EVAL) == ["relu.out"]
    assert trial.tensor_names(step=7, mode=ModeKeys.EVAL) == []


@pytest.mark.parametrize(
    ("regex", "names"),
    [
        ("conv", ["conv.bias", "conv.weight"]),
        (["^loss$", ["relu"]], ["loss", "relu.out"]),
        ("nothing", []),
        ([], []),
    ],
)
def test_names_by_regex(trial, regex, names):
    assert trial.tensor_names(regex=regex) == names


def test_a_bad_regex_is_named(trial):
    with pytest.raises(SMDebugValueError, match=r"regex: '\(' is not a valid"):
        trial.tensor_names(regex="(")


@pytest.mark.parametrize(
    ("collection", "names"),
    [
        ("weights", ["conv.weight"]),
        ("relu", ["relu.out"]),
        ("chosen", ["conv.weight"]),
        ("bias", ["conv.bias"]),
        ("unknown", []),
        (Collection("own", include_regex="los"), ["loss"]),
        (Collection("own", roles=[Role.BIAS], tensor_names=["loss"]), ["conv.bias", "loss"]),
    ],
)
def test_names_by_collection(trial, collection, names):
    assert trial.tensor_names(collection=collection) == names


def test_what_was_saved_under_a_collection_belongs_to_it(trial):
    assert trial.tensor_names(collection="mine") == ["relu.out"]


def test_filters_combine(trial):
    assert trial.tensor_names(step=0, mode=ModeKeys.TRAIN, regex="conv") == ["conv.weight"]


def test_a_regex_and_a_collection_together_are_refused(trial):
    with pytest.raises(ValueError, match="not both"):
        trial.tensor_names(regex="a", collection="weights")


def test_a_collection_of_another_type_is_refused(trial):
    with pytest.raises(SMDebugTypeError, match="collection"):
        trial.tensor_names(collection=3)


def test_filters_are_keywords(trial):
    with pytest.raises(TypeError):
        trial.tensor_names(False, 1)


def test_the_collections_come_by_name(trial):
    assert sorted(trial.collections()) == ["biases", "chosen", "losses", "relu", "weights"]
    assert trial.collection("chosen").tensor_names == {"conv.weight", "absent"}


def test_a_collection_can_be_changed_for_this_trial(trial):
    trial.collection("relu").include("conv")
    assert trial.tensor_names(collection="relu") == ["conv.bias", "conv.weight", "relu.out"]


def test_a_new_collection_can_be_made_for_this_trial(trial):
    trial.collection("new").include("loss")
    assert trial.tensor_names(collection="new") == ["loss"]


def test_a_collection_that_comes_later_is_seen(run):
    trial = run.collections(first={}).steps(0).trial()
    mine = trial.collection("first")
    run.collections(first={}, second={}).steps(1)
    assert sorted(trial.collections()) == ["first", "second"]
    assert trial.collection("first") is mine


def test_a_run_that_ended_without_collections_says_so(run):
    with pytest.raises(MissingCollectionFiles):
        run.steps(0).end().trial().collections()


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"collections": []},
        {"collections": {"a": 3}},
        {"collections": {"a": {"name": ""}}},
        {"collections": {"a": {"name": "a", "roles": ["nonsense"]}}},
    ],
)
def test_damaged_collections_name_their_file(run, content):
    run.steps(0).write("worker_0/collections.json", content)
    with pytest.raises(CorruptTrial, match=r"worker_0/collections\.json"):
        run.trial().collections()


def test_a_tensor_that_is_there(trial):
    assert trial.has_tensor("loss")
    assert trial.tensor("loss").name == "loss"


def test_an_unknown_tensor_comes_with_the_nearest_names(trial):
    assert not trial.has_tensor("conv.weights")
    with pytest.raises(TensorUnavailable, match=r"Did you mean 'conv\.weight'") as caught:
        trial.tensor("conv.weights")
    assert caught.value.tname == "conv.weights"


def test_workers_come_sorted(start):
    run = start(workers=2).steps(0, worker="worker_1").steps(0, worker="worker_0")
    assert run.trial().workers() == ["worker_0", "worker_1"]
    assert run.trial().num_workers == 2


def test_other_folders_in_the_trial_are_no_workers(start):
    run = start(workers=2).write("tensorboard/events.json", {}).write("findings/a.jsonl", {})
    assert run.steps(0).trial().workers() == ["worker_0"]
