"""What can be done about a finding, one action per file.

contract       what every action is, and what it is told
naming         from what people type to actions
"""

from tornasole.rules.actions.call import Call
from tornasole.rules.actions.command import Command
from tornasole.rules.actions.contract import Action
from tornasole.rules.actions.email import Email
from tornasole.rules.actions.naming import ActionList, load_action, load_actions
from tornasole.rules.actions.sms import SMS
from tornasole.rules.actions.stop_training import StopTraining
from tornasole.rules.actions.webhook import Webhook

__all__ = [
    "SMS",
    "Action",
    "ActionList",
    "Call",
    "Command",
    "Email",
    "StopTraining",
    "Webhook",
    "load_action",
    "load_actions",
]
