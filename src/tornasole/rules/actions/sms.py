"""The action that sends a text message."""

from __future__ import annotations

from dataclasses import dataclass

from tornasole.errors import SMDebugValueError
from tornasole.rules.actions import sns
from tornasole.rules.actions.contract import Action, Occasion, Undone


@dataclass(frozen=True)
class SMS(Action):
    """Sends the finding as a text message, through Amazon's SNS; needs ``boto3``.

    Attributes:
        phone: The number, such as ``+15551234567``.
    """

    phone: str

    def __post_init__(self) -> None:
        super().__post_init__()
        digits = self.phone.lstrip("+").replace("-", "").replace(" ", "")
        if not digits.isdecimal():
            raise SMDebugValueError(
                f"A text message goes to a number such as +15551234567, not to {self.phone!r}."
            )

    def obstacle(self) -> str:
        return sns.obstacle()

    def perform(self, occasion: Occasion) -> None:
        if obstacle := sns.obstacle():
            raise Undone(obstacle)
        sns.publish("sms", self.phone, occasion.line)
