"""The hook as a Gluon script knows it, under both of its names."""

from __future__ import annotations

import os

import mxnet
from mxnet.gluon import Block
from mxnet.gluon.loss import Loss

from tornasole.capture.hook import hook_of
from tornasole.capture.layers import LayerHook
from tornasole.capture.original import OriginalHook
from tornasole.errors import SMDebugTypeError
from tornasole.mxnet.adapter import BlockAdapter
from tornasole.mxnet.collection import ORIGINAL_COLLECTIONS, Collection
from tornasole.mxnet.tensors import NDArrays


class Hook(LayerHook):
    """Saves tensors of a Gluon training job.

    A step is one call of a registered net, or, with several contexts, one call for each of them.
    Parameters are saved as that call finds them, gradients as a backward pass leaves them, both
    those of the first context.

    Takes the arguments of ``tornasole.Hook``.
    """

    framework = "mxnet"
    collection_class = Collection
    _adapter: BlockAdapter

    def register_block(self, block: Block) -> None:
        """Watches a net, each call of which is a step, or a loss."""
        if not isinstance(block, Block):
            raise SMDebugTypeError(
                f"register_block takes a Gluon block, not {type(block).__name__}."
            )
        if isinstance(block, Loss):
            self.register_loss(block)
        elif not self._stands_aside:
            self._adapter.attach(block)

    def register_hook(self, block: Block) -> None:
        """The older name of ``register_block``."""
        self.register_block(block)

    def register_loss(self, block: Block) -> None:
        """Watches a block that computes a loss, Gluon's own or any other."""
        if not isinstance(block, Block):
            raise SMDebugTypeError(
                f"register_loss takes a Gluon block, not {type(block).__name__}."
            )
        if not self._stands_aside:
            self._adapter.attach_loss(block)

    def _connect(self) -> None:
        self._adapter = BlockAdapter(self._recorder, self._guard, self._begin_step)

    def _tensors(self) -> tuple[NDArrays, ...]:
        return (NDArrays(),)

    def _versions(self) -> dict[str, str]:
        return {"mxnet": mxnet.__version__}


class TornasoleHook(OriginalHook, Hook):
    """The hook of the original API."""

    original_collections = ORIGINAL_COLLECTIONS


def get_hook(
    json_config_path: str | os.PathLike[str] | None = None, create_if_not_exists: bool = True
) -> Hook | None:
    """This process's MXNet hook, created from the configuration file if there is none.

    Args:
        json_config_path: The configuration file.
        create_if_not_exists: Whether to create it. ``USE_SMDEBUG=0`` in the environment switches
            this off, and without a configuration file there is still none.
    """
    return hook_of(Hook, json_config_path, create_if_not_exists)
