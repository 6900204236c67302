"""when_nan with a real model: the step at which the loss is NaN is saved, and no other."""

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn

import tornasole.pytorch as smd  # noqa: E402

NEVER = 10**9


@pytest.fixture
def run(record):
    def training(bad_step=None, **options):
        model, loss = nn.Linear(2, 2), nn.MSELoss()

        def work(hook):
            for step in range(5):
                x = torch.full((3, 2), float("nan") if step == bad_step else 1.0)
                loss(model(x), torch.zeros(3, 2)).backward()

        return record(model, work, loss, **{"save_all": False, **options})

    return training


def watch(pattern, **options):
    return smd.SaveConfig(**{"start_step": NEVER, "when_nan": [pattern], **options})


def test_nothing_is_saved_while_all_is_finite(run):
    assert run(save_all=True, save_config=watch("Loss_output")).steps() == []


def test_everything_included_is_saved_where_the_loss_is_nan(run):
    trial = run(3, save_all=True, save_config=watch("Loss_output"))
    assert trial.tensor("Linear_weight").steps() == [3]
    assert trial.tensor("Linear_output_0").steps() == [3]
    assert trial.tensor("MSELoss_output_0").steps() == [3]
    assert 3 in trial.tensor("gradient/Linear_weight").steps()


def test_what_is_watched_but_not_included_is_not_saved(run):
    trial = run(3, include_collections=["weights"], save_config=watch("Linear_output"))
    assert trial.tensor("Linear_weight").steps() == [3]
    assert "Linear_output_0" not in trial.tensor_names()


def test_the_schedule_goes_on_beside_it(run):
    config = watch("Loss_output", start_step=0, save_interval=2)
    trial = run(3, include_collections=["weights"], save_config=config)
    assert trial.tensor("Linear_weight").steps() == [0, 2, 3, 4]


def test_reductions_are_what_is_saved_if_asked(run):
    trial = run(
        3,
        include_collections=["weights"],
        save_config=watch("Loss_output"),
        reduction_config=smd.ReductionConfig(reductions=["max"]),
    )
    assert trial.tensor("Linear_weight").steps() == [3]
    assert trial.tensor("Linear_weight").reduction_value(3, "max") is not None
