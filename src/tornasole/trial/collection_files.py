"""What each worker's ``collections.json`` says: the collections, and which process wrote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tornasole.errors import CorruptTrial, MissingCollectionFiles, SMDebugError
from tornasole.format import TrialReader
from tornasole.format.layout import collections_key
from tornasole.selection import Collection


class CollectionFiles:
    """The collections of all workers, each under its name.

    A collection stays the same object from its first sight on, so that what a user changes in it
    stays changed.
    """

    def __init__(self, reader: TrialReader) -> None:
        self._reader = reader
        self._collections: dict[str, Collection] = {}
        self._generation = -1

    def collections(self, over: bool) -> dict[str, Collection]:
        """The collections seen so far.

        Args:
            over: Whether the run is, so that a file that is missing will not come.

        Raises:
            MissingCollectionFiles: The run is over, and some worker has left none.
        """
        if self._generation != self._reader.generation:
            contents = [self._reader.collections(worker) for worker in self._reader.workers]
            if over and None in contents:
                raise MissingCollectionFiles
            for worker, content in zip(self._reader.workers, contents, strict=True):
                if content is not None:
                    self._add(worker, content)
            self._generation = self._reader.generation
        return self._collections

    def process(self, worker: str) -> Mapping[str, Any]:
        """What the worker says about its process; nothing if it has not."""
        meta = (self._reader.collections(worker) or {}).get("_meta")
        process = meta.get("process") if isinstance(meta, dict) else None
        return process if isinstance(process, dict) else {}

    def _add(self, worker: str, content: Mapping[str, Any]) -> None:
        try:
            for name, about in content["collections"].items():
                if name not in self._collections:
                    self._collections[name] = Collection.from_dict(about)
        except (SMDebugError, AttributeError, KeyError, TypeError, ValueError) as error:
            where = f"{self._reader.url}/{collections_key(worker)}"
            raise CorruptTrial(f"{where} is damaged: {type(error).__name__}: {error}") from error
