"""Which tensors belong together: membership, configuration, revisions and JSON."""

import json

import pytest

from tornasole.errors import SMDebugTypeError, SMDebugValueError
from tornasole.selection import (
    Collection,
    CollectionKeys,
    ReductionConfig,
    SaveConfig,
    SaveConfigMode,
    canonical_name,
)
from tornasole.types import ModeKeys, Role


def test_a_new_collection_matches_nothing():
    collection = Collection("mine")
    assert collection.is_empty
    assert not collection.matches("relu", Role.OUTPUT)


def test_a_new_collection_saves_histograms_and_follows_the_hook():
    collection = Collection("mine")
    assert collection.save_histogram is True
    assert collection.reduction_config is None
    assert collection.save_config.is_open


def test_a_tensor_belongs_by_its_role():
    collection = Collection("mine", roles=[Role.WEIGHT])
    assert collection.matches("anything", Role.WEIGHT)
    assert not collection.matches("anything", Role.BIAS)


def test_a_tensor_belongs_by_its_name():
    collection = Collection("mine", tensor_names=["fc"])
    assert collection.matches("fc", Role.WEIGHT)
    assert not collection.matches("fc1", Role.WEIGHT)


@pytest.mark.parametrize("name", ["relu", "my_relu_output_0"])
def test_a_tensor_belongs_if_a_regex_is_found_anywhere_in_its_name(name):
    assert Collection("mine", include_regex=["tanh", "relu"]).matches(name, Role.OUTPUT)


@pytest.mark.parametrize("role", [Role.CUSTOM, None])
def test_everything_belongs_to_all(role):
    assert Collection(CollectionKeys.ALL).matches("anything", role)


def test_include_takes_a_regex_or_nested_lists():
    collection = Collection("mine", ["a"])
    collection.include("b")
    collection.include(["c", ["d", ("e",)]])
    assert collection.include_regex == ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize("value", [None, 3, [3], {"a": 1}])
def test_include_refuses_anything_else(value):
    with pytest.raises(SMDebugTypeError):
        Collection("mine").include(value)


def test_a_bad_regex_is_refused_with_collection_pattern_and_reason():
    with pytest.raises(SMDebugValueError, match=r"'mine': '\*relu' .*nothing to repeat"):
        Collection("mine").include("*relu")


def test_a_refused_regex_leaves_the_collection_as_it_was():
    collection = Collection("mine", ["a"])
    with pytest.raises(SMDebugValueError):
        collection.include(["b", "("])
    assert collection.include_regex == ["a"]


def test_include_regex_can_be_assigned():
    collection = Collection("mine", ["a"])
    collection.include_regex = ["b"]
    assert collection.include_regex == ["b"]
    assert not collection.matches("a")


@pytest.mark.parametrize("names", [["a", "b"], {"a", "b"}, ("b", "a", "a")])
def test_tensor_names_can_be_assigned_and_are_a_set(names):
    collection = Collection("mine")
    collection.tensor_names = names
    assert collection.tensor_names == {"a", "b"}


@pytest.mark.parametrize("names", ["a", 3, [3], [["a"]]])
def test_other_tensor_names_are_refused(names):
    with pytest.raises(SMDebugTypeError, match=r"tensor.names?"):
        Collection("mine", tensor_names=names)


def test_an_unknown_role_is_refused_with_the_nearest():
    with pytest.raises(SMDebugValueError, match="Did you mean 'weight'"):
        Collection.from_dict({"name": "mine", "roles": ["weights"]})


def test_tensor_names_can_be_added_and_removed():
    collection = Collection("mine")
    collection.add_tensor_name("a")
    assert collection.has_tensor_name("a")
    collection.remove_tensor_name("a")
    assert not collection.has_tensor_name("a")
    collection.remove_tensor_name("never there")


def test_a_noted_name_is_listed_but_asks_for_nothing():
    collection = Collection("mine", roles=[Role.WEIGHT])
    before = collection.revision
    collection.note_tensor_name("fc")
    assert collection.tensor_names == {"fc"}
    assert not collection.selects_by_name
    assert collection.revision == before


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.include("b"),
        lambda c: setattr(c, "include_regex", []),
        lambda c: setattr(c, "tensor_names", ["x"]),
        lambda c: c.add_tensor_name("x"),
        lambda c: c.remove_tensor_name("fc"),
        lambda c: c.set_reduction_config(ReductionConfig(["min"])),
        lambda c: c.merge(Collection("other", roles=[Role.BIAS])),
    ],
)
def test_the_revision_grows_with_every_change_of_members_or_form(change):
    collection = Collection("mine", ["a"], ["fc"])
    before = collection.revision
    change(collection)
    assert collection.revision > before


def test_two_collections_never_have_the_same_revision():
    assert Collection("mine").revision != Collection("mine").revision


def test_end_step_can_be_assigned_on_a_collection_that_follows_the_hook():
    collection = Collection("metrics")
    collection.save_config.end_step = 0
    assert not collection.save_config.should_save_step(ModeKeys.TRAIN, 0)


