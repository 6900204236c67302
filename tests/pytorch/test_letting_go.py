"""Nothing of ours stays on a model longer than needed, and training computes the same."""

import copy
import io
import json
import pickle

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn

import tornasole.pytorch as smd  # noqa: E402


def test_on_a_step_that_saves_nothing_the_model_carries_one_callback(
    new_hook, net, train, attached
):
    hook = new_hook(save_all=True, save_config=smd.SaveConfig(save_interval=2))
    hook.register_module(net)
    train(net)
    assert len(attached(net)) > 10
    train(net)
    assert attached(net) == [": _forward_pre_hooks"]


def test_weights_alone_need_no_callbacks_on_modules(new_hook, net, train, attached):
    hook = new_hook(include_collections=["weights"])
    hook.register_module(net)
    train(net)
    assert attached(net) == [": _forward_pre_hooks"]


def test_after_close_nothing_is_left(new_hook, net, train, attached):
    hook, loss = new_hook(save_all=True), nn.CrossEntropyLoss()
    hook.register_module(net)
    hook.register_loss(loss)
    train(net, 2, loss)
    hook.close()
    assert attached(net, loss) == []
    train(net, 2, loss)
    assert hook.step == 1


def test_a_hook_closed_in_the_middle_of_a_step_lets_go(new_hook, net, attached):
    hook = new_hook(save_all=True)
    hook.register_module(net)
    output = net(torch.randn(5, 4))
    hook.close()
    output.sum().backward()
    assert attached(net) == []


def test_callbacks_of_the_user_stay(new_hook, net, train):
    calls = []
    net.fc1.register_forward_hook(lambda *args: calls.append("forward"))
    net.fc1.weight.register_hook(lambda gradient: calls.append("gradient"))
    hook = new_hook(save_all=True)
    hook.register_module(net)
    train(net)
    hook.close()
    train(net)
    assert calls == ["forward", "gradient"] * 2


def test_a_closed_hook_watches_nothing_more(new_hook, net, attached):
    hook = new_hook()
    hook.close()
    hook.register_module(net)
    hook.register_loss(nn.MSELoss())
    assert attached(net) == []


# -- training is unchanged -------------------------------------------------------------------------


def final_weights(train, hook=None):
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.BatchNorm1d(8), nn.Linear(8, 3))
    loss, optimizer = nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters())
    if hook is not None:
        hook.register_module(model)
        hook.register_loss(loss)
    train(model, 5, loss, optimizer)
    return {name: value.tolist() for name, value in model.state_dict().items()}


@pytest.mark.parametrize(
    "reductions", [None, smd.ReductionConfig(reductions=["min", "std"], norms=["l2"])]
)
def test_training_computes_the_same_with_and_without_a_hook(new_hook, train, reductions):
    hook = new_hook(save_all=True, reduction_config=reductions)
    assert final_weights(train, hook) == final_weights(train)


# -- faults ----------------------------------------------------------------------------------------


def broken(*args, **kwargs):
    raise ValueError("a fault of ours")


@pytest.mark.parametrize("method", ["begin_step", "record_many", "wants_role"])
def test_a_fault_of_ours_does_not_change_training(
    new_hook, train, monkeypatch, warnings_of, method
):
    hook = new_hook(save_all=True, on_error="warn")
    monkeypatch.setattr(type(hook._recorder), method, broken)
    with_fault = final_weights(train, hook)
    monkeypatch.undo()
    assert with_fault == final_weights(train)
    assert sum("a fault of ours" in message for message in warnings_of()) == 1


def test_after_a_fault_nothing_is_left_on_the_model(new_hook, net, train, monkeypatch, attached):
    hook = new_hook(save_all=True, on_error="warn")
    hook.register_module(net)
    monkeypatch.setattr(type(hook._recorder), "record_many", broken)
    train(net)
    assert attached(net) == []


