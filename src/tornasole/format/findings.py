"""What the rules said, beside what the hook saved: lines of JSON under ``findings/``."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from typing import Any

from tornasole.format import layout
from tornasole.store import open_store


def write_findings(address: str, findings: Iterable[Mapping[str, Any]]) -> None:
    """Adds findings to the trial at the address, as a file of their own."""
    lines = "".join(json.dumps(finding, allow_nan=False) + "\n" for finding in findings)
    if lines:
        key = f"{layout.FINDINGS}/{time.time_ns()}-{os.getpid()}.jsonl"
        open_store(address).put(key, [lines.encode()], overwrite=False)


def read_findings(address: str) -> list[tuple[str, dict[str, Any]]]:
    """Every finding in the trial at the address, oldest first, and where it stands.

    Raises:
        CorruptTrial: A file of them is damaged.
    """
    store = open_store(address)
    found = []
    for key in sorted(store.list(layout.FINDINGS + "/")):
        if key.endswith(".jsonl"):
            where = f"{store.url}/{key}"
            for line in bytes(store.get(key)).splitlines():
                if line.strip():
                    found.append((where, layout.parse_object(line, where)))
    return found
