"""Whether trials look for new data: switched for the length of a ``with`` block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar


class Refreshing(Protocol):
    """Anything that looks for new data when its ``dynamic_refresh`` is true."""

    dynamic_refresh: bool


T = TypeVar("T", bound="Refreshing | Iterable[Refreshing]")


@contextmanager
def no_refresh(trials: T) -> Iterator[T]:
    """Keeps one trial, or several, as they are: what was seen once is seen again."""
    with _set(trials, False):
        yield trials


@contextmanager
def refresh(trials: T) -> Iterator[T]:
    """Lets one trial, or several, take in what is new."""
    with _set(trials, True):
        yield trials


@contextmanager
def _set(trials: Refreshing | Iterable[Refreshing], wanted: bool) -> Iterator[None]:
    each = list(trials) if isinstance(trials, Iterable) else [trials]
    before = [trial.dynamic_refresh for trial in each]
    for trial in each:
        trial.dynamic_refresh = wanted
    try:
        yield
    finally:
        for trial, previous in zip(each, before, strict=True):
            trial.dynamic_refresh = previous
