"""One worker for each replica of a mirrored model, all in one process."""

from __future__ import annotations

from tornasole.capture import Hook, set_hook
from tornasole.capture.recorder import Recorder
from tornasole.capture.worker import Worker
from tornasole.selection import Collection
from tornasole.tensorflow.tensors import KerasTensors


class ReplicaHook(Hook):
    """Saves what one replica computes, as its chief would.

    Args:
        chief: The hook that saves what the first replica computes.
        rank: Which replica.
        count: How many there are.
    """

    framework = "tensorflow"

    def __init__(self, chief: Hook, rank: int, count: int) -> None:
        self._chief, self._place = chief, Worker(rank, count)
        super().__init__(
            chief.out_dir,
            dry_run=chief.dry_run,
            reduction_config=chief.reduction_config,
            save_config=chief.save_config,
            include_collections=chief.include_collections,
            include_workers="all",
        )
        set_hook(chief)

    @property
    def recorder(self) -> Recorder:
        return self._recorder

    def follow(self, chief: Recorder) -> None:
        """Begins the step that the chief has begun."""
        self._recorder.follow(chief)
        self.begin_step()

    def _find_worker(self) -> Worker:
        return self._place

    def _first_collections(self) -> dict[str, Collection]:
        return self._chief.get_collections()

    def _tensors(self) -> tuple[KerasTensors, ...]:
        return (KerasTensors(),)
