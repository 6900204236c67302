"""The original Tornasole API, which came before ``smdebug``'s: one piece for all its frameworks.

Collections belong to the process and exist before any hook does; ``TornasoleHook`` saves those of
them that it is told to include. A framework's room offers both:

    collections = OriginalCollections("mxnet", Collection)
    get_collection = collections.get_collection

    class TornasoleHook(OriginalHook, Hook):
        original_collections = collections
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic

from tornasole.capture.guard import OnError
from tornasole.capture.hook import Hook
from tornasole.capture.worker import Worker
from tornasole.errors import SMDebugTypeError, SMDebugValueError
from tornasole.format.layout import is_worker
from tornasole.selection import (
    Collection,
    CollectionKeys,
    ReductionConfig,
    SaveConfig,
    SaveConfigMode,
)
from tornasole.selection.builtin import Builtin, builtin_for
from tornasole.selection.collection import C, canonical_name

_SAVE_INTERVAL = 100


class OriginalCollections(Generic[C]):
    """The collections of this process for one framework.

    Args:
        framework: Its name.
        kind: Its class of collections.
    """

    def __init__(self, framework: str, kind: type[C]) -> None:
        self._framework, self._kind = framework, kind
        self._collections: dict[str, C] = {}

    def get_collection(self, collection_name: str) -> C:
        """The collection of that name; one that does not exist yet is made."""
        if not isinstance(collection_name, str):
            raise SMDebugTypeError(
                f"The name of a collection is a string, not {type(collection_name).__name__}."
            )
        name = canonical_name(collection_name)
        collections = self.get_collections()
        if name not in collections:
            collections[name] = self._kind(name)
        return collections[name]

    def get_collections(self) -> dict[str, C]:
        """Every collection by its name."""
        if not self._collections:
            self._collections.update(builtin_for(self._framework).collections(self._kind))
        return self._collections

    def add_to_collection(self, collection_name: str, args: Any) -> None:
        """The same as ``get_collection(collection_name).add(args)``."""
        collection: Any = self.get_collection(collection_name)
        collection.add(args)

    def add_to_default_collection(self, args: Any) -> None:
        """The same as ``get_collection("default").add(args)``."""
        self.add_to_collection(CollectionKeys.DEFAULT, args)

    def reset_collections(self) -> None:
        """Forgets what was put into collections; hooks that exist keep theirs."""
        self._collections = {}


class OriginalHook(Hook):
    """Mixed into a framework's hook: the constructor, the defaults and the meanings of old.

    Args:
        out_dir: Where the trial goes: a new or empty folder, or an address with a scheme.
        dry_run: Only describe in the log (level INFO) what would be saved.
        worker: The name under which this process saves. Processes that are given different names
            save into one trial.
        reduction_config: The form in which tensors are saved, unless their collection has its own.
        save_config: When tensors are saved, unless their collection says otherwise; by mode, if a
            dictionary. Where there are ``save_steps``, only those are saved.
        include_regex: Save tensors whose names contain one of these patterns (collection
            ``default``).
        include_collections: The collections to save, and no others.
        save_all: Save every tensor (collection ``all``).
        on_error: As in ``tornasole.Hook``.
    """

    original_collections: ClassVar[OriginalCollections[Any]]
    save_steps_override = True

    def __init__(
        self,
        out_dir: str | os.PathLike[str] | None = None,
        dry_run: bool = False,
        worker: str = "worker0",
        reduction_config: ReductionConfig | None = None,
        save_config: SaveConfig | SaveConfigMode | Mapping[Any, Any] | None = None,
        include_regex: str | Sequence[str] | None = None,
        include_collections: Sequence[str] | None = (
            CollectionKeys.WEIGHTS,
            CollectionKeys.GRADIENTS,
            CollectionKeys.BIASES,
            CollectionKeys.DEFAULT,
        ),
        save_all: bool = False,
        *,
        on_error: OnError = "warn",
    ) -> None:
        if not isinstance(worker, str):
            raise SMDebugTypeError(f"worker must be a string, not {type(worker).__name__}.")
        if not is_worker(worker):
            raise SMDebugValueError(f"A worker cannot be named {worker!r}: it becomes a folder.")
        self._label = worker  # the base class asks for it while it is being made
        super().__init__(
            out_dir,
            dry_run=dry_run,
            reduction_config=reduction_config,
            save_config=save_config,
            include_regex=include_regex,
            include_collections=include_collections,
            save_all=save_all,
            include_workers="all",
            on_error=on_error,
        )

    def _builtin(self) -> Builtin:
        return dataclasses.replace(
            super()._builtin(), included=frozenset(), save_interval=_SAVE_INTERVAL
        )

    def _first_collections(self) -> dict[str, Collection]:
        return self.original_collections.get_collections()

    def _close(self, error: BaseException | None) -> None:
        was_open = not self._closed
        super()._close(error)
        if was_open and self.include_regex:  # the collection outlives the hook
            self.get_collection(CollectionKeys.DEFAULT).exclude(self.include_regex)

    def _find_worker(self) -> Worker:
        return dataclasses.replace(super()._find_worker(), label=self._label)
