"""Drawing: from plain numbers to SVG, for every page that shows a trial.

Each chart is a function of numbers and words that returns one ``<svg>``. A page that holds charts
needs ``STYLE``, which draws them in light and dark, and may add ``SCRIPT``, which shows values
under the pointer. Sizes are in units of the drawing; a page scales it to the room it has.
"""

from __future__ import annotations

import html
import math
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Numbers = Floats | Ints

WIDTH = 440
COLOURS = 8
_MOST_POINTS = 400  # of a line, after thinning
_MOST_DOTS = 24  # a line of so few points shows them
_LETTER = 6.6  # the width of a letter, with room for the larger ones on a phone
_LINE = 14  # the height of a line of words
_FURTHEST = 1e300  # numbers beyond are drawn there, so that their differences stay finite
_SHADES = 9


@dataclass(frozen=True)
class Line:
    """One line of a chart: gaps are where ``y`` is not finite.

    Attributes:
        low: The lower edge of a band around it, if it has one; so ``high``.
        colour: Which of the ``COLOURS``.
    """

    name: str
    x: Numbers
    y: Floats
    low: Floats | None = None
    high: Floats | None = None
    colour: int = 0


@dataclass(frozen=True)
class Mark:
    """A point of a chart that has something to say."""

    x: float
    y: float
    text: str
    colour: int = 0


# -- words and numbers


def escape(text: object) -> str:
    """Text that a page can hold: without markup, and without letters that act or cannot be seen."""
    words = str(text)
    if not (words.isascii() and words.isprintable()):
        words = "".join(
            each if each.isprintable() or each in "\u200d\u00a0" else "�" for each in words
        )
    return html.escape(words)


def number(value: float) -> str:
    """A number for people, to four digits."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "∞" if value > 0 else "−∞"
    size = abs(value)
    if size >= 1e7 or 0 < size < 1e-4:
        return _minus(_short(f"{value:.3e}"))
    if value == int(value) or size >= 1000:
        return _minus(f"{value:,.0f}")
    return _minus(f"{value:.4g}")


def numbers(values: Floats) -> list[str]:
    """Numbers that stand under each other: all with the same decimals, if those can tell them."""
    sizes = np.abs(values[np.isfinite(values)])
    largest = float(sizes.max(initial=0.0))
    least = float(sizes[sizes > 0].min(initial=np.inf))
    if not 1e-3 <= largest < 1e7:
        return [number(value) for value in values.tolist()]
    decimals = max(0, 3 - math.floor(math.log10(largest)))
    if least < 10.0**-decimals or bool((sizes == np.floor(sizes)).all()):
        return [number(value) for value in values.tolist()]
    return [
        _minus(f"{value:,.{decimals}f}") if math.isfinite(value) else number(value)
        for value in values.tolist()
    ]


def compact(count: float) -> str:
    """A count in four letters or so: ``12k``."""
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= unit * 10 or (count >= unit and unit > 1e3):
            return (
                f"{count / unit:.0f}{letter}"
                if count >= unit * 10
                else f"{count / unit:.1f}{letter}"
            )
    return f"{count:.0f}"


def percent(share: float) -> str:
    """A share of 1 as people write it."""
    if not math.isfinite(share):
        return "–"
    digits = 1 if abs(share) < 0.9995 else 0
    return _minus(f"{100 * share:,.{digits}f}\u00a0%")


def _minus(text: str) -> str:
    return text.replace("-", "−")


def _short(scientific: str) -> str:
    """``1.20e-05`` as ``1.2e-5``."""
    mantissa, _, exponent = scientific.partition("e")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return f"{mantissa}e{int(exponent)}"


def _span(text: str) -> float:
    """About how wide a text is."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return _LETTER * (len(text) + 0.7 * wide)


def shortened(text: str, longest: int) -> str:
    """The text, without its middle if it is long."""
    if len(text) <= longest:
        return text
    head = longest * 2 // 3
    return f"{text[:head]}…{text[-(longest - head - 1) :]}"


