"""When to save: the golden schedules, the four modes, what is refused, and JSON."""

import json

import numpy as np
import pytest

from tornasole.errors import SMDebugTypeError, SMDebugValueError
from tornasole.selection import SaveConfig, SaveConfigMode
from tornasole.types import ModeKeys

TRAIN, EVAL = ModeKeys.TRAIN, ModeKeys.EVAL


def saved(config, until=1001):
    return [step for step in range(until) if config.should_save_step(step)]


@pytest.mark.parametrize(
    ("fields", "steps"),
    [
        ({}, [0, 500, 1000]),
        ({"save_interval": 250}, [0, 250, 500, 750, 1000]),
        ({"save_interval": 100, "end_step": 200}, [0, 100]),
        ({"save_interval": 100, "end_step": 201}, [0, 100, 200]),
        ({"save_interval": 300, "start_step": 150}, [300, 600, 900]),
        ({"save_steps": [3, 7]}, [0, 3, 7, 500, 1000]),
        ({"save_steps": [3, 7], "start_step": 100}, [3, 7, 500, 1000]),
        ({"end_step": 0}, []),
        ({"save_steps": [3, 7], "end_step": 0}, [3, 7]),
        ({"save_interval": 2, "start_step": 8, "end_step": 14}, [8, 10, 12]),
    ],
)
def test_the_golden_schedules(fields, steps):
    assert saved(SaveConfigMode(**fields)) == steps


def test_an_interval_of_one_saves_every_step():
    assert saved(SaveConfigMode(save_interval=1), 4) == [0, 1, 2, 3]


def test_a_start_step_without_an_end_goes_on():
    expected = [8, 10, 12, 14, 16, 18]
    assert saved(SaveConfigMode(save_interval=2, start_step=8), 20) == expected


@pytest.mark.parametrize("value", [7, "7", 7.0, np.int64(7), np.float64(7)])
def test_an_integer_may_come_in_any_clothes(value):
    assert SaveConfigMode(save_interval=value).save_interval == 7


@pytest.mark.parametrize("field", ["save_interval", "start_step", "end_step"])
@pytest.mark.parametrize(
    "value", [True, False, 2.9, float("nan"), float("inf"), "x", "", -1, "-3", [1], np.bool_(True)]
)
def test_what_is_not_a_step_number_is_refused_by_field(field, value):
    with pytest.raises(SMDebugValueError, match=field):
        SaveConfigMode(**{field: value})


def test_an_interval_of_zero_is_refused():
    with pytest.raises(SMDebugValueError, match="save_interval must be an integer of at least 1"):
        SaveConfigMode(save_interval=0)


@pytest.mark.parametrize(
    "steps", [[3, 7], (3, 7), range(3, 8, 4), {7, 3}, frozenset({3, 7}), [np.int32(3), 7]]
)
def test_save_steps_may_be_any_collection_of_integers(steps):
    assert SaveConfigMode(save_steps=steps).save_steps == [3, 7]


@pytest.mark.parametrize("steps", ["3,7", 3, ["3"], [3.0], [True], [-1], [None], {3: 7}])
def test_other_save_steps_are_refused(steps):
    with pytest.raises(SMDebugValueError, match="save_steps"):
        SaveConfigMode(save_steps=steps)


def test_two_configs_never_share_their_default_save_steps():
    one, other = SaveConfigMode(), SaveConfigMode()
    one.save_steps.append(3)
    assert other.save_steps == [] == SaveConfigMode().save_steps


def test_a_field_is_checked_when_it_is_assigned():
    config = SaveConfigMode()
    with pytest.raises(SMDebugValueError, match="end_step"):
        config.end_step = -1
    assert config == SaveConfigMode()


def test_assigning_none_restores_the_default():
    config = SaveConfigMode(save_interval=3, end_step=5)
    config.save_interval = config.end_step = None
    assert config == SaveConfigMode()


@pytest.mark.parametrize("value", ["loss", ["loss"], ("loss",)])
def test_when_nan_takes_a_regex_or_a_list(value):
    assert SaveConfigMode(when_nan=value).when_nan == ["loss"]


def test_when_nan_has_no_part_in_the_schedule():
    assert saved(SaveConfigMode(when_nan="loss", end_step=0)) == []


def test_a_bad_regex_in_when_nan_is_refused_with_field_pattern_and_reason():
    with pytest.raises(SMDebugValueError, match=r"when_nan: 'a\(' .*unterminated subpattern"):
        SaveConfigMode(when_nan=["loss", "a("])


def test_when_nan_refuses_what_is_not_a_string():
    with pytest.raises(SMDebugTypeError, match="when_nan"):
        SaveConfigMode(when_nan=[3])


