"""From an address to a store: the one place that looks at URL schemes."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import cast

from tornasole.errors import SMDebugTypeError, SMDebugValueError
from tornasole.registry import load
from tornasole.store.base import Store


def open_store(address: str | os.PathLike[str]) -> Store:
    """Opens the place that a local path, ``file://`` or any registered ``scheme://`` names.

    Opening a local folder creates nothing.
    """
    if not isinstance(address, (str, os.PathLike)):
        raise SMDebugTypeError(
            f"The path of a trial must be a string or a path, not {type(address).__name__}."
        )
    text = os.fspath(address).strip()
    if not text:
        raise SMDebugValueError("The path of a trial is empty.")
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme, rest = "file", text
    # Every opener takes the whole URL but the local one, which takes a path.
    opener = cast(Callable[[str], Store], load("store", scheme))
    return opener(rest if scheme == "file" else text)
