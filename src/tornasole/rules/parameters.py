"""From parameters as people type them, and as SageMaker passes them (as texts), to values."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from tornasole.errors import SMDebugValueError

_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


def converted(field: str, value: Any, kind: Any) -> Any:
    """The value as the kind that a field is annotated with.

    Args:
        field: What it is called in an error.
        kind: The annotation, as text: ``int``, ``float``, ``bool``, ``str``, ``Texts``, ``Numbers``
            (of any length), each maybe with ``| None``.

    Raises:
        SMDebugValueError: The value cannot be of that kind.
    """
    kind = kind.__name__ if isinstance(kind, type) else str(kind)
    kind, _, optional = kind.partition(" | ")
    kind = _OTHER_NAMES.get(kind, kind)
    if kind not in _KINDS:
        raise SMDebugValueError(
            f"{field} is annotated with {kind}; parameters of rules are {', '.join(_KINDS)}."
        )
    if optional and (value is None or (isinstance(value, str) and value.lower() == "none")):
        return None
    found = _KINDS[kind](value)
    if found is None:
        raise SMDebugValueError(f"{field} must be {_WORDS[kind]}, not {value!r}.")
    return found


def _boolean(value: Any) -> bool | None:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    return True if text in _TRUE else False if text in _FALSE else None


def _integer(value: Any) -> int | None:
    number = _number(value)
    return int(number) if number is not None and number == int(number) else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _texts(value: Any) -> tuple[str, ...] | None:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, Iterable) or not all(isinstance(part, str) for part in parts):
        return None
    return tuple(part.strip() for part in parts if part.strip())


def _numbers(value: Any) -> tuple[float, ...] | None:
    parts = value.strip("()[] ").split(",") if isinstance(value, str) else value
    if not isinstance(parts, Iterable):
        parts = [value]
    numbers = [_number(part) for part in parts if part != ""]
    if any(number is None for number in numbers):
        return None
    return tuple(number for number in numbers if number is not None)


Texts = tuple[str, ...]
"""The kind of a parameter that is a list of texts, such as regexes; typed with commas between."""

Numbers = tuple[float, ...]
"""The kind of a parameter that is a list of numbers; typed with commas between."""

_OTHER_NAMES = {"tuple[str, ...]": "Texts", "tuple[float, ...]": "Numbers", "list[str]": "Texts"}
_KINDS = {
    "bool": _boolean,
    "int": _integer,
    "float": _number,
    "str": _text,
    "Texts": _texts,
    "Numbers": _numbers,
}
_WORDS = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "Texts": "a text, or several with commas between",
    "Numbers": "a number, or several with commas between",
}
