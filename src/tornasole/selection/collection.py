"""Which tensors belong together: a named group by role, regex or name, with its when and how."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from tornasole.errors import SMDebugTypeError, SMDebugValueError
from tornasole.selection.patterns import choose_from, compiled
from tornasole.selection.reduction_config import ReductionConfig
from tornasole.selection.save_config import SaveConfig, SaveConfigMode
from tornasole.types import Role

C = TypeVar("C", bound="Collection")


class CollectionKeys:
    """The names of the built-in collections."""

    DEFAULT = "default"
    ALL = "all"
    INPUTS = "inputs"
    OUTPUTS = "outputs"
    WEIGHTS = "weights"
    GRADIENTS = "gradients"
    LOSSES = "losses"
    BIASES = "biases"
    BUFFERS = "buffers"
    LAYERS = "layers"
    SM_METRICS = "sm_metrics"
    OPTIMIZER_VARIABLES = "optimizer_variables"
    TENSORFLOW_SUMMARIES = "tensorflow_summaries"
    METRICS = "metrics"
    HYPERPARAMETERS = "hyperparameters"
    PREDICTIONS = "predictions"
    LABELS = "labels"
    FEATURE_IMPORTANCE = "feature_importance"
    AVERAGE_SHAP = "average_shap"
    FULL_SHAP = "full_shap"
    TREES = "trees"


_OTHER_SPELLINGS = {
    "bias": CollectionKeys.BIASES,
    "input": CollectionKeys.INPUTS,
    "output": CollectionKeys.OUTPUTS,
}

# One counter for all collections, so that a revision also tells which collection it is of.
_revisions = itertools.count(1)


def canonical_name(name: str) -> str:
    """The collection that a name means: ``bias`` is ``biases``."""
    return _OTHER_SPELLINGS.get(name, name)


def _checked_role(role: object) -> Role:
    try:
        return Role(role)
    except ValueError as error:
        known = choose_from(role, [known.value for known in Role])
        raise SMDebugValueError(f"{role!r} is not a role: {known}") from error


class Collection:
    """A named group of tensors.

    A tensor belongs if its role is one of ``roles``, if its name is one of ``tensor_names``, or if
    one of ``include_regex`` is found in its name. Every tensor belongs to the one named ``all``.

    ``save_config`` is never ``None``: one that was not given is open, follows the hook's, and can
    be changed for this collection alone (``collection.save_config.end_step = 0``).
    """

    def __init__(
        self,
        name: str,
        include_regex: str | Iterable[Any] | None = None,
        tensor_names: Iterable[str] | None = None,
        reduction_config: ReductionConfig | None = None,
        save_config: SaveConfig | SaveConfigMode | Mapping[Any, Any] | None = None,
        save_histogram: bool = True,
        *,
        roles: Iterable[Role] = (),
    ) -> None:
        if not isinstance(name, str) or not name:
            raise SMDebugTypeError(f"The name of a collection must be a string, not {name!r}")
        self._name = name
        self._roles = frozenset(_checked_role(role) for role in roles)
        self._seen: set[str] = set()
        self.include_regex = include_regex
        self.tensor_names = tensor_names
        self.reduction_config = reduction_config
        self.save_config = save_config
        self.save_histogram = save_histogram

    @property
    def name(self) -> str:
        """What the collection is called."""
        return self._name

    @property
    def roles(self) -> frozenset[Role]:
        """The roles whose tensors belong."""
        return self._roles

    @property
    def revision(self) -> int:
        """A number that is another one after every change of who belongs or in which form."""
        return self._revision

    @property
    def include_regex(self) -> list[str]:
        """The regexes. A copy: assign a list, or call ``include``, to change it."""
        return [regex.pattern for regex in self._regexes]

    @include_regex.setter
    def include_regex(self, regexes: str | Iterable[Any] | None) -> None:
        self._regexes = compiled(f"include_regex of collection {self._name!r}", regexes)
        self._changed()

    def exclude(self, t: str | Iterable[Any]) -> None:
        """Take back what ``include`` was given, once."""
        for regex in compiled(f"include_regex of collection {self._name!r}", t):
            if regex in self._regexes:
                place = self._regexes.index(regex)
                self._regexes = self._regexes[:place] + self._regexes[place + 1 :]
        self._changed()

    def include(self, t: str | Iterable[Any]) -> None:
        """Add a regex or a (nested) list of regexes."""
        if t is None:
            raise SMDebugTypeError("include() takes a regex string or a list of them, not None")
        self._regexes += compiled(f"include_regex of collection {self._name!r}", t)
        self._changed()

    @property
    def tensor_names(self) -> frozenset[str]:
        """The names asked for, and those seen to belong."""
        return self._asked | self._seen

    @tensor_names.setter
    def tensor_names(self, names: Iterable[str] | None) -> None:
        if names is not None and not isinstance(names, (list, tuple, set, frozenset)):
            raise SMDebugTypeError(
                f"tensor_names of collection {self._name!r} must be a list or set, not {names!r}"
            )
        for name in names or ():
            if not isinstance(name, str):
                raise SMDebugTypeError(f"A tensor name must be a string, not {name!r}")
        self._asked = frozenset(names or ())
        self._seen.clear()
        self._changed()

    @property
    def asked_names(self) -> frozenset[str]:
        """The names asked for."""
        return self._asked

    def has_tensor_name(self, tname: str) -> bool:
        """Whether the name is among ``tensor_names``."""
        return tname in self._asked or tname in self._seen

    def add_tensor_name(self, tname: str) -> None:
        """Ask for the tensor of this name."""
        if tname not in self._asked:
            self._asked |= {tname}
            self._changed()

    def remove_tensor_name(self, tname: str) -> None:
        """Ask for it no longer."""
        self._seen.discard(tname)
        if tname in self._asked:
            self._asked -= {tname}
            self._changed()

    def note_tensor_name(self, tname: str) -> None:
        """List a tensor that was found to belong; nobody's membership changes."""
        self._seen.add(tname)

    @property
    def reduction_config(self) -> ReductionConfig | None:
        """In which form to save; ``None`` follows the hook."""
        return self._reduction_config

    @reduction_config.setter
    def reduction_config(self, config: ReductionConfig | None) -> None:
        if config is not None and not isinstance(config, ReductionConfig):
            raise SMDebugTypeError(f"reduction_config must be a ReductionConfig, not {config!r}")
        self._reduction_config = config
        self._changed()

    def set_reduction_config(self, reduction_config: ReductionConfig | None) -> None:
        """Assign ``reduction_config``."""
        self.reduction_config = reduction_config

    @property
    def save_config(self) -> SaveConfig:
        """When to save."""
        return self._save_config

    @save_config.setter
    def save_config(self, config: SaveConfig | SaveConfigMode | Mapping[Any, Any] | None) -> None:
        self._save_config = SaveConfig({}) if config is None else SaveConfig.parse(config)

    def set_save_config(
        self, save_config: SaveConfig | SaveConfigMode | Mapping[Any, Any] | None
    ) -> None:
        """Assign ``save_config``."""
        self.save_config = save_config

    @property
    def is_empty(self) -> bool:
        """Whether no tensor can ever belong."""
        return not (self._roles or self.selects_by_name or self._name == CollectionKeys.ALL)

    @property
    def selects_by_name(self) -> bool:
        """Whether a tensor of any role may belong, for its name."""
        return bool(self._regexes or self._asked)

    def matches(self, name: str, role: Role | None = None) -> bool:
        """Whether a tensor belongs."""
        return (
            role in self._roles
            or name in self._asked
            or any(regex.search(name) for regex in self._regexes)
            or self._name == CollectionKeys.ALL
        )

    def merge(self, other: Collection) -> None:
        """Take over what another collection asks for: add its members, adopt its configurations."""
        self._roles |= other._roles
        self._regexes += other._regexes
        self._asked |= other._asked
        self._reduction_config = other._reduction_config or self._reduction_config
        if not other.save_config.is_open:
            self.save_config = other.save_config
        self.save_histogram = self.save_histogram and other.save_histogram
        self._changed()

    def to_json(self) -> str:
        """``to_json_dict`` as text."""
        return json.dumps(self.to_json_dict())

    def to_json_dict(self) -> dict[str, Any]:
        """Everything as plain values; a configuration that follows the hook's is ``None``."""
        reductions, saves = self._reduction_config, self._save_config
        return {
            "name": self._name,
            "include_regex": self.include_regex,
            "tensor_names": sorted(self.tensor_names),
            "reduction_config": reductions.to_json_dict() if reductions else None,
            "save_config": None if saves.is_open else saves.to_json_dict(),
            "save_histogram": self.save_histogram,
            "roles": sorted(role.value for role in self._roles),
        }

    @classmethod
    def from_json(cls: type[C], s: str) -> C:
        """Read what ``to_json`` wrote."""
        return cls.from_dict(json.loads(s))

    @classmethod
    def from_dict(cls: type[C], params: Mapping[str, Any]) -> C:
        """Read the dict of ``to_json_dict``, or that of a reference trial, which has no roles."""
        if not isinstance(params, Mapping) or "name" not in params:
            raise SMDebugValueError(
                f"A collection is made of a dict with a name, not of {params!r}"
            )
        return cls(
            params["name"],
            include_regex=params.get("include_regex") or None,
            tensor_names=params.get("tensor_names"),
            reduction_config=ReductionConfig.from_dict(params.get("reduction_config")),
            save_config=SaveConfig.from_dict(params.get("save_config")),
            save_histogram=params.get("save_histogram", True),
            roles=params.get("roles", ()),
        )

    def _changed(self) -> None:
        self._revision = next(_revisions)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Collection):
            return NotImplemented
        return self.to_json_dict() == other.to_json_dict()

    def __hash__(self) -> int:
        return hash(self._name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.to_json_dict()})"
