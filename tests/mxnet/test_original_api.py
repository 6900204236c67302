"""The API page of Tornasole for MXNet, sentence by sentence; every code block of it runs here.

Blocks are changed only in paths and sizes.
"""

import inspect
import logging
import subprocess
import sys

import numpy as np
import pytest

mx = pytest.importorskip("mxnet")

from mxnet import autograd, gluon  # noqa: E402
from mxnet.gluon import nn  # noqa: E402

import tornasole.mxnet as ts  # noqa: E402
from tornasole.errors import TensorUnavailableForStep  # noqa: E402
from tornasole.mxnet import ReductionConfig, SaveConfig, SaveConfigMode, TornasoleHook  # noqa: E402

PARAMETERS = {"net_dense0_weight", "net_dense0_bias", "net_dense1_weight", "net_dense1_bias"}
GRADIENTS = {f"gradient/{name}" for name in PARAMETERS}
REDUCTIONS = ["min", "max", "median", "mean", "std", "sum", "prod"]
NORMS = ["l1", "l2"]


@pytest.fixture(autouse=True)
def own_collections():
    """Collections belong to the process: each test begins with none but the built-in ones."""
    ts.reset_collections()
    ts.del_hook()
    yield
    ts.reset_collections()
    ts.del_hook()


@pytest.fixture
def out_dir(tmp_path):
    return str(tmp_path / "trial")


@pytest.fixture
def net():
    net = nn.Sequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(4, in_units=3, activation="relu"), nn.Dense(2, in_units=4))
    net.initialize(mx.init.Uniform(1))
    return net


def train(net, steps=1):
    loss_function = gluon.loss.L2Loss()
    for _ in range(steps):
        with autograd.record():
            loss = loss_function(net(mx.nd.ones((2, 3))), mx.nd.zeros((2, 2)))
        loss.backward()


def trial_of(hook):
    """Closes the hook and opens what it wrote; nothing may have gone wrong within it."""
    hook.close()
    trial = ts.create_trial(hook.out_dir)
    assert trial.state == "finished"
    return trial


@pytest.fixture
def saved(out_dir, net):
    """Trains with a hook of the given arguments and returns the trial."""

    def run(steps=1, prepare=lambda hook: None, **options):
        hook = TornasoleHook(out_dir, **options)
        prepare(hook)
        hook.register_hook(net)
        train(net, steps)
        return trial_of(hook)

    return run


# -- the hook --------------------------------------------------------------------------------------


def test_the_arguments_are_those_of_the_page_in_its_order(out_dir):
    reduction, save = ReductionConfig(norms=["l1"]), SaveConfig(save_interval=3)
    hook = TornasoleHook(out_dir, True, "worker7", reduction, save, ["relu"], ["weights"], True)
    assert hook.out_dir == out_dir
    assert hook.dry_run
    assert hook.worker == "worker7"
    assert hook.reduction_config == reduction
    assert hook.save_config == save
    assert hook.include_regex == ["relu"]
    assert hook.include_collections == ["all", "default", "weights"]
    assert hook.save_all
    hook.close()


def test_the_arguments_have_the_defaults_of_the_page(out_dir):
    default = inspect.signature(TornasoleHook).parameters["include_collections"].default
    assert list(default) == ["weights", "gradients", "biases", "default"]
    hook = TornasoleHook(out_dir)
    assert not hook.dry_run
    assert hook.worker == "worker0"
    assert hook.reduction_config == ReductionConfig(save_raw_tensor=True)
    assert hook.save_config == SaveConfig(save_interval=100)
    assert hook.include_regex == []
    assert set(hook.include_collections) == {"weights", "gradients", "biases", "default"}
    assert not hook.save_all
    hook.close()


def test_out_dir_may_be_a_local_path(saved, tmp_path):
    saved()
    assert (tmp_path / "trial").is_dir()


def test_out_dir_as_an_s3_prefix_says_that_there_is_no_such_store_yet():
    with pytest.raises(ValueError, match="s3"):
        TornasoleHook("s3://bucket_name/prefix")


