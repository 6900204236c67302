"""Raw values wait in a queue bounded in bytes; what a full one does is the user's choice."""

import json
import threading

import numpy as np
import pytest

from tornasole.capture.buffers import BufferPool
from tornasole.errors import TensorUnavailableForStep
from tornasole.store.local import LocalStore

BLOCK = 16 << 20
PATIENCE = 30


@pytest.fixture
def slow_disk(monkeypatch):
    """A disk that writes segments only once told to; ``asked`` is set when it is to write one."""
    go = threading.Event()
    go.asked = threading.Event()
    put = LocalStore.put

    def slow(store, key, data, **options):
        if key.endswith(".safetensors"):
            go.asked.set()
            assert go.wait(PATIENCE)
        put(store, key, data, **options)

    monkeypatch.setattr(LocalStore, "put", slow)
    yield go
    go.set()


def test_a_full_queue_drops_raw_values_if_asked_and_says_so(
    new_hook, slow_disk, read, caplog, out_dir
):
    hook = new_hook(when_full="drop", queue_bytes=100)
    for step in range(3):
        hook.begin_step()
        hook.save_tensor("x", np.full(10, step))
        hook.save_scalar("s", step)
    slow_disk.set()
    hook.close()
    trial = read()
    assert trial.tensor("x").value(0).tolist() == [0] * 10
    with pytest.raises(TensorUnavailableForStep, match="dropped"):
        trial.tensor("x").value(2)
    assert trial.tensor("scalar/s").value(2) == 2
    assert "queue is full" in caplog.text
    end = json.loads((out_dir / "worker_0/end.json").read_text())
    assert end["lost"] == {"raw_values_dropped": 2}


def test_a_full_queue_makes_training_wait_and_loses_nothing(new_hook, slow_disk, read):
    hook = new_hook(when_full="wait", queue_bytes=100)

    saved = []

    def train():
        for step in range(4):
            hook.begin_step()
            hook.save_tensor("x", np.full(10, step))
            saved.append(step)

    training = threading.Thread(target=train)
    training.start()
    assert slow_disk.asked.wait(PATIENCE)
    assert saved == [0]  # the memory of step 0 is not given back before it is written
    slow_disk.set()
    training.join(PATIENCE)
    assert not training.is_alive()
    hook.close()
    assert [read().tensor("x").value(step)[0] for step in range(4)] == [0, 1, 2, 3]


def test_training_does_not_wait_for_a_writer_that_has_died(new_hook, full_disk):
    hook = new_hook(when_full="wait", queue_bytes=BLOCK, on_error="warn")
    full_disk(".safetensors")

    def train():
        for _ in range(8):
            hook.begin_step()
            hook.save_tensor("x", np.ones(BLOCK // 8))

    training = threading.Thread(target=train, daemon=True)
    training.start()
    training.join(PATIENCE)
    assert not training.is_alive()


def test_one_step_may_be_larger_than_the_queue(new_hook, read):
    hook = new_hook(queue_bytes=1000)
    hook.begin_step()
    for name in "abc":
        hook.save_tensor(name, np.ones(BLOCK // 8))
    hook.close()
    assert read().tensor("c").value(0).sum() == BLOCK // 8


def test_what_is_copied_stays_while_later_steps_are_copied(new_hook, slow_disk, read):
    hook = new_hook()
    for step in range(5):
        hook.begin_step()
        hook.save_tensor("x", np.full(1000, step))
    slow_disk.set()
    hook.close()
    assert [read().tensor("x").value(step).tolist() for step in range(5)] == [
        [step] * 1000 for step in range(5)
    ]


# -- the pool by itself ----------------------------------------------------------------------------


def test_pieces_of_a_lease_do_not_overlap():
    lease = BufferPool(BLOCK, "wait", lambda: None).lease()
    pieces = [lease.take(size) for size in (3, 0, 64, 100)]
    for number, piece in enumerate(pieces):
        piece[:] = number
    assert [sorted(set(piece.tolist())) for piece in pieces] == [[0], [], [2], [3]]


def test_memory_given_back_is_used_again():
    pool = BufferPool(BLOCK, "wait", lambda: None)
    first = pool.lease()
    address = first.take(10).__array_interface__["data"]
    first.release()
    assert pool.lease().take(10).__array_interface__["data"] == address


def test_small_values_take_little_of_the_queue(new_hook, slow_disk, read):
    hook = new_hook(when_full="drop", queue_bytes=1 << 20)
    for step in range(300):
        hook.begin_step()
        hook.save_tensor("x", np.full(10, step))
    slow_disk.set()
    hook.close()
    assert len(read().tensor("x").values()) == 300


def test_free_memory_of_other_sizes_does_not_add_to_the_limit():
    pool = BufferPool(1000, "drop", lambda: None)
    for size in range(1, 900):
        lease = pool.lease()
        lease.take(size)
        lease.release()
    assert pool._lent == 0
    assert pool._free_bytes <= 1000


def test_giving_back_twice_gives_back_once():
    pool = BufferPool(15, "drop", lambda: None)
    lease, other = pool.lease(), pool.lease()
    lease.take(10)
    lease.release()
    lease.release()
    assert other.take(10) is not None
    assert pool.lease().take(10) is None


def test_a_lease_gets_none_when_the_pool_is_full_and_drops():
    pool = BufferPool(15, "drop", lambda: None)
    lease = pool.lease()
    assert lease.take(10) is not None
    assert pool.lease().take(10) is None
    lease.release()
    assert pool.lease().take(10) is not None


def test_whoever_waits_hurries_the_writer_without_holding_the_lock_of_the_pool():
    """The writer gives memory back while it holds its own lock: else a deadlock."""
    leases = []

    def hurry():
        giver = threading.Thread(target=leases[0].release)
        giver.start()
        giver.join(PATIENCE)
        assert not giver.is_alive()

    pool = BufferPool(15, "wait", hurry)
    leases.append(pool.lease())
    leases[0].take(10)
    assert pool.lease().take(10) is not None
