"""Rules come by name, with parameters, from files and entry points; mistakes say what there is."""

import dataclasses
from pathlib import Path

import pytest

from tornasole.errors import SMDebugTypeError, SMDebugValueError
from tornasole.rules import StepRule, collections_needed, load_rule, rule_names
from tornasole.rules.loading import load_rules

NAMES = [
    "vanishing_gradient", "exploding_tensor", "all_zero", "dead_relu",
    "poor_weight_initialization", "saturated_activation", "weight_update_ratio", "tensor_variance",
    "unchanged_tensor", "loss_not_decreasing", "overfit", "overtraining", "stalled_training_rule",
    "similar_across_runs", "check_input_images", "class_imbalance", "confusion",
    "nlp_sequence_ratio", "tree_depth", "feature_importance_overweight", "create_xgboost_report",
    "nan_source",
]  # fmt: skip
NEEDED = {
    "similar_across_runs": {"other_trials": "elsewhere"},
    "tensor_variance": {"max_threshold": 1},
}


def test_all_built_in_rules_are_there():
    assert set(rule_names()) >= set(NAMES)


@pytest.fixture(params=NAMES)
def rule(request):
    return load_rule(request.param, **NEEDED.get(request.param, {}))


def test_a_rule_is_known_by_its_name(rule):
    assert isinstance(rule, StepRule)
    assert rule.name in NAMES


def test_a_rule_tells_what_it_is(rule):
    title, _, rest = type(rule).__doc__.partition("\n")
    assert title.endswith(".")
    assert len(rest.strip()) > 80


def test_every_parameter_tells_what_it_means(rule):
    for each in rule.parameters():
        assert each.metadata.get("about"), each.name


def test_a_rule_is_frozen(rule):
    for each in rule.parameters():
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(rule, each.name, None)


def test_a_rule_needs_something_that_has_a_name(rule):
    assert rule.needs()
    assert all(need.what for need in rule.needs().values())


def test_defaults_survive_being_typed(rule):
    given = {
        each.name: "none" if getattr(rule, each.name) is None else _typed(getattr(rule, each.name))
        for each in rule.parameters()
    }
    assert load_rule(rule.name, **given) == rule


def _typed(value):
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def test_parameters_stand_behind_the_name():
    rule = load_rule("vanishing_gradient:threshold=1e-3")
    assert rule.threshold == 1e-3


def test_a_colon_inside_a_value_stays_there():
    rule = load_rule("exploding_tensor:tensor_regex=a(?:b|c):only_nan=true")
    assert (rule.tensor_regex, rule.only_nan) == (("a(?:b|c)",), True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("vanishing_gradeint", "vanishing_gradient"),
        ("vanishing_gradient:treshold=1", "threshold"),
        ("vanishing_gradient:threshold=small", "a number"),
        ("vanishing_gradient:threshold", "threshold=0.1"),
        ("exploding_tensor:tensor_regex=(", "regular expression"),
        ("similar_across_runs", "other_trials"),
        ("nowhere.py:Rule", "no file"),
        ("rules.py", "class"),
    ],
)
def test_a_mistake_says_what_there_is(text, message):
    with pytest.raises(SMDebugValueError, match=message):
        load_rule(text)


@pytest.mark.parametrize("what", [5, None, object, "".join])
def test_what_is_no_rule_is_refused(what):
    with pytest.raises(SMDebugTypeError):
        load_rule(what)


def test_a_file_that_does_not_import_says_why(tmp_path):
    (tmp_path / "bad.py").write_text("import nothing_of_that_name\n")
    with pytest.raises(SMDebugValueError, match="nothing_of_that_name"):
        load_rule(f"{tmp_path / 'bad.py'}:Rule")


def test_a_file_without_the_class_lists_its_rules(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from tornasole.rules import Rule\n"
        "class Good(Rule):\n    def invoke_at_step(self, step): pass\n"
    )
    with pytest.raises(SMDebugValueError, match="Good"):
        load_rule(f"{tmp_path / 'mine.py'}:Godo")


def test_by_default_all_run_that_need_no_parameter():
    names = {rule.name for rule in load_rules(None)}
    assert names >= {"vanishing_gradient", "nan_source", "overfit"}
    assert not names & {"similar_across_runs", "create_xgboost_report"}
    assert {rule.name for rule in load_rules(["all"])} == names


PAGE = Path(__file__).parents[2] / "docs" / "rules.md"


def test_the_documentation_has_a_section_about_it_and_all_its_parameters(rule):
    section = PAGE.read_text().partition(f"\n### {rule.name}\n")[2].partition("\n### ")[0]
    assert section
    for each in rule.parameters():
        assert f"`{each.name}`" in section


def test_rules_tell_what_a_hook_should_save():
    needed = collections_needed(["vanishing_gradient", "weight_update_ratio", "tree_depth"])
    assert needed == ["gradients", "trees", "weights"]


@pytest.mark.parametrize(
    ("text", "regex"),
    [
        ("exploding_tensor:tensor_regex=^(?:a|b)(?=c):only_nan=true", ("^(?:a|b)(?=c)",)),
        ("exploding_tensor:tensor_regex=bad.*;a:only_nan=true", ("bad.*;a",)),
        ("exploding_tensor:only_nan=true:tensor_regex=x=1:y", ("x=1:y",)),
    ],
)
def test_signs_inside_a_value_stay_there(text, regex):
    rule = load_rule(text)
    assert (rule.tensor_regex, rule.only_nan) == (regex, True)


def test_a_parameter_given_twice_is_refused():
    with pytest.raises(SMDebugValueError, match="twice"):
        load_rule("vanishing_gradient:threshold=1:threshold=2")


def test_a_rule_file_may_import_what_lies_beside_it(tmp_path):
    for folder, limit in (("one", 1), ("two", 2)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"limits_{folder}.py").write_text(f"LIMIT = {limit}\n")
        (tmp_path / folder / "mine.py").write_text(
            "from dataclasses import dataclass\n"
            f"from limits_{folder} import LIMIT\n"
            "from tornasole.rules import StepRule, parameter\n"
            "@dataclass(frozen=True)\n"
            "class Mine(StepRule):\n"
            "    name = 'mine'\n"
            "    limit: float = parameter(LIMIT, 'the limit')\n"
        )
    rules = [load_rule(f"{tmp_path / folder / 'mine.py'}:Mine") for folder in ("one", "two")]
    assert [rule.limit for rule in rules] == [1, 2]
    assert load_rule(f"{tmp_path / 'one' / 'mine.py'}:Mine:limit=7").limit == 7.0
