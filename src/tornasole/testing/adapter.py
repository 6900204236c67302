"""The adapter contract as tests: subclass ``AdapterContract``, give it ``job``, run pytest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pytest

from tornasole.capture import Hook
from tornasole.capture.recorder import Recorder
from tornasole.selection import SaveConfig, SaveConfigMode
from tornasole.trial import Trial, create_trial
from tornasole.types import ModeKeys

Array = npt.NDArray[Any]


class Job(Protocol):
    """A small training job of the framework. Any two of them compute the same."""

    def hook(self, out_dir: Path, **options: Any) -> Hook:
        """A hook of the framework that watches this job."""

    def train(self, steps: int) -> None:
        """Trains for some more steps."""

    def seen(self) -> Mapping[str, Array]:
        """What some tensors were in the latest step, by name, learnt without the hook."""

    def result(self) -> Array:
        """What training has come to."""

    def attached(self) -> list[str]:
        """What still hangs on the model or the framework, in words."""


class AdapterContract:
    """Inherit and override the fixture ``job`` with a function that makes a new ``Job``."""

    @pytest.fixture
    def job(self) -> Callable[[], Job]:
        raise NotImplementedError("Override the fixture 'job' with a function that makes jobs.")

    @pytest.fixture
    def out_dir(self, tmp_path: Path) -> Path:
        return tmp_path / "trial"

    def _trained(
        self, job: Job, out_dir: Path, steps: int, save_config: SaveConfig, **options: Any
    ) -> Trial:
        options = {"save_all": True, "on_error": "raise", "save_config": save_config, **options}
        with job.hook(out_dir, **options):
            job.train(steps)
        return create_trial(str(out_dir))

    def test_each_iteration_is_a_step(self, job: Callable[[], Job], out_dir: Path) -> None:
        trial = self._trained(job(), out_dir, 3, SaveConfig(save_interval=1))
        assert trial.steps() == [0, 1, 2]

    def test_steps_that_are_not_due_save_nothing(
        self, job: Callable[[], Job], out_dir: Path
    ) -> None:
        trial = self._trained(job(), out_dir, 5, SaveConfig(save_interval=2))
        assert trial.steps() == [0, 2, 4]

    def test_modes_count_their_own_steps(self, job: Callable[[], Job], out_dir: Path) -> None:
        run = job()
        every = SaveConfigMode(save_interval=1)
        config = SaveConfig({ModeKeys.TRAIN: SaveConfigMode(save_interval=2), ModeKeys.EVAL: every})
        with run.hook(out_dir, save_all=True, save_config=config, on_error="raise") as hook:
            for mode, steps in ((ModeKeys.TRAIN, 3), (ModeKeys.EVAL, 2)) * 2:
                hook.set_mode(mode)
                run.train(steps)
            assert hook.mode_steps == {
                ModeKeys.TRAIN: 5,
                ModeKeys.EVAL: 3,
                ModeKeys.GLOBAL: 9,
            }
        assert create_trial(str(out_dir)).steps() == [0, 2, 3, 4, 6, 8, 9]

    def test_values_are_those_of_the_framework(self, job: Callable[[], Job], out_dir: Path) -> None:
        run = job()
        trial = self._trained(run, out_dir, 3, SaveConfig(save_interval=1))
        seen = run.seen()
        assert seen
        for name, value in seen.items():
            np.testing.assert_array_equal(trial.tensor(name).value(2), value, err_msg=name)

    def test_every_tensor_has_a_role(self, job: Callable[[], Job], out_dir: Path) -> None:
        trial = self._trained(job(), out_dir, 1, SaveConfig(save_interval=1))
        roles = {name: trial.tensor(name).role.value for name in trial.tensor_names()}
        assert {name for name, role in roles.items() if role == "custom"} == set()

    def test_training_computes_what_it_would_without_a_hook(
        self, job: Callable[[], Job], out_dir: Path
    ) -> None:
        with_hook, without = job(), job()
        self._trained(with_hook, out_dir, 3, SaveConfig(save_interval=2))
        without.train(3)
        np.testing.assert_array_equal(with_hook.result(), without.result())

    def test_nothing_is_left_after_close(self, job: Callable[[], Job], out_dir: Path) -> None:
        run = job()
        self._trained(run, out_dir, 2, SaveConfig(save_interval=1))
        assert run.attached() == []
        run.train(1)
        assert create_trial(str(out_dir)).steps() == [0, 1]

    def test_a_fault_does_not_change_training(
        self, job: Callable[[], Job], out_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*args: Any) -> None:
            raise ValueError("a fault on purpose")

        with_fault, without = job(), job()
        with with_fault.hook(out_dir, save_all=True, save_config=SaveConfig(save_interval=1)):
            with_fault.train(1)
            monkeypatch.setattr(Recorder, "record_many", broken)
            with_fault.train(2)
            assert with_fault.attached() == []
        monkeypatch.undo()
        without.train(3)
        np.testing.assert_array_equal(with_fault.result(), without.result())
        trial = create_trial(str(out_dir))
        assert trial.steps() == [0]
        assert trial.state == "failed"
