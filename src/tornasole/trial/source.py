"""What a trial and its tensors read from: the reader, and the index and cells of its rows."""

from __future__ import annotations

from tornasole.format import TrialReader
from tornasole.trial.cells import Cells
from tornasole.trial.index import Index


class Source:
    """A reader and what is arranged around it.

    Args:
        first: Steps before it are left out.
        stop: So are this step and those after it.
        keep: Whether raw values, once read, stay in memory.
    """

    def __init__(self, reader: TrialReader, first: int, stop: int | None, keep: bool) -> None:
        self.reader = reader
        self.cells = Cells(reader, keep)
        self._range = first, stop
        self._index = Index(reader, first, stop)
        self._generation = reader.generation

    @property
    def index(self) -> Index:
        """The index of what the reader holds now. A refresh renumbers rows: do not keep it."""
        if self._generation != self.reader.generation:
            self._index = Index(self.reader, *self._range)
            self._generation = self.reader.generation
        return self._index
