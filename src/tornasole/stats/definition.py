"""What each statistic is called; docs/statistics.md says what it is.

A statistic's name with ``abs_`` before it is the same statistic of the absolute values.
"""

REDUCTIONS = ("min", "max", "mean", "median", "std", "variance", "sum", "prod")
NORMS = ("l1", "l2")
STATISTICS = tuple(prefix + name for prefix in ("", "abs_") for name in (*REDUCTIONS, *NORMS))
COUNTS = ("count", "nan_count", "inf_count", "zero_count")

MAGNITUDES = frozenset({"l1", "l2"} | {name for name in STATISTICS if name.startswith("abs_")})
"""Statistics that look at absolute values only: those that a complex tensor has."""
