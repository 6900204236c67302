"""Bottom layer: the one plug-in loader, from a name to an object that is imported on first use.

A plug-in has a kind ("store"), a name ("memory") and a dotted path ("package.module:attribute").
Our own stand in ``BUILT_IN``; other packages add theirs as an entry point of the group
``tornasole.<kind>``:

    [project.entry-points."tornasole.store"]
    ftp = "acme_ftp:open_ftp"

A built-in name cannot be taken over by an entry point.
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import entry_points

from tornasole.errors import MissingExtra, SMDebugValueError

# kind -> name -> where it lives.
BUILT_IN: dict[str, dict[str, str]] = {
    "store": {
        "file": "tornasole.store.local:LocalStore",
        "memory": "tornasole.store.memory:open_memory",
    },
    "rule": {
        "all_zero": "tornasole.rules.builtin.all_zero:AllZero",
        "check_input_images": "tornasole.rules.builtin.check_input_images:CheckInputImages",
        "class_imbalance": "tornasole.rules.builtin.class_imbalance:ClassImbalance",
        "confusion": "tornasole.rules.builtin.confusion:Confusion",
        "create_xgboost_report": "tornasole.views.xgboost_report.rule:CreateXgboostReport",
        "dead_relu": "tornasole.rules.builtin.dead_relu:DeadRelu",
        "exploding_tensor": "tornasole.rules.builtin.exploding_tensor:ExplodingTensor",
        "feature_importance_overweight": (
            "tornasole.rules.builtin.feature_importance_overweight:FeatureImportanceOverweight"
        ),
        "loss_not_decreasing": "tornasole.rules.builtin.loss_not_decreasing:LossNotDecreasing",
        "nan_source": "tornasole.rules.builtin.nan_source:NanSource",
        "nlp_sequence_ratio": "tornasole.rules.builtin.nlp_sequence_ratio:NlpSequenceRatio",
        "overfit": "tornasole.rules.builtin.overfit:Overfit",
        "overtraining": "tornasole.rules.builtin.overtraining:Overtraining",
        "poor_weight_initialization": (
            "tornasole.rules.builtin.poor_weight_initialization:PoorWeightInitialization"
        ),
        "saturated_activation": "tornasole.rules.builtin.saturated_activation:SaturatedActivation",
        "similar_across_runs": "tornasole.rules.builtin.similar_across_runs:SimilarAcrossRuns",
        "stalled_training_rule": (
            "tornasole.rules.builtin.stalled_training_rule:StalledTrainingRule"
        ),
        "tensor_variance": "tornasole.rules.builtin.tensor_variance:TensorVariance",
        "tree_depth": "tornasole.rules.builtin.tree_depth:TreeDepth",
        "unchanged_tensor": "tornasole.rules.builtin.unchanged_tensor:UnchangedTensor",
        "vanishing_gradient": "tornasole.rules.builtin.vanishing_gradient:VanishingGradient",
        "weight_update_ratio": "tornasole.rules.builtin.weight_update_ratio:WeightUpdateRatio",
    },
}

# Imported module -> the extra that installs it.
EXTRAS: dict[str, str] = {
    "keras": "tensorflow",
    "mxnet": "mxnet",
    "pandas": "pandas",
    "sklearn": "demo",
    "torch": "torch",
    "xgboost": "xgboost",
}


def load(kind: str, name: str) -> object:
    """Import a plug-in.

    Args:
        kind: What it is, such as "store".
        name: Which one, such as "memory".

    Returns:
        The object at the plug-in's dotted path. What it must be, the kind's contract says.

    Raises:
        SMDebugValueError: There is no such kind or name, or its path leads nowhere.
        MissingExtra: The plug-in needs a package that is not installed.
    """
    paths = _paths(kind)
    if name not in paths:
        raise SMDebugValueError(_unknown(f"{kind} plug-in", name, paths))
    module_name, _, attribute = paths[name].partition(":")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        if missing.split(".")[0] == "tornasole":
            raise  # not an extra: a fault of ours, and hiding it would cost hours
        raise MissingExtra(_missing(kind, name, missing)) from error
    if not hasattr(module, attribute):
        raise SMDebugValueError(
            f"The {kind} plug-in {name!r} is registered as {paths[name]!r}, "
            f"but {module_name!r} has no {attribute!r}."
        )
    value: object = getattr(module, attribute)
    return value


def names(kind: str) -> list[str]:
    """List the plug-ins of a kind, ours and other packages', without importing them."""
    return sorted(_paths(kind))


def _paths(kind: str) -> dict[str, str]:
    if kind not in BUILT_IN:
        raise SMDebugValueError(_unknown("kind of plug-in", kind, BUILT_IN))
    others = {
        point.name: f"{point.module}:{point.attr}"
        for point in entry_points(group=f"tornasole.{kind}")
    }
    return others | BUILT_IN[kind]


def _unknown(what: str, name: str, known: dict[str, str] | dict[str, dict[str, str]]) -> str:
    nearest = get_close_matches(name, known, n=1)
    question = f" Did you mean {nearest[0]!r}?" if nearest else ""
    return f"There is no {what} {name!r}.{question} There are: {', '.join(sorted(known))}."


def _missing(kind: str, name: str, module: str) -> str:
    package = module.partition(".")[0]
    cure = (
        f"pip install 'tornasole[{EXTRAS[package]}]'"
        if package in EXTRAS
        else f"install the package that provides {package!r}"
    )
    return (
        f"The {kind} plug-in {name!r} needs {module!r}, which is not installed. To mend it: {cure}"
    )
