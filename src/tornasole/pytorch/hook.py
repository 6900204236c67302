"""The hook as a PyTorch script knows it."""

from __future__ import annotations

import os

import torch

from tornasole.capture.hook import hook_of
from tornasole.capture.layers import LayerHook
from tornasole.capture.worker import Worker
from tornasole.errors import SMDebugTypeError
from tornasole.pytorch.adapter import ModuleAdapter
from tornasole.pytorch.collection import Collection
from tornasole.pytorch.tensors import TorchTensors


class Hook(LayerHook):
    """Saves tensors of a PyTorch training job.

    A step is one call of a registered model. Weights, biases and buffers are saved as that call
    finds them; gradients as they stand in ``.grad`` when a backward pass is over, so with gradient
    accumulation the sum so far.

    Takes the arguments of ``tornasole.Hook``.
    """

    framework = "pytorch"
    collection_class = Collection
    _adapter: ModuleAdapter

    def register_module(self, module: torch.nn.Module) -> None:
        """Watches the model: each call of it is a step."""
        if not isinstance(module, torch.nn.Module):
            raise SMDebugTypeError(
                f"register_module takes a torch.nn.Module, not {type(module).__name__}."
            )
        if not self._stands_aside:
            self._adapter.attach(module)

    def register_hook(self, module: torch.nn.Module) -> None:
        """The older name of ``register_module``."""
        self.register_module(module)

    def register_loss(self, loss_module: torch.nn.Module) -> None:
        """Watches a module that computes a loss, torch's own or any other."""
        if not isinstance(loss_module, torch.nn.Module):
            raise SMDebugTypeError(
                f"register_loss takes a torch.nn.Module, not {type(loss_module).__name__}; "
                "give the result of a loss function to record_tensor_value."
            )
        if not self._stands_aside:
            self._adapter.attach_loss(loss_module)

    def record_tensor_value(self, tensor_name: str, tensor_value: torch.Tensor) -> None:
        """Saves a loss that a function computed, if due, as ``<tensor_name>_output_<i>``."""
        if not isinstance(tensor_name, str):
            raise SMDebugTypeError(
                f"tensor_name must be a string, not {type(tensor_name).__name__}."
            )
        if not isinstance(tensor_value, torch.Tensor):
            raise SMDebugTypeError(
                f"tensor_value must be a tensor, not {type(tensor_value).__name__}."
            )
        self._guard.run(self._adapter.record_output, tensor_name, tensor_value)

    @property
    def has_registered_module(self) -> bool:
        """Whether a model is watched."""
        return self._adapter.has_roots

    @property
    def has_registered_loss_module(self) -> bool:
        """Whether a loss is watched."""
        return self._adapter.has_losses

    @staticmethod
    def count_parameters(model: torch.nn.Module) -> int:
        """How many numbers training can change in the model."""
        return sum(p.numel() for p in model.parameters() if p.requires_grad)

    def _connect(self) -> None:
        self._adapter = ModuleAdapter(self._recorder, self._guard, self._begin_step)

    def _tensors(self) -> tuple[TorchTensors, ...]:
        return (TorchTensors(),)

    def _find_worker(self) -> Worker:
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            return Worker(distributed.get_rank(), distributed.get_world_size())
        return super()._find_worker()

    def _versions(self) -> dict[str, str]:
        return {"torch": torch.__version__}


def get_hook(
    json_config_path: str | os.PathLike[str] | None = None, create_if_not_exists: bool = False
) -> Hook | None:
    """This process's PyTorch hook.

    Args:
        json_config_path: A configuration file to create it from.
        create_if_not_exists: Create it from the configuration file if there is none; without such a
            file there is still none. ``USE_SMDEBUG=0`` in the environment switches this off.
    """
    return hook_of(Hook, json_config_path, create_if_not_exists)
