"""A collection that can also be filled with blocks, and this process's collections of old."""

from __future__ import annotations

from typing import Any

from mxnet.gluon import Block, Parameter

from tornasole.capture.layers import LayerCollection
from tornasole.capture.original import OriginalCollections
from tornasole.errors import SMDebugTypeError


class Collection(LayerCollection[Block]):
    """A named group of tensors, some of which may be inputs and outputs of Gluon blocks."""

    def add_block_tensors(
        self,
        block: Block,
        inputs: bool | None = None,
        outputs: bool | None = None,
        *,
        input: bool | None = None,
        output: bool | None = None,
    ) -> None:
        """Includes what goes into or comes out of a block of the registered net.

        Args:
            block: The block.
            inputs: Whether its inputs are included; by default not.
            outputs: Whether its outputs are included; by default they are.
            input: ``inputs`` as the original API spells it.
            output: ``outputs`` likewise; with these spellings, both are off by default.
        """
        if not isinstance(block, Block):
            raise SMDebugTypeError(
                f"add_block_tensors takes a Gluon block, not {type(block).__name__}."
            )
        original = input is not None or output is not None
        wants_inputs = inputs if inputs is not None else bool(input)
        wants_outputs = outputs if outputs is not None else bool(output) or not original
        self._add_layer(block, wants_inputs, wants_outputs)

    def add(self, arg: Any) -> None:
        """Includes a tensor by name, a parameter, the outputs of a block, or a list of these."""
        if isinstance(arg, (list, tuple, set, frozenset)):
            for each in arg:
                self.add(each)
        elif isinstance(arg, Block):
            self.add_block_tensors(arg)
        elif isinstance(arg, (str, Parameter)):
            self.add_tensor_name(arg if isinstance(arg, str) else arg.name)
        else:
            raise SMDebugTypeError(
                f"Collection {self.name!r} takes names of tensors, parameters, blocks and lists of "
                f"them, not {type(arg).__name__}."
            )


ORIGINAL_COLLECTIONS = OriginalCollections("mxnet", Collection)

get_collection = ORIGINAL_COLLECTIONS.get_collection
get_collections = ORIGINAL_COLLECTIONS.get_collections
add_to_collection = ORIGINAL_COLLECTIONS.add_to_collection
add_to_default_collection = ORIGINAL_COLLECTIONS.add_to_default_collection
reset_collections = ORIGINAL_COLLECTIONS.reset_collections
