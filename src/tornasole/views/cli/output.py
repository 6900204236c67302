"""From plain values to a terminal, a pipe or JSON.

What a trial holds is shown, never obeyed: names may contain markup, escape sequences or a novel.
Valid JSON knows neither NaN nor infinity; they come as the strings "NaN", "Infinity" and
"-Infinity".
"""

from __future__ import annotations

import json
import math
import os
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Any, Literal

_LONGEST_CELL = 72
_HARMFUL = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})  # control, invisible, line ends


def safe(text: str) -> str:
    """The text with every character that could act on a terminal written as an escape."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        _escape(letter) if unicodedata.category(letter) in _HARMFUL else letter for letter in text
    )


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape", "surrogatepass").decode("ascii")


def shortened(text: str, longest: int = _LONGEST_CELL) -> str:
    """The text, without its middle if it is long."""
    if len(text) <= longest:
        return text
    head = longest * 2 // 3
    return f"{text[:head]}…{text[-(longest - head - 1) :]}"


def number(value: float) -> str:
    """A number for people."""
    if isinstance(value, int) or (
        math.isfinite(value) and value == int(value) and abs(value) < 1e6
    ):
        return str(int(value))
    return f"{value:.6g}"


def size(count: int | None) -> str:
    """Bytes for people."""
    if count is None:
        return ""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def text(value: object) -> str:
    """A cell for people."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return number(value)
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, Mapping):
        return ", ".join(f"{text(key)} {text(item)}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return " × ".join(map(text, value)) if value else "scalar"
    return safe(str(value))


def plain(value: Any) -> Any:
    """A value as JSON knows it."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    return value


def show_json(value: object) -> None:
    """Prints one JSON document."""
    json.dump(plain(value), sys.stdout, allow_nan=False)
    sys.stdout.write("\n")


def show_line(line: str) -> None:
    """Prints one line of people's text."""
    sys.stdout.write(safe(line) + "\n")


def show_table(rows: Iterable[Mapping[str, object]], columns: Sequence[str]) -> None:
    """Prints a table: aligned on a terminal, separated by tabs in a pipe."""
    cells = [[text(row.get(column)) for column in columns] for row in rows]
    if is_terminal():
        _show_aligned(cells, columns)
    else:
        for line in (list(columns), *cells):
            sys.stdout.write("\t".join(line) + "\n")


def is_terminal() -> bool:
    """Whether people read what we print."""
    return sys.stdout.isatty() or bool(os.environ.get("FORCE_COLOR"))


def _show_aligned(cells: list[list[str]], columns: Sequence[str]) -> None:
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for position, column in enumerate(columns):
        is_number = bool(cells) and all(_looks_like_number(row[position]) for row in cells)
        justify: Literal["left", "right"] = "right" if is_number else "left"
        table.add_column(Text(column), justify=justify, no_wrap=is_number, overflow="fold")
    for row in cells:
        table.add_row(*(Text(shortened(cell)) for cell in row))
    console = Console(highlight=False)
    needed = Measurement.get(console, console.options, table).minimum
    # A number without its end is a lie: rather let the terminal break the line.
    console.width = max(console.width, needed)
    console.print(table)


def _looks_like_number(cell: str) -> bool:
    try:
        float(cell or 0)
    except ValueError:
        return False
    return True


def show_note(message: str) -> None:
    """Says on stderr, in one line, what the output does not."""
    line = " ".join(safe(part) for part in message.split())
    sys.stderr.write(f"tornasole: {shortened(line, 1000)}\n")


def hush() -> None:
    """Lets the interpreter end without a word about a stdout that nobody reads."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
