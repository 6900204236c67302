"""In which form to save: names, flags, JSON, and what is refused."""

import json

import pytest

from tornasole.errors import SMDebugValueError
from tornasole.selection import ALLOWED_NORMS, ALLOWED_REDUCTIONS, ReductionConfig

EXAMPLE = ReductionConfig(
    reductions=["std", "variance"], abs_reductions=["mean"], norms=["l1"], abs_norms=["l2"]
)


def test_nothing_is_asked_for_unless_named():
    config = ReductionConfig()
    assert (config.statistics, config.save_raw_tensor, config.save_shape) == (set(), False, False)


def test_the_statistics_are_named_as_on_disk():
    assert EXAMPLE.statistics == {"std", "variance", "abs_mean", "l1", "abs_l2"}


def test_the_names_can_be_read_back_as_lists():
    assert EXAMPLE.reductions == ["std", "variance"]
    assert EXAMPLE.abs_reductions == ["mean"]
    assert EXAMPLE.norms == ["l1"]
    assert EXAMPLE.abs_norms == ["l2"]


@pytest.mark.parametrize("name", ["min", "max", "median", "mean", "std", "variance", "sum", "prod"])
def test_every_reduction_of_the_documentation_is_allowed(name):
    config = ReductionConfig(reductions=[name], abs_reductions=(name,))
    assert config.statistics == {name, f"abs_{name}"}


@pytest.mark.parametrize("field", ["reductions", "abs_reductions", "norms", "abs_norms"])
def test_an_unknown_name_is_refused_with_those_allowed(field):
    allowed = ALLOWED_NORMS if field.endswith("norms") else ALLOWED_REDUCTIONS
    with pytest.raises(SMDebugValueError, match=f"{field} .*'l3'.*{', '.join(allowed)}"):
        ReductionConfig(**{field: ["l3"]})


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(SMDebugValueError, match="Did you mean 'mean'"):
        ReductionConfig(reductions=["maen"])


def test_a_lone_string_is_refused_with_the_cure():
    with pytest.raises(SMDebugValueError, match=r"reductions=\['mean'\]"):
        ReductionConfig(reductions="mean")


@pytest.mark.parametrize("names", [3, {"mean"}, [3]])
def test_what_is_not_a_list_of_names_is_refused(names):
    with pytest.raises(SMDebugValueError, match="reductions"):
        ReductionConfig(reductions=names)


@pytest.mark.parametrize("flag", ["save_raw_tensor", "save_shape"])
@pytest.mark.parametrize("value", ["true", 1, None])
def test_a_flag_must_be_a_bool(flag, value):
    with pytest.raises(SMDebugValueError, match=flag):
        ReductionConfig(**{flag: value})


def test_the_json_is_that_of_the_reference():
    assert EXAMPLE.to_json_dict() == {
        "save_raw_tensor": False,
        "reductions": "std,variance,l1_norm,abs_mean,abs_l2_norm",
        "save_shape": False,
    }


@pytest.mark.parametrize(
    "config", [ReductionConfig(), EXAMPLE, ReductionConfig(save_raw_tensor=True, save_shape=True)]
)
def test_a_config_survives_json(config):
    assert ReductionConfig.from_json(config.to_json()) == config
    assert json.loads(config.to_json()) == config.to_json_dict()


@pytest.mark.parametrize("text", ["l1,abs_l2", "l1_norm, abs_l2_norm", ["l1", "abs_l2_norm"]])
def test_a_norm_has_two_spellings_in_json(text):
    assert ReductionConfig.from_dict({"reductions": text}) == ReductionConfig(
        norms=["l1"], abs_norms=["l2"]
    )


def test_every_reduction_in_the_documented_list_is_read():
    names = [*ALLOWED_REDUCTIONS, *ALLOWED_NORMS]
    names += [f"abs_{name}" for name in names]
    assert ReductionConfig.from_dict({"reductions": ",".join(names)}).statistics == set(names)


def test_no_dict_is_no_config():
    assert ReductionConfig.from_dict(None) is None


@pytest.mark.parametrize(
    "params",
    [
        "mean",
        ["mean"],
        {"reductions": "mean,maen"},
        {"reductions": "mean_norm"},
        {"reductions": 3},
        {"reduction": "mean"},
        {"save_shape": "true"},
    ],
)
def test_a_wrong_dict_is_refused(params):
    with pytest.raises(SMDebugValueError):
        ReductionConfig.from_dict(params)


def test_configs_are_equal_and_hash_alike_field_by_field():
    assert ReductionConfig(["min"]) == ReductionConfig(reductions=("min",))
    assert hash(ReductionConfig(["min"])) == hash(ReductionConfig(["min"]))
    assert ReductionConfig(["min"]) != ReductionConfig(abs_reductions=["min"])
    assert ReductionConfig(["min", "max"]) != ReductionConfig(["max", "min"])


def test_a_config_never_changes():
    with pytest.raises(AttributeError):
        EXAMPLE.save_raw_tensor = True
