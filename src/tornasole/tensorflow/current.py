"""This process's TensorFlow hook."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from tornasole.capture import hook as capture
from tornasole.errors import SMDebugValueError
from tornasole.selection.patterns import choose_from
from tornasole.tensorflow.keras_hook import KerasHook

if TYPE_CHECKING:
    from tornasole.tensorflow.session import SessionHook

_KINDS = ("session", "estimator", "keras")


def get_hook(
    hook_type: str | None = None,
    json_config_path: str | os.PathLike[str] | None = None,
    create_if_not_exists: bool = False,
) -> KerasHook | SessionHook | None:
    """This process's TensorFlow hook, created from the configuration file on request.

    Args:
        hook_type: ``"session"``, ``"estimator"`` or ``"keras"``; by default whichever there is.
        json_config_path: The configuration file.
        create_if_not_exists: Whether to create one if there is none. ``USE_SMDEBUG=0`` in the
            environment switches this off, and without a configuration file there is still none.
    """
    if hook_type is None:
        if create_if_not_exists:
            raise SMDebugValueError(
                "To create a hook, get_hook needs a hook_type: 'session', 'estimator' or 'keras'."
            )
        current: Any = capture.get_hook()
        return current if getattr(current, "framework", None) == "tensorflow" else None
    return capture.hook_of(_kind(hook_type), json_config_path, create_if_not_exists)


def _kind(hook_type: str) -> type[KerasHook] | type[SessionHook]:
    if hook_type == "keras":
        return KerasHook
    if hook_type in _KINDS:
        from tornasole.tensorflow.session import SessionHook  # Keras may run without TensorFlow

        return SessionHook
    raise SMDebugValueError(
        f"{hook_type!r} is not a kind of hook: {choose_from(hook_type, _KINDS)}"
    )