def _fitting(text: str, room: float) -> str:
    longest = max(4, int(room / _LETTER))
    while longest > 4 and _span(shortened(text, longest)) > room:
        longest -= 1
    return shortened(text, longest)


def ticks(low: float, high: float, most: int = 5, whole: bool = False) -> list[float]:
    """Round numbers (1, 2, 5, 10, …) between two others.

    Args:
        whole: Whether only whole numbers will do.
    """
    raw = (high - low) / max(most, 1)
    if not raw > 0 or not math.isfinite(raw):
        return [low]
    power = 10.0 ** math.floor(math.log10(raw))
    step = next((power * each for each in (1, 2, 5) if power * each >= raw * 0.999), power * 10)
    step = max(1.0, step) if whole else step
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [each * step for each in range(first, min(last, first + 2 * most) + 1)]


def tick_labels(places: Sequence[float]) -> list[str]:
    """What to write at ticks: all with the decimals that they need."""
    largest = max(map(abs, places), default=0.0)
    step = min((b - a for a, b in pairwise(places)), default=largest)
    if step <= 0 or largest >= 1e7 or step < 1e-4:
        return [number(place) for place in places]
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    return [_minus(f"{place + 0.0:,.{decimals}f}") for place in places]


# -- lines


def line_chart(
    lines: Sequence[Line],
    *,
    title: str,
    description: str,
    x_label: str,
    y_label: str = "",
    marks: Sequence[Mark] = (),
    height: int = 236,
    from_zero: bool = False,
    whole: bool = False,
) -> str:
    """Lines over whole numbers such as rounds, each named at its end, some with a band.

    Args:
        from_zero: Whether zero is in sight.
        whole: Whether the values are whole numbers.
    """
    drawn = [_thinned(_clipped(line)) for line in lines]
    names = [_fitting(line.name, 116) for line in drawn]
    right = max((_span(name) for name in names), default=0.0) + 12
    edges = [each for line in drawn for each in (line.y, line.low, line.high) if each is not None]
    y_low, y_high = _range(edges, from_zero)
    x_low, x_high = _range([line.x for line in drawn], pad=0.0)
    y_ticks = ticks(y_low, y_high, 6, whole)
    labels = tick_labels(y_ticks)
    left = max(map(_span, labels), default=0.0) + 10
    top = 33 if marks else 24
    frame = _Frame(left, top, WIDTH - right, height - 34, x_low, x_high, y_low, y_high)
    x_ticks = ticks(x_low, x_high, max(2, int(frame.width / 48)), whole=True)
    steps = np.concatenate([np.zeros(0), *(line.x for line in drawn)])
    if len(steps) and steps.min() == steps.max():
        x_ticks = [float(steps[0])]
    parts = [*_grid(frame, y_ticks, labels), *_x_axis(frame, x_ticks, x_label, height)]
    if y_label:
        parts.append(_text(0, 11, y_label, "axis"))
    for mark in marks:
        x = frame.x(mark.x)
        parts.append(f'<path class="best c{_colour(mark.colour)}" d="{_down(frame, x)}"/>')
    for line in drawn:
        parts.append(_draw_line(frame, line))
    for mark in marks:
        x, y = frame.x(mark.x), frame.y(mark.y)
        parts.append(
            f'<circle class="ring c{_colour(mark.colour)}" cx="{x:.1f}" cy="{y:.1f}" r="3.6">'
            f"<title>{escape(mark.text)}</title></circle>"
        )
        anchor = "end" if x > (frame.left + frame.right) / 2 else "start"
        shift = -5 if anchor == "end" else 5
        parts.append(_text(x + shift, frame.top - 4, mark.text, "mark", anchor))
    parts += _end_labels(frame, drawn, names)
    parts.append('<path class="hair" d=""/>')
    hover = (
        f'data-plot="{frame.left:.1f} {frame.right:.1f} {frame.top:.0f} {frame.bottom:.0f}" '
        f'data-range="{x_low:.10g} {x_high:.10g}" data-unit="{escape(x_label)}"'
    )
    return _svg(WIDTH, height, title, description, parts, "lines", hover)


