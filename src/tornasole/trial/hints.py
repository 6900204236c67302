"""The end of an error message about an unknown name: which known ones are nearest."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice

# Comparing texts costs their lengths multiplied: enough for people, bounded for machines.
_NAMES = 2000
_CHARACTERS = 200


def nearest(name: str, known: Iterable[str]) -> str:
    """A question that offers the nearest names; empty if none is near."""
    names = [each for each in islice(known, _NAMES) if len(each) <= _CHARACTERS]
    near = get_close_matches(name[:_CHARACTERS], names)
    return f"Did you mean {' or '.join(map(repr, near))}?" if near else ""