def test_dry_run_only_describes_in_the_log(out_dir, net, tmp_path, caplog):
    caplog.set_level(logging.INFO, "tornasole")
    hook = TornasoleHook(out_dir, dry_run=True, save_config=SaveConfig(save_interval=2))
    hook.register_hook(net)
    train(net, steps=3)
    hook.close()
    assert list(tmp_path.iterdir()) == []
    said = [message for message in caplog.messages if message.startswith("Dry run")]
    assert len(said) == 2
    assert "step 0" in said[0]
    assert "step 2" in said[1]
    assert all(name in said[0] for name in PARAMETERS | GRADIENTS)


def test_outputs_are_organised_by_the_name_of_the_worker(saved, tmp_path):
    trial = saved(worker="trainer-b")
    assert trial.workers() == ["trainer-b"]
    assert (tmp_path / "trial" / "trainer-b").is_dir()
    weight = trial.tensor("net_dense0_weight")
    assert weight.workers(0) == ["trainer-b"]
    assert weight.value(0, worker="trainer-b").shape == (4, 3)


PROCESS = """
import pathlib, sys, time
import mxnet as mx
import tornasole.mxnet as ts

out_dir, worker, number = sys.argv[1:]
net = mx.gluon.nn.Dense(1, in_units=2, prefix="net_")
net.initialize(mx.init.Constant(float(number)))
hook = ts.TornasoleHook(out_dir, worker=worker, save_config=ts.SaveConfig(save_interval=1))
hook.register_hook(net)
pathlib.Path(out_dir + "." + worker).touch()
while len(list(pathlib.Path(out_dir).parent.glob("*.worker*"))) < 2:  # until both have begun
    time.sleep(0.01)
for _ in range(3):
    with mx.autograd.record():
        loss = net(mx.nd.ones((1, 2))).sum()
    loss.backward()
"""


def test_processes_with_names_of_their_own_make_one_trial(out_dir):
    processes = [
        subprocess.Popen([sys.executable, "-c", PROCESS, out_dir, f"worker{n}", str(n)])
        for n in (0, 1)
    ]
    assert [process.wait(timeout=120) for process in processes] == [0, 0]
    trial = ts.create_trial(out_dir)
    assert trial.workers() == ["worker0", "worker1"]
    assert trial.steps() == [0, 1, 2]
    weight = trial.tensor("net_weight")
    assert weight.workers(2) == ["worker0", "worker1"]
    assert weight.value(2, worker="worker0").tolist() == [[0, 0]]
    assert weight.value(2, worker="worker1").tolist() == [[1, 1]]


def test_a_collections_save_config_overrides_the_hooks(saved):
    ts.get_collection("biases").save_config = SaveConfig(save_interval=3)
    trial = saved(steps=4, save_config=SaveConfig(save_interval=2))
    assert trial.tensor("net_dense0_bias").steps() == [0, 3]
    assert trial.tensor("net_dense0_weight").steps() == [0, 2]


def test_a_dictionary_gives_each_mode_its_save_config(out_dir, net):
    modes = ts.modes
    example = {modes.TRAIN: SaveConfigMode(save_interval=10), modes.EVAL: SaveConfigMode(1)}
    hook = TornasoleHook(out_dir, save_config=example)
    hook.register_hook(net)
    for mode, steps in ((modes.TRAIN, 11), (modes.EVAL, 2)):
        hook.set_mode(mode)
        train(net, steps)
    trial = trial_of(hook)
    assert trial.steps(mode=modes.TRAIN) == [0, 10]
    assert trial.steps(mode=modes.EVAL) == [0, 1]


def test_the_dictionary_may_hold_save_configs(out_dir, net):
    modes = ts.modes
    hook = TornasoleHook(out_dir, save_config={modes.TRAIN: SaveConfig(save_interval=10)})
    hook.register_hook(net)
    hook.set_mode(modes.TRAIN)
    train(net, steps=11)
    assert trial_of(hook).steps(mode=modes.TRAIN) == [0, 10]


