"""Bottom layer: every exception the library raises, in one tree.

The names are those of the reference library, so old ``except`` clauses keep working; each error
also is the built-in a user would catch.

    SMDebugError
    ├── SMDebugTypeError (TypeError)            ├── StepNotYetAvailable
    ├── SMDebugValueError (ValueError)          ├── StepUnavailable
    ├── SMDebugRuntimeError (RuntimeError)      ├── TensorUnavailable
    ├── SMDebugNotImplementedError              ├── TensorUnavailableForStep
    │     (NotImplementedError)                 ├── ShapeUnavailableForStep
    ├── SMDebugCustomerError                    ├── InvalidWorker
    ├── InvalidCollectionConfiguration          ├── NoMoreData
    ├── RuleEvaluationConditionMet              ├── NoMoreProfilerData
    ├── InsufficientInformationForRuleInvocation├── MissingCollectionFiles
    ├── TrialNotFound (FileNotFoundError)       ├── IndexReaderException (CorruptTrial)
    ├── ObjectNotFound (FileNotFoundError)      ├── WaitTimeout (TimeoutError)
    ├── CorruptTrial (ValueError)               ├── MissingExtra (ImportError)
    └── UnsupportedFormat (ValueError)          └── TrainingStopped
"""

from __future__ import annotations

from tornasole.types import ModeKeys


class SMDebugError(Exception):
    """Base of every error raised by the library."""


class SMDebugCustomerError(SMDebugError):
    """An error that the author of a rule or script can mend."""


class SMDebugTypeError(SMDebugError, TypeError):
    """A value of the wrong type was given."""


class SMDebugValueError(SMDebugError, ValueError):
    """A value outside the allowed ones was given."""


class SMDebugRuntimeError(SMDebugError, RuntimeError):
    """An operation cannot be done in the present state."""


class SMDebugNotImplementedError(SMDebugError, NotImplementedError):
    """An operation that does not exist (any more)."""


class InvalidCollectionConfiguration(SMDebugError):
    """A collection that is to be saved matches nothing and never can."""

    def __init__(self, c_name: str) -> None:
        super().__init__(c_name)
        self.c_name = c_name

    def __str__(self) -> str:
        return (
            f"Collection {self.c_name!r} was asked for but has no regex and no tensor names. "
            f"Give it some with hook.get_collection({self.c_name!r}).include(regex)."
        )


def _at(step: int, mode: ModeKeys) -> str:
    return f"step {step}" if mode is ModeKeys.GLOBAL else f"step {step} of mode {mode.name}"


class StepNotYetAvailable(SMDebugError):
    """The job has not reached the step."""

    def __init__(self, step: int, mode: ModeKeys = ModeKeys.GLOBAL) -> None:
        super().__init__(step, mode)
        self.step, self.mode = step, mode

    def __str__(self) -> str:
        return (
            f"The job has not written {_at(self.step, self.mode)} yet; wait_for_steps() can wait."
        )


class StepUnavailable(SMDebugError):
    """The step has passed and was not saved."""

    def __init__(self, step: int, mode: ModeKeys = ModeKeys.GLOBAL) -> None:
        super().__init__(step, mode)
        self.step, self.mode = step, mode

    def __str__(self) -> str:
        return f"Nothing was saved at {_at(self.step, self.mode)}; steps() lists what was."


class TensorUnavailable(SMDebugError):
    """No tensor of that name has been saved."""

    def __init__(self, tname: str, hint: str = "") -> None:
        super().__init__(tname, hint)
        self.tname, self.hint = tname, hint

    def __str__(self) -> str:
        hint = self.hint or "tensor_names() lists what was."
        return f"No tensor named {self.tname!r} was saved. {hint}"


