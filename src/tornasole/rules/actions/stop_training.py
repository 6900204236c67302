"""The action that stops the training."""

from __future__ import annotations

from dataclasses import dataclass

from tornasole.rules.actions.contract import Action, Occasion
from tornasole.rules.finding import Finding


@dataclass(frozen=True)
class StopTraining(Action):
    """Stops the training at its next step, on every worker; what was saved stays readable.

    In the training process, ``TrainingStopped`` is raised where the next step would begin. From
    outside, the trial gets a sign that the job's hook obeys.

    Attributes:
        training_job_prefix: Accepted for old scripts, without effect: the job that is stopped is
            the one that writes the trial.
    """

    training_job_prefix: str | None = None

    def perform(self, occasion: Occasion) -> None:
        """Nothing: ``Acting`` stops at once, without waiting for its thread."""


def reason(finding: Finding) -> str:
    """Why a finding stops a training."""
    return f"{finding.rule}: {finding.message}"
