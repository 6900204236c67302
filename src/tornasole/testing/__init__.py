"""Contract tests that others inherit: subclass one in your tests to check a plug-in of yours."""

from tornasole.testing.adapter import AdapterContract
from tornasole.testing.rule import RuleContract
from tornasole.testing.store import StoreContract

__all__ = ["AdapterContract", "RuleContract", "StoreContract"]