class TensorUnavailableForStep(SMDebugError):
    """The step exists, the tensor's raw value at it does not."""

    def __init__(
        self,
        tname: str,
        step: int,
        mode: ModeKeys = ModeKeys.GLOBAL,
        has_reductions: bool = False,
        reason: str = "",
    ) -> None:
        super().__init__(tname, step, mode, has_reductions, reason)
        self.tname, self.step, self.mode = tname, step, mode
        self.has_reductions, self.reason = has_reductions, reason

    def __str__(self) -> str:
        text = f"Tensor {self.tname!r} has no value at {_at(self.step, self.mode)}."
        if self.reason:
            text += f" {self.reason}"
        elif self.has_reductions:
            text += " Only its reductions were saved: reduction_values() has them."
        return text


class ShapeUnavailableForStep(SMDebugError):
    """Neither shape nor value of the tensor was saved at the step."""

    def __init__(self, tname: str, step: int, mode: ModeKeys = ModeKeys.GLOBAL) -> None:
        super().__init__(tname, step, mode)
        self.tname, self.step, self.mode = tname, step, mode

    def __str__(self) -> str:
        return f"Tensor {self.tname!r} has no shape at {_at(self.step, self.mode)}."


class InvalidWorker(SMDebugError):
    """The worker did not write that tensor at that step."""

    def __init__(self, worker: str, hint: str = "") -> None:
        super().__init__(worker, hint)
        self.worker, self.hint = worker, hint

    def __str__(self) -> str:
        return f"Worker {self.worker!r} did not write it. {self.hint or 'workers() lists who did.'}"


class NoMoreData(SMDebugError):
    """A step was waited for that an ended job will never write."""

    def __init__(self, step: int, mode: ModeKeys, last_step: int) -> None:
        super().__init__(step, mode, last_step)
        self.step, self.mode, self.last_step = step, mode, last_step

    def __str__(self) -> str:
        return (
            f"The job has ended; its last step is {self.last_step}, "
            f"{_at(self.step, self.mode)} will not come."
        )


class NoMoreProfilerData(SMDebugError):
    """Profiler data later than the timestamp will never come."""

    def __init__(self, timestamp: float) -> None:
        super().__init__(timestamp)
        self.timestamp = timestamp

    def __str__(self) -> str:
        return f"No profiler data after {self.timestamp} will come."


class MissingCollectionFiles(SMDebugError):
    """The job has ended, but some workers never wrote their collections."""

    def __str__(self) -> str:
        return "The job has ended, but not every worker left its collections.json."


class RuleEvaluationConditionMet(SMDebugError):
    """A rule fired."""

    def __init__(self, rule_name: str, step: int, end_of_rule: bool = False) -> None:
        super().__init__(rule_name, step, end_of_rule)
        self.rule_name, self.step, self.end_of_rule = rule_name, step, end_of_rule

    def __str__(self) -> str:
        return f"Rule {self.rule_name!r} fired at step {self.step}."


class TrainingStopped(SMDebugError):
    """Somebody asked for the training to stop, such as a rule. What was saved is readable."""


class InsufficientInformationForRuleInvocation(SMDebugError):
    """A rule cannot run on what was saved."""

    def __init__(self, rule_name: str, message: str) -> None:
        super().__init__(rule_name, message)
        self.rule_name, self.message = rule_name, message

    def __str__(self) -> str:
        return f"Rule {self.rule_name!r} cannot run: {self.message}"


class TrialNotFound(SMDebugError, FileNotFoundError):
    """There is no trial at the path."""


class ObjectNotFound(SMDebugError, FileNotFoundError):
    """A store holds no object under the key, or a disk no such file."""


class CorruptTrial(SMDebugError, ValueError):
    """A file of a trial is damaged; the message names it."""


class IndexReaderException(CorruptTrial):
    """An index file of a reference trial is damaged."""


class UnsupportedFormat(SMDebugError, ValueError):
    """The trial was written in a format that this version cannot read."""


class WaitTimeout(SMDebugError, TimeoutError):
    """A wait took longer than the time given."""


class MissingExtra(SMDebugError, ImportError):
    """An optional dependency is not installed; the message names the extra to install."""