def test_the_json_of_a_mode_has_the_reference_keys():
    fields = {"save_interval": 2, "save_steps": [3], "start_step": 1, "end_step": None}
    assert SaveConfigMode(2, 1, None, [3]).to_json_dict() == fields


def test_when_nan_is_in_the_json_only_if_there_is_some():
    assert "when_nan" not in SaveConfigMode().to_json_dict()
    assert SaveConfigMode(when_nan="loss").to_json_dict()["when_nan"] == ["loss"]


def test_a_mode_is_read_from_a_dict_with_defaults_for_the_rest():
    config = SaveConfigMode.from_dict({"save_interval": "3"}, {"save_interval": 9, "end_step": 5})
    assert config == SaveConfigMode(save_interval=3, end_step=5)


def test_no_dict_is_no_config():
    assert SaveConfigMode.from_dict(None) is None
    assert SaveConfig.from_dict(None) is None


@pytest.mark.parametrize("kind", [SaveConfigMode, SaveConfig])
def test_a_config_is_not_read_from_something_else(kind):
    with pytest.raises(SMDebugTypeError):
        kind.from_dict([1])


def test_an_unknown_field_is_refused_with_the_nearest():
    with pytest.raises(SMDebugValueError, match=r"'save_intervall'.*mean 'save_interval'"):
        SaveConfigMode.from_dict({"save_intervall": 3})


@pytest.mark.parametrize("mode", ModeKeys)
def test_plain_fields_hold_for_every_mode(mode):
    assert SaveConfig(save_interval=3).get_save_config(mode) == SaveConfigMode(save_interval=3)


def test_each_mode_has_its_own_schedule():
    modes = {mode: SaveConfigMode(save_interval=i) for i, mode in enumerate(ModeKeys, 1)}
    config = SaveConfig(mode_save_configs=modes)
    due = {mode: [s for s in range(7) if config.should_save_step(mode, s)] for mode in ModeKeys}
    assert list(due.values()) == [[0, 1, 2, 3, 4, 5, 6], [0, 2, 4, 6], [0, 3, 6], [0, 4]]


@pytest.mark.parametrize("modes", [{}, {EVAL: SaveConfigMode(1)}, {TRAIN: None}])
def test_a_mode_that_was_not_given_has_the_default_configuration(modes):
    assert SaveConfig(modes).get_save_config(TRAIN) == SaveConfigMode()
    assert SaveConfig(modes).should_save_step(TRAIN, 500)


def test_the_callers_dict_is_left_alone():
    modes = {TRAIN: SaveConfigMode(1)}
    SaveConfig(modes).end_step = 0
    assert modes == {TRAIN: SaveConfigMode(1)}


def test_fields_beside_a_dict_are_those_of_the_other_modes():
    config = SaveConfig({TRAIN: SaveConfigMode(2)}, save_interval=3)
    assert config.get_save_config(TRAIN).save_interval == 2
    assert config.get_save_config(EVAL).save_interval == 3


@pytest.mark.parametrize(
    "modes", [10, [SaveConfigMode()], {"TRAIN": SaveConfigMode()}, {1: None}, {TRAIN: 10}]
)
def test_what_is_not_a_dict_from_mode_to_config_is_refused(modes):
    with pytest.raises(SMDebugValueError):
        SaveConfig(modes)


def test_an_integer_in_first_place_is_refused_with_the_cure():
    with pytest.raises(SMDebugValueError, match="save_interval="):
        SaveConfig(10)


@pytest.mark.parametrize("modes", [None, {}, {TRAIN: SaveConfigMode(1)}])
def test_assigning_end_step_switches_every_mode_off(modes):
    config = SaveConfig(modes)
    config.end_step = 0
    assert not any(config.should_save_step(mode, 0) for mode in ModeKeys)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("save_interval", 7),
        ("start_step", 7),
        ("end_step", 7),
        ("save_steps", [7]),
        ("when_nan", ["loss"]),
    ],
)
def test_every_field_can_be_assigned_and_read_for_all_modes(field, value):
    config = SaveConfig({TRAIN: SaveConfigMode(2)})
    setattr(config, field, value)
    assert getattr(config, field) == value
    assert all(getattr(config.get_save_config(mode), field) == value for mode in ModeKeys)


def test_a_field_given_to_the_constructor_can_be_read():
    assert SaveConfig(save_interval=3).save_interval == 3


def test_assigning_a_wrong_value_changes_nothing():
    config = SaveConfig()
    with pytest.raises(SMDebugValueError, match="save_interval"):
        config.save_interval = 0
    assert config == SaveConfig()


@pytest.mark.parametrize("modes", [{TRAIN: SaveConfigMode(2), EVAL: SaveConfigMode(3)}, {}])
def test_reading_a_field_on_which_the_modes_do_not_agree_is_refused(modes):
    with pytest.raises(SMDebugValueError, match=r"save_interval.*get_save_config"):
        _ = SaveConfig(modes).save_interval


