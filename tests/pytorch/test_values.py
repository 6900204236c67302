"""What is saved is what the framework computed, bit for bit, at the moment it is named after."""

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")
nn = torch.nn


def assert_same(trial, name, tensor, step=0):
    found = trial.tensor(name).value(step)
    assert found.shape == tuple(tensor.shape)
    np.testing.assert_array_equal(found, tensor.detach().numpy())


def test_weights_are_those_that_the_forward_pass_used(record, net, train):
    seen = []
    net.register_forward_pre_hook(
        lambda module, args: seen.append(copy.deepcopy(dict(module.named_parameters())))
    )
    trial = record(net, lambda hook: train(net, 3))
    for step, parameters in enumerate(seen):
        for path, parameter in parameters.items():
            assert_same(trial, f"Net_{path}", parameter, step)


def test_gradients_are_those_that_the_backward_pass_left(record, net, train):
    seen = []

    def after():
        seen.append({path: p.grad.clone() for path, p in net.named_parameters()})

    trial = record(net, lambda hook: train(net, 3, after=after))
    for step, gradients in enumerate(seen):
        for path, gradient in gradients.items():
            assert_same(trial, f"gradient/Net_{path}", gradient, step)


def test_losses_are_what_the_loss_returned(record, net, train):
    loss, seen = nn.CrossEntropyLoss(), []
    loss.register_forward_hook(lambda module, args, output: seen.append(output.item()))
    trial = record(net, lambda hook: train(net, 3, loss), loss)
    found = trial.tensor("CrossEntropyLoss_output_0")
    assert [found.value(step) for step in found.steps()] == seen


def test_buffers_are_those_that_the_forward_pass_found(record, net, train):
    seen = []
    net.register_forward_pre_hook(lambda module, args: seen.append(module.bn.running_mean.clone()))
    trial = record(net, lambda hook: train(net, 3))
    for step, mean in enumerate(seen):
        assert_same(trial, "Net_bn.running_mean", mean, step)
    assert trial.tensor("Net_bn.num_batches_tracked").value(2) == 2


def test_the_input_of_a_module_that_works_in_place_is_what_it_was_given(record):
    model = nn.Sequential(nn.ReLU(inplace=True))
    trial = record(model, lambda hook: model(torch.tensor([-1.0, 2.0])))
    assert trial.tensor("0_input_0").value(0).tolist() == [-1, 2]
    assert trial.tensor("Sequential_input_0").value(0).tolist() == [-1, 2]
    assert trial.tensor("0_output_0").value(0).tolist() == [0, 2]


def test_the_output_of_a_module_is_not_changed_by_one_that_works_in_place_after_it(record):
    model = nn.Sequential(nn.Identity(), nn.ReLU(inplace=True))
    trial = record(model, lambda hook: model(torch.tensor([-1.0, 2.0])))
    assert trial.tensor("0_output_0").value(0).tolist() == [-1, 2]


@pytest.mark.parametrize(
    ("make", "keys"),
    [
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), ["momentum_buffer"]),
        (lambda p: torch.optim.Adam(p, lr=0.1), ["exp_avg", "exp_avg_sq", "step"]),
        (lambda p: torch.optim.Adam(p, lr=0.1, foreach=False), ["exp_avg", "step"]),
        (lambda p: torch.optim.RMSprop(p, lr=0.1), ["square_avg"]),
    ],
)
def test_optimizer_variables_are_those_that_the_step_left(record, net, train, make, keys):
    optimizer, seen = make(net.parameters()), []

    def after():
        state = optimizer.state[net.fc1.weight]
        seen.append({key: state[key].clone() for key in keys})

    trial = record(net, lambda hook: train(net, 2, optimizer=optimizer, after=after))
    kind = type(optimizer).__name__
    for step, state in enumerate(seen):
        for key, value in state.items():
            assert_same(trial, f"optimizer/{kind}/Net_fc1.weight/{key}", value, step)
        assert trial.tensor(f"optimizer/{kind}/group_0/lr").value(step) == 0.1


def test_two_optimizers_of_one_class_keep_apart(record, net):
    first = torch.optim.SGD(net.fc1.parameters(), lr=0.1)
    second = torch.optim.SGD(net.fc2.parameters(), lr=0.2)

    def work(hook):
        for _ in range(2):
            net(torch.randn(5, 4)).sum().backward()
            first.step()
            second.step()

    trial = record(net, work)
    assert trial.tensor("optimizer/SGD/group_0/lr").value(1) == 0.1
    assert trial.tensor("optimizer/SGD_1/group_0/lr").value(1) == 0.2


def test_an_optimizer_of_somebody_else_is_not_saved(record, net):
    other = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1, momentum=0.9)

    def work(hook):
        net(torch.randn(5, 4))
        other(torch.ones(1, 2)).sum().backward()
        optimizer.step()

    assert record(net, work).tensor_names(collection="optimizer_variables") == []


def test_gradients_accumulate_as_they_do_in_grad(record, net):
    seen = []

    def work(hook):
        for _ in range(3):
            net(torch.randn(5, 4)).sum().backward()
            seen.append(net.fc1.weight.grad.clone())

    trial = record(net, work)
    for step, gradient in enumerate(seen):
        assert_same(trial, "gradient/Net_fc1.weight", gradient, step)


def test_of_two_backward_passes_in_a_step_the_last_one_counts(record, net):
    def work(hook):
        output = net(torch.randn(5, 4))
        output[0].sum().backward(retain_graph=True)
        output[1].sum().backward()

    trial = record(net, work)
    assert_same(trial, "gradient/Net_fc1.weight", net.fc1.weight.grad)


