"""Models of every make: several at once, shared parts, tied weights."""

import threading

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn

import tornasole.pytorch as smd  # noqa: E402
from tornasole.errors import SMDebugTypeError, SMDebugValueError  # noqa: E402


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Linear(2, 4)

    def forward(self, z):
        return self.main(z)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Linear(4, 1)

    def forward(self, x):
        return self.main(x)


def test_two_models_of_a_gan_are_saved_side_by_side(new_hook, read):
    generator, discriminator = Generator(), Discriminator()
    loss = nn.BCEWithLogitsLoss()
    g_step = torch.optim.SGD(generator.parameters(), lr=0.1)
    d_step = torch.optim.SGD(discriminator.parameters(), lr=0.1)
    hook = new_hook(save_all=True)
    for module in (generator, discriminator):
        hook.register_module(module)
    hook.register_loss(loss)
    for _ in range(2):
        fake = generator(torch.randn(3, 2))
        d_step.zero_grad()
        loss(discriminator(fake.detach()), torch.zeros(3, 1)).backward()
        d_step.step()
        g_step.zero_grad()
        loss(discriminator(fake), torch.ones(3, 1)).backward()
        g_step.step()
    assert hook.step == 5
    hook.close()
    trial = read()
    assert trial.tensor("Generator_main.weight").steps() == [0, 1, 2, 3, 4, 5]
    assert trial.tensor("main_output_0").steps() == [0, 3]
    assert trial.tensor("Discriminator.main_output_0").steps() == [1, 2, 4, 5]
    assert trial.tensor("gradient/Generator_main.weight").steps() == [2, 5]
    assert trial.tensor("gradient/Discriminator_main.weight").steps() == [1, 2, 4, 5]
    assert trial.tensor("gradient/Generator_main.weight").value(5).tolist() == (
        generator.main.weight.grad.tolist()
    )
    assert trial.tensor("BCEWithLogitsLoss_output_0").steps() == [1, 2, 4, 5]


def test_two_models_of_one_class_keep_their_names_apart(new_hook, read):
    first, second, third = nn.Linear(2, 2), nn.Linear(3, 3), nn.Linear(4, 4)
    hook = new_hook(save_all=True)
    for module in (first, second, third):
        hook.register_module(module)
    for module in (first, second, third):
        module(torch.ones(1, module.in_features)).sum().backward()
    hook.close()
    trial = read()
    for step, name in enumerate(["Linear", "Linear_1", "Linear_2"]):
        assert trial.tensor(f"{name}_weight").shape(0) == (step + 2, step + 2)
        assert trial.tensor(f"{name}_output_0").steps() == [step]
        assert trial.tensor(f"gradient/{name}_weight").steps() == [step]


def test_a_module_used_in_two_places_has_one_name(record):
    shared = nn.Linear(2, 2)
    model = nn.Sequential(shared, nn.ReLU(), shared)
    trial = record(model, lambda hook: model(torch.ones(1, 2)).sum().backward())
    assert trial.tensor_names(regex="^0_output") == ["0_output_0", "0_output_1"]
    assert trial.tensor_names(regex="^2_") == []
    found = trial.tensor("gradient/Sequential_0.weight").value(0)
    assert found.tolist() == shared.weight.grad.tolist()


def test_tied_weights_are_saved_once(record):
    model = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5, bias=False))
    model[1].weight = model[0].weight
    trial = record(model, lambda hook: model(torch.tensor([1, 2])).sum().backward())
    assert trial.tensor_names(collection="weights") == ["Sequential_0.weight"]
    found = trial.tensor("gradient/Sequential_0.weight").value(0)
    assert found.tolist() == model[0].weight.grad.tolist()


def test_two_models_may_share_a_part(new_hook, read):
    part = nn.Linear(2, 2)
    first, second = nn.Sequential(part), nn.ModuleDict({"part": part})
    second.forward = lambda x: part(x)
    hook = new_hook(save_all=True)
    hook.register_module(first)
    hook.register_module(second)
    first(torch.ones(1, 2)).sum().backward()
    hook.close()
    assert {"Sequential_0.weight", "ModuleDict_part.weight"} <= set(read().tensor_names())


@pytest.mark.parametrize("bad", [None, 3, nn.Linear, lambda x: x])
def test_only_a_module_can_be_registered(new_hook, bad):
    with pytest.raises(SMDebugTypeError, match="register_module"):
        new_hook().register_module(bad)


def test_a_model_is_registered_once(new_hook, net):
    hook = new_hook()
    hook.register_module(net)
    for again in (net, net.fc1, nn.Sequential(net)):
        with pytest.raises(SMDebugValueError, match="registered already"):
            hook.register_module(again)


