"""SVG from plain numbers: well formed, escaped, with round ticks, gaps and all numbers in sight."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from tornasole.views import charts
from tornasole.views.charts import Line, Mark

HOSTILE = [
    '<script>alert("x")</script>',
    "a&b'\"",
    "\x1b[2J\x00",
    "\u202eevil",
    "特徴量",
    "x" * 5000,
]
WORDS = {"title": "A title", "description": "What it shows."}


def parsed(svg):
    return ElementTree.fromstring(svg)


def line(y, name="loss", **options):
    return Line(name, np.arange(len(y)), np.array(y, np.float64), **options)


def lines_of(*lines, **options):
    return charts.line_chart(lines, x_label="round", **WORDS, **options)


def field(counts):
    return charts.density(np.array(counts), 0.0, 1.0, x_label="x", y_label="y", **WORDS)


def every_chart(name="a"):
    numbers = np.array([1.0, -2.0, np.nan])
    names = [name, "b", "c"]
    words = WORDS | {"title": name, "description": name}
    mark = Mark(1, 2.0, name)
    counts = np.array([[5, 1, 0], [0, 7, 2], [1, 0, 9]])
    labels = {"x_label": name, "y_label": name}
    return {
        "lines": charts.line_chart([line([1, 2, 3], name)], **labels, marks=[mark], **words),
        "bars": charts.bar_chart(names, numbers, **words, notes=names),
        "histogram": charts.histogram(
            np.array([1, 2]), np.array([-1.0, 0, 1]), x_label=name, **words
        ),
        "matrix": charts.matrix(
            counts, counts / 10, names, row_label=name, column_label=name, **words
        ),
        "scatter": charts.scatter(np.arange(3.0), np.arange(3.0), **labels, **words),
        "density": charts.density(counts, 0.0, 1.0, **labels, **words),
    }


@pytest.mark.parametrize("kind", every_chart())
def test_a_chart_is_well_formed_and_has_a_title_and_a_description(kind):
    svg = parsed(every_chart()[kind])
    assert svg.tag == "svg"
    assert svg.get("role") == "img"
    assert [child.tag for child in svg][:2] == ["title", "desc"]


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("kind", every_chart())
def test_words_from_a_trial_are_shown_and_never_obeyed(kind, name):
    chart = every_chart(name)[kind]
    tags = {element.tag for element in parsed(chart).iter()}
    assert tags <= {"svg", "title", "desc", "g", "path", "rect", "circle", "text"}
    assert not set("\x00\x1b\u202e") & set(chart)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 10, [0, 2, 4, 6, 8, 10]),
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (-3, 7, [-2, 0, 2, 4, 6]),
        (0.412, 0.445, [0.42, 0.43, 0.44]),
        (0, 299, [0, 100, 200]),
        (5, 5, [5]),
    ],
)
def test_ticks_are_round_numbers(low, high, expected):
    assert charts.ticks(low, high) == pytest.approx(expected)


def test_ticks_of_rounds_are_whole():
    assert charts.ticks(0, 2, 5, whole=True) == [0, 1, 2]


@pytest.mark.parametrize(("low", "high"), [(-1e300, 1e300), (1e-300, 2e-300), (1e9, 1e9 + 1e-6)])
def test_extreme_ranges_have_few_ticks(low, high):
    assert len(charts.ticks(low, high)) <= 12


def test_tick_labels_have_the_decimals_that_they_need():
    assert charts.tick_labels([0.0, 0.5, 1.0]) == ["0.0", "0.5", "1.0"]
    assert charts.tick_labels([-1000.0, 0.0, 1000.0]) == ["−1,000", "0", "1,000"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.412345, "0.4123"),
        (1234.5, "1,234"),
        (3.0, "3"),
        (-2.5, "−2.5"),
        (1.5e-7, "1.5e−7"),
        (2.5e12, "2.5e12"),
        (float("nan"), "NaN"),
        (float("-inf"), "−∞"),
    ],
)
def test_numbers_are_written_for_people(value, expected):
    assert charts.number(value) == expected


def test_numbers_under_each_other_have_the_same_decimals():
    assert charts.numbers(np.array([62.515, 0.3443, 1.0])) == ["62.52", "0.34", "1.00"]
    assert charts.numbers(np.array([3.0, 12000.0])) == ["3", "12,000"]


def test_a_line_has_a_gap_where_it_is_not_finite():
    chart = parsed(lines_of(line([1, 2, np.nan, np.inf, 3, 4] * 5)))
    (path,) = [p for p in chart.iter("path") if p.get("class") is None]
    assert path.get("d").count("M") == 6


@pytest.mark.parametrize("values", [[], [1.0], [2.0, 2.0], [np.nan] * 3, [1e308, -1e308], [0.0]])
def test_a_line_may_have_any_values(values):
    chart = lines_of(line(values))
    parsed(chart)
    assert "nan" not in chart
    assert "inf" not in chart


def test_a_long_line_is_thinned_but_keeps_its_extremes():
    values = np.ones(100_000)
    values[70_001] = 9.5
    chart = lines_of(line(values))
    assert len(chart) < 40_000
    assert "9.5" in parsed(chart).find("g").get("data-y").split()


def test_a_band_lies_around_its_line():
    y = np.array([1.0, 2.0, 3.0])
    chart = parsed(lines_of(line(y, low=y - 0.5, high=y + 0.5)))
    (band,) = [path for path in chart.iter("path") if path.get("class") == "band"]
    assert band.get("d").count("L") == 5
    assert chart.find("g").get("data-y") == "1±0.5 2±0.5 3±0.5"


def test_names_at_the_ends_of_lines_do_not_overlap():
    chart = parsed(lines_of(*(line([1, 1.001 * i], f"line {i}") for i in range(6))))
    names = [text for text in chart.iter("text") if text.get("class").startswith("name")]
    heights = sorted(float(text.get("y")) for text in names)
    assert min(np.diff(heights)) >= 13


def test_a_negative_bar_lies_to_the_left_of_zero():
    chart = parsed(charts.bar_chart(["up", "down"], np.array([2.0, -1.0]), **WORDS))
    up, down = (bar.findall("rect")[1] for bar in chart.findall("g"))
    zero = float(up.get("x"))
    assert float(down.get("x")) + float(down.get("width")) == pytest.approx(zero, abs=0.2)


def test_a_matrix_writes_its_counts():
    counts = np.array([[12345, 1], [0, 7]])
    chart = charts.matrix(
        counts, counts / 12346, ["0", "1"], row_label="true", column_label="predicted", **WORDS
    )
    cells = [g.find("text").text for g in parsed(chart).iter("g")]
    assert cells == ["12,345", "1", "0", "7"]


@pytest.mark.parametrize("size", [1, 2, 8, 12, 21])
def test_a_matrix_of_any_size_stays_in_its_frame(size):
    counts = np.full((size, size), 10**7)
    names = [f"class {i}" for i in range(size)]
    chart = parsed(
        charts.matrix(counts, counts / 1e8, names, row_label="t", column_label="p", **WORDS)
    )
    width, height = map(float, chart.get("viewBox").split()[2:])
    for rect in chart.iter("rect"):
        assert float(rect.get("x")) + float(rect.get("width")) <= width
        assert float(rect.get("y")) + float(rect.get("height")) <= height


def test_density_draws_only_cells_that_hold_something():
    chart = parsed(field([[0, 4], [1, 0]]))
    cells = [p.get("d") for p in chart.iter("path") if p.get("class").startswith("cells")]
    assert sum(each.count("M") for each in cells) == 2


def test_all_colours_and_classes_are_in_the_style():
    used = {
        each for chart in every_chart().values() for each in re.findall(r'class="([^"]+)"', chart)
    }
    names = {name for group in used for name in group.split()}
    plain = {"tick", "lines", "bars", "histogram", "matrix", "scatter", "density"}
    assert {name for name in names - plain if f".{name}" not in charts.STYLE} == set()


def test_the_script_sets_text_and_never_markup():
    assert "innerHTML" not in charts.SCRIPT
    assert "</" not in charts.SCRIPT
