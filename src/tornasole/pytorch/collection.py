"""A collection that can also be filled with modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tornasole.errors import SMDebugTypeError
from tornasole.selection import Collection as BaseCollection


class Collection(BaseCollection):
    """A named group of tensors, some of which may be inputs and outputs of modules."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.modules: dict[torch.nn.Module, tuple[bool, bool]] = {}
        self._unresolved: list[torch.nn.Module] = []

    def add_module_tensors(
        self, module: torch.nn.Module, inputs: bool = False, outputs: bool = True
    ) -> None:
        """Includes what goes into or comes out of a module of the registered model."""
        if not isinstance(module, torch.nn.Module):
            raise SMDebugTypeError(
                f"add_module_tensors takes a torch.nn.Module, not {type(module).__name__}."
            )
        self.modules[module] = (inputs, outputs)
        self._unresolved.append(module)

    @property
    def is_empty(self) -> bool:
        return super().is_empty and not self.modules

    def resolve(
        self, patterns: Callable[[torch.nn.Module, bool, bool], list[str] | None]
    ) -> list[str]:
        """Turns modules into patterns of tensor names, once their model is registered.

        Args:
            patterns: Gives the patterns for a module's inputs and outputs, ``None`` if it is in no
                registered model.

        Returns:
            The classes of those modules that are in none.
        """
        unknown = []
        modules, self._unresolved = self._unresolved, []
        for module in modules:
            found = patterns(module, *self.modules[module])
            if found is None:
                unknown.append(type(module).__name__)
            else:
                self.include(found)
        return unknown

    @property
    def unresolved(self) -> bool:
        """Whether modules were added since ``resolve`` was last called."""
        return bool(self._unresolved)
