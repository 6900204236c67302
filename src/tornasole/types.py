"""Bottom layer: the nouns every room shares (mode, role, step state, statistic)."""

from __future__ import annotations

import re
from enum import Enum


class ModeKeys(Enum):
    """What a step was for. ``GLOBAL`` is the mode of steps for which none was set."""

    TRAIN = 1
    EVAL = 2
    PREDICT = 3
    GLOBAL = 4


class StepState(Enum):
    """Whether a reader can have a step now, later, or never."""

    UNAVAILABLE = 0
    AVAILABLE = 1
    NOT_YET_AVAILABLE = 2


class Role(str, Enum):
    """What a tensor is in its model, as the framework adapter knows it.

    Built-in collections are made of roles; names and regexes are for people.
    """

    WEIGHT = "weight"
    BIAS = "bias"
    BUFFER = "buffer"
    GRADIENT = "gradient"
    LOSS = "loss"
    INPUT = "input"
    OUTPUT = "output"
    LAYER_INPUT = "layer_input"
    LAYER_OUTPUT = "layer_output"
    LABEL = "label"
    PREDICTION = "prediction"
    METRIC = "metric"
    SCALAR = "scalar"
    OPTIMIZER_VARIABLE = "optimizer_variable"
    HYPERPARAMETER = "hyperparameter"
    FEATURE_IMPORTANCE = "feature_importance"
    AVERAGE_SHAP = "average_shap"
    FULL_SHAP = "full_shap"
    TREE = "tree"
    CUSTOM = "custom"


REDUCTIONS = ("min", "max", "mean", "median", "std", "variance", "sum", "prod")
NORMS = ("l1", "l2")
STATISTICS = tuple(prefix + name for prefix in ("", "abs_") for name in (*REDUCTIONS, *NORMS))
"""What a statistic is called; with ``abs_`` before it, it is that of the absolute values."""

COUNTS = ("count", "nan_count", "inf_count", "zero_count")
"""What is counted whenever a statistic is computed."""

# What XGBoost's own early stopping maximises, and what others call a score.
_MORE_IS_BETTER = re.compile(
    r"(auc|map(?!e)|ndcg|pre|acc|f1|recall|r2|mcc)|.*(accuracy|_score)$", re.IGNORECASE
)


def more_is_better(metric: str) -> bool:
    """Whether a metric of that name grows as a model gets better; an unknown one does not."""
    return _MORE_IS_BETTER.match(metric) is not None
