"""What is due: schedules, forms, watches, what is refused, and what is remembered."""

import re

import pytest

from tornasole.errors import InvalidCollectionConfiguration, SMDebugValueError
from tornasole.selection import (
    Collection,
    Plan,
    ReductionConfig,
    SaveConfig,
    SaveConfigMode,
    builtin_for,
)
from tornasole.types import ModeKeys, Role

TRAIN, EVAL, PREDICT, GLOBAL = ModeKeys
MEAN = ReductionConfig(reductions=["mean"])


def make_plan(*included, save_config=None, reduction_config=None, more=()):
    """A plan of PyTorch's collections with some more, and the live objects behind it."""
    collections = builtin_for("pytorch").collections()
    collections.update({collection.name: collection for collection in more})
    names = set(included)
    plan = Plan(
        collections,
        names,
        save_config or SaveConfig(save_interval=1),
        *([reduction_config] if reduction_config else []),
    )
    return plan, collections, names


def form_at(plan, name, role, mode=TRAIN, step=0):
    due = plan.at(mode, step)
    return due and due.form(name, role)


# When


def test_nothing_is_due_between_two_saved_steps():
    plan, *_ = make_plan("losses", save_config=SaveConfig(save_interval=2))
    assert [plan.at(TRAIN, step) is not None for step in range(4)] == [True, False, True, False]


def test_nothing_is_due_if_nothing_is_included():
    assert make_plan()[0].at(TRAIN, 0) is None


def test_each_collection_is_due_by_its_own_schedule():
    plan, collections, _ = make_plan("losses", "weights")
    collections["weights"].save_config = SaveConfig(save_interval=2)
    due = [plan.at(TRAIN, step).collections for step in range(3)]
    assert due == [("weights", "losses"), ("losses",), ("weights", "losses")]


def test_a_mode_that_a_collection_gave_is_its_own_and_the_others_are_the_hooks():
    plan, collections, _ = make_plan("losses", save_config=SaveConfig(save_interval=3))
    collections["losses"].save_config = {TRAIN: SaveConfigMode(save_interval=2)}
    assert [step for step in range(7) if plan.at(TRAIN, step)] == [0, 2, 4, 6]
    assert [step for step in range(7) if plan.at(EVAL, step)] == [0, 3, 6]


def test_a_mode_that_the_hook_did_not_give_either_has_the_default():
    plan, *_ = make_plan("losses", save_config=SaveConfig({EVAL: SaveConfigMode(1)}))
    assert [step for step in range(501) if plan.at(TRAIN, step)] == [0, 500]


def test_end_step_zero_switches_one_collection_off_and_leaves_the_hook_alone():
    plan, collections, _ = make_plan("losses", "weights")
    assert plan.at(TRAIN, 0).collections == ("weights", "losses")
    collections["losses"].save_config.end_step = 0
    assert plan.at(TRAIN, 0).collections == ("weights",)


def test_a_field_assigned_on_a_collection_keeps_the_hooks_other_fields():
    plan, collections, _ = make_plan("losses", save_config=SaveConfig(save_interval=2))
    collections["losses"].save_config.start_step = 3
    assert [step for step in range(8) if plan.at(TRAIN, step)] == [4, 6]


def test_a_change_of_the_hooks_config_counts_at_once():
    config = SaveConfig(save_interval=2)
    plan, *_ = make_plan("losses", save_config=config)
    config.save_interval = 3
    assert [step for step in range(7) if plan.at(TRAIN, step)] == [0, 3, 6]


@pytest.mark.parametrize("mode", [EVAL, PREDICT])
def test_gradients_and_optimizer_variables_are_skipped_outside_training(mode):
    plan, *_ = make_plan("gradients", "optimizer_variables", "weights")
    assert plan.at(mode, 0).collections == ("weights",)


@pytest.mark.parametrize("mode", [TRAIN, GLOBAL])
def test_gradients_and_optimizer_variables_are_saved_in_training(mode):
    plan, *_ = make_plan("gradients", "optimizer_variables")
    assert plan.at(mode, 0).collections == ("gradients", "optimizer_variables")


