"""What tests of rules may ask for: runs made of tensors with roles, without a framework."""

import numpy as np
import pytest

from tornasole import Hook, ReductionConfig, SaveConfig
from tornasole.types import ModeKeys


@pytest.fixture
def statistics() -> ReductionConfig:
    """Saves statistics, and no values."""
    return ReductionConfig(reductions=["min", "max", "mean", "std"], norms=["l1", "l2"])


@pytest.fixture
def save_run(tmp_path):
    """Saves a run: of each step the tensors, each with name, role and value.

    ``modes`` are those of the steps; ``None`` among the steps is one that is not saved.
    """

    def save(steps, reduction=None, modes=None, name="trial"):
        path = tmp_path / name
        saved = [i for i, tensors in enumerate(steps) if tensors is not None]
        only_these = SaveConfig(save_interval=10**9, start_step=10**9, save_steps=saved)
        with Hook(
            path,
            save_all=True,
            save_config=only_these if None in steps else SaveConfig(save_interval=1),
            reduction_config=reduction,
            on_error="raise",
        ) as hook:
            for i, tensors in enumerate(steps):
                hook.set_mode(modes[i] if modes else ModeKeys.GLOBAL)
                hook.begin_step()
                for tensor, role, value in tensors or ():
                    hook._recorder.record(tensor, role, np.asarray(value))
        return str(path)

    return save
