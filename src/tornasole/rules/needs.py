"""Which tensors a rule looks at, and what of them it must know."""

from __future__ import annotations

from dataclasses import dataclass, replace
from re import Pattern

from tornasole.errors import SMDebugValueError
from tornasole.selection.patterns import choose_from, compiled
from tornasole.types import COUNTS, STATISTICS, Role

_KNOWN = frozenset((*STATISTICS, *COUNTS, "value"))


@dataclass(frozen=True)
class Need:
    """Some tensors that a rule looks at.

    By their roles, unless the user said which: then by regex and collection alone.

    Attributes:
        what: What to call them in a sentence, such as "gradients".
        roles: The roles that they have.
        statistics: The statistics and counts that the rule asks for, of ``types.STATISTICS`` and
            ``types.COUNTS``, or ``value`` for tensors with one element. What was not saved is
            computed from raw values, if those were.
        raw: Whether the rule asks for the values themselves.
        save: The collections to save, for people who did not. Of tensors that people save by hand,
            these tell what they are.
        required: Whether the rule can say nothing without them.
        every_worker: Whether all workers' tensors are looked at, not only the first one's.
    """

    what: str
    roles: frozenset[Role] = frozenset()
    statistics: frozenset[str] = frozenset()
    raw: bool = False
    save: tuple[str, ...] = ()
    required: bool = True
    every_worker: bool = False
    regex: tuple[Pattern[str], ...] = ()
    collections: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.statistics - _KNOWN:
            raise SMDebugValueError(f"There is no statistic {name!r}: {choose_from(name, _KNOWN)}")

    def chosen_by(self, regex: tuple[str, ...] | None, collections: tuple[str, ...] | None) -> Need:
        """The same for the tensors that the user chose, if he did."""
        if not regex and not collections:
            return self
        return replace(
            self,
            regex=compiled("tensor_regex", regex or ()),
            collections=collections or (),
        )

    @property
    def is_chosen(self) -> bool:
        """Whether the user said which tensors."""
        return bool(self.regex or self.collections)

    def matches(self, name: str, role: Role) -> bool:
        """Whether a tensor is one of them, collections aside."""
        if self.is_chosen:
            return any(pattern.search(name) for pattern in self.regex)
        return role in self.roles