def test_register_hook_is_the_older_name(new_hook, net):
    hook = new_hook()
    assert not hook.has_registered_module
    hook.register_hook(net)
    assert hook.has_registered_module


def test_parameters_that_training_changes_are_counted(new_hook):
    model = nn.Linear(3, 2)
    model.bias.requires_grad_(False)
    assert new_hook().count_parameters(model) == 6


def test_two_hooks_watch_two_models(new_hook, read, tmp_path):
    models = {"a": nn.Linear(2, 2), "b": nn.Linear(3, 3)}
    hooks = {name: new_hook(tmp_path / name, save_all=True) for name in models}
    for name, hook in hooks.items():
        hook.register_module(models[name])
    for _ in range(2):
        for model in models.values():
            model(torch.ones(1, model.in_features)).sum().backward()
    for hook in hooks.values():
        hook.close()
    for name, model in models.items():
        trial = read(tmp_path / name)
        assert trial.steps() == [0, 1]
        assert trial.tensor("Linear_weight").shape(1) == tuple(model.weight.shape)
        assert trial.tensor("gradient/Linear_weight").steps() == [0, 1]


def test_two_hooks_may_watch_one_model(new_hook, read, tmp_path, net, train):
    hooks = [new_hook(tmp_path / name, save_all=True) for name in "ab"]
    for hook in hooks:
        hook.register_module(net)
    train(net, 2)
    for hook in hooks:
        hook.close()
    assert read(tmp_path / "a").tensor_names() == read(tmp_path / "b").tensor_names()


# -- several calls before one backward pass --------------------------------------------------------


def contrast(model, loss, steps=6):
    for _ in range(steps):
        loss(model(torch.ones(2, 4)), model(-torch.ones(2, 4))).backward()


def test_losses_and_gradients_that_come_after_a_second_call_are_those_of_the_due_step(
    new_hook, read
):
    model, loss = nn.Linear(4, 3), nn.MSELoss()
    hook = new_hook(
        include_collections=["weights", "gradients"], save_config=smd.SaveConfig(save_interval=4)
    )
    hook.register_module(model)
    hook.register_loss(loss)
    contrast(model, loss)
    hook.close()
    trial = read()
    assert trial.steps() == [0, 4, 8]
    for name in ("Linear_weight", "gradient/Linear_weight", "MSELoss_output_0"):
        assert trial.tensor(name).steps() == [0, 4, 8]


def test_steps_stay_in_order_while_one_lingers(new_hook, read):
    model, loss = nn.Linear(4, 3), nn.MSELoss()
    hook = new_hook(save_config=smd.SaveConfig(save_interval=100))
    hook.register_module(model)
    hook.register_loss(loss)
    outputs = []
    for number in range(4):
        outputs.append(model(torch.ones(2, 4)))
        hook.save_scalar("number", number)
    loss(outputs[0], outputs[3])
    hook.close()
    trial = read()
    assert trial.steps() == [0, 1, 2, 3]
    assert trial.tensor("MSELoss_output_0").steps() == [0]


def test_a_lingering_step_that_fills_the_queue_does_not_stop_training(new_hook, read):
    model, loss = nn.Linear(4, 3), nn.MSELoss()
    hook = new_hook(
        include_collections=["weights", "gradients"],
        save_config=smd.SaveConfig(save_interval=100),
        queue_bytes=10,
    )
    hook.register_module(model)
    hook.register_loss(loss)

    def train():
        outputs = []
        for _ in range(3):
            outputs.append(model(torch.ones(2, 4)))
            hook.save_tensor("mine", torch.ones(100))
        loss(outputs[0], outputs[2]).backward()

    training = threading.Thread(target=train, daemon=True)
    training.start()
    training.join(30)
    assert not training.is_alive()
    hook.close()
    assert read().tensor("mine").steps() == [0, 1, 2]
    assert read().tensor("Linear_weight").steps() == [0]


def test_a_due_step_whose_backward_pass_never_comes_is_saved_all_the_same(new_hook, read):
    model = nn.Linear(4, 3)
    hook = new_hook(
        include_collections=["weights", "gradients"], save_config=smd.SaveConfig(save_interval=100)
    )
    hook.register_module(model)
    for _ in range(50):
        model(torch.ones(2, 4))
    assert not hook._recorder.lingering
    hook.close()
    assert read().steps() == [0]


def evaluate_between(model, loss, loss_first, steps=4):
    """A call without gradients, and its loss, between a call and its backward pass."""
    losses = []
    for number in range(steps):
        output = model(torch.full((2, 4), number + 1.0))
        value = loss(output, torch.zeros(2, 3)) if loss_first else None
        with torch.no_grad():
            loss(model(torch.ones(2, 4)), 100 * torch.ones(2, 3))
        if not loss_first:
            value = loss(output, torch.zeros(2, 3))
        model.zero_grad()
        value.backward()
        losses.append((value.item(), model.weight.grad.clone()))
    return losses


