"""The store in memory, beyond what every store does."""

import pytest

from tornasole.store import open_store
from tornasole.store.memory import MemoryStore
from tornasole.testing import StoreContract


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self):
        return MemoryStore()


def test_stores_of_one_name_are_one_place():
    writer = open_store("memory://test-memory/one")
    writer.put("k", [b"."])
    writer.close()
    assert open_store("memory://test-memory/one/").list() == ["k"]
    assert open_store("memory://test-memory/two").list() == []


def test_the_url_opens_the_same_place():
    store = open_store("memory://test-memory/url")
    assert open_store(store.url) is store
