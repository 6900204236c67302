"""Rules in the style of smdebug work unchanged, under both names."""

import numpy as np
import pytest
import smdebug.rules

from tornasole import Hook, SaveConfig, create_trial
from tornasole.errors import NoMoreData, RuleEvaluationConditionMet, TensorUnavailable
from tornasole.rules import Rule, check, invoke_rule


class LargeGradient(Rule):
    """As smdebug's documentation writes one."""

    def __init__(self, base_trial, threshold=10.0):
        super().__init__(base_trial)
        self.threshold = float(threshold)

    def set_required_tensors(self, step):
        for name in self.base_trial.tensor_names(regex="gradient"):
            self.req_tensors.add(name=name, steps=[step])

    def invoke_at_step(self, step):
        for tensor in self.req_tensors.get():
            if np.abs(tensor.value(step)).mean() > self.threshold:
                return True
        return False


class WithAction(Rule):
    def __init__(self, base_trial, action_str, other_trials=None):
        super().__init__(base_trial, action_str, other_trials)

    def invoke_at_step(self, step):
        return step == 1


@pytest.fixture
def trial(tmp_path):
    with Hook(tmp_path / "trial", save_config=SaveConfig(save_interval=1)) as hook:
        for step in range(4):
            hook.begin_step()
            hook.save_tensor("gradient/w", np.full(3, 20.0 if step == 2 else 1.0))
    return create_trial(tmp_path / "trial")


def test_a_rule_fires_at_the_step_where_its_condition_holds(trial):
    with pytest.raises(RuleEvaluationConditionMet) as met:
        invoke_rule(LargeGradient(trial), raise_eval_cond=True)
    assert (met.value.rule_name, met.value.step) == ("LargeGradient", 2)


def test_a_run_that_is_over_ends_the_loop(trial):
    with pytest.raises(NoMoreData):
        invoke_rule(LargeGradient(trial))


def test_the_loop_ends_before_its_end_step(trial):
    invoke_rule(LargeGradient(trial), start_step=0, end_step=4)
    invoke_rule(LargeGradient(trial), start_step=0, end_step=2, raise_eval_cond=True)


def test_parameters_may_come_as_texts(trial):
    invoke_rule(LargeGradient(trial, threshold="30"), end_step=4, raise_eval_cond=True)


def test_the_action_string_may_be_positional(trial):
    with pytest.raises(RuleEvaluationConditionMet):
        invoke_rule(WithAction(trial, ""), raise_eval_cond=True)


def test_steps_that_were_not_saved_are_passed_over(tmp_path):
    with Hook(tmp_path / "t", include_regex="x", save_config=SaveConfig(save_interval=2)) as hook:
        for step in range(5):
            hook.begin_step()
            if step % 2 == 0:
                hook.save_tensor("gradient/w", np.full(3, 20.0 if step == 4 else 1.0))
    with pytest.raises(RuleEvaluationConditionMet) as met:
        invoke_rule(LargeGradient(create_trial(tmp_path / "t")), raise_eval_cond=True)
    assert met.value.step == 4


def test_required_tensors_are_what_was_added(trial):
    required = LargeGradient(trial).req_tensors
    required.add("gradient/w", [0, 1])
    required.add("gradient/.*", [1], should_match_regex=True)
    assert required.get_names() == ["gradient/w"]
    assert required.get_tensor_steps("gradient/w") == [0, 1, 1]
    assert [tensor.name for tensor in required.get()] == ["gradient/w"]
    required.clear()
    assert required.get() == []


def test_a_tensor_that_does_not_exist_cannot_be_required(trial):
    with pytest.raises(TensorUnavailable):
        LargeGradient(trial).req_tensors.add("nothing", [0])


def test_a_rule_has_what_old_rules_use(trial):
    rule = WithAction(trial, "", [trial])
    assert (rule.base_trial, rule.other_trials, rule.trials) == (trial, [trial], [trial, trial])
    assert rule.rule_name == "WithAction"
    assert rule.report["RuleTriggered"] == 0


def test_smdebug_has_the_same_objects():
    from smdebug.rules.rule import Rule as old_rule
    from smdebug.rules.rule_invoker import invoke_rule as old_invoke

    assert smdebug.rules.Rule is Rule is old_rule
    assert smdebug.rules.invoke_rule is invoke_rule is old_invoke


def test_check_runs_them_beside_the_others(trial):
    report = check(trial, [LargeGradient, "exploding_tensor"])
    [finding] = report.findings
    assert (finding.rule, finding.step) == ("LargeGradient", 2)


def test_a_rule_from_a_file_takes_parameters(trial, tmp_path):
    file = tmp_path / "my_rules.py"
    file.write_text(
        "from smdebug.rules import Rule\n"
        "class Mine(Rule):\n"
        "    def __init__(self, base_trial, at):\n"
        "        super().__init__(base_trial)\n"
        "        self.at = int(at)\n"
        "    def invoke_at_step(self, step):\n"
        "        return step >= self.at\n"
    )
    [finding] = check(trial, [f"{file}:Mine:at=1"]).findings
    assert (finding.rule, finding.step) == ("Mine", 1)


def test_one_that_raises_is_a_finding(trial):
    class Broken(Rule):
        def invoke_at_step(self, step):
            raise ZeroDivisionError("on purpose")

    [finding] = check(trial, [Broken]).findings
    assert "ZeroDivisionError: on purpose" in finding.message