def test_set_save_config_replaces_one_mode():
    config = SaveConfig(save_interval=2)
    config.set_save_config(EVAL, SaveConfigMode(save_interval=3))
    assert config.get_save_config(TRAIN).save_interval == 2
    assert config.get_save_config(EVAL).save_interval == 3


def test_set_save_config_refuses_what_is_not_a_mode_config():
    with pytest.raises(SMDebugValueError, match="TRAIN"):
        SaveConfig().set_save_config(TRAIN, 3)


def test_asking_for_something_that_is_not_a_mode_is_refused_with_the_nearest():
    with pytest.raises(SMDebugValueError, match="Did you mean 'TRAIN'"):
        SaveConfig().get_save_config("train")


def test_merging_defaults_fills_only_the_modes_not_given():
    config = SaveConfig({TRAIN: SaveConfigMode(2)})
    config.merge_default_save_config(SaveConfig(save_interval=3))
    assert config == SaveConfig(
        {mode: SaveConfigMode(2 if mode is TRAIN else 3) for mode in ModeKeys}
    )


def test_a_merged_default_is_not_changed_through_the_config():
    default = SaveConfig(save_interval=3)
    config = SaveConfig({})
    config.merge_default_save_config(default)
    config.end_step = 0
    assert default == SaveConfig(save_interval=3)


def test_save_steps_can_override_the_interval_as_they_did_of_old():
    config = SaveConfigMode(save_steps=[3, 7]).with_save_steps_overriding()
    assert [s for s in range(501) if config.should_save_step(s)] == [3, 7]


def test_without_save_steps_the_old_sense_is_the_new_one():
    config = SaveConfigMode(save_interval=3)
    assert config.with_save_steps_overriding() == config


def test_the_json_of_a_config_is_keyed_by_mode_name():
    json_dict = SaveConfig({TRAIN: SaveConfigMode(2)}).to_json_dict()
    assert json_dict == {
        "TRAIN": {"save_interval": 2, "save_steps": [], "start_step": 0, "end_step": None},
        "EVAL": None,
        "PREDICT": None,
        "GLOBAL": None,
    }


@pytest.mark.parametrize(
    "config",
    [
        SaveConfig(),
        SaveConfig({}),
        SaveConfig({TRAIN: SaveConfigMode(2)}),
        SaveConfig(save_steps=[1], when_nan=["loss"], end_step=4),
    ],
)
def test_a_config_survives_json(config):
    assert SaveConfig.from_json(config.to_json()) == config
    assert json.loads(config.to_json()) == config.to_json_dict()


@pytest.mark.parametrize("key", [TRAIN, "TRAIN", "train"])
@pytest.mark.parametrize("value", [SaveConfigMode(2), {"save_interval": 2}])
def test_a_config_is_read_from_modes_or_their_names(key, value):
    assert SaveConfig.from_dict({key: value}) == SaveConfig({TRAIN: SaveConfigMode(2)})


def test_default_values_fill_the_modes_that_are_given():
    config = SaveConfig.from_dict({"TRAIN": {"end_step": 5}, "EVAL": None}, {"save_interval": 2})
    assert config == SaveConfig({TRAIN: SaveConfigMode(save_interval=2, end_step=5)})


def test_a_dict_of_fields_where_modes_belong_is_refused():
    with pytest.raises(SMDebugValueError, match="'save_interval' is not a mode"):
        SaveConfig.from_dict({"save_interval": 10})


def test_parse_takes_whatever_people_pass():
    config = SaveConfig(save_interval=2)
    assert SaveConfig.parse(None) == SaveConfig()
    assert SaveConfig.parse(config) is config
    assert SaveConfig.parse(SaveConfigMode(2)) == config
    assert SaveConfig.parse({TRAIN: SaveConfigMode(2)}) == SaveConfig({TRAIN: SaveConfigMode(2)})


@pytest.mark.parametrize("value", [10, "10", [SaveConfigMode()]])
def test_parse_refuses_anything_else(value):
    with pytest.raises(SMDebugTypeError, match="save_config"):
        SaveConfig.parse(value)


def test_from_save_config_mode_gives_each_mode_its_own_copy():
    config = SaveConfig.from_save_config_mode(SaveConfigMode(2))
    config.get_save_config(TRAIN).save_interval = 3
    assert config.get_save_config(EVAL).save_interval == 2


def test_configs_are_equal_if_all_modes_are():
    assert SaveConfig(save_interval=2) == SaveConfig({mode: SaveConfigMode(2) for mode in ModeKeys})
    assert SaveConfig(save_interval=2) != SaveConfig(save_interval=3)
    assert SaveConfig() != SaveConfigMode()