def test_the_hooks_reduction_config_is_the_default_and_a_collections_overrides_it(saved):
    ts.get_collection("biases").reduction_config = ReductionConfig(norms=["l2"])
    trial = saved(reduction_config=ReductionConfig(reductions=["mean"]))
    assert set(trial.tensor("net_dense0_weight").reduction_values(0)) == {("mean", False)}
    assert set(trial.tensor("gradient/net_dense0_bias").reduction_values(0)) == {("mean", False)}
    assert set(trial.tensor("net_dense0_bias").reduction_values(0)) == {("l2", False)}


def test_without_a_reduction_config_nothing_is_reduced(saved, net):
    weight = saved().tensor("net_dense0_weight")
    assert (weight.value(0) == net[0].weight.data().asnumpy()).all()
    assert weight.reduction_values(0) == {}


def test_what_include_regex_matches_is_in_the_default_collection(saved):
    trial = saved(include_regex=["relu_out", "^net_input"])
    names = ["net_dense0_relu_output_0", "net_input_0"]
    assert trial.tensor_names(collection="default") == names
    assert set(trial.tensor_names()) == PARAMETERS | GRADIENTS | set(names)


def test_include_collections_says_what_is_saved(saved):
    trial = saved(include_collections=["gradients"])
    assert set(trial.tensor_names()) == GRADIENTS


def test_save_all_is_a_shortcut_for_all_tensors(saved):
    """This page says that they are in ``default``, the README in ``all``: there they are."""
    trial = saved(save_all=True)
    assert {"net_input_0", "net_output_0", "net_dense0_relu_output_0"} < set(trial.tensor_names())
    assert trial.tensor_names(collection="all") == trial.tensor_names()


# -- modes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["TRAIN", "EVAL", "PREDICT"])
def test_modes_are_set_on_the_hook(out_dir, net, mode):
    hook = TornasoleHook(out_dir)
    hook.register_hook(net)
    hook.set_mode(getattr(ts.modes, mode))
    train(net)
    assert trial_of(hook).mode(0) is ts.modes[mode]


def test_the_global_order_tells_after_how_many_training_steps_an_evaluation_came(out_dir, net):
    hook = TornasoleHook(out_dir, save_config=SaveConfig(save_interval=1))
    hook.register_hook(net)
    for _ in range(2):
        hook.set_mode(ts.modes.TRAIN)
        train(net, steps=3)
        hook.set_mode(ts.modes.EVAL)
        train(net)
    trial = trial_of(hook)
    assert trial.steps() == list(range(8))
    assert [trial.global_step(ts.modes.EVAL, step) for step in (0, 1)] == [3, 7]
    assert [trial.mode_modestep(step) for step in (6, 7)] == [
        (ts.modes.TRAIN, 5),
        (ts.modes.EVAL, 1),
    ]


def test_without_a_mode_all_steps_are_saved_under_the_default_mode(saved):
    trial = saved(steps=101)
    assert {trial.mode(step) for step in trial.steps()} == {ts.modes.GLOBAL}
    assert trial.steps(mode=ts.modes.GLOBAL) == trial.steps() == [0, 100]


# -- collections -----------------------------------------------------------------------------------


def test_get_collection_returns_the_collection_of_the_name():
    weights = ts.get_collection("weights")
    assert isinstance(weights, ts.Collection)
    assert weights.name == "weights"


def test_get_collection_makes_one_that_does_not_exist():
    assert "mine" not in ts.get_collections()
    mine = ts.get_collection("mine")
    assert ts.get_collections()["mine"] is mine
    assert ts.get_collection("mine") is mine


def test_get_collections_is_a_dictionary_by_name():
    ts.get_collection("mine")
    collections = ts.get_collections()
    assert isinstance(collections, dict)
    assert {"weights", "gradients", "biases", "default", "mine"} <= set(collections)
    assert all(collection.name == name for name, collection in collections.items())


