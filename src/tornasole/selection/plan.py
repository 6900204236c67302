"""What is due: the included collections and their configurations, asked once per training step.

The hook asks ``Plan.at`` at the start of a step and, if something is due, ``Due.form`` for each
tensor. Both answers are remembered until a collection changes, so that the steady state costs a few
dictionary lookups.

A collection with ``when_nan`` is active at every step, because only the end of the step shows
whether it is wanted. So a form is made of *parts*, one per active collection; at the end of the
step the hook knows which collections *fired*, and ``Form.keep`` drops the parts neither scheduled
nor fired:

    fired = {c for form in forms_of_non_finite_tensors for c in form.triggers}
    kept = form.keep(fired)      # None: drop the tensor
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property

from tornasole.errors import InvalidCollectionConfiguration, SMDebugError, SMDebugValueError
from tornasole.selection.builtin import (
    FILLED_LATER,
    TRAINING_ONLY_COLLECTIONS,
    TRAINING_ONLY_ROLES,
    UNREDUCED_COLLECTIONS,
)
from tornasole.selection.collection import Collection, CollectionKeys, canonical_name
from tornasole.selection.patterns import choose_from
from tornasole.selection.reduction_config import RAW_TENSOR, ReductionConfig
from tornasole.selection.save_config import SaveConfig, SaveConfigMode
from tornasole.types import ModeKeys, Role

_EVALUATING = (ModeKeys.EVAL, ModeKeys.PREDICT)
_NO_ROLES: frozenset[Role] = frozenset()
_REMEMBERED = 64  # Different sets of due collections; more than that only costs matching again.


@dataclass(frozen=True)
class Part:
    """What one collection wants of a tensor."""

    collection: str
    scheduled: bool
    raw: bool
    shape: bool
    statistics: frozenset[str]


@dataclass(frozen=True)
class Form:
    """What is wanted of one tensor at one step, by all active collections together.

    Attributes:
        parts: What each collection wants.
        triggers: The collections that want to be saved if this tensor is not finite.
    """

    parts: tuple[Part, ...]
    triggers: frozenset[str]

    @cached_property
    def collections(self) -> tuple[str, ...]:
        """The active collections to which the tensor belongs."""
        return tuple(part.collection for part in self.parts)

    @cached_property
    def scheduled(self) -> bool:
        """Whether some collection is due by its schedule, not only if a watch fires."""
        return any(part.scheduled for part in self.parts)

    @cached_property
    def watch(self) -> bool:
        """Whether to look if the tensor is finite."""
        return bool(self.triggers)

    @cached_property
    def raw(self) -> bool:
        """Whether the value is wanted."""
        return any(part.raw for part in self.parts)

    @cached_property
    def shape(self) -> bool:
        """Whether the shape is wanted."""
        return any(part.shape for part in self.parts)

    @cached_property
    def statistics(self) -> frozenset[str]:
        """The statistics wanted."""
        return frozenset().union(*(part.statistics for part in self.parts))

    @cached_property
    def _settled(self) -> bool:
        return bool(self.parts) and all(part.scheduled for part in self.parts)

    def keep(self, fired: AbstractSet[str] = frozenset()) -> Form | None:
        """What remains once it is known which collections' watches fired; ``None`` is nothing."""
        if self._settled:
            return self
        if not (fired or self.scheduled):
            return None
        parts = tuple(part for part in self.parts if part.scheduled or part.collection in fired)
        return Form(parts, self.triggers) if parts else None


@dataclass(frozen=True)
class _Active:
    """A collection that may save at a step."""

    collection: Collection
    part: Part
    watches: tuple[re.Pattern[str], ...]
    skipped_roles: frozenset[Role]

    def wants(self, name: str, role: Role) -> bool:
        return role not in self.skipped_roles and self.collection.matches(name, role)

    @cached_property
    def roles(self) -> frozenset[Role]:
        """The roles of which some tensor may be wanted or watched."""
        collection = self.collection
        if self.watches:
            return frozenset(Role)
        if collection.selects_by_name or collection.name == CollectionKeys.ALL:
            return frozenset(Role) - self.skipped_roles
        return collection.roles


class Due:
    """What one step asks for. Steps that ask for the same share it."""

    def __init__(self, active: tuple[_Active, ...]) -> None:
        self._active = active
        self._roles = frozenset[Role]().union(*(each.roles for each in active))
        self._forms: dict[tuple[str, Role], Form | None] = {}

    @property
    def collections(self) -> tuple[str, ...]:
        """The active collections."""
        return tuple(each.part.collection for each in self._active)

    def may_want(self, role: Role) -> bool:
        """Whether any tensor of this role could be wanted."""
        return role in self._roles

    def form(self, name: str, role: Role) -> Form | None:
        """What is wanted of a tensor; ``None`` is nothing."""
        key = (name, role)
        try:
            return self._forms[key]
        except KeyError:
            form = self._forms[key] = self._find(name, role)
            return form

    def _find(self, name: str, role: Role) -> Form | None:
        parts = tuple(each.part for each in self._active if each.wants(name, role))
        triggers = frozenset(
            each.part.collection
            for each in self._active
            if any(regex.search(name) for regex in each.watches)
        )
        return Form(parts, triggers) if parts or triggers else None


