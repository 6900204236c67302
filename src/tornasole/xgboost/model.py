"""What a booster tells about itself."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import xgboost
from xgboost import Booster, DMatrix, collective
from xgboost.core import XGBoostError


def feature_names(booster: Booster) -> list[str]:
    """The names of the features; XGBoost calls those without a name f0, f1, …"""
    return list(booster.feature_names or ()) or [f"f{i}" for i in range(booster.num_features())]


def kind(booster: Booster) -> str:
    """``gbtree``, ``dart`` or ``gblinear``."""
    return str(_learner(booster)["gradient_booster"]["name"])


def adds_up(booster: Booster) -> bool:
    """Whether a model is the sum of its rounds, each of which predicts on its own.

    Dart and linear models change what earlier rounds made. A round with categories lacks their
    names, by which data in another order would be understood. The trees of a round, if there are
    several, would be summed up in another order, which changes the last bit.
    """
    learner = _learner(booster)["gradient_booster"]
    return (
        learner["name"] == "gbtree"
        and int(learner["gbtree_model_param"].get("num_parallel_tree", 1)) == 1
        and "c" not in (booster.feature_types or ())
    )


def one_round(booster: Booster, number: int) -> Booster | None:
    """The model of that round alone, if it can be had.

    It cannot while ``process_type="update"`` has trees to go: trying is the only way to know. And
    not in a distributed training by XGBoost 1, which waits for all workers to slice the model.
    """
    if xgboost.__version__.startswith("1.") and collective.is_distributed():
        return None
    try:
        return booster[number : number + 1]
    except XGBoostError:
        return None


def predicted(booster: Booster, data: DMatrix, **options: Any) -> npt.NDArray[np.float32]:
    """What the booster predicts, of data with its features.

    Raises:
        ValueError: The data does not fit it.
    """
    # XGBoost itself, with contributions, writes beyond its memory.
    columns, features = data.num_col(), booster.num_features()
    if columns > features or (columns < features and options.get("pred_contribs")):
        raise ValueError(f"it has {columns} columns, the model {features} features")
    # XGBoost 1.7 gives a booster without names those of the data, and then refuses to train on.
    names_matter = booster.feature_names is not None
    return booster.predict(data, validate_features=names_matter, **options)


def output_count(booster: Booster) -> int:
    """How many numbers the model predicts for a row: classes, targets or quantiles."""
    param = _learner(booster)["learner_model_param"]
    return max(1, int(param["num_class"]), int(param.get("num_target", 1)))


def parameters(booster: Booster) -> dict[str, Any]:
    """What the booster is trained with, defaults included, by XGBoost's names."""
    found: dict[str, Any] = {}
    for name, text in _leaves(_learner(booster)):
        found.setdefault(name, _value(text))
    return found


def _learner(booster: Booster) -> dict[str, Any]:
    learner: dict[str, Any] = json.loads(booster.save_config())["learner"]
    return learner


def _leaves(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in config.items():
        if isinstance(value, dict):
            yield from _leaves(value)
        elif isinstance(value, str) and name != "name":
            yield name, value


def _value(text: str) -> Any:
    """A number or list of numbers, if the text is one: XGBoost writes them as JSON in strings."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value[0] if isinstance(value, list) and len(value) == 1 else value