@pytest.mark.parametrize("loss_first", [True, False])
@pytest.mark.parametrize("interval", [1, 2, 4])
def test_a_call_without_gradients_in_between_takes_nothing_from_the_step_before(
    new_hook, read, interval, loss_first
):
    model, loss = nn.Linear(4, 3), nn.MSELoss()
    hook = new_hook(
        include_collections=["gradients"], save_config=smd.SaveConfig(save_interval=interval)
    )
    hook.register_module(model)
    hook.register_loss(loss)
    expected = evaluate_between(model, loss, loss_first)
    hook.close()
    trial = read()
    gradient, output = trial.tensor("gradient/Linear_weight"), trial.tensor("MSELoss_output_0")
    trained = [step for step in range(0, 8, interval) if step % 2 == 0]
    assert gradient.steps() == trained
    for step in trained:
        value, weight = expected[step // 2]
        assert output.value(step) == pytest.approx(value)
        assert (gradient.value(step) == weight.numpy()).all()
    assert "MSELoss_output_1" not in trial.tensor_names()
    if interval == 1:
        assert output.steps() == list(range(8))


def test_a_due_call_without_gradients_takes_none_of_a_step_that_is_not_due(new_hook, read):
    model = nn.Linear(4, 3)
    hook = new_hook(
        include_collections=["gradients", "weights"],
        save_config=smd.SaveConfig(save_steps=[1], save_interval=100, start_step=1),
    )
    hook.register_module(model)
    output = model(torch.ones(2, 4))
    with torch.no_grad():
        model(torch.ones(2, 4))
    output.sum().backward()
    hook.close()
    assert read().tensor_names() == ["Linear_weight"]


def test_a_batch_that_is_skipped_does_not_get_the_gradients_of_the_next(new_hook, read):
    model, loss = nn.Linear(4, 3), nn.MSELoss()
    hook = new_hook(include_collections=["gradients"], save_config=smd.SaveConfig(save_interval=2))
    hook.register_module(model)
    hook.register_loss(loss)
    for number in range(4):
        value = loss(model(torch.full((2, 4), number + 1.0)), torch.zeros(2, 3))
        if number != 0:
            value.backward()
    hook.close()
    trial = read()
    assert trial.tensor("gradient/Linear_weight").steps() == [2]
    assert trial.tensor("MSELoss_output_0").steps() == [0, 2]


def test_a_model_without_anything_to_train_does_not_linger(new_hook):
    model = nn.Linear(4, 3).requires_grad_(False)
    hook = new_hook(
        include_collections=["gradients", "weights"],
        save_config=smd.SaveConfig(save_interval=100),
    )
    hook.register_module(model)
    for _ in range(2):
        model(torch.ones(2, 4))
    assert not hook._recorder.lingering


def test_optimizer_variables_of_a_step_come_after_another_call(new_hook, read):
    model = nn.Linear(4, 3)
    optimizer = torch.optim.Adam(model.parameters())
    hook = new_hook(
        include_collections=["optimizer_variables"],
        save_config=smd.SaveConfig(save_interval=100),
    )
    hook.register_module(model)
    model(torch.ones(2, 4)).sum().backward()
    with torch.no_grad():
        model(torch.ones(2, 4))
    optimizer.step()
    hook.close()
    assert read().tensor("optimizer/Adam/Linear_weight/exp_avg").steps() == [0]


def test_an_object_that_holds_itself_is_walked_once(record):
    class Model(nn.Module):
        def forward(self, x):
            nest = {"x": x * 2}
            nest["self"] = nest
            return nest

    model = Model()
    trial = record(model, lambda hook: model(torch.ones(2)))
    assert trial.tensor("Model_output_0").value(0).tolist() == [2, 2]


def test_tracing_a_model_is_no_step(record, net):
    def work(hook):
        net(torch.randn(5, 4))
        torch.jit.trace(net, torch.randn(5, 4), check_trace=False)
        net(torch.randn(5, 4))

    assert record(net, work).steps() == [0, 1]


def test_a_gradient_that_is_gone_when_the_backward_pass_ends_is_noted(record, net, caplog):
    def free(parameter):
        parameter.grad = None

    net.fc1.weight.register_post_accumulate_grad_hook(free)
    trial = record(net, lambda hook: net(torch.randn(5, 4)).sum().backward())
    assert not trial.has_tensor("gradient/Net_fc1.weight")
    assert "gradient/Net_fc1.weight" in caplog.text
