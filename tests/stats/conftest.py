"""What statistics are compared with: NumPy in float64, one statistic at a time."""

import numpy as np
import pytest


def reference(values: np.ndarray) -> dict[str, float]:
    with np.errstate(all="ignore"):
        x = np.asarray(values).astype(np.float64).ravel()
        found = {}
        for prefix, numbers in (("", x), ("abs_", np.abs(x))):
            ends = (numbers.min(), numbers.max()) if x.size else (np.nan, np.nan)
            found |= {
                f"{prefix}min": ends[0],
                f"{prefix}max": ends[1],
                f"{prefix}mean": numbers.mean() if x.size else np.nan,
                f"{prefix}median": np.median(numbers) if x.size else np.nan,
                f"{prefix}std": numbers.std() if x.size else np.nan,
                f"{prefix}variance": numbers.var() if x.size else np.nan,
                f"{prefix}sum": numbers.sum(),
                f"{prefix}prod": numbers.prod(),
                f"{prefix}l1": np.abs(numbers).sum(),
                f"{prefix}l2": np.sqrt((numbers * numbers).sum()),
            }
        return found | {
            "count": x.size,
            "nan_count": int(np.isnan(x).sum()),
            "inf_count": int(np.isinf(x).sum()),
            "zero_count": int((x == 0).sum()),
        }


@pytest.fixture
def check():
    """Asserts that statistics are those of the values, to one part in a million."""

    def compare(found: dict[str, float], values: np.ndarray) -> None:
        expected = reference(values)
        scale = expected["l1"] if np.isfinite(expected["l1"]) else 0.0
        for name, value in found.items():
            slack = 1e-6 * scale / max(1, expected["count"]) if name == "mean" else 0.0
            slack = 1e-6 * scale if name == "sum" else slack
            np.testing.assert_allclose(
                value, expected[name], rtol=1e-6, atol=slack, equal_nan=True, err_msg=name
            )

    return compare