def test_a_fault_during_a_step_of_an_optimizer_does_not_change_training(
    new_hook, tmp_path, train, monkeypatch, warnings_of
):
    """torch goes through all callbacks of optimizers, and none may disappear meanwhile."""
    first = new_hook(include_collections=["optimizer_variables"], on_error="warn")
    model = nn.Linear(4, 3)
    first.register_module(model)
    second = new_hook(tmp_path / "2", include_collections=["optimizer_variables"])
    second.register_module(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(1, 4)).sum().backward()
    monkeypatch.setattr(first._recorder, "record_many", broken)
    optimizer.step()
    assert any("a fault of ours" in message for message in warnings_of())
    train(model, 1, optimizer=optimizer)
    second.close()
    assert second.step == 1


def test_a_fault_during_backward_is_raised_if_asked(new_hook, net, monkeypatch):
    hook = new_hook(include_collections=["gradients"])
    hook.register_module(net)
    output = net(torch.randn(5, 4)).sum()
    monkeypatch.setattr(type(hook._recorder), "record_many", broken)
    with pytest.raises(ValueError, match="a fault of ours"):
        output.backward()


def wait_for_the_writer(hook):
    hook._writer.hurry()
    hook._thread.join(30)


def test_a_full_disk_lets_training_go_on_without_us(
    new_hook, net, train, full_disk, attached, warnings_of, out_dir
):
    hook = new_hook(save_all=True, on_error="warn")
    hook.register_module(net)
    full_disk()
    train(net, 2)
    wait_for_the_writer(hook)
    train(net, 2)
    assert attached(net) == []
    hook.close()
    assert any("No space left" in message for message in warnings_of())
    assert "No space left" in json.loads((out_dir / "worker_0/end.json").read_text())["reason"]


def test_a_full_disk_is_raised_into_training_if_asked(new_hook, net, train, full_disk):
    hook = new_hook(save_all=True, on_error="raise")
    hook.register_module(net)
    full_disk()
    train(net, 2)
    wait_for_the_writer(hook)
    with pytest.raises(OSError, match="No space left"):
        train(net)
    train(net)


def test_a_model_registered_after_a_fault_is_left_alone(
    new_hook, net, train, monkeypatch, attached
):
    hook = new_hook(on_error="warn")
    monkeypatch.setattr(type(hook._recorder), "begin_step", broken)
    hook.begin_step()
    hook.register_module(net)
    assert attached(net) == []


# -- copies ----------------------------------------------------------------------------------------


class Holder(nn.Module):
    """A model that keeps its hook, as some do."""

    def __init__(self, hook):
        super().__init__()
        self.fc, self.hook = nn.Linear(2, 2), hook

    def forward(self, x):
        self.hook.save_scalar("x", x.sum())
        return self.fc(x)


def through_torch_save(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize(
    "duplicate",
    [copy.deepcopy, through_torch_save, lambda model: pickle.loads(pickle.dumps(model))],
    ids=["deepcopy", "torch.save", "pickle"],
)
@pytest.mark.parametrize("armed", [True, False])
def test_a_copy_of_a_watched_model_works_and_is_not_counted(new_hook, duplicate, armed):
    hook = new_hook(save_all=True)
    model = Holder(hook)
    hook.register_module(model)
    if armed:
        model(torch.ones(1, 2))
    before = hook.step
    twin = duplicate(model)
    twin(torch.ones(1, 2)).sum().backward()
    assert hook.step == before
    assert torch.equal(twin.fc.weight, model.fc.weight)
    model(torch.ones(1, 2))
    assert hook.step == before + 1


def test_a_state_dict_knows_nothing_of_us(new_hook, net):
    keys = list(net.state_dict())
    new_hook(save_all=True).register_module(net)
    net(torch.randn(5, 4))
    assert list(net.state_dict()) == keys


# -- other processes -------------------------------------------------------------------------------


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.full((4,), float(index)), index % 3


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_workers_of_a_data_loader_write_nothing_and_do_not_hang(record, net):
    loss = nn.CrossEntropyLoss()
    loader = torch.utils.data.DataLoader(
        Rows(), batch_size=2, num_workers=2, multiprocessing_context="fork"
    )

    def work(hook):
        for _ in range(2):
            for x, y in loader:
                loss(net(x), y).backward()

    trial = record(net, work, loss, save_all=False)
    assert trial.steps() == list(range(8))
    assert trial.workers() == ["worker_0"]
    assert trial.state == "finished"