# Which


def test_a_tensor_of_no_due_collection_is_not_wanted():
    assert form_at(make_plan("losses")[0], "fc", Role.WEIGHT) is None


def test_a_tensor_is_wanted_by_every_due_collection_to_which_it_belongs():
    plan, *_ = make_plan("weights", "mine", "losses", more=[Collection("mine", ["^fc"])])
    assert form_at(plan, "fc1", Role.WEIGHT).collections == ("weights", "mine")
    assert form_at(plan, "conv", Role.WEIGHT).collections == ("weights",)
    assert form_at(plan, "fc1", Role.BIAS).collections == ("mine",)


def test_either_spelling_includes_a_collection():
    assert form_at(make_plan("bias")[0], "fc", Role.BIAS).collections == ("biases",)


@pytest.mark.parametrize("role", Role)
def test_all_wants_every_tensor(role):
    assert "all" in form_at(make_plan("all")[0], "anything", role).collections


def test_with_all_every_collection_is_saved():
    form = form_at(make_plan("all")[0], "fc", Role.WEIGHT)
    assert form.collections == ("all", "weights")


@pytest.mark.parametrize("role", [Role.GRADIENT, Role.OPTIMIZER_VARIABLE])
def test_all_leaves_out_what_belongs_to_training_when_evaluating(role):
    plan, *_ = make_plan("all")
    assert form_at(plan, "g", role, EVAL) is None
    assert form_at(plan, "g", role, TRAIN) is not None
    assert form_at(plan, "fc", Role.WEIGHT, EVAL) is not None


def test_a_role_that_no_due_collection_has_is_not_asked_for():
    due = make_plan("losses", "weights")[0].at(TRAIN, 0)
    assert due.may_want(Role.LOSS)
    assert due.may_want(Role.WEIGHT)
    assert not due.may_want(Role.LAYER_OUTPUT)


@pytest.mark.parametrize("collection", [Collection("mine", ["x"]), Collection("mine", None, ["x"])])
def test_any_role_may_be_wanted_by_its_name(collection):
    due = make_plan("mine", more=[collection])[0].at(TRAIN, 0)
    assert all(due.may_want(role) for role in Role)


def test_any_role_may_be_watched():
    plan, *_ = make_plan("losses", save_config=SaveConfig(when_nan="relu"))
    assert plan.at(TRAIN, 0).may_want(Role.LAYER_OUTPUT)


def test_all_may_want_any_role_but_those_of_training_when_evaluating():
    plan, *_ = make_plan("all")
    assert all(plan.at(TRAIN, 0).may_want(role) for role in Role)
    assert not plan.at(EVAL, 0).may_want(Role.GRADIENT)


# In which form


def test_without_a_reduction_config_the_raw_tensor_is_saved():
    form = form_at(make_plan("weights")[0], "fc", Role.WEIGHT)
    assert (form.raw, form.shape, form.statistics) == (True, False, set())


def test_the_hooks_reduction_config_is_that_of_collections_without():
    form = form_at(make_plan("weights", reduction_config=MEAN)[0], "fc", Role.WEIGHT)
    assert (form.raw, form.statistics) == (False, {"mean"})


def test_a_collections_own_reduction_config_wins():
    plan, collections, _ = make_plan("weights", reduction_config=MEAN)
    collections["weights"].reduction_config = ReductionConfig(norms=["l2"], save_shape=True)
    form = form_at(plan, "fc", Role.WEIGHT)
    assert (form.raw, form.shape, form.statistics) == (False, True, {"l2"})


def test_the_form_is_the_union_of_what_the_collections_want():
    mine = Collection("mine", ["fc"], reduction_config=ReductionConfig(abs_norms=["l1"]))
    other = Collection("other", ["fc"], reduction_config=ReductionConfig(save_raw_tensor=True))
    plan, *_ = make_plan("weights", "mine", "other", reduction_config=MEAN, more=[mine, other])
    form = form_at(plan, "fc", Role.WEIGHT)
    assert (form.raw, form.statistics) == (True, {"mean", "abs_l1"})


