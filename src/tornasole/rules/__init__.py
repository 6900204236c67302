"""Room 5: judging. Rules over a trial, what they find, and what is done about it."""

from tornasole.errors import RuleEvaluationConditionMet
from tornasole.rules.actions import (
    SMS,
    Action,
    ActionList,
    Call,
    Command,
    Email,
    StopTraining,
    Webhook,
    load_action,
)
from tornasole.rules.attaching import Attached, attach
from tornasole.rules.checking import Report, check, findings_of
from tornasole.rules.classic import RequiredTensors, Rule, invoke_rule
from tornasole.rules.contract import Explanation, StepRule, Symptom, parameter
from tornasole.rules.finding import Finding, Severity
from tornasole.rules.loading import collections_needed, load_rule, rule_names
from tornasole.rules.needs import Need
from tornasole.rules.stopping import stop_job
from tornasole.rules.watching import Progress, watch

__all__ = [
    "SMS",
    "Action",
    "ActionList",
    "Attached",
    "Call",
    "Command",
    "Email",
    "Explanation",
    "Finding",
    "Need",
    "Progress",
    "Report",
    "RequiredTensors",
    "Rule",
    "RuleEvaluationConditionMet",
    "Severity",
    "StepRule",
    "StopTraining",
    "Symptom",
    "Webhook",
    "attach",
    "check",
    "collections_needed",
    "findings_of",
    "invoke_rule",
    "load_action",
    "load_rule",
    "parameter",
    "rule_names",
    "stop_job",
    "watch",
]
