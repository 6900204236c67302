"""A collection that can also be filled with modules."""

from __future__ import annotations

import torch

from tornasole.capture.layers import LayerCollection
from tornasole.errors import SMDebugTypeError


class Collection(LayerCollection[torch.nn.Module]):
    """A named group of tensors, some of which may be inputs and outputs of modules."""

    def add_module_tensors(
        self, module: torch.nn.Module, inputs: bool = False, outputs: bool = True
    ) -> None:
        """Includes what goes into or comes out of a module of the registered model."""
        if not isinstance(module, torch.nn.Module):
            raise SMDebugTypeError(
                f"add_module_tensors takes a torch.nn.Module, not {type(module).__name__}."
            )
        self._add_layer(module, inputs, outputs)

    @property
    def modules(self) -> dict[torch.nn.Module, tuple[bool, bool]]:
        """The modules added, and whether their inputs and their outputs are included."""
        return self._layers