def test_single_numbers_are_always_raw():
    plan, collections, _ = make_plan("losses", reduction_config=MEAN)
    collections["losses"].reduction_config = MEAN
    form = form_at(plan, "loss", Role.LOSS)
    assert (form.raw, form.statistics) == (True, set())


def test_the_plan_tells_the_configurations_that_a_collection_ends_up_with():
    plan, collections, _ = make_plan("weights", "losses", reduction_config=MEAN)
    collections["weights"].save_config = {EVAL: SaveConfigMode(7)}
    expected = {mode: SaveConfigMode(7 if mode is EVAL else 1) for mode in ModeKeys}
    assert plan.save_config_of(collections["weights"]) == SaveConfig(expected)
    assert plan.reduction_config_of(collections["weights"]) == MEAN
    assert plan.reduction_config_of(collections["losses"]) == ReductionConfig(save_raw_tensor=True)


# When a watched tensor is not finite


@pytest.fixture
def watching():
    """Weights every second step and when a loss is not finite; biases every step."""
    plan, collections, _ = make_plan("weights", "biases", "mine", more=[Collection("mine", ["fc"])])
    collections["weights"].save_config = SaveConfig(save_interval=2, when_nan="loss")
    collections["weights"].reduction_config = MEAN
    collections["mine"].save_config = SaveConfig(save_interval=2)
    return plan


def test_a_watching_collection_is_active_at_every_step(watching):
    form = form_at(watching, "fc", Role.WEIGHT, step=1)
    assert form.collections == ("weights",)
    assert form.statistics == {"mean"}


def test_a_form_tells_whether_the_schedule_asked(watching):
    assert form_at(watching, "conv", Role.WEIGHT, step=0).scheduled
    assert not form_at(watching, "conv", Role.WEIGHT, step=1).scheduled


def test_a_watched_tensor_that_nobody_includes_is_looked_at_and_not_saved(watching):
    form = form_at(watching, "loss", Role.LOSS)
    assert form.watch
    assert form.triggers == {"weights"}
    assert (form.collections, form.scheduled, form.raw, form.statistics) == (
        (),
        False,
        False,
        set(),
    )
    assert form.keep({"weights"}) is None


def test_a_tensor_that_no_regex_names_is_not_watched(watching):
    assert not form_at(watching, "fc", Role.WEIGHT).watch


def test_what_was_not_scheduled_is_dropped_if_nothing_fired(watching):
    assert form_at(watching, "conv", Role.WEIGHT, step=1).keep() is None


def test_what_was_not_scheduled_is_kept_if_its_collection_fired(watching):
    form = form_at(watching, "conv", Role.WEIGHT, step=1).keep({"weights"})
    assert form.collections == ("weights",)


def test_what_was_not_scheduled_is_dropped_if_another_collection_fired(watching):
    assert form_at(watching, "conv", Role.WEIGHT, step=1).keep({"mine"}) is None


def test_what_was_scheduled_is_kept_as_it_is(watching):
    form = form_at(watching, "conv", Role.WEIGHT, step=0)
    assert form.keep() is form


def test_only_the_scheduled_part_is_kept_of_a_mixed_form():
    plan, collections, _ = make_plan("weights", "mine", more=[Collection("mine", ["fc"])])
    collections["weights"].save_config = SaveConfig(end_step=0, when_nan="loss")
    collections["mine"].reduction_config = MEAN
    form = form_at(plan, "fc", Role.WEIGHT)
    assert (form.collections, form.raw, form.scheduled) == (("weights", "mine"), True, True)
    kept = form.keep()
    assert (kept.collections, kept.raw, kept.statistics) == (("mine",), False, {"mean"})
    assert form.keep({"weights"}).collections == ("weights", "mine")


def test_a_watch_of_the_hook_fires_everything_that_follows_it():
    config = SaveConfig(end_step=0, when_nan=["loss"])
    plan, *_ = make_plan("weights", "biases", save_config=config)
    assert form_at(plan, "loss", Role.LOSS).triggers == {"weights", "biases"}