class Plan:
    """What the included collections ask for.

    If ``all`` is included, so is every collection.

    Args:
        collections: Every collection by its name; read live.
        included: The names of those to save, in either spelling; read live.
        save_config: When, for the modes that a collection leaves open; read live.
        reduction_config: The form for the collections that have none of their own.
        default: When, for the modes that ``save_config`` leaves open.
        save_steps_override: Whether ``save_steps`` are instead of the interval, not beside it.
    """

    def __init__(
        self,
        collections: Mapping[str, Collection],
        included: AbstractSet[str],
        save_config: SaveConfig,
        reduction_config: ReductionConfig = RAW_TENSOR,
        default: SaveConfigMode | None = None,
        save_steps_override: bool = False,
    ) -> None:
        self._default = default or SaveConfigMode()
        self._save_steps_override = save_steps_override
        self._collections = collections
        self._included = included
        self._save_config = save_config
        self._reduction_config = reduction_config
        self._names: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())
        self._dues: dict[tuple[object, ...], Due] = {}

    def problems(self) -> dict[str, SMDebugError]:
        """What is wrong with the included collections, by name.

        One does not exist (``SMDebugValueError``), or has neither roles nor regexes nor names, so
        that no tensor can ever belong (``InvalidCollectionConfiguration``).
        """
        found: dict[str, SMDebugError] = {}
        for name in sorted(self._included):
            collection = self._collections.get(name) or self._collections.get(canonical_name(name))
            if collection is None:
                found[name] = SMDebugValueError(
                    f"Collection {name!r} is to be saved but does not exist: "
                    f"{choose_from(name, self._collections)} "
                    f"Or make it: hook.get_collection({name!r}).include(regex)."
                )
            elif collection.is_empty and collection.name not in FILLED_LATER:
                found[name] = InvalidCollectionConfiguration(name)
        return found

    def save_config_of(self, collection: Collection) -> SaveConfig:
        """When the collection is saved, with the modes that it leaves open filled in."""
        return SaveConfig(
            {mode: self._resolved(collection, mode, self._default_of(mode)) for mode in ModeKeys}
        )

    def _default_of(self, mode: ModeKeys) -> SaveConfigMode:
        return self._in_its_sense(self._save_config.resolved(mode, self._default))

    def _resolved(
        self, collection: Collection, mode: ModeKeys, default: SaveConfigMode
    ) -> SaveConfigMode:
        config = collection.save_config.resolved(mode, default)
        return config if config is default else self._in_its_sense(config)

    def _in_its_sense(self, config: SaveConfigMode) -> SaveConfigMode:
        return config.with_save_steps_overriding() if self._save_steps_override else config

    def reduction_config_of(self, collection: Collection) -> ReductionConfig:
        """In which form the collection is saved."""
        if collection.name in UNREDUCED_COLLECTIONS:
            return RAW_TENSOR
        return collection.reduction_config or self._reduction_config

    def at(self, mode: ModeKeys, mode_step: int) -> Due | None:
        """What a step asks for; ``None`` is nothing."""
        names = self._included_names()
        every = CollectionKeys.ALL in names
        evaluating = mode in _EVALUATING
        default = self._default_of(mode)
        due = default.should_save_step(mode_step)  # once for all the collections that follow it
        active: list[tuple[Collection, bool, tuple[re.Pattern[str], ...]]] = []
        for name, collection in self._collections.items():
            if not (every or name in names) or (evaluating and name in TRAINING_ONLY_COLLECTIONS):
                continue
            config = self._resolved(collection, mode, default)
            scheduled = due if config is default else config.should_save_step(mode_step)
            if scheduled or config.watches:
                active.append((collection, scheduled, config.watches))
        return self._due(active, evaluating) if active else None

    def _due(
        self, active: list[tuple[Collection, bool, tuple[re.Pattern[str], ...]]], evaluating: bool
    ) -> Due:
        key = (evaluating, *((c.revision, scheduled, watches) for c, scheduled, watches in active))
        due = self._dues.get(key)
        if due is None:
            if len(self._dues) >= _REMEMBERED:
                self._dues.clear()
            due = self._dues[key] = Due(
                tuple(self._activate(c, s, watches, evaluating) for c, s, watches in active)
            )
        return due

    def _activate(
        self,
        collection: Collection,
        scheduled: bool,
        watches: tuple[re.Pattern[str], ...],
        evaluating: bool,
    ) -> _Active:
        form = self.reduction_config_of(collection)
        part = Part(
            collection.name, scheduled, form.save_raw_tensor, form.save_shape, form.statistics
        )
        skips = evaluating and collection.name == CollectionKeys.ALL
        return _Active(collection, part, watches, TRAINING_ONLY_ROLES if skips else _NO_ROLES)

    def _included_names(self) -> frozenset[str]:
        """The included names in both spellings, made again only when the included set changed."""
        given, names = self._names
        if given != self._included:
            given = frozenset(self._included)
            names = given | {canonical_name(name) for name in given}
            self._names = (given, names)
        return names
