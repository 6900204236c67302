"""Room 3b: where the bytes of a trial live. Only ``format`` imports this room."""

from tornasole.store.base import Buffer, Store
from tornasole.store.url import open_store

__all__ = ["Buffer", "Store", "open_store"]