def test_add_to_collection_is_add_on_the_collection(saved, net):
    ts.add_to_collection("mine", net[0].weight)
    ts.get_collection("same").add(net[0].weight)
    trial = saved(include_collections=["mine", "same"])
    assert trial.tensor_names(collection="mine") == ["net_dense0_weight"]
    assert trial.tensor_names(collection="same") == ["net_dense0_weight"]


def test_add_to_default_collection_is_add_on_the_default_collection(saved, net):
    ts.add_to_default_collection([net[1], "net_input_0"])
    trial = saved()
    assert trial.tensor_names(collection="default") == ["net_dense1_output_0", "net_input_0"]


def test_reset_collections_clears_all_collections():
    ts.get_collection("mine").include("relu")
    ts.get_collection("weights").include("gamma")
    ts.get_collection("biases").save_config = SaveConfig(save_interval=7)
    ts.reset_collections()
    assert "mine" not in ts.get_collections()
    assert ts.get_collection("weights").include_regex == []
    assert ts.get_collection("biases").save_config.is_open


def test_collections_may_be_configured_before_the_hook_is_made(saved):
    ts.get_collection("relus").include("relu_output")
    trial = saved(include_collections=["relus"])
    assert trial.tensor_names() == ["net_dense0_relu_output_0"]


def test_collections_may_be_configured_after_the_hook_is_made(saved):
    def prepare(hook):
        ts.get_collection("relus").include("relu_output")
        ts.get_collection("relus").save_config = SaveConfig(save_steps=[1])

    trial = saved(steps=3, include_collections=["relus"], prepare=prepare)
    assert trial.tensor("net_dense0_relu_output_0").steps() == [1]


@pytest.mark.parametrize("patterns", ["relu_output", ["relu_output"], ["relu_out", "_output_0$"]])
def test_include_takes_a_regex_or_a_list_of_them(saved, patterns):
    mine = ts.get_collection("mine")
    mine.include(patterns)
    assert mine.include_regex == ([patterns] if isinstance(patterns, str) else patterns)
    assert "net_dense0_relu_output_0" in saved(include_collections=["mine"]).tensor_names()


def test_include_adds_to_what_is_included():
    mine = ts.get_collection("mine")
    mine.include("one")
    mine.include(["two", "three"])
    assert mine.include_regex == ["one", "two", "three"]


def test_a_regex_can_exclude(saved):
    """The page speaks of exclude patterns, and documents no way to set them: a lookahead does."""
    ts.get_collection("mine").include(r"^(?!gradient).*dense0_weight")
    assert saved(include_collections=["mine"]).tensor_names() == ["net_dense0_weight"]


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        ({"input": True}, ["net_dense1_input_0"]),
        ({"output": True}, ["net_dense1_output_0"]),
        ({"input": True, "output": True}, ["net_dense1_input_0", "net_dense1_output_0"]),
        ({"inputs": True, "outputs": False}, ["net_dense1_input_0"]),
        ({"outputs": True}, ["net_dense1_output_0"]),
        ({"inputs": True, "outputs": True}, ["net_dense1_input_0", "net_dense1_output_0"]),
    ],
)
def test_add_block_tensors_includes_inputs_or_outputs_of_a_block(saved, net, flags, names):
    ts.get_collection("block").add_block_tensors(net[1], **flags)
    trial = saved(include_collections=["block"])
    assert trial.tensor_names(collection="block") == names


def test_in_the_spelling_of_the_page_input_and_output_are_off_by_default(saved, net):
    ts.get_collection("block").add_block_tensors(net[0], input=False)
    ts.get_collection("block").add_block_tensors(net[1], input=True)
    trial = saved(include_collections=["block"])
    assert trial.tensor_names() == ["net_dense1_input_0"]


