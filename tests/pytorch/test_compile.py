"""torch.compile: unsaved steps run the compiled code untouched, saved ones run eagerly.

The backend is ``aot_eager``: inductor takes half a minute, and differs only after the graph.
"""

import logging

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn

from torch._dynamo.utils import counters  # noqa: E402

import tornasole.pytorch as smd  # noqa: E402

EVERY_THIRD = smd.SaveConfig(save_interval=3)


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.r, self.b = nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)

    def forward(self, x):
        return self.b(self.r(self.a(x)))


def make_net():
    torch.manual_seed(1)
    return Net()


def compiled_first(model, hook, **options):
    compiled = torch.compile(model, **options)
    if hook is not None:
        hook.register_module(compiled)
    return compiled


def registered_first(model, hook, **options):
    if hook is not None:
        hook.register_module(model)
    return torch.compile(model, **options)


def compiled_in_place_first(model, hook, **options):
    model.compile(**options)
    if hook is not None:
        hook.register_module(model)
    return model


def registered_first_then_in_place(model, hook, **options):
    if hook is not None:
        hook.register_module(model)
    model.compile(**options)
    return model


WAYS = [compiled_first, registered_first, compiled_in_place_first, registered_first_then_in_place]


def train(model, parameters, steps=7):
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(3, 4)).sum().backward()
        optimizer.step()


