"""What the rules said, beside what the hook saved: lines of JSON under ``findings/``."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from typing import Any

from tornasole.format import layout
from tornasole.store import open_store

_ACTED = f"{layout.FINDINGS}/acted"


def write_findings(address: str, findings: Iterable[Mapping[str, Any]]) -> None:
    """Adds findings to the trial at the address, as a file of their own."""
    lines = "".join(json.dumps(finding, allow_nan=False) + "\n" for finding in findings)
    if lines:
        key = f"{layout.FINDINGS}/{time.time_ns()}-{os.getpid()}.jsonl"
        open_store(address).put(key, [lines.encode()], overwrite=False)


def mark_acted(address: str, keys: Iterable[str]) -> None:
    """Notes in the trial that the actions for some findings were done."""
    lines = "".join(json.dumps({"acted": key}) + "\n" for key in keys)
    key = f"{_ACTED}/{time.time_ns()}-{os.getpid()}.jsonl"
    open_store(address).put(key, [lines.encode()], overwrite=False)


def acted_upon(address: str) -> set[str]:
    """The findings whose actions were done, as ``mark_acted`` noted them."""
    store = open_store(address)
    found = set()
    for key in store.list(_ACTED + "/"):
        for line in bytes(store.get(key)).splitlines():
            try:
                found.add(str(json.loads(line)["acted"]))
            except (ValueError, TypeError, KeyError):
                continue  # a damaged mark means that an action is done twice, and no worse
    return found


def read_findings(address: str) -> list[tuple[str, bytes]]:
    """Every finding in the trial at the address, oldest first: where it stands, and its JSON."""
    store = open_store(address)
    found = []
    for key in sorted(store.list(layout.FINDINGS + "/")):
        if key.endswith(".jsonl") and not key.startswith(_ACTED):
            where = f"{store.url}/{key}"
            for line in bytes(store.get(key)).splitlines():
                if line.strip():
                    found.append((where, line))
    return found
