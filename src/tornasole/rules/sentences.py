"""Numbers and counts as they stand in the sentences of findings."""

from __future__ import annotations

from collections.abc import Sized


def number(value: float) -> str:
    """Three digits, as people read them: 0.00123, 1.2e-09, 12,300."""
    if value == 0 or value != value or value in (float("inf"), float("-inf")):
        return f"{value:g}"
    if 1e-4 <= abs(value) < 1e3:
        return f"{value:.3g}"
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e7 else f"{value:.2e}"


def percent(fraction: float) -> str:
    """A fraction in per cent."""
    return f"{100 * fraction:.3g} %"


def count(things: Sized, noun: str) -> str:
    """``1 gradient is``, ``3 gradients are``."""
    many = len(things)
    return f"{many} {noun} is" if many == 1 else f"{many} {noun}s are"