def run(way, hook, backend="aot_eager", fullgraph=True, steps=7):
    """Trains and returns what the compiler did and what came out."""
    torch._dynamo.reset()
    counters.clear()
    model = make_net()
    callable_model = way(model, hook, backend=backend, fullgraph=fullgraph)
    train(callable_model, list(model.parameters()), steps)
    if hook is not None:
        hook.close()
    did = {
        "graphs": counters["stats"]["unique_graphs"],
        "captured": counters["stats"]["calls_captured"],
        "breaks": dict(counters["graph_break"]),
        "recompiles": dict(counters["recompiles"]),
        "frames": counters["frames"]["ok"],
    }
    return did, {name: value.tolist() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_the_compiler_does_with_a_hook_what_it_does_without(new_hook, way, fullgraph):
    with_hook = run(way, new_hook(save_all=True, save_config=EVERY_THIRD), fullgraph=fullgraph)
    assert with_hook == run(way, None, fullgraph=fullgraph)
    assert with_hook[0]["graphs"] == 1


@pytest.mark.parametrize("way", WAYS)
def test_saved_steps_of_a_compiled_model_have_everything(new_hook, read, way):
    run(way, new_hook(save_all=True, save_config=EVERY_THIRD))
    trial = read()
    assert trial.steps() == [0, 3, 6]
    for name in (
        "Net_a.weight",
        "gradient/Net_a.weight",
        "a_output_0",
        "r_input_0",
        "Net_input_0",
        "Net_output_0",
    ):
        assert trial.tensor(name).steps() == [0, 3, 6]
    assert not [name for name in trial.tensor_names() if "_orig_mod" in name]


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_left_on_a_compiled_model(new_hook, way, attached):
    model = make_net()
    hook = new_hook(save_all=True)
    compiled = way(model, hook, backend="aot_eager")
    original = model._compiled_call_impl if way is registered_first_then_in_place else None
    train(compiled, list(model.parameters()), 2)
    hook.close()
    assert attached(model) == []
    if compiled is not model:
        assert not compiled._forward_pre_hooks
    if original is not None:
        assert model._compiled_call_impl is original
    train(compiled, list(model.parameters()), 2)
    assert hook.step == 1


def test_a_call_that_is_replaced_in_place_is_put_back(new_hook):
    model = make_net()
    model.compile(backend="aot_eager")
    original = model._compiled_call_impl
    hook = new_hook()
    hook.register_module(model)
    assert model._compiled_call_impl is not original
    hook.close()
    assert model._compiled_call_impl is original


def test_a_compiled_part_of_a_model_is_seen(new_hook, read):
    model = make_net()
    model.a = torch.compile(model.a, backend="aot_eager")
    hook = new_hook(save_all=True, save_config=EVERY_THIRD)
    hook.register_module(model)
    train(model, list(model.parameters()), 4)
    hook.close()
    trial = read()
    assert trial.tensor("a_output_0").steps() == [0, 3]
    assert trial.tensor("Net_a.weight").steps() == [0, 3]
    assert trial.tensor("gradient/Net_a.weight").steps() == [0, 3]


@pytest.mark.parametrize("way", [compiled_first, registered_first])
def test_a_compiled_loss_is_seen(new_hook, read, way):
    model, loss = make_net(), nn.MSELoss()
    hook = new_hook(save_config=EVERY_THIRD)
    hook.register_module(model)
    if way is compiled_first:
        compiled = torch.compile(loss, backend="aot_eager")
        hook.register_loss(compiled)
    else:
        hook.register_loss(loss)
        compiled = torch.compile(loss, backend="aot_eager")
    for _ in range(4):
        compiled(model(torch.randn(3, 4)), torch.zeros(3, 2)).backward()
    hook.close()
    assert read().tensor("MSELoss_output_0").steps() == [0, 3]


@pytest.mark.parametrize("way", WAYS)
def test_a_first_step_that_saves_nothing_is_no_trouble(new_hook, way):
    late = smd.SaveConfig(start_step=2, save_interval=2)
    with_hook = run(way, new_hook(save_all=True, save_config=late))
    assert with_hook == run(way, None)


@pytest.mark.parametrize("way", WAYS)
def test_a_fault_at_the_first_step_is_no_trouble(new_hook, monkeypatch, way):
    hook = new_hook(save_all=True, on_error="warn")
    monkeypatch.setattr(hook._recorder, "begin_step", lambda: 1 / 0)
    assert run(way, hook) == run(way, None)


@pytest.mark.parametrize("way", WAYS)
def test_a_hook_closed_during_a_call_is_no_trouble(new_hook, way):
    hook = new_hook(save_all=True)
    model = make_net()
    compiled = way(model, hook, backend="aot_eager", fullgraph=True)
    model.r.forward = lambda x: (hook.close(), torch.relu(x))[1]
    compiled(torch.randn(3, 4)).sum().backward()


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("start_step", [0, 2])
def test_a_model_within_a_compiled_function_is_said_to_be_out_of_sight(
    new_hook, warnings_of, fullgraph, start_step
):
    def weights(hook):
        torch.manual_seed(2)
        torch._dynamo.reset()
        model = make_net()
        if hook is not None:
            hook.register_module(model)

        @torch.compile(backend="aot_eager", fullgraph=fullgraph)
        def step(x):
            return model(x).sum()

        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(4):
            optimizer.zero_grad()
            step(torch.randn(3, 4)).backward()
            optimizer.step()
        return model.a.weight.tolist()

    config = smd.SaveConfig(save_interval=3, start_step=start_step)
    assert weights(new_hook(save_all=True, save_config=config)) == weights(None)
    assert any("within a compiled function" in message for message in warnings_of())


@pytest.mark.parametrize("in_place", [True, False])
def test_a_model_compiled_after_its_first_call_is_followed(
    new_hook, read, warnings_of, in_place, attached
):
    model = make_net()
    hook = new_hook(save_all=True, save_config=EVERY_THIRD)
    hook.register_module(model)
    model(torch.randn(3, 4))
    if in_place:
        model.compile(backend="aot_eager", fullgraph=True)
        compiled = model
    else:
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    train(compiled, list(model.parameters()), 6)
    assert hook.step == 6
    assert counters["stats"]["unique_graphs"] == 1
    assert any("compiled so late" in message for message in warnings_of())
    hook.close()
    assert read().tensor("a_output_0").steps() == [0, 3, 6]
    assert attached(model) == []


def test_a_second_model_compiled_after_registering_is_followed(new_hook):
    models = [make_net(), make_net()]
    hook = new_hook(save_all=True, save_config=smd.SaveConfig(start_step=100, save_interval=1))
    for model in models:
        hook.register_module(model)
    compiled = [torch.compile(model, backend="aot_eager") for model in models]
    for _ in range(3):
        for model in compiled:
            model(torch.randn(3, 4)).sum().backward()
    assert hook.step == 5


def test_a_registered_model_that_is_not_called_does_not_keep_compiled_code_from_running(
    new_hook, warnings_of
):
    model = make_net()
    hook = new_hook(save_all=True)
    hook.register_module(model)
    part = torch.compile(model.a, backend="aot_eager")
    train(part, list(model.a.parameters()), 3)
    assert counters["stats"]["unique_graphs"] == 1
    assert sum("Net" in message and "optimizer" in message for message in warnings_of()) == 1
    assert hook.step == -1


def test_nobody_listens_to_the_compiler_after_close(new_hook):
    before = len(torch._dynamo.callback.callback_handler.start_callbacks)
    hook = new_hook()
    hook.register_module(make_net())
    hook.close()
    assert len(torch._dynamo.callback.callback_handler.start_callbacks) == before


# -- the stance of the user ------------------------------------------------------------------------


def stance():
    return torch._dynamo.eval_frame._stance.stance


def test_a_stance_that_the_user_set_before_comes_back(new_hook, net):
    with torch.compiler.set_stance("eager_on_recompile"):
        hook = new_hook(save_all=True, save_config=EVERY_THIRD)
        hook.register_module(net)
        net(torch.randn(5, 4))
        net(torch.randn(5, 4))
        assert stance() == "eager_on_recompile"
        net(torch.randn(5, 4))
        net(torch.randn(5, 4))
        assert stance() == "force_eager"
        hook.close()
        assert stance() == "eager_on_recompile"


def test_a_stance_that_the_user_sets_during_a_saved_step_stays(new_hook, net):
    hook = new_hook(save_all=True, save_config=EVERY_THIRD)
    hook.register_module(net)
    net(torch.randn(5, 4))
    torch.compiler.set_stance("eager_on_recompile")
    net(torch.randn(5, 4))
    assert stance() == "eager_on_recompile"
    hook.close()
    assert stance() == "eager_on_recompile"
    torch.compiler.set_stance("default")


def test_a_block_of_the_user_that_begins_in_a_saved_step_does_not_bring_ours_back(new_hook, net):
    hook = new_hook(save_all=True, save_config=EVERY_THIRD)
    hook.register_module(net)
    net(torch.randn(5, 4))
    with torch.compiler.set_stance("eager_on_recompile"):
        for _ in range(4):
            net(torch.randn(5, 4))
        assert stance() == "eager_on_recompile"
    net(torch.randn(5, 4))
    assert stance() == "default"


def test_two_hooks_do_not_leave_each_others_stance_behind(new_hook, tmp_path):
    models = [make_net(), make_net()]
    hooks = [new_hook(tmp_path / name, save_all=True, save_config=EVERY_THIRD) for name in "ab"]
    for hook, model in zip(hooks, models, strict=True):
        hook.register_module(model)
    for _ in range(2):
        for model in models:
            model(torch.ones(1, 4))
    assert stance() == "default"
    for hook in hooks:
        hook.close()
    assert stance() == "default"


def test_nothing_is_logged_about_an_ordinary_compiled_model(new_hook, caplog):
    with caplog.at_level(logging.WARNING, "tornasole"):
        run(registered_first, new_hook(save_all=True, save_config=EVERY_THIRD))
    assert caplog.records == []
