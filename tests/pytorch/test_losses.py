"""Losses: of torch's modules, of one's own, and of functions."""

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn

from tornasole.errors import SMDebugTypeError, SMDebugValueError  # noqa: E402


class Mine(nn.Module):
    """A loss that derives from nothing but Module, and returns two."""

    def forward(self, *, prediction, target):
        error = prediction - target
        return {"mse": error.pow(2).mean(), "mae": error.abs().mean()}


@pytest.fixture
def model():
    return nn.Linear(2, 2)


def test_a_loss_of_ones_own_with_keywords_and_two_results(record, model):
    loss = Mine()

    def work(hook):
        prediction = model(torch.ones(3, 2))
        work.result = loss(prediction=prediction, target=torch.zeros(3, 2))

    trial = record(model, work, loss, save_all=False)
    assert trial.tensor_names(collection="losses") == ["Mine_output_0", "Mine_output_1"]
    assert trial.tensor("Mine_output_0").value(0) == work.result["mse"].item()
    assert trial.tensor("Mine_output_1").value(0) == work.result["mae"].item()


def test_a_loss_called_with_keywords_has_prediction_and_label(record, model):
    loss = nn.MSELoss()

    def work(hook):
        loss(input=model(torch.ones(3, 2)), target=torch.zeros(3, 2))

    trial = record(model, work, loss)
    assert trial.tensor_names(collection="predictions") == ["MSELoss_input_0"]
    assert trial.tensor_names(collection="labels") == ["MSELoss_input_1"]


def test_a_loss_called_twice_in_a_step_counts_on(record, model):
    loss = nn.MSELoss()

    def work(hook):
        output = model(torch.ones(3, 2))
        loss(output, output)
        loss(output, output + 2)

    trial = record(model, work, loss)
    assert trial.tensor("MSELoss_output_0").value(0) == 0
    assert trial.tensor("MSELoss_output_1").value(0) == 4


def test_an_unreduced_loss_is_saved_whole(record, model):
    loss = nn.MSELoss(reduction="none")
    trial = record(model, lambda hook: loss(model(torch.ones(3, 2)), torch.ones(3, 2)), loss)
    assert trial.tensor("MSELoss_output_0").value(0).shape == (3, 2)


def test_losses_are_whole_even_where_everything_else_is_reduced(record, model):
    import tornasole.pytorch as smd

    loss = nn.MSELoss(reduction="none")
    trial = record(
        model,
        lambda hook: loss(model(torch.ones(3, 2)), torch.ones(3, 2)),
        loss,
        save_all=False,
        reduction_config=smd.ReductionConfig(reductions=["mean"]),
    )
    assert trial.tensor("MSELoss_output_0").value(0).shape == (3, 2)


def test_a_loss_within_the_model_is_a_loss(record):
    class WithLoss(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.loss = nn.Linear(2, 2), nn.MSELoss()

        def forward(self, x, y):
            return self.loss(self.fc(x), y)

    model = WithLoss()
    trial = record(
        model, lambda hook: model(torch.ones(1, 2), torch.ones(1, 2)), model.loss, save_all=False
    )
    assert trial.tensor_names(collection="losses") == ["MSELoss_output_0"]


def test_the_loss_of_a_function_is_handed_over(record, model):
    def work(hook):
        for _ in range(2):
            loss = nn.functional.mse_loss(model(torch.ones(3, 2)), torch.zeros(3, 2))
            hook.record_tensor_value("mse_loss", loss)
            work.last = loss.item()

    trial = record(model, work, save_all=False)
    assert trial.tensor_names(collection="losses") == ["mse_loss_output_0"]
    assert trial.tensor("mse_loss_output_0").steps() == [0, 1]
    assert trial.tensor("mse_loss_output_0").value(1) == work.last


def test_the_loss_of_a_function_follows_the_schedule(record, model):
    import tornasole.pytorch as smd

    def work(hook):
        for _ in range(5):
            hook.record_tensor_value("l", model(torch.ones(3, 2)).sum())

    trial = record(model, work, save_all=False, save_config=smd.SaveConfig(save_interval=2))
    assert trial.tensor("l_output_0").steps() == [0, 2, 4]


@pytest.mark.parametrize("args", [(3, torch.ones(1)), ("l", 3.0), ("l", None)])
def test_only_a_named_tensor_can_be_handed_over(new_hook, args):
    with pytest.raises(SMDebugTypeError):
        new_hook().record_tensor_value(*args)


@pytest.mark.parametrize("bad", [nn.functional.mse_loss, None, nn.MSELoss, 3])
def test_only_a_module_can_be_registered_as_loss(new_hook, bad):
    with pytest.raises(SMDebugTypeError, match="record_tensor_value"):
        new_hook().register_loss(bad)


def test_a_loss_is_registered_once(new_hook):
    hook, loss = new_hook(), nn.MSELoss()
    hook.register_loss(loss)
    with pytest.raises(SMDebugValueError, match="MSELoss"):
        hook.register_loss(loss)


def test_a_registered_loss_is_known(new_hook):
    hook = new_hook()
    assert not hook.has_registered_loss_module
    hook.register_loss(nn.MSELoss())
    assert hook.has_registered_loss_module


def test_a_loss_before_the_first_step_is_no_trouble(new_hook, read, model):
    hook, loss = new_hook(), nn.MSELoss()
    hook.register_module(model)
    hook.register_loss(loss)
    loss(torch.ones(2), torch.ones(2))
    hook.record_tensor_value("l", torch.ones(()))
    hook.close()
    assert read().tensor_names() == []