@pytest.mark.parametrize(
    "value",
    [
        SaveConfig({ModeKeys.TRAIN: SaveConfigMode(2)}),
        {ModeKeys.TRAIN: SaveConfigMode(2)},
        {"TRAIN": {"save_interval": 2}},
    ],
)
def test_a_save_config_may_be_a_dict_by_mode(value):
    collection = Collection("mine")
    collection.set_save_config(value)
    assert collection.save_config == SaveConfig({ModeKeys.TRAIN: SaveConfigMode(2)})


def test_a_save_config_may_be_that_of_one_mode():
    assert Collection("mine", save_config=SaveConfigMode(2)).save_config == SaveConfig(
        save_interval=2
    )


def test_assigning_none_lets_a_collection_follow_the_hook_again():
    collection = Collection("mine", save_config=SaveConfig(), reduction_config=ReductionConfig())
    collection.save_config = collection.reduction_config = None
    assert collection == Collection("mine")


@pytest.mark.parametrize("field", ["save_config", "reduction_config"])
@pytest.mark.parametrize("value", [3, "mean"])
def test_a_configuration_of_another_type_is_refused(field, value):
    with pytest.raises(SMDebugTypeError, match=field):
        setattr(Collection("mine"), field, value)


@pytest.mark.parametrize("name", [None, 3, ""])
def test_a_collection_needs_a_name(name):
    with pytest.raises(SMDebugTypeError):
        Collection(name)


@pytest.mark.parametrize(
    ("name", "means"),
    [("bias", "biases"), ("input", "inputs"), ("output", "outputs"), ("mine", "mine")],
)
def test_both_spellings_of_a_name_mean_the_same_collection(name, means):
    assert canonical_name(name) == means
    assert canonical_name(means) == means


def test_merging_adds_members_and_adopts_configurations():
    weights = Collection("weights", roles=[Role.WEIGHT], reduction_config=ReductionConfig(["min"]))
    weights.merge(Collection("weights", ["relu"], ["fc"], save_config=SaveConfigMode(2)))
    assert weights == Collection(
        "weights",
        ["relu"],
        ["fc"],
        ReductionConfig(["min"]),
        SaveConfigMode(2),
        roles=[Role.WEIGHT],
    )


def test_merging_a_collection_that_configures_nothing_changes_no_configuration():
    weights = Collection("weights", save_config=SaveConfigMode(2), save_histogram=False)
    weights.merge(Collection("weights"))
    assert weights == Collection("weights", save_config=SaveConfigMode(2), save_histogram=False)


def test_the_json_has_the_reference_keys_and_roles():
    collection = Collection("weights", ["w"], ["b", "a"], roles=[Role.WEIGHT])
    collection.note_tensor_name("c")
    assert collection.to_json_dict() == {
        "name": "weights",
        "include_regex": ["w"],
        "tensor_names": ["a", "b", "c"],
        "reduction_config": None,
        "save_config": None,
        "save_histogram": True,
        "roles": ["weight"],
    }


@pytest.mark.parametrize(
    "collection",
    [
        Collection("mine"),
        Collection(
            "mine",
            ["a,b"],
            {"x"},
            ReductionConfig(["min"]),
            SaveConfig({ModeKeys.EVAL: SaveConfigMode(3)}),
            False,
            roles=[Role.LOSS, Role.METRIC],
        ),
    ],
)
def test_a_collection_survives_json(collection):
    assert Collection.from_json(collection.to_json()) == collection
    assert json.loads(collection.to_json()) == collection.to_json_dict()


def test_a_collection_of_a_reference_trial_is_read_without_roles():
    fields = {"save_interval": 500, "save_steps": [], "start_step": 0, "end_step": None}
    collection = Collection.from_dict(
        {
            "name": "weights",
            "include_regex": ["^(?!gradient).*weight"],
            "tensor_names": ["Net_fc1.weight"],
            "reduction_config": {"save_raw_tensor": True, "reductions": "", "save_shape": False},
            "save_config": {mode.name: fields for mode in ModeKeys},
            "save_histogram": True,
        }
    )
    assert collection.save_config == SaveConfig()
    assert collection.reduction_config == ReductionConfig(save_raw_tensor=True)
    assert collection.matches("Net_fc2.weight")


def test_a_missing_include_regex_is_none_at_all():
    assert Collection.from_dict({"name": "mine"}).include_regex == []


@pytest.mark.parametrize("params", [None, {}, ["mine"]])
def test_a_collection_is_not_read_from_something_without_a_name(params):
    with pytest.raises(SMDebugValueError):
        Collection.from_dict(params)


def test_a_subclass_reads_itself():
    class Mine(Collection):
        pass

    assert type(Mine.from_dict({"name": "mine"})) is Mine


@pytest.mark.parametrize(
    "other",
    [
        Collection("other", ["a"]),
        Collection("mine", ["b"]),
        Collection("mine", ["a"], ["x"]),
        Collection("mine", ["a"], save_histogram=False),
        Collection("mine", ["a"], save_config=SaveConfig()),
        Collection("mine", ["a"], reduction_config=ReductionConfig()),
        Collection("mine", ["a"], roles=[Role.LOSS]),
        "mine",
    ],
)
def test_collections_that_differ_in_anything_are_not_equal(other):
    assert Collection("mine", ["a"]) != other


def test_equal_collections_hash_by_name():
    assert Collection("mine", ["a"]) == Collection("mine", ["a"])
    assert hash(Collection("mine")) == hash("mine")
