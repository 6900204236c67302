"""Regular expressions and names as people type them: checked at once, with messages that help."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from tornasole.errors import SMDebugTypeError, SMDebugValueError


def compiled(field: str, patterns: object) -> tuple[re.Pattern[str], ...]:
    """Compile a regex or a (nested) list of regexes; ``field`` is named in errors."""
    if patterns is None:
        return ()
    if isinstance(patterns, str):
        try:
            return (re.compile(patterns),)
        except re.error as error:
            raise SMDebugValueError(
                f"{field}: {patterns!r} is not a valid regular expression: {error}"
            ) from error
    if isinstance(patterns, (list, tuple, set, frozenset)):
        return tuple(regex for pattern in patterns for regex in compiled(field, pattern))
    raise SMDebugTypeError(f"{field} takes a regex string or a list of them, not {patterns!r}")


def choose_from(name: object, known: Iterable[str]) -> str:
    """The end of an error message about an unknown name: what exists, and which is nearest."""
    names = list(known)
    lowered = {candidate.lower(): candidate for candidate in names}
    near = difflib.get_close_matches(str(name).lower(), lowered, n=1)
    hint = f" Did you mean {lowered[near[0]]!r}?" if near else ""
    return f"choose from {', '.join(names)}.{hint}"
