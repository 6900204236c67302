"""Actions as smdebug writes them: JSON text that a rule in its style is given."""

import sys

import pytest

import tornasole
from tornasole.format import StopSign
from tornasole.rules import SMS, Email, Rule, StopTraining, check, invoke_rule
from tornasole.rules.action_strings import parsed, perform

STOP = '{"name": "stoptraining", "training_job_prefix": "my-job"}'
EVERY_STEP = tornasole.SaveConfig(save_interval=1)


@pytest.fixture
def hook(tmp_path):
    """A hook in the middle of a run."""
    hook = tornasole.Hook(tmp_path / "job", save_config=EVERY_STEP, on_error="raise")
    for loss in (3.0, 2.0, 1.0):
        hook.begin_step()
        hook.save_scalar("loss", loss)
    hook._flush()
    yield hook
    hook.close()


@pytest.fixture
def job(hook):
    return hook.out_dir


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        (STOP, [StopTraining]),
        ('{"name": "StopTraining"}', [StopTraining]),
        ('{"name": "email", "endpoint": "me@example.org"}', [Email]),
        ('{"NAME": "SMS", "ENDPOINT": "+15551234567"}', [SMS]),
        (f'[{STOP}, {{"name": "sms", "endpoint": "+1555"}}]', [StopTraining, SMS]),
        ("[]", []),
    ],
)
def test_texts_are_understood(text, kinds, caplog):
    assert [type(action) for action in parsed(text)] == kinds
    assert not caplog.records


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"name": "sing"}', "must be one of email, sms, stoptraining"),
        ('{"nom": "email"}', "must be one of"),
        ('{"name": "email"}', "email needs 'endpoint'"),
        ('{"name": "sms", "endpoint": 5}', "sms needs 'endpoint'"),
        ('{"name": "email", "endpoint": "nobody"}', "goes to an address"),
        ("stoptraining", "is not JSON"),
        ("3", "must be one of"),
    ],
)
def test_what_is_no_action_is_logged_and_left_out(text, told, caplog):
    assert list(parsed(text)) == []
    assert told in caplog.text


def test_what_is_wrong_with_one_does_not_hide_the_others(caplog):
    assert len(list(parsed(f'[{{"name": "sing"}}, {STOP}]'))) == 1


@pytest.mark.parametrize("text", ["", "  ", None])
def test_an_empty_text_asks_for_nothing(text, job, caplog):
    perform(text, "MyRule", 3, job)
    assert StopSign.of(job).look() is None
    assert not caplog.records


def test_stoptraining_asks_the_job_of_the_trial_to_stop(job):
    perform(STOP, "MyRule", 3, job)
    assert StopSign.of(job).look().reason == "MyRule: SMDebugRule:MyRule fired at step 3."


def test_stoptraining_does_nothing_once_the_run_is_over(hook, job):
    hook.close()
    perform(STOP, "MyRule", 3, job)
    assert StopSign.of(job).look() is None


def test_an_action_that_cannot_be_done_is_logged(job, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "boto3", None)
    monkeypatch.delenv("SMTP_HOST", raising=False)
    perform('[{"name":"sms","endpoint":"+1555"},{"name":"email","endpoint":"a@b.c"}]', "R", 1, job)
    assert "The action SMS of R was not done: it goes through Amazon's SNS" in caplog.text
    assert "The action Email of R was not done: no SMTP server is known" in caplog.text


def test_a_trial_that_is_gone_is_logged(tmp_path, caplog):
    perform(STOP, "R", 1, str(tmp_path / "none"))
    assert "The action StopTraining of R was not done: There is no trial at" in caplog.text


class LossBelow(Rule):
    """Fires when the loss is below a limit."""

    def __init__(self, base_trial, limit="1.5", action_str=""):
        super().__init__(base_trial, action_str)
        self.limit = float(limit)

    def invoke_at_step(self, step):
        return self.base_trial.tensor("scalar/loss").value(step) < self.limit


def test_a_rule_that_fires_does_its_actions(job):
    rule = LossBelow(tornasole.create_trial(job), action_str=STOP)
    invoke_rule(rule, end_step=2)
    assert StopSign.of(job).look() is None
    invoke_rule(rule, end_step=3)
    assert "LossBelow" in StopSign.of(job).look().reason


def test_a_rule_with_actions_runs_beside_others(job):
    rule = LossBelow(tornasole.create_trial(job), action_str=STOP)
    report = check(job, [rule, "vanishing_gradient"])
    assert [(f.rule, f.step) for f in report.findings] == [("LossBelow", 2)]
    assert report.rules == ("vanishing_gradient", "LossBelow")
    assert StopSign.of(job).look() is not None