# What is refused


def test_an_included_name_without_a_collection_is_refused_with_the_nearest():
    plan, *_ = make_plan("weigths")
    problem = plan.problems()["weigths"]
    assert isinstance(problem, SMDebugValueError)
    assert re.search(r"'weigths'.*gradients.*Did you mean 'weights'", str(problem))


def test_an_included_collection_that_can_hold_nothing_is_refused():
    plan, *_ = make_plan("mine", more=[Collection("mine")])
    assert isinstance(plan.problems()["mine"], InvalidCollectionConfiguration)


@pytest.mark.parametrize(
    "mine",
    [
        Collection("mine", ["x"]),
        Collection("mine", None, ["x"]),
        Collection("mine", roles=[Role.LOSS]),
    ],
)
def test_an_included_collection_that_can_hold_something_is_accepted(mine):
    assert not make_plan("mine", more=[mine])[0].problems()


def test_an_empty_collection_that_is_not_included_is_accepted():
    assert not make_plan("losses", more=[Collection("mine")])[0].problems()
    assert not make_plan("all", more=[Collection("mine")])[0].problems()


@pytest.mark.parametrize("framework", ["pytorch", "mxnet", "tensorflow", "xgboost"])
def test_every_built_in_collection_may_be_included(framework):
    collections = builtin_for(framework).collections()
    assert not Plan(collections, set(collections), SaveConfig()).problems()


# What is remembered


def test_steps_that_ask_for_the_same_share_their_answers():
    plan, *_ = make_plan("losses", "weights")
    assert plan.at(TRAIN, 0) is plan.at(TRAIN, 1)
    assert form_at(plan, "fc", Role.WEIGHT, step=0) is form_at(plan, "fc", Role.WEIGHT, step=1)


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.include("fc"),
        lambda c: c.add_tensor_name("fc"),
        lambda c: setattr(c, "include_regex", ["fc"]),
        lambda c: setattr(c, "tensor_names", ["fc"]),
    ],
)
def test_a_tensor_already_seen_is_looked_at_again_when_a_collection_changes(change):
    plan, collections, _ = make_plan("weights", "mine", more=[Collection("mine", ["x"])])
    assert form_at(plan, "fc", Role.WEIGHT).collections == ("weights",)
    change(collections["mine"])
    assert form_at(plan, "fc", Role.WEIGHT).collections == ("weights", "mine")


def test_a_new_reduction_config_counts_for_tensors_already_seen():
    plan, collections, _ = make_plan("weights")
    assert form_at(plan, "fc", Role.WEIGHT).raw
    collections["weights"].reduction_config = MEAN
    assert not form_at(plan, "fc", Role.WEIGHT).raw


def test_a_new_watch_counts_for_tensors_already_seen():
    plan, collections, _ = make_plan("weights")
    assert not form_at(plan, "fc", Role.WEIGHT).watch
    collections["weights"].save_config.when_nan = ["fc"]
    assert form_at(plan, "fc", Role.WEIGHT).watch


def test_a_collection_included_or_replaced_later_counts():
    plan, collections, included = make_plan("losses")
    assert form_at(plan, "fc", Role.WEIGHT) is None
    included.add("weights")
    assert form_at(plan, "fc", Role.WEIGHT).collections == ("weights",)
    collections["weights"] = Collection("weights", ["conv"])
    assert form_at(plan, "fc", Role.WEIGHT) is None
    included.discard("weights")
    assert form_at(plan, "conv", Role.WEIGHT) is None


def test_many_different_sets_of_due_collections_are_all_answered_right():
    more = [Collection(f"c{i}", ["fc"], save_config=SaveConfigMode(i)) for i in range(1, 12)]
    plan, *_ = make_plan(*(c.name for c in more), more=more)
    for step in range(1, 300):
        expected = tuple(f"c{i}" for i in range(1, 12) if step % i == 0)
        assert form_at(plan, "fc", Role.WEIGHT, step=step).collections == expected
