"""Where things lie in a trial, and the numbers that pin the format.

    trial.json                          what this is
    <worker>/collections.json           what was asked for
    <worker>/<number:012d>.safetensors  raw values of a segment, if any; written first
    <worker>/<number:012d>.parquet      the rows of a segment; a visible row is a readable value
    <worker>/end.json                   the worker's last word
    findings/*.jsonl                    what the rules said
"""

from __future__ import annotations

import re

FORMAT = "tornasole"
VERSION = 1

TRIAL = "trial.json"
COLLECTIONS = "collections.json"
END = "end.json"
FINDINGS = "findings"

_ROWS = re.compile(r"(\d{12})\.parquet")


def collections_key(worker: str) -> str:
    return f"{worker}/{COLLECTIONS}"


def end_key(worker: str) -> str:
    return f"{worker}/{END}"


def rows_key(worker: str, segment: int) -> str:
    return f"{worker}/{segment:012d}.parquet"


def payload_key(worker: str, segment: int) -> str:
    return f"{worker}/{segment:012d}.safetensors"


def segment_number(key: str) -> int | None:
    """The number of a rows file, or ``None`` for any other file."""
    match = _ROWS.fullmatch(key.rpartition("/")[2])
    return int(match[1]) if match else None
