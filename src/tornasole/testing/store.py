"""The store contract as tests: subclass ``StoreContract``, give it a ``store`` fixture."""

from __future__ import annotations

import threading
from array import array

import pytest

from tornasole.errors import ObjectNotFound, SMDebugValueError
from tornasole.store import Store


class StoreContract:
    """Inherit and override the fixture ``store`` with an empty store of your kind."""

    @pytest.fixture
    def store(self) -> Store:
        raise NotImplementedError("Override the fixture 'store' with an empty store.")

    def test_what_was_put_is_got(self, store: Store) -> None:
        store.put("a/b.bin", [b"one", memoryview(b"two"), bytearray(b"three")])
        assert bytes(store.get("a/b.bin")) == b"onetwothree"
        assert store.size("a/b.bin") == 11

    def test_an_empty_object_is_an_object(self, store: Store) -> None:
        store.put("empty", [])
        assert bytes(store.get("empty")) == b""
        assert store.list() == ["empty"]

    def test_a_range_is_read(self, store: Store) -> None:
        store.put("k", [b"0123456789"])
        assert bytes(store.get("k", 2, 3)) == b"234"
        assert bytes(store.get("k", 7)) == b"789"

    def test_a_range_past_the_end_gives_what_is_there(self, store: Store) -> None:
        store.put("k", [b"0123"])
        assert bytes(store.get("k", 2, 100)) == b"23"
        assert bytes(store.get("k", 50, 1)) == b""
        assert bytes(store.get("k", 2**62, 2**62)) == b""
        assert bytes(store.get("k", 4)) == b""

    def test_a_missing_key_is_said_to_be_missing(self, store: Store) -> None:
        with pytest.raises(ObjectNotFound, match="nowhere"):
            store.get("nowhere")
        with pytest.raises(FileNotFoundError):
            store.size("nowhere")

    def test_putting_again_replaces(self, store: Store) -> None:
        store.put("k", [b"a longer first content"])
        store.put("k", [b"new"])
        assert bytes(store.get("k")) == b"new"

    def test_putting_without_overwrite_refuses_a_taken_key(self, store: Store) -> None:
        store.put("k", [b"first"], overwrite=False)
        with pytest.raises(FileExistsError):
            store.put("k", [b"second"], overwrite=False)
        assert bytes(store.get("k")) == b"first"
        assert store.list() == ["k"]

    def test_of_many_who_put_without_overwrite_one_succeeds(self, store: Store) -> None:
        outcomes: list[str] = []
        start = threading.Barrier(8)

        def put(number: int) -> None:
            start.wait()
            try:
                store.put("k", [b"%d" % number], overwrite=False)
                outcomes.append(str(number))
            except FileExistsError:
                pass

        threads = [threading.Thread(target=put, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert outcomes == [store.get("k").decode()]

    def test_what_was_put_and_what_was_got_belong_to_the_caller(self, store: Store) -> None:
        data = bytearray(b"mine")
        store.put("k", [data])
        data[:] = b"gone"
        got = store.get("k")
        got[:] = b"lost"
        assert bytes(store.get("k")) == b"mine"

    def test_the_bytes_of_any_array_are_put(self, store: Store) -> None:
        numbers = array("d", [1.0, 2.0])
        store.put("k", [memoryview(numbers)])
        assert bytes(store.get("k")) == numbers.tobytes()

    def test_keys_may_hold_spaces_and_letters_of_any_script(self, store: Store) -> None:
        store.put("wörker 0/ключ: 1", [b"."])
        assert store.list("wörker 0/") == ["wörker 0/ключ: 1"]
        assert bytes(store.get("wörker 0/ключ: 1")) == b"."

    def test_what_lies_above_objects_is_no_object(self, store: Store) -> None:
        store.put("a/b/k", [b"."])
        with pytest.raises(ObjectNotFound):
            store.get("a/b")
        with pytest.raises(ObjectNotFound):
            store.size("a/b")

    def test_keys_are_listed_in_order_below_a_prefix_and_after_a_key(self, store: Store) -> None:
        for key in ("w/10", "w/2", "w/1", "x/1", "w2/1"):
            store.put(key, [b"."])
        assert store.list() == ["w/1", "w/10", "w/2", "w2/1", "x/1"]
        assert store.list("w/") == ["w/1", "w/10", "w/2"]
        assert store.list("w") == ["w/1", "w/10", "w/2", "w2/1"]
        assert store.list("w/", after="w/1") == ["w/10", "w/2"]
        assert store.list("none/") == []

    def test_a_deleted_object_is_gone_and_deleting_again_is_no_error(self, store: Store) -> None:
        store.put("a/k", [b"."])
        store.delete("a/k")
        store.delete("a/k")
        store.delete("never/was/here")
        assert store.list() == []

    @pytest.mark.parametrize("key", ["", "/k", "../k", "a/../k", "a//b", "a/./b", "a\0b"])
    def test_a_key_cannot_leave_the_root(self, store: Store, key: str) -> None:
        with pytest.raises(SMDebugValueError):
            store.put(key, [b"."])
        with pytest.raises(SMDebugValueError):
            store.get(key)
        with pytest.raises(SMDebugValueError):
            store.delete(key)

    def test_many_buffers_and_large_ones_arrive_whole(self, store: Store) -> None:
        small = [bytes([i % 256]) * 3 for i in range(3000)]
        large = bytes(range(256)) * 20_000
        store.put("k", [*small, large])
        assert bytes(store.get("k")) == b"".join(small) + large

    def test_a_reader_never_sees_half_an_object(self, store: Store) -> None:
        contents = [bytes([i]) * 100_000 for i in range(20)]
        store.put("k", [contents[0]])
        seen: list[bytes] = []
        stop = threading.Event()

        def read() -> None:
            while not stop.is_set():
                seen.append(bytes(store.get("k")))

        reader = threading.Thread(target=read)
        reader.start()
        for content in contents:
            store.put("k", [content])
        stop.set()
        reader.join()
        assert all(content in contents for content in seen)
