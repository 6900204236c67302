"""Nothing of ours stays on a net longer than needed, and a fault of ours stops no training."""

import copy

import numpy as np
import pytest

mx = pytest.importorskip("mxnet")

from mxnet import autograd, gluon  # noqa: E402

import tornasole.mxnet as smd  # noqa: E402
from tornasole.mxnet.adapter import BlockAdapter  # noqa: E402


@pytest.fixture(params=[False, True], ids=["plain", "hybridised"])
def net(new_net, request):
    return new_net(request.param)


@pytest.fixture
def loss():
    return gluon.loss.SoftmaxCrossEntropyLoss()


def test_on_a_step_that_saves_nothing_only_the_root_has_callbacks(new_hook, net, train, attached):
    hook = new_hook(save_all=True, save_config=smd.SaveConfig(save_interval=2))
    hook.register_block(net)
    train(net)
    assert "backward" in attached(net)
    train(net)
    assert attached(net) == ["net: _forward_pre_hooks", "net: _forward_hooks"]


def test_weights_alone_need_no_callbacks_on_inner_blocks(new_hook, net, train, attached):
    hook = new_hook(include_collections=["weights"])
    hook.register_block(net)
    train(net)
    assert {found.partition(":")[0] for found in attached(net)} == {"net"}


def test_after_close_nothing_is_left(new_hook, net, loss, train, attached):
    hook = new_hook(save_all=True)
    hook.register_block(net)
    hook.register_loss(loss)
    train(net, 2, loss)
    assert "backward" in attached(net, loss)
    hook.close()
    assert attached(net, loss) == []
    train(net, 2, loss)
    assert hook.step == 1


def test_a_hook_closed_in_the_middle_of_a_step_lets_go(new_hook, net, attached):
    hook = new_hook(save_all=True)
    hook.register_block(net)
    with autograd.record():
        value = net(mx.nd.ones((5, 4))).sum()
    hook.close()
    assert attached(net) == []
    value.backward()
    assert net[2].bias.grad().asnumpy().tolist() == [5, 5, 5]


def test_callbacks_of_the_user_stay(new_hook, net, train):
    calls = []
    net.register_forward_pre_hook(lambda *args: calls.append("before"))
    net.register_forward_hook(lambda *args: calls.append("after"))
    hook = new_hook(save_all=True)
    hook.register_block(net)
    train(net)
    hook.close()
    train(net)
    assert calls == ["before", "after"] * 2


def test_a_forward_of_the_users_own_on_the_net_stays(new_hook, new_net, train):
    net, calls = new_net(hybridised=True), []
    forward = net.forward

    def mine(*args):
        calls.append(len(args))
        return forward(*args)

    net.forward = mine
    hook = new_hook(save_all=True, save_config=smd.SaveConfig(save_interval=2))
    hook.register_block(net)
    train(net, 2)
    hook.close()
    assert calls == [1, 1]
    assert net.__dict__["forward"] is mine


def test_a_closed_hook_watches_nothing_more(new_hook, net, loss, attached):
    hook = new_hook()
    hook.close()
    hook.register_block(net)
    hook.register_loss(loss)
    assert attached(net, loss) == []


def test_a_callback_of_the_user_may_close_the_hook(new_hook, net, train, read):
    hook = new_hook(save_all=True)
    hook.register_block(net)
    net.register_forward_hook(lambda *args: hook.close())
    train(net, 2)
    assert hook.step == 0
    assert read().state == "finished"


def test_a_hook_closed_by_a_callback_does_nothing_any_more(new_hook, net, attached):
    hook = new_hook(save_all=True)
    hook.register_block(net)
    handle = net.register_forward_hook(lambda *args: hook.close())
    net(mx.nd.ones((5, 4)))
    handle.detach()
    net(mx.nd.ones((5, 4)))
    assert attached(net) == []


def test_a_second_hook_in_the_process_does_as_the_first(new_hook, tmp_path, new_net, train, read):
    net = new_net(hybridised=True)
    for name in ("first", "second"):
        with new_hook(tmp_path / name, save_all=True) as hook:
            hook.register_block(net)
            train(net, 2)
        assert read(tmp_path / name).tensor("net_dense0_output_0").steps() == [0, 1]


@pytest.mark.parametrize("interval", [1, 2])
def test_two_hooks_on_one_net_save_the_same(new_hook, tmp_path, net, train, read, interval):
    paths = [tmp_path / "1", tmp_path / "2"]
    config = smd.SaveConfig(save_interval=interval)
    hooks = [new_hook(path, save_all=True, save_config=config) for path in paths]
    for hook in hooks:
        hook.register_block(net)
    train(net, 3)
    for hook in hooks:
        hook.close()
    first, second = (read(path) for path in paths)
    assert first.steps() == second.steps()
    assert first.tensor_names() == second.tensor_names()
    np.testing.assert_array_equal(
        first.tensor("gradient/net_dense0_weight").value(2),
        second.tensor("gradient/net_dense0_weight").value(2),
    )


def test_two_hooks_on_one_net_leave_nothing(new_hook, tmp_path, net, train, attached):
    hooks = [new_hook(tmp_path / name, save_all=True) for name in ("1", "2")]
    for hook in hooks:
        hook.register_block(net)
    train(net)
    for hook in hooks:
        hook.close()
    assert attached(net) == []


# -- faults ----------------------------------------------------------------------------------------


def broken(*args):
    raise ValueError("a fault of ours")


CALLBACKS = [
    "_record_parameters", "_arm_inner", "_on_input", "_on_output", "_record_data", "_record_loss",
    "_record_gradients", "_await",
]  # fmt: skip


