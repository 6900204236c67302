"""What to keep, when, and in which form: pure values between the hook and its records.

``SaveConfig`` says when, ``ReductionConfig`` in which form, ``Collection`` which tensors; ``Plan``
puts the three together and answers the hook; ``HookConfig`` reads them all from JSON.
"""

from tornasole.selection.builtin import (
    TRAINING_ONLY_COLLECTIONS,
    UNREDUCED_COLLECTIONS,
    Builtin,
    builtin_for,
)
from tornasole.selection.collection import Collection, CollectionKeys, canonical_name
from tornasole.selection.json_config import (
    CONFIG_FILE_PATH_ENV_STR,
    DEFAULT_CONFIG_FILE_PATH,
    HookConfig,
)
from tornasole.selection.plan import Due, Form, Part, Plan
from tornasole.selection.reduction_config import (
    ALLOWED_NORMS,
    ALLOWED_REDUCTIONS,
    RAW_TENSOR,
    ReductionConfig,
)
from tornasole.selection.save_config import DEFAULT_SAVE_INTERVAL, SaveConfig, SaveConfigMode

__all__ = [
    "ALLOWED_NORMS",
    "ALLOWED_REDUCTIONS",
    "CONFIG_FILE_PATH_ENV_STR",
    "DEFAULT_CONFIG_FILE_PATH",
    "DEFAULT_SAVE_INTERVAL",
    "RAW_TENSOR",
    "TRAINING_ONLY_COLLECTIONS",
    "UNREDUCED_COLLECTIONS",
    "Builtin",
    "Collection",
    "CollectionKeys",
    "Due",
    "Form",
    "HookConfig",
    "Part",
    "Plan",
    "ReductionConfig",
    "SaveConfig",
    "SaveConfigMode",
    "builtin_for",
    "canonical_name",
]
