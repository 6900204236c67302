"""From an address to a store: the one place that looks at URL schemes."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import cast
from urllib.parse import unquote

from tornasole.errors import SMDebugTypeError, SMDebugValueError
from tornasole.registry import load
from tornasole.store.base import Store


def open_store(address: str | os.PathLike[str]) -> Store:
    """Opens the place that a local path, ``file://`` or any registered ``scheme://`` names.

    Opening a local folder creates nothing.
    """
    text = os.fspath(address) if isinstance(address, (str, os.PathLike)) else address
    if not isinstance(text, str):
        raise SMDebugTypeError(
            f"The path of a trial must be a string or a path, not {type(address).__name__}."
        )
    text = text.strip()
    if not text or "\0" in text:
        raise SMDebugValueError(f"The path of a trial cannot be {text!r}.")
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme, rest = "file", text
    elif scheme.lower() == "file":
        scheme, rest = "file", _path_of(rest)
    # Every opener takes the whole URL but the local one, which takes a path.
    opener = cast(Callable[[str], Store], load("store", scheme.lower()))
    return opener(rest if scheme == "file" else f"{scheme.lower()}://{rest}")


def _path_of(rest: str) -> str:
    """The path in what follows ``file://``: ``/a%20b``, ``localhost/a`` or a relative ``a/b``."""
    path = unquote(rest.removeprefix("localhost") if rest.startswith("localhost/") else rest)
    if not path or "\0" in path:
        raise SMDebugValueError(f"file://{rest} names no folder; write file:///path/to/trial.")
    return path