def final_weights(new_net, train, hook=None, hybridised=False):
    mx.random.seed(3)
    np.random.seed(3)
    net, loss = new_net(hybridised), gluon.loss.SoftmaxCrossEntropyLoss()
    if hook is not None:
        hook.register_block(net)
        hook.register_loss(loss)
    train(net, 4, loss)
    return {name: p.data().asnumpy().tolist() for name, p in net.collect_params().items()}


@pytest.mark.parametrize("callback", CALLBACKS)
def test_a_fault_in_a_callback_does_not_change_training(
    new_hook, new_net, train, monkeypatch, warnings_of, callback
):
    monkeypatch.setattr(BlockAdapter, callback, broken)
    with_fault = final_weights(new_net, train, new_hook(save_all=True, on_error="warn"))
    assert with_fault == final_weights(new_net, train)
    assert sum("a fault of ours" in message for message in warnings_of()) == 1


@pytest.mark.parametrize("callback", CALLBACKS)
def test_after_a_fault_the_hook_ends_and_nothing_is_left(
    new_hook, net, loss, train, monkeypatch, attached, read, callback
):
    hook = new_hook(save_all=True, on_error="warn")
    hook.register_block(net)
    hook.register_loss(loss)
    train(net, 1, loss)
    monkeypatch.setattr(BlockAdapter, callback, broken)
    train(net, 2, loss)
    assert "net: forward" not in attached(net)
    assert "backward" not in attached(net)
    hook.close()
    assert attached(net, loss) == []
    assert read().steps() == [0]
    assert read().state == "failed"


@pytest.mark.parametrize("callback", CALLBACKS)
def test_a_fault_in_a_callback_is_raised_if_asked_and_training_can_go_on(
    new_hook, net, loss, train, monkeypatch, attached, callback
):
    hook = new_hook(save_all=True, on_error="raise")
    hook.register_block(net)
    hook.register_loss(loss)
    monkeypatch.setattr(BlockAdapter, callback, broken)
    with pytest.raises(ValueError, match="a fault of ours"):
        train(net, 1, loss)
    train(net, 1, loss)
    hook.close()
    assert attached(net, loss) == []


def test_a_fault_of_one_hook_leaves_the_other_saving(
    new_hook, tmp_path, new_net, train, monkeypatch, read
):
    net = new_net()
    first = new_hook(tmp_path / "1", save_all=True, on_error="warn")
    second = new_hook(tmp_path / "2", save_all=True)
    for hook in (first, second):
        hook.register_block(net)
    monkeypatch.setattr(first._recorder, "record_many", broken)
    train(net, 3)
    second.close()
    trial = read(tmp_path / "2")
    assert trial.tensor("gradient/net_dense0_weight").steps() == [0, 1, 2]
    assert trial.tensor("net_dense0_output_0").steps() == [0, 1, 2]


def test_a_net_registered_after_a_fault_is_left_alone(new_hook, net, monkeypatch, attached):
    hook = new_hook(on_error="warn")
    monkeypatch.setattr(type(hook._recorder), "begin_step", broken)
    hook.begin_step()
    hook.register_block(net)
    assert attached(net) == []


# -- copies and files ------------------------------------------------------------------------------


def test_a_copy_of_a_watched_net_works_and_is_not_counted(new_hook, new_net):
    hook, net = new_hook(save_all=True), new_net()
    hook.register_block(net)
    twin = copy.deepcopy(net)
    twin(mx.nd.ones((5, 4)))
    assert hook.step == -1
    net(mx.nd.ones((5, 4)))
    assert hook.step == 0


def test_a_net_can_be_copied_during_a_step_that_is_saved(new_hook, new_net):
    hook, net = new_hook(save_all=True), new_net()
    hook.register_block(net)
    net(mx.nd.ones((5, 4)))
    twin = copy.deepcopy(net)
    twin(mx.nd.ones((5, 4)))
    assert hook.step == 0


def test_parameters_and_export_know_nothing_of_us(new_hook, new_net, tmp_path):
    net = new_net(hybridised=True)
    new_hook(include_collections=["weights"]).register_block(net)
    output = net(mx.nd.ones((5, 4))).asnumpy()
    net.save_parameters(str(tmp_path / "parameters"))
    twin = new_net()
    twin.load_parameters(str(tmp_path / "parameters"))
    np.testing.assert_allclose(twin(mx.nd.ones((5, 4))).asnumpy(), output, rtol=1e-6)
    net.export(str(tmp_path / "net"))
    assert (tmp_path / "net-symbol.json").exists()


def test_a_net_can_be_exported_after_steps_that_ran_it_un_hybridised(
    new_hook, new_net, train, tmp_path
):
    net = new_net(hybridised=True)
    hook = new_hook(save_all=True, save_config=smd.SaveConfig(save_interval=2))
    hook.register_block(net)
    train(net, 3)
    net.export(str(tmp_path / "net"))
    assert (tmp_path / "net-symbol.json").exists()


# -- other processes -------------------------------------------------------------------------------


class Rows(gluon.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return np.full(4, index, dtype="float32"), index % 3


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_workers_of_a_data_loader_write_nothing_and_do_not_hang(record, new_net, loss):
    net = new_net(hybridised=True)

    def work(hook):
        for _ in range(2):
            for x, y in gluon.data.DataLoader(Rows(), batch_size=2, num_workers=1):
                with autograd.record():
                    value = loss(net(x), y)
                value.backward()

    trial = record(net, work, loss)
    assert trial.steps() == list(range(8))
    assert trial.tensor("net_dense0_output_0").steps() == list(range(8))
    assert trial.workers() == ["worker_0"]
    assert trial.state == "finished"