def _draw_line(frame: _Frame, line: Line) -> str:
    parts = []
    if line.low is not None and line.high is not None:
        parts.append(f'<path class="band" d="{_band(frame, line.x, line.low, line.high)}"/>')
    dotted = ' class="dots"' if np.isfinite(line.y).sum() <= _MOST_DOTS else ""
    points = _path(frame, line.x, line.y)
    if dotted:
        parts.append(f'<path{dotted} d="{_dots(frame, line.x, line.y)}"/>')
    parts.append(f'<path d="{points}"/>')
    values = " ".join(number(y) for y in line.y.tolist())
    if line.low is not None and line.high is not None:
        halves = ((line.high - line.low) / 2).tolist()
        values = " ".join(
            f"{number(y)}±{number(half)}" for y, half in zip(line.y.tolist(), halves, strict=True)
        )
    x = " ".join(f"{each:.10g}" for each in line.x.tolist())
    return (
        f'<g class="line c{_colour(line.colour)}" data-name="{escape(line.name)}" '
        f'data-x="{x}" data-y="{values}">{"".join(parts)}</g>'
    )


def _end_labels(frame: _Frame, lines: Sequence[Line], names: Sequence[str]) -> list[str]:
    """The name of each line beside its last point, moved apart where they would overlap."""
    ends = []
    for line, name in zip(lines, names, strict=True):
        known = np.flatnonzero(np.isfinite(line.y))
        if len(known):
            ends.append((frame.y(float(line.y[known[-1]])), name, line))
    ends.sort(key=lambda end: end[0])
    places = _apart([end[0] for end in ends], _LINE, frame.top + 2, frame.bottom - 3)
    return [
        _text(frame.right + 6, place + 4, name, f"name c{_colour(line.colour)}", full=line.name)
        for place, (_, name, line) in zip(places, ends, strict=True)
    ]


def _apart(wanted: Sequence[float], least: float, low: float, high: float) -> list[float]:
    """Ascending places, each at least so far from the next, as near as can be to those wanted."""
    places: list[float] = []
    for place in wanted:
        places.append(max(place, places[-1] + least) if places else max(place, low))
    limit = high
    for position in range(len(places) - 1, -1, -1):
        places[position] = min(places[position], limit)
        limit = places[position] - least
    return places


def _clipped(line: Line) -> Line:
    low = None if line.low is None else _finite(line.low)
    high = None if line.high is None else _finite(line.high)
    x = line.x.astype(np.float64)
    return Line(line.name, x, _finite(line.y), low, high, line.colour)


def _finite(values: Floats) -> Floats:
    """The values, with one kind of gap and none that is too far out to draw."""
    near = np.clip(values.astype(np.float64), -_FURTHEST, _FURTHEST)
    return np.where(np.isfinite(values), near, np.nan)