@pytest.mark.filterwarnings("ignore:Using backward.* with create_graph")
def test_a_backward_pass_that_keeps_its_graph_is_saved(record, net):
    def work(hook):
        net(torch.randn(5, 4)).pow(2).sum().backward(create_graph=True)
        penalty = sum(p.grad.pow(2).sum() for p in net.parameters())
        penalty.backward()

    trial = record(net, work)
    assert_same(trial, "gradient/Net_fc2.weight", net.fc2.weight.grad)
    net.zero_grad()


def test_gradients_taken_by_autograd_grad_are_not_in_grad_and_not_saved(record, net):
    def work(hook):
        torch.autograd.grad(net(torch.randn(5, 4)).sum(), list(net.parameters()))

    trial = record(net, work)
    assert trial.tensor_names(collection="gradients") == []
    assert "Net_output_0" in trial.tensor_names()


def test_a_frozen_parameter_is_saved_without_gradient(record, net, train):
    net.fc1.weight.requires_grad_(False)
    trial = record(net, lambda hook: train(net, 2))
    assert trial.tensor("Net_fc1.weight").steps() == [0, 1]
    assert "gradient/Net_fc1.weight" not in trial.tensor_names()
    assert trial.tensor("gradient/Net_fc1.bias").steps() == [0, 1]


def test_a_parameter_may_be_frozen_and_thawed_later(record, net, train):
    def work(hook):
        for frozen in (False, True, False):
            net.fc1.weight.requires_grad_(not frozen)
            net.zero_grad()
            train(net)

    trial = record(net, work)
    assert trial.tensor("gradient/Net_fc1.weight").steps() == [0, 2]


def test_a_parameter_that_the_loss_does_not_reach_has_no_gradient(record, net, train):
    net.unused = nn.Linear(2, 2)
    trial = record(net, lambda hook: train(net, 2))
    assert trial.tensor("Net_unused.weight").steps() == [0, 1]
    assert "gradient/Net_unused.weight" not in trial.tensor_names()


def test_a_layer_replaced_between_steps_is_followed(record, net, train):
    def work(hook):
        train(net)
        net.fc2 = nn.Linear(8, 2)
        train(net)

    trial = record(net, work)
    assert [trial.tensor("Net_fc2.weight").shape(step) for step in (0, 1)] == [(3, 8), (2, 8)]
    assert trial.tensor("gradient/Net_fc2.weight").shape(1) == (2, 8)
    assert trial.tensor("fc2_output_0").shape(1) == (5, 2)


def test_reductions_are_those_of_the_tensor(record, net, train):
    import tornasole.pytorch as smd

    weight = net.fc1.weight.detach().clone().double()
    reductions = smd.ReductionConfig(reductions=["min", "max", "mean", "std"], norms=["l1", "l2"])
    trial = record(net, lambda hook: train(net), reduction_config=reductions)
    found = trial.tensor("Net_fc1.weight")
    for name, value in {
        "min": weight.min(),
        "max": weight.max(),
        "mean": weight.mean(),
        "std": weight.std(correction=0),
        "l1": weight.norm(1),
        "l2": weight.norm(2),
    }.items():
        assert found.reduction_value(0, name) == pytest.approx(value.item(), rel=1e-6)


def test_eval_without_gradients_is_saved(record, net):
    import tornasole.pytorch as smd

    def work(hook):
        hook.set_mode(smd.modes.EVAL)
        with torch.no_grad():
            net(torch.randn(5, 4))
        with torch.inference_mode():
            net(torch.randn(5, 4))

    trial = record(net, work)
    assert trial.tensor("fc1_output_0").steps(mode=smd.modes.EVAL) == [0, 1]
    assert trial.tensor_names(collection="gradients") == []


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_saves_each_activation_once(record, reentrant):
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            return self.b(checkpoint(self.a, x, use_reentrant=reentrant))

    model = Checkpointed()
    trial = record(
        model, lambda hook: model(torch.randn(2, 4, requires_grad=True)).sum().backward()
    )
    assert trial.tensor_names(regex="^a_") == ["a_input_0", "a_output_0"]
    assert_same(trial, "gradient/Checkpointed_a.weight", model.a.weight.grad)


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpointed_model_does_not_step_when_it_is_computed_again(record, net, reentrant):
    from torch.utils.checkpoint import checkpoint

    def work(hook):
        for _ in range(2):
            net.zero_grad()
            x = torch.randn(5, 4, requires_grad=True)
            checkpoint(net, x, use_reentrant=reentrant).sum().backward()
        assert hook.step == 1

    trial = record(net, work)
    assert_same(trial, "gradient/Net_fc1.weight", net.fc1.weight.grad, 1)


def test_embeddings_with_sparse_gradients_are_saved_dense(record):
    model = nn.Embedding(10, 3, sparse=True)
    trial = record(model, lambda hook: model(torch.tensor([1, 1, 4])).sum().backward())
    assert_same(trial, "gradient/Embedding_weight", model.weight.grad.to_dense())


def test_steps_between_saved_ones_save_nothing(record, net, train):
    import tornasole.pytorch as smd

    config = smd.SaveConfig(save_interval=3)
    trial = record(net, lambda hook: train(net, 7), save_config=config)
    assert trial.steps() == [0, 3, 6]
    assert trial.tensor("gradient/Net_fc1.weight").steps() == [0, 3, 6]
    assert trial.tensor("fc1_output_0").steps() == [0, 3, 6]
