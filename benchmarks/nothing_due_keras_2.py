"""The measurement of ``nothing_due_keras`` where Keras 2 is installed."""

from benchmarks.nothing_due_keras import FRAMEWORKS, measure

__all__ = ["FRAMEWORKS", "measure"]
