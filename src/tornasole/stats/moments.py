"""From sums over a tensor to its statistics: the part that every kind of tensor shares."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(slots=True)
class Moments:
    """What one pass over numbers leaves; those of two parts combine into those of the whole.

    Attributes:
        spread: The sum of squared distances from the mean, which survives a mean far from zero.
    """

    count: int = 0
    total: float = 0.0
    spread: float = 0.0
    low: float = math.nan
    high: float = math.nan

    def add(self, other: Moments) -> None:
        """Takes in the moments of another part."""
        if not self.count:
            self.count, self.total, self.spread = other.count, other.total, other.spread
            self.low, self.high = other.low, other.high
            return
        count = self.count + other.count
        apart = other.total / other.count - self.total / self.count
        self.spread += other.spread + apart * apart * self.count * other.count / count
        self.total += other.total
        self.count = count
        self.low = _least(self.low, other.low)
        self.high = -_least(-self.high, -other.high)

    def statistics(self) -> dict[str, float]:
        """min, max, sum, mean, std and variance."""
        if not self.count:
            return dict.fromkeys(("min", "max", "mean", "std", "variance"), math.nan) | {"sum": 0.0}
        variance = self.spread / self.count
        return {
            "min": self.low,
            "max": self.high,
            "sum": self.total,
            "mean": self.total / self.count,
            "variance": variance,
            "std": math.sqrt(variance) if variance >= 0 else math.nan,
        }


def _least(one: float, other: float) -> float:
    """The smaller of the two; a NaN wins, as in NumPy."""
    return one if one < other or one != one else other


@dataclass(slots=True)
class Summary:
    """Everything that can be told from one pass over a tensor.

    Attributes:
        plain: Of the numbers.
        magnitude: Of their absolute values.
        squares: The sum of squares.
    """

    plain: Moments
    magnitude: Moments
    squares: float = 0.0
    nan_count: int = 0
    inf_count: int = 0
    zero_count: int = 0

    def add(self, other: Summary) -> None:
        """Takes in the summary of another part of the tensor."""
        self.plain.add(other.plain)
        self.magnitude.add(other.magnitude)
        self.squares += other.squares
        self.nan_count += other.nan_count
        self.inf_count += other.inf_count
        self.zero_count += other.zero_count

    def statistics(self, names: frozenset[str]) -> dict[str, float]:
        """Those of the names that one pass gives, and always the counts."""
        plain = self.plain.statistics()
        known = plain | {
            f"abs_{name}": value for name, value in self.magnitude.statistics().items()
        }
        known["l1"] = known["abs_l1"] = known["abs_sum"]
        known["l2"] = known["abs_l2"] = math.sqrt(self.squares)
        found: dict[str, float] = {name: known[name] for name in names if name in known}
        found["count"] = self.plain.count
        found["nan_count"] = self.nan_count
        found["inf_count"] = self.inf_count
        found["zero_count"] = self.zero_count
        return found


def statistics_of_one(number: float, names: frozenset[str]) -> dict[str, float]:
    """The statistics of a tensor with one element, without a pass over anything."""
    plain, size = dict.fromkeys(_ITSELF, number), abs(number)
    magnitude = {f"abs_{name}": size for name in (*_ITSELF, "l1", "l2")}
    spread = 0.0 if math.isfinite(number) else math.nan
    known = plain | magnitude | dict.fromkeys(_SPREADS, spread) | {"l1": size, "l2": size}
    return {name: known[name] for name in names} | {
        "count": 1,
        "nan_count": int(math.isnan(number)),
        "inf_count": int(math.isinf(number)),
        "zero_count": int(number == 0),
    }


_ITSELF = ("min", "max", "mean", "median", "sum", "prod")
_SPREADS = ("std", "variance", "abs_std", "abs_variance")