def _thinned(line: Line) -> Line:
    """The line with at most about ``_MOST_POINTS`` points: the extremes of each stretch."""
    count = len(line.x)
    if count <= _MOST_POINTS:
        return line
    keep = {0, count - 1}
    edges = np.linspace(0, count, _MOST_POINTS // 2 + 1).astype(np.int64).tolist()
    for start, end in pairwise(edges):
        part = line.y[start:end]
        known = np.isfinite(part)
        if not known.any():
            keep.add(start)  # a gap stays one
            continue
        keep.add(start + int(np.argmin(np.where(known, part, np.inf))))
        keep.add(start + int(np.argmax(np.where(known, part, -np.inf))))
        if not known.all():
            keep.add(start + int(np.argmin(known)))
    chosen = np.array(sorted(keep), np.int64)
    low = None if line.low is None else line.low[chosen]
    high = None if line.high is None else line.high[chosen]
    return Line(line.name, line.x[chosen], line.y[chosen], low, high, line.colour)


# -- bars


def bar_chart(
    names: Sequence[str],
    values: Floats,
    *,
    title: str,
    description: str,
    colour: int = 0,
    notes: Sequence[str] = (),
    values_as: Sequence[str] = (),
) -> str:
    """Bars that lie, one under the other, from zero to the right, or to the left if negative.

    Args:
        notes: What to show of each bar under the pointer, beside its name and value.
        values_as: What to write of each value instead of its number.
    """
    row, top = 21, 4
    height = top + row * len(names) + 4
    written = list(values_as) or numbers(values)
    room = min(max(map(_span, names), default=0.0), 150.0)
    right = WIDTH - max(map(_span, written), default=0.0) - 8
    known = np.clip(np.where(np.isfinite(values), values, 0.0), -_FURTHEST, _FURTHEST)
    low, high = min(0.0, float(known.min(initial=0.0))), max(0.0, float(known.max(initial=0.0)))
    frame = _Frame(room + 8, top, right, height - 4, low, high if high > low else low + 1, 0, 1)
    zero = frame.x(0.0)
    parts = [f'<path class="zero" d="M{zero:.1f} {top}V{height - 4}"/>']
    for position, name in enumerate(names):
        y = top + row * position
        end = frame.x(float(known[position]))
        start, length = min(zero, end), abs(end - zero)
        note = f" {notes[position]}" if notes else ""
        told = escape(f"{name}: {written[position]}{note}")
        parts.append(
            f'<g class="bar c{_colour(colour)}"><title>{told}</title>'
            f'<rect class="row" x="0" y="{y}" width="{WIDTH}" height="{row}"/>'
            f'<rect x="{start:.1f}" y="{y + 4}" width="{length:.1f}" height="{row - 8}" rx="1.5"/>'
            + _text(room, y + 15, _fitting(name, room + 2), "label", "end")
            + _text(WIDTH, y + 15, written[position], "value", "end")
            + "</g>"
        )
    return _svg(WIDTH, height, title, description, parts, "bars")


def histogram(
    counts: Ints,
    edges: Floats,
    *,
    title: str,
    description: str,
    x_label: str,
    height: int = 236,
    colour: int = 0,
) -> str:
    """How many values lie between neighbouring edges."""
    high = float(counts.max(initial=1))
    y_ticks = ticks(0.0, high, 4, whole=True)
    labels = tick_labels(y_ticks)
    left = max(map(_span, labels), default=0.0) + 10
    frame = _Frame(
        left, 26, WIDTH - 10, height - 34, float(edges[0]), float(edges[-1]), 0.0, high * 1.04
    )
    x_ticks = ticks(float(edges[0]), float(edges[-1]), 6)
    parts = [*_grid(frame, y_ticks, labels), *_x_axis(frame, x_ticks, x_label, height)]
    parts.append(_text(0, 11, "samples", "axis"))
    for count, (start, end) in zip(counts.tolist(), pairwise(edges.tolist()), strict=True):
        x, y = frame.x(start), frame.y(count)
        told = f"{number(start)} to {number(end)}: {count:,}"
        parts.append(
            f'<rect class="c{_colour(colour)}" x="{x:.1f}" y="{y:.1f}" '
            f'width="{max(0.5, frame.x(end) - x - 0.8):.1f}" height="{frame.bottom - y:.1f}">'
            f"<title>{escape(told)}</title></rect>"
        )
    if edges[0] < 0 < edges[-1]:
        parts.append(f'<path class="zero" d="{_down(frame, frame.x(0.0))}"/>')
    return _svg(WIDTH, height, title, description, parts, "histogram")


# -- fields


def matrix(
    counts: Ints,
    shades: Floats,
    names: Sequence[str],
    *,
    title: str,
    description: str,
    row_label: str,
    column_label: str,
) -> str:
    """A square of counts, shaded from 0 to 1: the diagonal in one colour, the rest in another."""
    size = len(names)
    room = max(46.0, min(max(map(_span, names), default=0.0), 110.0) + 10)
    wide = WIDTH if size <= 12 else 640
    cell = min(86.0, (wide - room - 8) / max(size, 1))
    tall = min(cell, 52.0) if size <= 4 else min(cell, 40.0)
    top = 40.0
    if max(map(_span, names), default=0.0) > cell - 2:
        top = 30 + room  # the names of columns stand
    height = top + tall * size + 8
    letters = 12.5 if cell >= 40 else max(7.0, cell * 0.34)
    parts = [
        _text(room, 12, f"{column_label} →", "axis"),
        _text(0, top - 8, f"{row_label} ↓", "axis"),
    ]
    for position, name in enumerate(names):
        x, y = room + cell * (position + 0.5), top + tall * (position + 0.5)
        shown = _fitting(name, room - 8)
        parts.append(_text(room - 6, y + 4, shown, "label", "end", full=name))
        if top > 40:
            turn = f'transform="rotate(-90 {x + 4:.1f} {top - 6:.1f})"'
            parts.append(_text(x + 4, top - 6, shown, "label", "start", full=name, extra=turn))
        else:
            parts.append(_text(x, top - 8, shown, "label", "middle", full=name))
    for i, j in np.ndindex(size, size):
        shade, count = float(shades[i, j]), int(counts[i, j])
        x, y = room + cell * j, top + tall * i
        told = f"{row_label} {names[i]}, {column_label} {names[j]}: {count:,} ({percent(shade)})"
        dark = " on" if shade > 0.55 else ""
        parts.append(
            f'<g class="cell {"hit" if i == j else "miss"}{dark}"><title>{escape(told)}</title>'
            f'<rect x="{x + 0.75:.1f}" y="{y + 0.75:.1f}" width="{cell - 1.5:.1f}" '
            f'height="{tall - 1.5:.1f}" fill-opacity="{_visible(shade):.2f}"/>'
        )
        if count or size <= 6:
            written = f"{count:,}" if _span(f"{count:,}") < cell - 4 else compact(count)
            style = f'style="font-size:{letters:.1f}px"'
            parts.append(
                _text(
                    x + cell / 2, y + tall / 2 + letters * 0.36, written, "", "middle", extra=style
                )
            )
        parts.append("</g>")
    return _svg(wide, math.ceil(height), title, description, parts, "matrix")


def _visible(shade: float) -> float:
    """A shade that can be seen whenever it is not zero."""
    return 0.0 if not shade > 0 else 0.08 + 0.92 * min(1.0, shade)


def scatter(
    x: Floats,
    y: Floats,
    *,
    title: str,
    description: str,
    x_label: str,
    y_label: str,
    height: int = 320,
    colour: int = 0,
) -> str:
    """Points in a square field, with the diagonal on which both are the same."""
    low, high = _range([x, y])
    frame, parts = _field(low, high, x_label, y_label, height)
    dots = "".join(
        f"M{frame.x(a):.1f} {frame.y(b):.1f}h0" for a, b in zip(x.tolist(), y.tolist(), strict=True)
    )
    parts.append(f'<path class="points c{_colour(colour)}" d="{dots}"/>')
    return _svg(WIDTH, height, title, description, parts, "scatter")


def density(
    counts: Ints,
    low: float,
    high: float,
    *,
    title: str,
    description: str,
    x_label: str,
    y_label: str,
    height: int = 320,
    colour: int = 0,
) -> str:
    """How many points lie in each cell of a square field, for more than can be drawn one by one.

    Args:
        counts: By row (upwards) and column, over the range from ``low`` to ``high`` of both.
    """
    frame, parts = _field(low, high, x_label, y_label, height)
    rows, columns = counts.shape
    levels = np.sqrt(counts / max(1, int(counts.max(initial=1))))
    levels = np.ceil(levels * _SHADES).astype(np.int64)
    width = (frame.right - frame.left) / columns
    tall = (frame.bottom - frame.top) / rows
    for level in range(1, _SHADES + 1):
        cells = "".join(
            f"M{frame.left + width * j:.1f} {frame.bottom - tall * (i + 1):.1f}"
            f"h{width:.1f}v{tall:.1f}h{-width:.1f}z"
            for i, j in np.argwhere(levels == level).tolist()
        )
        if cells:
            opacity = 0.12 + 0.88 * level / _SHADES
            parts.append(
                f'<path class="cells c{_colour(colour)}" fill-opacity="{opacity:.2f}" d="{cells}"/>'
            )
    return _svg(WIDTH, height, title, description, parts, "density")


def _field(
    low: float, high: float, x_label: str, y_label: str, height: int
) -> tuple[_Frame, list[str]]:
    places = ticks(low, high, 7)
    labels = tick_labels(places)
    left = max(map(_span, labels), default=0.0) + 10
    frame = _Frame(left, 26, WIDTH - 10, height - 34, low, high, low, high)
    diagonal = f"M{frame.left:.1f} {frame.bottom:.1f}L{frame.right:.1f} {frame.top:.1f}"
    parts = [*_grid(frame, places, labels), *_x_axis(frame, places, x_label, height)]
    parts += [_text(0, 11, y_label, "axis"), f'<path class="diagonal" d="{diagonal}"/>']
    return frame, parts


# -- the frame and its parts


@dataclass(frozen=True)
class _Frame:
    """Where numbers lie in a drawing."""

    left: float
    top: float
    right: float
    bottom: float
    x_low: float
    x_high: float
    y_low: float
    y_high: float

    @property
    def width(self) -> float:
        return self.right - self.left

    def x(self, value: float) -> float:
        share = (value - self.x_low) / (self.x_high - self.x_low)
        return self.left + share * (self.right - self.left)

    def y(self, value: float) -> float:
        share = (value - self.y_low) / (self.y_high - self.y_low)
        return self.bottom - share * (self.bottom - self.top)


def _range(
    columns: Iterable[Numbers], from_zero: bool = False, pad: float = 0.04
) -> tuple[float, float]:
    """From the least to the largest finite number, and a little beyond."""
    known = [each[np.isfinite(each)] for each in columns]
    low = min((float(each.min()) for each in known if len(each)), default=0.0)
    high = max((float(each.max()) for each in known if len(each)), default=1.0)
    low, high = max(low, -_FURTHEST), min(high, _FURTHEST)
    low = min(low, 0.0) if from_zero else low
    if high - low <= 1e-12 * max(abs(low), abs(high)):
        around = abs(low) * 0.1 or 1.0
        low, high = (0.0, high or 1.0) if from_zero and high > 0 else (low - around, high + around)
    extra = (high - low) * pad
    return (low if from_zero and low == 0 else low - extra), high + extra


def _grid(frame: _Frame, places: Sequence[float], labels: Sequence[str]) -> list[str]:
    lines = "".join(f"M{frame.left:.1f} {frame.y(each):.1f}H{frame.right:.1f}" for each in places)
    return [
        f'<path class="grid" d="{lines}"/>',
        *(
            _text(frame.left - 6, frame.y(place) + 4, label, "tick", "end")
            for place, label in zip(places, labels, strict=True)
        ),
    ]


def _x_axis(frame: _Frame, places: Sequence[float], label: str, height: int) -> list[str]:
    ends = "".join(f"M{frame.x(each):.1f} {frame.bottom:.1f}v4" for each in places)
    base = f"M{frame.left:.1f} {frame.bottom:.1f}H{frame.right:.1f}"
    return [
        f'<path class="base" d="{base}{ends}"/>',
        *(
            _text(frame.x(place), frame.bottom + 16, text, "tick", "middle")
            for place, text in zip(places, tick_labels(places), strict=True)
        ),
        _text(frame.right, height - 3, label, "axis", "end"),
    ]


def _path(frame: _Frame, x: Numbers, y: Floats) -> str:
    """A line through points, broken where a value is not finite."""
    parts, pen_up = [], True
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        if math.isnan(b):
            pen_up = True
            continue
        parts.append(f"{'M' if pen_up else 'L'}{frame.x(a):.1f} {frame.y(b):.1f}")
        if pen_up:
            parts.append("h0")  # a point between two gaps is seen
        pen_up = False
    return "".join(parts)


def _dots(frame: _Frame, x: Numbers, y: Floats) -> str:
    known = np.isfinite(y)
    places = zip(x[known].tolist(), y[known].tolist(), strict=True)
    return "".join(f"M{frame.x(a):.1f} {frame.y(b):.1f}h0" for a, b in places)


def _band(frame: _Frame, x: Numbers, low: Floats, high: Floats) -> str:
    known = np.isfinite(low) & np.isfinite(high)
    there = zip(x[known].tolist(), high[known].tolist(), strict=True)
    back = zip(x[known][::-1].tolist(), low[known][::-1].tolist(), strict=True)
    points = [f"{frame.x(a):.1f} {frame.y(b):.1f}" for a, b in (*there, *back)]
    return f"M{'L'.join(points)}Z" if points else ""


def _down(frame: _Frame, x: float) -> str:
    return f"M{x:.1f} {frame.top:.1f}V{frame.bottom:.1f}"


def _colour(which: int) -> int:
    return which % COLOURS


def _text(
    x: float,
    y: float,
    words: str,
    kind: str,
    anchor: str = "start",
    *,
    full: str = "",
    extra: str = "",
) -> str:
    title = f"<title>{escape(full)}</title>" if full and full != words else ""
    where = f' text-anchor="{anchor}"' if anchor != "start" else ""
    kind = f' class="{kind}"' if kind else ""
    extra = f" {extra}" if extra else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{kind}{where}{extra}>{title}{escape(words)}</text>'


def _svg(
    width: int,
    height: int,
    title: str,
    description: str,
    parts: Iterable[str],
    kind: str,
    extra: str = "",
) -> str:
    extra = f" {extra}" if extra else ""
    return (
        f'<svg class="chart {kind}" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(title)}"{extra}>'
        f"<title>{escape(title)}</title><desc>{escape(description)}</desc>{''.join(parts)}</svg>"
    )


# -- how it looks

# After Okabe and Ito, so that people who see few colours can tell them apart.
STYLE = """
:root{--c0:#0f6bb0;--c1:#c9540a;--c2:#00835f;--c3:#a8467f;--c4:#2f9fd6;--c5:#a97b00;--c6:#5b5fc7;
--c7:#5f6b76;--ink:#1b2127;--soft:#5b6670;--faint:#e4e8ec;--base:#b9c1c9;--paper:#fff;--on:#fff}
@media (prefers-color-scheme:dark){:root{--c0:#5eb1f0;--c1:#f08a4b;--c2:#3fc59a;--c3:#e08bbd;
--c4:#86cdf2;--c5:#e0b84a;--c6:#a3a6f5;--c7:#9aa7b2;--ink:#e6eaee;--soft:#9ba6b0;--faint:#2a3138;
--base:#4a545e;--paper:#14181c;--on:#0d1114}}
.chart{display:block;width:100%;height:auto;overflow:visible;font-family:inherit}
.chart text{font-size:11px;fill:var(--soft);font-variant-numeric:tabular-nums}
.chart path{fill:none}
.chart .grid{stroke:var(--faint);stroke-width:1}
.chart .base,.chart .zero{stroke:var(--base);stroke-width:1}
.chart .diagonal{stroke:var(--soft);stroke-width:1;stroke-dasharray:4 3}
.chart .axis{fill:var(--soft)}
.chart .line path{stroke:var(--c);stroke-width:1.5;stroke-linejoin:round;stroke-linecap:round}
.chart .line .band{fill:var(--c);fill-opacity:.16;stroke:none}
.chart .line .dots{stroke-width:4}
.chart .best{stroke:var(--c);stroke-width:1;stroke-dasharray:2 3;opacity:.7}
.chart .ring{fill:var(--paper);stroke:var(--c);stroke-width:1.75}
.chart .name{fill:var(--c);font-weight:600}
.chart .mark{fill:var(--ink)}
.chart .label,.chart .value{fill:var(--ink)}
.chart .bar rect,.chart>rect{fill:var(--c)}
.chart .bar .row{fill:transparent}
.chart .bar:hover .row{fill:var(--faint)}
.chart .points{stroke:var(--c);stroke-width:4;stroke-linecap:round;stroke-opacity:.55}
.chart .cells{fill:var(--c)}
.chart .cell text{fill:var(--ink)}
.chart .cell.hit rect{fill:var(--c0)}
.chart .cell.miss rect{fill:var(--c1)}
.chart .cell.on text{fill:var(--on)}
.chart .cell rect{stroke:var(--faint);stroke-width:.75}
.chart .hair{stroke:var(--soft);stroke-width:1}
.c0{--c:var(--c0)}.c1{--c:var(--c1)}.c2{--c:var(--c2)}.c3{--c:var(--c3)}
.c4{--c:var(--c4)}.c5{--c:var(--c5)}.c6{--c:var(--c6)}.c7{--c:var(--c7)}
#values{position:fixed;z-index:9;pointer-events:none;padding:.4em .6em;border-radius:5px;
background:var(--ink);color:var(--paper);font-size:12px;line-height:1.45;max-width:20em;
font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
#values[hidden]{display:none}
@media (max-width:640px){.chart text{font-size:13px}}
"""

# Shows the values of lines under the pointer. Names are set as text, never as markup.
SCRIPT = """
(function(){
var box=document.createElement("div");box.id="values";box.hidden=true;document.body.append(box);
document.querySelectorAll("svg.lines").forEach(function(svg){
  var plot=svg.dataset.plot.split(" ").map(Number),range=svg.dataset.range.split(" ").map(Number);
  var hair=svg.querySelector(".hair"),own=svg.querySelector("title");
  var lines=Array.from(svg.querySelectorAll("g.line"),function(g){
    return {name:g.dataset.name,x:g.dataset.x.split(" ").map(Number),y:g.dataset.y.split(" ")};});
  if(own)own.remove();
  svg.addEventListener("pointermove",function(event){
    var edge=svg.getBoundingClientRect(),scale=svg.viewBox.baseVal.width/edge.width;
    var at=(event.clientX-edge.left)*scale,share=(at-plot[0])/(plot[1]-plot[0]);
    if(share<-0.02||share>1.02){leave();return;}
    var wanted=range[0]+share*(range[1]-range[0]),best=null;
    lines.forEach(function(line){line.x.forEach(function(x){
      if(best===null||Math.abs(x-wanted)<Math.abs(best-wanted))best=x;});});
    if(best===null)return;
    var px=plot[0]+(best-range[0])/(range[1]-range[0])*(plot[1]-plot[0]);
    hair.setAttribute("d","M"+px+" "+plot[2]+"V"+plot[3]);
    box.textContent="";
    var head=document.createElement("b");head.textContent=svg.dataset.unit+" "+best;
    box.append(head);
    lines.forEach(function(line){
      var i=line.x.indexOf(best);if(i<0)return;
      var row=document.createElement("div");row.textContent=line.name+": "+line.y[i];
      box.append(row);
    });
    box.hidden=false;
    var left=event.clientX+14,wide=box.offsetWidth;
    if(left+wide>innerWidth-8)left=event.clientX-wide-14;
    box.style.left=Math.max(4,left)+"px";box.style.top=event.clientY+14+"px";
  });
  function leave(){box.hidden=true;hair.setAttribute("d","");}
  svg.addEventListener("pointerleave",leave);
});
})();
"""
