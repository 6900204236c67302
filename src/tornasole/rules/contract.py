"""The rule contract: parameters, needs, symptoms, and the sentence that explains them.

A rule is a frozen dataclass: its fields are its parameters. It says what it needs; the engine hands
it, step by step, the numbers of those tensors and nothing else:

    @dataclass(frozen=True)
    class VanishingGradient(StepRule):
        name = "vanishing_gradient"
        threshold: float = parameter(1e-7, "mean magnitude below which a gradient is too small")

        def needs(self):            which tensors, and what of them
        def symptoms(self, step, memory):   what is wrong at this step: one ``Symptom`` per tensor
        def explain(self, symptoms):        one sentence about those that are new

The judgement itself is a pure function on numbers beside the class. ``memory`` is a dictionary of
the rule's own that lasts as long as the run: what it must remember of earlier steps.

A symptom that goes on is reported once, when it begins: the engine sees to that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, ClassVar

from tornasole.errors import SMDebugTypeError, SMDebugValueError
from tornasole.rules.finding import Severity
from tornasole.rules.needs import Need
from tornasole.rules.parameters import converted
from tornasole.rules.view import StepView
from tornasole.selection.patterns import choose_from, compiled


def parameter(default: Any, about: str) -> Any:
    """A parameter of a rule: its default, and what it means."""
    return field(default=default, metadata={"about": about})


@dataclass(frozen=True)
class Symptom:
    """Something that is wrong at a step.

    Attributes:
        tensor: The tensor that shows it; empty: none in particular.
        numbers: The numbers that show it, by name.
        worker: Whose tensor it is, if it matters.
    """

    tensor: str
    numbers: Mapping[str, Any]
    worker: str | None = None


@dataclass(frozen=True)
class Explanation:
    """What to tell about symptoms.

    Attributes:
        message: One sentence, with the numbers.
        evidence: The numbers behind it.
    """

    message: str
    severity: Severity = Severity.WARNING
    evidence: Mapping[str, Any] = field(default_factory=dict)
    causes: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "severity", Severity(self.severity))
        if not isinstance(self.message, str) or not isinstance(self.evidence, Mapping):
            raise SMDebugTypeError("An explanation is a sentence, with evidence by name.")


class StepRule:
    """What every rule of the contract is. Subclasses are frozen dataclasses.

    The docstring of a rule is what ``tornasole rules NAME`` tells about it.
    """

    name: ClassVar[str]
    runs_by_default: ClassVar[bool] = True
    """Whether it is among "all rules"; not those that make no sense without a parameter."""

    def needs(self) -> Mapping[str, Need]:
        """The tensors to look at, under the names by which ``symptoms`` finds them."""
        raise NotImplementedError

    def symptoms(self, step: StepView, memory: dict[str, Any]) -> Iterable[Symptom]:
        """What is wrong at a step at which at least one of the needs has tensors."""
        raise NotImplementedError

    def explain(self, symptoms: Sequence[Symptom]) -> Explanation:
        """What to tell about symptoms that began at the same step."""
        raise NotImplementedError

    def while_waiting(self, now: float, memory: dict[str, Any]) -> Iterable[Symptom]:
        """What is wrong at a time when a live run has written nothing new."""
        return ()

    def at_end(self, memory: dict[str, Any]) -> Iterable[Symptom]:
        """What is wrong with the run as a whole, now that it is over."""
        return ()

    def why_silent(self, memory: dict[str, Any]) -> str:
        """Why it could say nothing, though its needs were there; empty: it could."""
        return ""

    @property
    def given(self) -> dict[str, Any]:
        """The parameters that are not what they are by default."""
        values = {each.name: (getattr(self, each.name), each.default) for each in self.parameters()}
        return {name: value for name, (value, default) in values.items() if value != default}

    @classmethod
    def parameters(cls) -> tuple[Field[Any], ...]:
        """The rule's parameters."""
        return fields(cls)  # type: ignore[arg-type]

    @classmethod
    def configured(cls, **given: Any) -> StepRule:
        """The rule with these parameters; texts are turned into what they mean.

        Raises:
            SMDebugValueError: There is no such parameter, or it cannot have that value.
        """
        known = {each.name: each for each in cls.parameters()}
        for name in given:
            if name not in known:
                if not known:
                    raise SMDebugValueError(f"Rule {cls.name!r} has no parameters, so no {name!r}.")
                raise SMDebugValueError(
                    f"Rule {cls.name!r} has no parameter {name!r}: {choose_from(name, known)}"
                )
        missing = [n for n, each in known.items() if each.default is MISSING and n not in given]
        if missing:
            raise SMDebugValueError(f"Rule {cls.name!r} needs the parameter {missing[0]!r}.")
        values = {
            name: converted(f"{cls.name}: {name}", value, known[name].type)
            for name, value in given.items()
        }
        try:
            for name, value in values.items():
                if name.endswith("regex"):
                    compiled(name, value)
            return cls(**values)
        except (SMDebugValueError, SMDebugTypeError) as error:
            raise SMDebugValueError(f"Rule {cls.name!r}: {error}") from None
