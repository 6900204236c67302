"""When to save: the schedule of one mode, and of all four, which the plan asks at every step."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from numbers import Integral
from typing import Any, Generic, TypeVar, overload

from tornasole.errors import SMDebugTypeError, SMDebugValueError
from tornasole.selection.patterns import choose_from, compiled
from tornasole.types import ModeKeys

DEFAULT_SAVE_INTERVAL = 500

FIELDS = ("save_interval", "start_step", "end_step", "save_steps", "when_nan")

T = TypeVar("T")


def checked_integer(field: str, value: object, least: int = 0) -> int:
    """Read an integer as people give it: ``7``, ``"7"``, ``7.0`` or NumPy's, but not ``True``."""
    number: int | None = None
    if isinstance(value, str):
        try:
            number = int(value)
        except ValueError:
            pass
    elif isinstance(value, float):
        number = int(value) if value.is_integer() else None
    elif not isinstance(value, bool) and isinstance(value, Integral):
        number = int(value)
    if number is None or number < least:
        raise SMDebugValueError(f"{field} must be an integer of at least {least}, not {value!r}")
    return number


def _checked_steps(value: object) -> tuple[int, ...]:
    if not isinstance(value, (list, tuple, range, set, frozenset)):
        raise SMDebugValueError(f"save_steps must be a list of integers, not {value!r}")
    for step in value:
        if isinstance(step, (str, float)):
            raise SMDebugValueError(f"save_steps must hold integers only, not {step!r}")
    steps = tuple(checked_integer("save_steps", step) for step in value)
    return tuple(sorted(steps)) if isinstance(value, AbstractSet) else steps


class SaveConfigMode:
    """When to save in one mode.

    A step is saved if it is one of ``save_steps``, or if it is a multiple of ``save_interval`` and
    lies in ``[start_step, end_step)``. Beside this schedule, ``when_nan`` asks for a save whenever
    a tensor whose name matches one of its regexes holds a NaN or an infinity. Every field may be
    assigned at any time and is checked when it is; assigning ``None`` restores its default.
    """

    def __init__(
        self,
        save_interval: int | None = None,
        start_step: int | None = None,
        end_step: int | None = None,
        save_steps: Sequence[int] | AbstractSet[int] | None = None,
        when_nan: str | Sequence[str] | None = None,
    ) -> None:
        self.save_interval = save_interval
        self.start_step = start_step
        self.end_step = end_step
        self.save_steps = save_steps
        self.when_nan = when_nan

    @property
    def save_interval(self) -> int:
        """Save at the multiples of this number of steps."""
        return self._interval

    @save_interval.setter
    def save_interval(self, value: int | None) -> None:
        self._interval = (
            DEFAULT_SAVE_INTERVAL if value is None else checked_integer("save_interval", value, 1)
        )

    @property
    def start_step(self) -> int:
        """The first step at which the interval counts."""
        return self._start

    @start_step.setter
    def start_step(self, value: int | None) -> None:
        self._start = 0 if value is None else checked_integer("start_step", value)

    @property
    def end_step(self) -> int | None:
        """The first step at which the interval counts no more; ``None`` is never."""
        return self._end

    @end_step.setter
    def end_step(self, value: int | None) -> None:
        self._end = None if value is None else checked_integer("end_step", value)

    @property
    def save_steps(self) -> list[int]:
        """Steps saved whatever the interval says. A copy: assign a list to change it."""
        return list(self._steps)

    @save_steps.setter
    def save_steps(self, value: Sequence[int] | AbstractSet[int] | None) -> None:
        self._steps = () if value is None else _checked_steps(value)
        self._step_set = frozenset(self._steps)

    @property
    def when_nan(self) -> list[str]:
        """Regexes of the tensors to watch. A copy: assign a list to change it."""
        return [regex.pattern for regex in self._watches]

    @when_nan.setter
    def when_nan(self, value: str | Sequence[str] | None) -> None:
        self._watches = compiled("when_nan", value)

    @property
    def watches(self) -> tuple[re.Pattern[str], ...]:
        """The compiled regexes of ``when_nan``."""
        return self._watches

    def should_save_step(self, step_num: int) -> bool:
        """Whether the schedule asks for the step; ``when_nan`` has no part in it."""
        if step_num in self._step_set:
            return True
        if step_num % self._interval or step_num < self._start:
            return False
        return self._end is None or step_num < self._end

    def replaced(self, fields: Mapping[str, Any]) -> SaveConfigMode:
        """A copy in which some fields are others."""
        copy = SaveConfigMode.__new__(SaveConfigMode)
        copy.__dict__.update(self.__dict__)
        for field, value in fields.items():
            setattr(copy, field, value)
        return copy

    def with_save_steps_overriding(self) -> SaveConfigMode:
        """The same in the old sense of ``save_steps``: where there are some, only those."""
        return self.replaced({"end_step": 0}) if self._steps else self

    def to_json_dict(self) -> dict[str, Any]:
        """The fields as plain values."""
        fields: dict[str, Any] = {
            "save_interval": self.save_interval,
            "save_steps": self.save_steps,
            "start_step": self.start_step,
            "end_step": self.end_step,
        }
        return {**fields, "when_nan": self.when_nan} if self._watches else fields

    @classmethod
    def from_dict(
        cls, params: Mapping[str, Any] | None, default_values: Mapping[str, Any] | None = None
    ) -> SaveConfigMode | None:
        """Read the fields of ``to_json_dict``; those missing come from ``default_values``."""
        if params is None:
            return None
        if not isinstance(params, Mapping):
            raise SMDebugTypeError(f"The fields of a SaveConfigMode must be a dict, not {params!r}")
        fields = {**(default_values or {}), **params}
        for field in fields:
            if field not in FIELDS:
                raise SMDebugValueError(
                    f"SaveConfigMode has no field {field!r}: {choose_from(field, FIELDS)}"
                )
        return cls(**fields)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SaveConfigMode):
            return NotImplemented
        return self.to_json_dict() == other.to_json_dict()

    __hash__ = None  # type: ignore[assignment]  # it can change

    def __repr__(self) -> str:
        return f"SaveConfigMode({', '.join(f'{k}={v!r}' for k, v in self.to_json_dict().items())})"


