"""Contract tests that others inherit: subclass one in your own test-suite to check a plug-in of yours."""

from tornasole.testing.store import StoreContract

__all__ = ["StoreContract"]
