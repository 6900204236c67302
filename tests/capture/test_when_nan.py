"""when_nan: everything included is saved whenever a watched tensor is NaN or infinite."""

import numpy as np
import pytest

from tornasole import SaveConfig
from tornasole.types import Role

NEVER = 10**9


def run(hook, losses):
    for loss in losses:
        hook.begin_step()
        hook._recorder.record_many(
            [
                ("w", Role.WEIGHT, np.array([1.0, 2.0])),
                ("m", Role.METRIC, np.array([3.0, 4.0])),
                ("loss", Role.LOSS, np.array(loss)),
            ]
        )
    hook.close()


def config(**options):
    return SaveConfig(**{"start_step": NEVER, "when_nan": ["loss"], **options})


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, [1.0, np.nan], [np.inf, 0.0]])
def test_what_is_included_is_saved_at_the_step_with_the_nan(new_hook, read, bad):
    run(new_hook(include_collections=["weights"], save_config=config()), [1.0, bad, 2.0])
    trial = read()
    assert trial.steps() == [1]
    assert trial.tensor_names() == ["w"]
    assert trial.tensor("w").value(1).tolist() == [1, 2]


def test_nothing_is_saved_while_all_is_finite(new_hook, read):
    run(new_hook(save_all=True, save_config=config()), [1.0, 2.0, 3.0])
    assert read().steps() == []


def test_a_watched_tensor_that_is_included_is_saved_too(new_hook, read):
    run(new_hook(include_collections=["losses"], save_config=config()), [1.0, np.nan])
    assert read().tensor_names() == ["loss"]


def test_the_schedule_goes_on_beside_it(new_hook, read):
    hook = new_hook(
        include_collections=["weights"], save_config=config(start_step=0, save_interval=3)
    )
    run(hook, [1.0, 1.0, 1.0, 1.0, np.nan])
    assert read().steps() == [0, 3, 4]


def test_only_the_collection_that_watches_is_saved(new_hook, read):
    hook = new_hook(
        include_collections=["weights", "metrics"], save_config=SaveConfig(start_step=NEVER)
    )
    hook.get_collection("metrics").save_config = config()
    run(hook, [1.0, np.nan])
    assert read().tensor_names() == ["m"]


def test_a_scalar_saved_by_hand_is_watched(new_hook, read):
    hook = new_hook(include_collections=["weights"], save_config=config(when_nan=["^scalar/loss$"]))
    for loss in (1.0, np.nan):
        hook.begin_step()
        hook._recorder.record("w", Role.WEIGHT, np.array([1.0, 2.0]))
        hook.save_scalar("loss", loss)
    hook.close()
    assert read().tensor("w").steps() == [1]
    assert read().tensor("scalar/loss").steps() == [0, 1]


def test_a_tensor_saved_by_hand_is_watched(new_hook, read):
    hook = new_hook(include_collections=["weights"], save_config=config(when_nan=["logits"]))
    for value in ([1.0, 2.0], [1.0, np.inf]):
        hook.begin_step()
        hook._recorder.record("w", Role.WEIGHT, np.array([1.0, 2.0]))
        hook.save_tensor("logits", value)
    hook.close()
    assert read().tensor("w").steps() == [1]
