"""Where things lie in a trial, and the numbers that pin the format.

trial.json                          what this is
<worker>/collections.json           what was asked for
<worker>/<number:012d>.safetensors  raw values of a segment, if any; written first
<worker>/<number:012d>.parquet      the rows of a segment; a visible row is a readable value
<worker>/end.json                   the worker's last word
findings/*.jsonl                    what the rules said
stop.json                           a wish that the job stop
"""

from __future__ import annotations

import json
import re
from typing import Any

from tornasole.errors import CorruptTrial, UnsupportedFormat

FORMAT = "tornasole"
VERSION = 1

TRIAL = "trial.json"
COLLECTIONS = "collections.json"
END = "end.json"
FINDINGS = "findings"

_ROWS = re.compile(r"([0-9]{12})\.parquet")
_PAYLOAD = re.compile(r"[0-9]{12}\.safetensors")
# Control characters and halves of surrogate pairs have no place in a file that others read.
_LONGEST_WORKER = 200  # bytes: file systems take folders of up to 255
_WORKER = re.compile(r"[^/\\\x00-\x1f\x7f\ud800-\udfff]+")


def collections_key(worker: str) -> str:
    """The key of what a worker was asked for."""
    return f"{worker}/{COLLECTIONS}"


def end_key(worker: str) -> str:
    """The key of a worker's last word."""
    return f"{worker}/{END}"


def rows_key(worker: str, segment: int) -> str:
    """The key of a segment's rows."""
    return f"{worker}/{segment:012d}.parquet"


def payload_key(worker: str, segment: int) -> str:
    """The key of a segment's raw values."""
    return f"{worker}/{segment:012d}.safetensors"


def segment_number(key: str) -> int | None:
    """The number of a rows file, or ``None`` for any other file."""
    match = _ROWS.fullmatch(key.rpartition("/")[2])
    return int(match[1]) if match else None


def worker_of(key: str) -> str | None:
    """The worker whose file this is, or ``None``: files and folders of others may lie beside."""
    worker, _, file = key.partition("/")
    ours = file in (COLLECTIONS, END) or _ROWS.fullmatch(file) or _PAYLOAD.fullmatch(file)
    return worker if ours and is_worker(worker) else None


def is_worker(name: str) -> bool:
    """Whether a worker can have that name."""
    fits = len(name.encode("utf-8", "replace")) <= _LONGEST_WORKER
    return fits and bool(_WORKER.fullmatch(name)) and name not in (".", "..", FINDINGS, TRIAL)


def parse_object(text: bytes | bytearray, where: str) -> dict[str, Any]:
    """Reads a JSON object.

    Raises:
        CorruptTrial: It is none.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CorruptTrial(f"{where} is damaged: it is not JSON ({error}).") from None
    if not isinstance(content, dict):
        raise CorruptTrial(f"{where} is damaged: it is not a JSON object.")
    return content


def check_version(about: dict[str, Any], where: str) -> None:
    """Refuses what is not ours, and what a later version of the library wrote.

    Raises:
        CorruptTrial: It does not describe a trial or a part of one.
        UnsupportedFormat: It does, in a newer version of the format.
    """
    version = about.get("version")
    if about.get("format") != FORMAT or type(version) is not int or version < 1:
        raise CorruptTrial(f"{where} does not describe a trial.")
    if version > VERSION:
        raise UnsupportedFormat(
            f"{where} is of format version {version}; this version of tornasole reads up to "
            f"{VERSION}. Upgrade with: pip install -U tornasole"
        )