class _EveryMode(Generic[T]):
    """A field of ``SaveConfig`` that stands for that field of all four modes."""

    def __set_name__(self, owner: type[SaveConfig], name: str) -> None:
        self._field = name

    @overload
    def __get__(self, config: None, owner: type[SaveConfig]) -> _EveryMode[T]: ...
    @overload
    def __get__(self, config: SaveConfig, owner: type[SaveConfig]) -> T: ...
    def __get__(self, config: SaveConfig | None, owner: type[SaveConfig]) -> _EveryMode[T] | T:
        return self if config is None else config._common(self._field)

    def __set__(self, config: SaveConfig, value: T) -> None:
        config._set_in_every_mode(self._field, value)


class SaveConfig:
    """When to save, mode by mode.

    ``SaveConfig(save_interval=10)`` is the same in all modes. ``SaveConfig({modes.TRAIN:
    SaveConfigMode(...)})`` gives some modes a configuration of their own and leaves the others
    *open*: an open mode has the default configuration, which inside a collection is that of the
    hook. Fields given beside such a dict are those of the open modes.

    The fields can be assigned, ``save_config.end_step = 0``, for all four modes together. Reading
    one raises where the modes do not agree on it; ``get_save_config(mode)`` has that of one mode.
    """

    save_interval = _EveryMode[int]()
    start_step = _EveryMode[int]()
    end_step = _EveryMode["int | None"]()
    save_steps = _EveryMode["Sequence[int] | AbstractSet[int]"]()
    when_nan = _EveryMode["str | Sequence[str]"]()

    def __init__(
        self,
        mode_save_configs: Mapping[ModeKeys, SaveConfigMode | SaveConfig | None] | None = None,
        save_interval: int | None = None,
        start_step: int | None = None,
        end_step: int | None = None,
        save_steps: Sequence[int] | AbstractSet[int] | None = None,
        when_nan: str | Sequence[str] | None = None,
    ) -> None:
        values: tuple[Any, ...] = (save_interval, start_step, end_step, save_steps, when_nan)
        common = SaveConfigMode(*values)
        self._open_fields: dict[str, Any] = {
            field: getattr(common, field)
            for field, value in zip(FIELDS, values, strict=True)
            if value is not None
        }
        self._modes: dict[ModeKeys, SaveConfigMode] = {}
        if mode_save_configs is None:
            self._modes = {mode: common.replaced({}) for mode in ModeKeys}
            return
        if not isinstance(mode_save_configs, Mapping):
            raise SMDebugValueError(
                "mode_save_configs must be a dict from mode to SaveConfigMode, "
                f"not {mode_save_configs!r}; did you mean save_interval=?"
            )
        for mode, config in mode_save_configs.items():
            if config is not None:
                self.set_save_config(mode, config)
            else:
                _checked_mode(mode)

    def get_save_config(self, mode: ModeKeys) -> SaveConfigMode:
        """The configuration of a mode; the default one, not kept here, if the mode is open."""
        own = self._modes.get(_checked_mode(mode))
        return SaveConfigMode(**self._open_fields) if own is None else own

    def set_save_config(
        self, mode: ModeKeys, save_config_mode: SaveConfigMode | SaveConfig
    ) -> None:
        """Give a mode a configuration of its own: of a ``SaveConfig``, that of the mode."""
        if isinstance(save_config_mode, SaveConfig):
            save_config_mode = save_config_mode.get_save_config(mode)
        if not isinstance(save_config_mode, SaveConfigMode):
            raise SMDebugValueError(
                f"The configuration of {_checked_mode(mode).name} must be a SaveConfigMode, "
                f"not {save_config_mode!r}"
            )
        self._modes[_checked_mode(mode)] = save_config_mode

    def resolved(self, mode: ModeKeys, default: SaveConfigMode) -> SaveConfigMode:
        """The configuration of a mode where an open one falls back to ``default``."""
        if self._modes and (own := self._modes.get(mode)) is not None:
            return own
        return default.replaced(self._open_fields) if self._open_fields else default

    def should_save_step(self, mode: ModeKeys, step_num: int) -> bool:
        """Whether the schedule of the mode asks for its step."""
        return self.get_save_config(mode).should_save_step(step_num)

    def merge_default_save_config(self, default_save_config: SaveConfig) -> None:
        """Fill the open modes from another configuration."""
        for mode in ModeKeys:
            self._modes[mode] = self.resolved(mode, default_save_config.get_save_config(mode))

    @property
    def is_open(self) -> bool:
        """Whether nothing was set here, so that everything is the default's."""
        return not self._modes and not self._open_fields

    def to_json(self) -> str:
        """``to_json_dict`` as text."""
        return json.dumps(self.to_json_dict())

    def to_json_dict(self) -> dict[str, Any]:
        """Mode name to fields; ``None`` for a mode of which nothing was set."""
        return {
            mode.name: self.get_save_config(mode).to_json_dict()
            if mode in self._modes or self._open_fields
            else None
            for mode in ModeKeys
        }

    @classmethod
    def from_json(cls, j: str) -> SaveConfig | None:
        """Read what ``to_json`` wrote."""
        return cls.from_dict(json.loads(j))

    @classmethod
    def from_dict(
        cls,
        params: Mapping[Any, Any] | None,
        default_values: Mapping[str, Any] | None = None,
    ) -> SaveConfig | None:
        """Read a dict from mode, or its name, to ``SaveConfigMode``, its fields, or ``None``.

        Args:
            params: The dict.
            default_values: Fields for the modes whose own dict lacks them.
        """
        if params is None:
            return None
        if not isinstance(params, Mapping):
            raise SMDebugTypeError(f"A SaveConfig is made of a dict by mode, not of {params!r}")
        modes: dict[ModeKeys, SaveConfigMode | SaveConfig | None] = {}
        for key, config in params.items():
            mode = _checked_mode(
                ModeKeys.__members__.get(key.upper(), key) if isinstance(key, str) else key
            )
            modes[mode] = (
                config
                if isinstance(config, (SaveConfigMode, SaveConfig))
                else SaveConfigMode.from_dict(config, default_values)
            )
        return cls(modes)

    @classmethod
    def from_save_config_mode(cls, save_config_mode: SaveConfigMode) -> SaveConfig:
        """The same configuration, in a copy each, for all modes."""
        return cls({mode: save_config_mode.replaced({}) for mode in ModeKeys})

    @classmethod
    def parse(cls, obj: SaveConfig | SaveConfigMode | Mapping[Any, Any] | None) -> SaveConfig:
        """Whatever people pass as ``save_config``, as a ``SaveConfig``."""
        if isinstance(obj, SaveConfig):
            return obj
        if isinstance(obj, SaveConfigMode):
            return cls.from_save_config_mode(obj)
        if obj is not None and not isinstance(obj, Mapping):
            raise SMDebugTypeError(
                f"save_config must be a SaveConfig, a SaveConfigMode or a dict by mode, not {obj!r}"
            )
        return cls.from_dict(obj) or cls()

    def _common(self, field: str) -> Any:
        missing = object()
        values = {
            mode.name: getattr(self._modes[mode], field)
            if mode in self._modes
            else self._open_fields.get(field, missing)
            for mode in ModeKeys
        }
        first, *others = values.values()
        if first is not missing and all(other == first for other in others):
            return first
        known = ", ".join(f"{m} {v!r}" for m, v in values.items() if v is not missing)
        raise SMDebugValueError(
            f"{field} is not set to one value for all modes ({known or 'the default applies'}); "
            "ask get_save_config(mode) for that of one mode"
        )

    def _set_in_every_mode(self, field: str, value: Any) -> None:
        checked = getattr(SaveConfigMode().replaced({field: value}), field)
        # Copies: the objects may be the caller's, and serve another collection too.
        self._modes = {mode: scm.replaced({field: checked}) for mode, scm in self._modes.items()}
        self._open_fields[field] = checked

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SaveConfig):
            return NotImplemented
        return self.to_json_dict() == other.to_json_dict()

    __hash__ = None  # type: ignore[assignment]  # it can change

    def __repr__(self) -> str:
        return f"SaveConfig({self.to_json_dict()})"


def _checked_mode(mode: object) -> ModeKeys:
    if isinstance(mode, ModeKeys):
        return mode
    raise SMDebugValueError(f"{mode!r} is not a mode: {choose_from(mode, ModeKeys.__members__)}")