def test_the_flags_may_be_positional(saved, net):
    ts.get_collection("block").add_block_tensors(net[1], True, False)
    assert saved(include_collections=["block"]).tensor_names() == ["net_dense1_input_0"]


def test_save_config_of_a_collection_is_got_and_set():
    mine = ts.get_collection("mine")
    config = SaveConfig(save_interval=7)
    mine.save_config = config
    assert mine.save_config == config


def test_save_config_of_a_collection_may_be_a_dictionary_by_mode(out_dir, net):
    weights = ts.get_collection("weights")
    weights.save_config = {ts.modes.TRAIN: SaveConfigMode(save_interval=2)}
    assert weights.save_config.get_save_config(ts.modes.TRAIN).save_interval == 2
    hook = TornasoleHook(out_dir)
    hook.register_hook(net)
    hook.set_mode(ts.modes.TRAIN)
    train(net, steps=3)
    assert trial_of(hook).tensor("net_dense0_weight").steps(mode=ts.modes.TRAIN) == [0, 2]


def test_reduction_config_of_a_collection_is_got_and_set():
    mine = ts.get_collection("mine")
    config = ReductionConfig(norms=["l2"])
    mine.reduction_config = config
    assert mine.reduction_config == config


# -- SaveConfig ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "steps"),
    [
        (SaveConfig(save_interval=4), [0, 4, 8]),
        (SaveConfig(save_interval=4, start_step=4), [4, 8]),
        (SaveConfig(save_interval=4, end_step=8), [0, 4]),
        (SaveConfig(save_interval=4, start_step=1, end_step=9), [4, 8]),
        (SaveConfig(save_steps=[1, 5]), [1, 5]),
        (SaveConfig(save_interval=4, save_steps=[1, 5]), [1, 5]),
    ],
)
def test_save_config_says_at_which_steps(saved, config, steps):
    assert saved(steps=9, save_config=config).steps() == steps


def test_end_step_is_none_by_default():
    assert SaveConfig(save_interval=4).end_step is None


def test_a_hook_with_the_default_save_config_saves_every_100th_step(saved):
    assert saved(steps=202).steps() == [0, 100, 200]


# -- ReductionConfig -------------------------------------------------------------------------------


def expected(name, value):
    norm = {"l1": lambda: np.abs(value).sum(), "l2": lambda: np.sqrt((value**2).sum())}
    return norm[name]() if name in norm else getattr(np, name)(value)


@pytest.mark.parametrize(
    ("field", "names", "absolute"),
    [
        ("reductions", REDUCTIONS, False),
        ("abs_reductions", REDUCTIONS, True),
        ("norms", NORMS, False),
        ("abs_norms", NORMS, True),
    ],
)
def test_every_reduction_of_the_lists_is_computed(saved, net, field, names, absolute):
    config = ReductionConfig(**{field: names})
    weight = saved(reduction_config=config).tensor("net_dense0_weight")
    value = net[0].weight.data().asnumpy().astype(np.float64)
    kept = weight.reduction_values(0)
    assert set(kept) == {(name, absolute) for name in names}
    for name in names:
        number = expected(name, np.abs(value) if absolute else value)
        assert kept[name, absolute] == pytest.approx(number, rel=1e-5), name


@pytest.mark.parametrize("field", ["reductions", "abs_reductions", "norms", "abs_norms"])
def test_other_names_of_reductions_are_refused(field):
    with pytest.raises(ValueError, match="mode"):
        ReductionConfig(**{field: ["mode"]})


def test_during_analysis_there_are_reductions_and_not_the_tensor(saved):
    trial = saved(reduction_config=ReductionConfig(reductions=["min"], norms=["l1"]))
    gradient = trial.tensor("gradient/net_dense0_weight")
    assert np.isfinite(gradient.reduction_value(0, "min"))
    assert np.isfinite(gradient.reduction_value(0, "l1"))
    with pytest.raises(TensorUnavailableForStep):
        gradient.value(0)
    with pytest.raises(TensorUnavailableForStep):
        gradient.reduction_value(0, "max")
