"""The statistics of NumPy arrays."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tornasole.stats.moments import Moments, Summary
from tornasole.stats.numpy import statistics, summarise
from tornasole.types import COUNTS, STATISTICS

ALL = frozenset(STATISTICS)
RNG = np.random.default_rng(0)

ARRAYS = {
    "floats": RNG.normal(size=(37, 41)).astype(np.float32),
    "many": RNG.normal(size=200_001).astype(np.float32),
    "doubles": RNG.normal(size=1000),
    "halves that would overflow": np.full(100_000, 60_000, np.float16),
    "mean far from zero": (1e4 + 1e-2 * RNG.normal(size=70_000)),
    "integers": RNG.integers(-5, 5, size=(11, 13)),
    "the least integer": np.array([np.iinfo(np.int64).min, 7]),
    "unsigned": np.array([0, 255], np.uint8),
    "bools": RNG.random(1001) > 0.3,
    "one": np.float32(3.5),
    "none": np.zeros((0, 3), np.float32),
    "zeros": np.zeros(10),
    "nan": np.array([1.0, np.nan, 2.0]),
    "infinities": np.array([np.inf, 1.0, -np.inf]),
    "infinity": np.array([np.inf, 1.0]),
    "every second": RNG.normal(size=1000)[::2],
    "transposed": RNG.normal(size=(30, 20)).T,
}


@pytest.mark.parametrize("name", ARRAYS)
def test_every_statistic_is_what_numpy_says(name, check):
    check(statistics([ARRAYS[name]], ALL)[0], ARRAYS[name])


def test_only_what_was_asked_for_comes_back_and_the_counts():
    assert set(statistics([ARRAYS["floats"]], frozenset({"l2"}))[0]) == {"l2", *COUNTS}


def test_nothing_asked_for_gives_the_counts():
    found = statistics([ARRAYS["nan"]], frozenset())[0]
    assert found == {"count": 3, "nan_count": 1, "inf_count": 0, "zero_count": 0}


def test_no_elements_have_a_sum_and_a_product_but_no_mean():
    found = statistics([ARRAYS["none"]], ALL)[0]
    assert (found["sum"], found["prod"], found["l1"], found["l2"]) == (0, 1, 0, 0)
    assert np.isnan([found["mean"], found["min"], found["median"]]).all()


def test_complex_numbers_are_judged_by_magnitude():
    array = np.array([3 + 4j, 0, complex(np.nan, 1)])
    found = statistics([array[:2]], ALL)[0]
    assert (found["l1"], found["abs_max"], found["zero_count"]) == (5, 5, 1)
    assert np.isnan(found["mean"])
    assert statistics([array], ALL)[0]["nan_count"] == 1


def test_several_arrays_come_back_in_order():
    found = statistics([np.ones(3), np.zeros(2)], frozenset({"sum"}))
    assert [each["sum"] for each in found] == [3, 0]


@settings(deadline=None, max_examples=60)
@given(
    hnp.arrays(
        np.float32,
        st.integers(1, 50),
        elements=st.floats(-1e6, 1e6, width=32, allow_nan=False),
    ),
    st.integers(0, 50),
)
def test_parts_combine_into_the_whole(array, cut):
    def of(part):
        return (
            summarise(part.astype(np.float64), ALL) if part.size else Summary(Moments(), Moments())
        )

    both = of(array[:cut])
    both.add(of(array[cut:])) if cut < array.size else None
    whole = of(array).statistics(ALL)
    for name, value in both.statistics(ALL).items():
        np.testing.assert_allclose(value, whole[name], rtol=1e-9, atol=1e-6, err_msg=name)


def test_the_array_is_left_as_it_was():
    array = RNG.normal(size=100)
    before = array.copy()
    statistics([array], ALL)
    np.testing.assert_array_equal(array, before)
