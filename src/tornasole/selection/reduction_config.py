"""In which form to save: the statistics of a tensor, its raw value, its shape."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tornasole.errors import SMDebugValueError
from tornasole.selection.patterns import choose_from
from tornasole.types import NORMS, REDUCTIONS, STATISTICS

ALLOWED_REDUCTIONS = REDUCTIONS
ALLOWED_NORMS = NORMS

_JSON_FIELDS = ("reductions", "save_raw_tensor", "save_shape")


def _checked_names(
    field: str, names: Sequence[str] | None, allowed: tuple[str, ...]
) -> tuple[str, ...]:
    if isinstance(names, str):
        raise SMDebugValueError(f"{field} must be a list: write {field}=[{names!r}]")
    if names is not None and not isinstance(names, (list, tuple)):
        raise SMDebugValueError(f"{field} must be a list of names, not {names!r}")
    for name in names or ():
        if name not in allowed:
            raise SMDebugValueError(f"{field} cannot be {name!r}: {choose_from(name, allowed)}")
    return tuple(names or ())


def _checked_flag(field: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise SMDebugValueError(f"{field} must be True or False, not {value!r}")


class ReductionConfig:
    """What to save of a tensor. It never changes once made.

    Args:
        reductions: Any of ``ALLOWED_REDUCTIONS``.
        abs_reductions: The same, of the absolute values.
        norms: Any of ``ALLOWED_NORMS``, entry-wise.
        abs_norms: The same, of the absolute values.
        save_raw_tensor: Whether to save the tensor itself too.
        save_shape: Whether to save its shape too.
    """

    def __init__(
        self,
        reductions: Sequence[str] | None = None,
        abs_reductions: Sequence[str] | None = None,
        norms: Sequence[str] | None = None,
        abs_norms: Sequence[str] | None = None,
        save_raw_tensor: bool = False,
        save_shape: bool = False,
    ) -> None:
        self._reductions = _checked_names("reductions", reductions, ALLOWED_REDUCTIONS)
        self._abs_reductions = _checked_names("abs_reductions", abs_reductions, ALLOWED_REDUCTIONS)
        self._norms = _checked_names("norms", norms, ALLOWED_NORMS)
        self._abs_norms = _checked_names("abs_norms", abs_norms, ALLOWED_NORMS)
        self._save_raw_tensor = _checked_flag("save_raw_tensor", save_raw_tensor)
        self._save_shape = _checked_flag("save_shape", save_shape)
        self._statistics = frozenset(
            [*self._reductions, *self._norms]
            + [f"abs_{name}" for name in (*self._abs_reductions, *self._abs_norms)]
        )

    @property
    def reductions(self) -> list[str]:
        """Reductions of the values."""
        return list(self._reductions)

    @property
    def abs_reductions(self) -> list[str]:
        """Reductions of the absolute values."""
        return list(self._abs_reductions)

    @property
    def norms(self) -> list[str]:
        """Norms of the values."""
        return list(self._norms)

    @property
    def abs_norms(self) -> list[str]:
        """Norms of the absolute values."""
        return list(self._abs_norms)

    @property
    def save_raw_tensor(self) -> bool:
        """Whether the tensor itself is saved."""
        return self._save_raw_tensor

    @property
    def save_shape(self) -> bool:
        """Whether the shape is saved."""
        return self._save_shape

    @property
    def statistics(self) -> frozenset[str]:
        """All that is asked for by its statistic's name: ``mean``, ``abs_mean``, ``l1``, …"""
        return self._statistics

    def to_json(self) -> str:
        """``to_json_dict`` as text."""
        return json.dumps(self.to_json_dict())

    def to_json_dict(self) -> dict[str, Any]:
        """The fields as plain values, the reductions as one comma-separated string."""
        names = (
            *self._reductions,
            *(f"{name}_norm" for name in self._norms),
            *(f"abs_{name}" for name in self._abs_reductions),
            *(f"abs_{name}_norm" for name in self._abs_norms),
        )
        return {
            "save_raw_tensor": self._save_raw_tensor,
            "reductions": ",".join(names),
            "save_shape": self._save_shape,
        }

    @classmethod
    def from_json(cls, j: str) -> ReductionConfig | None:
        """Read what ``to_json`` wrote."""
        return cls.from_dict(json.loads(j))

    @classmethod
    def from_dict(cls, params: Mapping[str, Any] | None) -> ReductionConfig | None:
        """Read the dict of ``to_json_dict``; a norm is ``l1`` or ``l1_norm``."""
        if params is None:
            return None
        if not isinstance(params, Mapping):
            raise SMDebugValueError(f"A ReductionConfig is made of a dict, not of {params!r}")
        for field in params:
            if field not in _JSON_FIELDS:
                raise SMDebugValueError(
                    f"ReductionConfig has no field {field!r}: {choose_from(field, _JSON_FIELDS)}"
                )
        return cls(
            **_by_kind(params.get("reductions")),
            save_raw_tensor=params.get("save_raw_tensor", False),
            save_shape=params.get("save_shape", False),
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ReductionConfig):
            return NotImplemented
        return self.to_json_dict() == other.to_json_dict()

    def __hash__(self) -> int:
        return hash((self._statistics, self._save_raw_tensor, self._save_shape))

    def __repr__(self) -> str:
        return f"ReductionConfig({self.to_json_dict()})"


def _by_kind(reductions: object) -> dict[str, list[str]]:
    """Sort ``"mean,abs_l2_norm"``, or a list of such names, into arguments of ReductionConfig."""
    items = reductions.split(",") if isinstance(reductions, str) else reductions or []
    if not isinstance(items, (list, tuple)):
        raise SMDebugValueError(f"reductions must be names with commas between, not {items!r}")
    kinds: dict[str, list[str]] = {
        kind: [] for kind in ("reductions", "abs_reductions", "norms", "abs_norms")
    }
    for item in filter(None, (str(item).strip() for item in items)):
        plain = item.removeprefix("abs_")
        norm = plain.removesuffix("_norm")
        kind = "norms" if norm in ALLOWED_NORMS else "reductions"
        name = norm if kind == "norms" else plain
        if name not in STATISTICS:
            raise SMDebugValueError(f"reductions has {item!r}: {choose_from(item, STATISTICS)}")
        kinds["abs_" + kind if item.startswith("abs_") else kind].append(name)
    return kinds


RAW_TENSOR = ReductionConfig(save_raw_tensor=True)
"""The form of everything for which no other was asked."""
