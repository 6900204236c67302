"""The README of Tornasole for MXNet, sentence by sentence; every code block of it runs here.

Blocks are changed only in paths and sizes; where the page imports from ``tornasole.tensorflow``,
the same names come from ``tornasole.mxnet``.
"""

import importlib

import numpy as np
import pytest

mx = pytest.importorskip("mxnet")

from mxnet import autograd, gluon  # noqa: E402
from mxnet.gluon import nn  # noqa: E402

import tornasole.mxnet as tm  # noqa: E402
from tornasole.errors import TensorUnavailableForStep  # noqa: E402
from tornasole.mxnet import Collection, ReductionConfig, SaveConfig, modes  # noqa: E402
from tornasole.mxnet.hook import TornasoleHook  # noqa: E402

PARAMETERS = {"net_conv0_weight", "net_conv0_bias", "net_dense0_weight", "net_dense0_bias"}
GRADIENTS = {f"gradient/{name}" for name in PARAMETERS}
LOSS = "l2loss0_output_0"


@pytest.fixture(autouse=True)
def own_collections():
    """Collections belong to the process: each test begins with none but the built-in ones."""
    tm.reset_collections()
    tm.del_hook()
    yield
    tm.reset_collections()
    tm.del_hook()


@pytest.fixture
def out_dir(tmp_path):
    return str(tmp_path / "trial")


def create_gluon_model(kind=nn.Sequential):
    net = kind(prefix="net_")
    with net.name_scope():
        net.add(nn.Conv2D(2, 3, in_channels=1, activation="relu"), nn.Flatten())
        net.add(nn.Dense(3, in_units=8))
    net.initialize(mx.init.Xavier())
    return net


@pytest.fixture
def net():
    return create_gluon_model()


@pytest.fixture
def loss_function():
    return gluon.loss.L2Loss(prefix="l2loss0_")


def train(net, steps=1, loss_function=None, bad_steps=()):
    """Some steps of a training that does not learn: what is NaN at one step is so at that alone."""
    loss_function = loss_function or gluon.loss.L2Loss()
    for step in range(steps):
        labels = mx.nd.full((2, 3), np.nan if step in bad_steps else 0)
        with autograd.record():
            loss = loss_function(net(mx.nd.ones((2, 1, 4, 4))), labels)
        loss.backward()


def trial_of(hook):
    """Closes the hook and opens what it wrote; nothing may have gone wrong within it."""
    hook.close()
    trial = tm.create_trial(hook.out_dir)
    assert trial.state == "finished"
    return trial


@pytest.fixture
def saved(out_dir, net, loss_function):
    """Trains with a hook of the given arguments and returns the trial."""

    def run(steps=1, bad_steps=(), **options):
        hook = TornasoleHook(out_dir, **options)
        hook.register_hook(net)
        hook.register_hook(loss_function)
        train(net, steps, loss_function, bad_steps)
        return trial_of(hook)

    return run


# -- quickstart ------------------------------------------------------------------------------------


def test_it_gives_visibility_into_all_tensors_during_training(saved):
    names = set(saved(save_all=True).tensor_names())
    assert {
        "net_input_0",
        "net_output_0",
        "net_conv0_relu_output_0",
        "net_flatten0_input_0",
    } < names
    assert names > PARAMETERS | GRADIENTS | {LOSS}


def test_it_gives_visibility_into_all_tensors_during_inference(out_dir, net):
    hook = TornasoleHook(out_dir, save_all=True)
    hook.register_hook(net)
    hook.set_mode(modes.PREDICT)
    net(mx.nd.ones((2, 1, 4, 4)))
    names = set(trial_of(hook).tensor_names(mode=modes.PREDICT))
    assert {"net_input_0", "net_output_0", "net_conv0_relu_output_0", "net_conv0_weight"} < names


def test_all_tensors_means_sparse_ones_too(out_dir):
    net = nn.Embedding(5, 2, sparse_grad=True, prefix="embedding_")
    net.initialize()
    hook = TornasoleHook(out_dir)
    hook.register_hook(net)
    with autograd.record():
        loss = net(mx.nd.array([1, 2])).sum()
    loss.backward()
    gradient = trial_of(hook).tensor("gradient/embedding_weight").value(0)
    assert gradient.tolist() == [[0, 0], [1, 1], [1, 1], [0, 0], [0, 0]]


def test_the_quickstart_runs(out_dir):
    from tornasole.mxnet import Collection, SaveConfig
    from tornasole.mxnet.hook import TornasoleHook

    assert Collection is tm.Collection

    # Create SaveConfig that instructs engine to log graph tensors every 10 steps.
    save_config = SaveConfig(save_interval=10)
    # Create a hook that logs tensors of weights, biases and gradients while training the model.
    output_s3_uri = out_dir
    hook = TornasoleHook(out_dir=output_s3_uri, save_config=save_config)

    net = create_gluon_model()
    # Apply hook to the model (e.g. instruct engine to recognize hook configuration
    # and enable mode in which engine will log graph tensors
    hook.register_hook(net)

    import tornasole.mxnet as ts

    hook.set_mode(ts.modes.TRAIN)
    train(net, steps=21)

    trial = trial_of(hook)
    assert set(trial.tensor_names()) == PARAMETERS | GRADIENTS
    assert trial.steps(mode=ts.modes.TRAIN) == [0, 10, 20]


def test_the_quickstart_runs_under_the_name_of_smdebug_too(out_dir, net):
    smd = importlib.import_module("smdebug.mxnet")
    assert importlib.import_module("smdebug.mxnet.hook").TornasoleHook is TornasoleHook
    hook = smd.TornasoleHook(out_dir=out_dir, save_config=smd.SaveConfig(save_interval=10))
    hook.register_hook(net)
    hook.set_mode(smd.modes.TRAIN)
    train(net, steps=11)
    assert trial_of(hook).steps(mode=smd.modes.TRAIN) == [0, 10]


def test_collections_and_include_regex_control_which_tensors_are_stored(saved):
    tm.get_collection("filters").include("conv0_weight")
    trial = saved(include_collections=["filters"], include_regex=["dense0_bias"])
    assert set(trial.tensor_names()) == {
        "net_conv0_weight",
        "gradient/net_conv0_weight",
        "net_dense0_bias",
        "gradient/net_dense0_bias",
    }


@pytest.mark.parametrize("mode", [None, modes.TRAIN, modes.EVAL, modes.PREDICT])
def test_without_save_config_tensors_are_stored_every_100_steps(out_dir, net, mode):
    hook = TornasoleHook(out_dir)
    hook.register_hook(net)
    if mode is not None:
        hook.set_mode(mode)
    train(net, steps=201)
    assert trial_of(hook).steps(mode=mode or modes.GLOBAL) == [0, 100, 200]


@pytest.mark.parametrize("kind", [nn.Sequential, nn.HybridSequential])
@pytest.mark.parametrize("hybridize", [False, True])
def test_the_hook_can_be_registered_to_hybrid_models_as_well(out_dir, kind, hybridize):
    """The page allows only models that are not hybrid; ours may be."""
    net = create_gluon_model(kind)
    if hybridize:
        net.hybridize()
    hook = TornasoleHook(out_dir, save_config=SaveConfig(save_interval=1), include_regex=["relu"])
    hook.register_hook(net)
    train(net, steps=2)
    trial = trial_of(hook)
    assert trial.steps() == [0, 1]
    relu = {"net_conv0_relu_input_0", "net_conv0_relu_output_0"}
    assert set(trial.tensor_names()) == PARAMETERS | GRADIENTS | relu


# -- modes -----------------------------------------------------------------------------------------


def test_the_mode_groups_steps(out_dir, net):
    hook = TornasoleHook(out_dir, save_config=SaveConfig(save_interval=1))
    hook.register_hook(net)
    for mode, steps in ((modes.TRAIN, 3), (modes.EVAL, 2), (modes.TRAIN, 1), (modes.PREDICT, 1)):
        hook.set_mode(mode)
        train(net, steps)
    trial = trial_of(hook)
    assert trial.steps(mode=modes.TRAIN) == [0, 1, 2, 3]
    assert trial.steps(mode=modes.EVAL) == [0, 1]
    assert trial.steps(mode=modes.PREDICT) == [0]
    weight = trial.tensor("net_conv0_weight")
    assert weight.steps(mode=modes.EVAL) == [0, 1]


def test_without_a_mode_all_steps_are_together_under_the_default_mode(saved):
    trial = saved(steps=3, save_config=SaveConfig(save_interval=1))
    assert trial.steps() == trial.steps(mode=modes.GLOBAL) == [0, 1, 2]
    assert {trial.mode(step) for step in trial.steps()} == {modes.GLOBAL}


def test_the_mode_block_for_hooks_runs(out_dir, net):
    from tornasole.mxnet import SaveConfigMode, TornasoleHook, get_collection, modes

    scm = {
        modes.TRAIN: SaveConfigMode(save_interval=100),
        modes.EVAL: SaveConfigMode(save_interval=10),
    }
    hook = TornasoleHook(out_dir=out_dir, save_config=scm, include_collections=["weights"])

    assert get_collection("weights") is hook.get_collection("weights")
    hook.register_hook(net)
    for mode, steps in ((modes.TRAIN, 101), (modes.EVAL, 21)):
        hook.set_mode(mode)
        train(net, steps)
    trial = trial_of(hook)
    assert trial.steps(mode=modes.TRAIN) == [0, 100]
    assert trial.steps(mode=modes.EVAL) == [0, 10, 20]


def test_the_mode_block_for_collections_runs(out_dir, net):
    from tornasole.mxnet import SaveConfigMode, get_collection, modes

    get_collection("weights").set_save_config(
        {
            modes.TRAIN: SaveConfigMode(save_interval=10),
            modes.EVAL: SaveConfigMode(save_interval=1000),
        }
    )

    hook = TornasoleHook(out_dir, save_config=SaveConfig(save_interval=5))
    hook.register_hook(net)
    for mode in (modes.TRAIN, modes.EVAL):
        hook.set_mode(mode)
        train(net, steps=11)
    trial = trial_of(hook)
    assert trial.tensor("net_conv0_weight").steps(mode=modes.TRAIN) == [0, 10]
    assert trial.tensor("net_conv0_weight").steps(mode=modes.EVAL) == [0]
    assert trial.tensor("net_conv0_bias").steps(mode=modes.EVAL) == [0, 5, 10]


def test_a_mode_that_the_hooks_dictionary_lacks_gets_the_default(out_dir, net):
    scm = {modes.TRAIN: tm.SaveConfigMode(save_interval=1)}
    hook = TornasoleHook(out_dir, save_config=scm)
    hook.register_hook(net)
    hook.set_mode(modes.EVAL)
    train(net, steps=101)
    assert trial_of(hook).steps(mode=modes.EVAL) == [0, 100]


def test_a_mode_that_a_collections_dictionary_lacks_gets_the_hooks(out_dir, net):
    tm.get_collection("weights").set_save_config({modes.TRAIN: tm.SaveConfigMode(save_interval=2)})
    hook = TornasoleHook(out_dir, save_config=SaveConfig(save_interval=3))
    hook.register_hook(net)
    for mode in (modes.TRAIN, modes.EVAL):
        hook.set_mode(mode)
        train(net, steps=5)
    weight = trial_of(hook).tensor("net_conv0_weight")
    assert weight.steps(mode=modes.TRAIN) == [0, 2, 4]
    assert weight.steps(mode=modes.EVAL) == [0, 3]


# -- the hook --------------------------------------------------------------------------------------


def test_out_dir_is_where_the_outputs_are_written(saved, out_dir, tmp_path):
    saved()
    assert (tmp_path / "trial" / "trial.json").is_file()
    assert tm.create_trial(out_dir).tensor_names()


def test_weights_and_gradients_every_100_steps(out_dir, net):
    import tornasole.mxnet as tm

    hook = tm.TornasoleHook(
        out_dir=out_dir,
        save_config=tm.SaveConfig(save_interval=100),
        include_collections=["weights", "gradients"],
    )

    hook.register_hook(net)
    train(net, steps=101)
    trial = trial_of(hook)
    assert trial.steps() == [0, 100]
    assert set(trial.tensor_names()) == GRADIENTS | {"net_conv0_weight", "net_dense0_weight"}


def test_custom_tensors_by_regex(out_dir, net):
    import tornasole.mxnet as tm

    hook = tm.TornasoleHook(out_dir=out_dir, include_regex=["relu*"])

    hook.register_hook(net)
    train(net)
    names = trial_of(hook).tensor_names(collection="default")
    assert names == ["net_conv0_relu_input_0", "net_conv0_relu_output_0"]


# -- collections -----------------------------------------------------------------------------------


def test_collections_have_their_own_tensors_and_configurations(saved):
    filters, last = tm.get_collection("filters"), tm.get_collection("last")
    filters.include("conv0_weight")
    filters.set_save_config(SaveConfig(save_interval=2))
    filters.set_reduction_config(ReductionConfig(reductions=["max"]))
    last.include("dense0_weight")
    trial = saved(
        steps=4, save_config=SaveConfig(save_interval=3), include_collections=["filters", "last"]
    )
    assert trial.tensor("net_conv0_weight").steps() == [0, 2]
    assert trial.tensor("net_dense0_weight").steps() == [0, 3]
    assert trial.tensor("net_dense0_weight").value(0).shape == (3, 8)
    with pytest.raises(TensorUnavailableForStep):
        trial.tensor("net_conv0_weight").value(0)


def test_collections_are_available_during_analysis(saved):
    tm.get_collection("filters").include("conv0_weight")
    trial = saved(include_collections=["filters", "biases"])
    assert {"filters", "biases"} <= set(trial.collections())
    names = ["gradient/net_conv0_weight", "net_conv0_weight"]
    assert trial.tensor_names(collection="filters") == names
    assert trial.collection("filters").include_regex == ["conv0_weight"]
    assert trial.tensor_names(collection="biases") == ["net_conv0_bias", "net_dense0_bias"]


def test_a_collection_is_saved_only_if_it_is_included(saved):
    tm.get_collection("relus").include("relu")
    assert set(saved().tensor_names()) == PARAMETERS | GRADIENTS


# -- SaveConfig ------------------------------------------------------------------------------------


def steps_saved(saved, config, steps=12, **options):
    return saved(steps=steps, save_config=config, **options).steps()


def test_save_interval_saves_when_the_step_is_a_multiple(saved):
    assert steps_saved(saved, SaveConfig(save_interval=5)) == [0, 5, 10]


def test_start_step_is_inclusive(saved):
    assert steps_saved(saved, SaveConfig(save_interval=5, start_step=5)) == [5, 10]


def test_steps_stay_multiples_of_the_interval_after_start_step(saved):
    assert steps_saved(saved, SaveConfig(save_interval=5, start_step=3)) == [5, 10]


def test_end_step_is_exclusive(saved):
    assert steps_saved(saved, SaveConfig(save_interval=5, end_step=10)) == [0, 5]


def test_start_step_is_0_and_end_step_is_never_by_default():
    config = SaveConfig(save_interval=5)
    assert (config.start_step, config.end_step) == (0, None)


def test_save_steps_override_interval_start_and_end(saved):
    config = SaveConfig(save_interval=2, start_step=4, end_step=6, save_steps=[3, 7])
    assert steps_saved(saved, config) == [3, 7]


def test_save_steps_alone_are_the_only_steps_saved(saved):
    assert steps_saved(saved, SaveConfig(save_steps=[3, 7])) == [3, 7]


def test_save_steps_of_a_collection_override_the_hooks_interval(saved):
    tm.get_collection("weights").set_save_config(SaveConfig(save_steps=[3, 7]))
    trial = saved(steps=9, save_config=SaveConfig(save_interval=4))
    assert trial.tensor("net_conv0_weight").steps() == [3, 7]
    assert trial.tensor("net_conv0_bias").steps() == [0, 4, 8]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_when_nan_saves_whenever_one_of_these_tensors_is_nan_or_infinite(out_dir, net, bad):
    hook = TornasoleHook(out_dir, save_config=SaveConfig(when_nan=["net_input"]))
    hook.register_hook(net)
    for step in range(6):
        net(mx.nd.ones((2, 1, 4, 4)) * (bad if step == 4 else 1))
    trial = trial_of(hook)
    assert trial.steps() == [0, 4]
    assert set(trial.tensor_names(step=4)) == PARAMETERS


def test_when_nan_beside_an_interval(saved):
    config = SaveConfig(save_interval=5, when_nan=["l2loss0_output"])
    assert steps_saved(saved, config, bad_steps=[2, 7]) == [0, 2, 5, 7, 10]


def test_when_nan_beside_save_steps(saved):
    config = SaveConfig(save_steps=[3, 4], when_nan=["l2loss0_output"])
    assert steps_saved(saved, config, bad_steps=[2, 7]) == [2, 3, 4, 7]


def test_when_nan_watches_only_the_tensors_it_names(saved):
    config = SaveConfig(save_interval=5, when_nan=["^net_conv0_weight"])
    assert steps_saved(saved, config, bad_steps=[2]) == [0, 5, 10]


def test_when_nan_may_belong_to_one_collection(saved):
    tm.get_collection("weights").set_save_config(SaveConfig(save_interval=5, when_nan=[".*loss.*"]))
    trial = saved(steps=6, save_config=SaveConfig(save_interval=5), bad_steps=[2])
    assert trial.tensor("net_conv0_weight").steps() == [0, 2, 5]
    assert trial.tensor("net_conv0_bias").steps() == [0, 5]


# -- ReductionConfig -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "kept"),
    [
        (
            ReductionConfig(abs_reductions=["min", "max", "mean"]),
            {("min", True), ("max", True), ("mean", True)},
        ),
        (
            ReductionConfig(reductions=["min", "max", "mean"]),
            {("min", False), ("max", False), ("mean", False)},
        ),
        (ReductionConfig(norms=["l1"]), {("l1", False)}),
    ],
)
def test_the_reductions_of_the_examples_are_saved_instead_of_the_tensor(saved, net, config, kept):
    weight = saved(reduction_config=config).tensor("net_conv0_weight")
    value = net[0].weight.data().asnumpy()
    assert set(weight.reduction_values(0)) == kept
    for name, absolute in kept:
        of = np.abs(value) if absolute else value
        expected = np.abs(of).sum() if name == "l1" else getattr(of, name)()
        found = weight.reduction_value(0, name, abs=absolute)
        assert found == pytest.approx(float(expected), rel=1e-5)
    with pytest.raises(TensorUnavailableForStep):
        weight.value(0)


def test_the_block_with_a_reduction_config_for_the_hook_runs(out_dir, net):
    global_save_config = SaveConfig(save_interval=2)

    import tornasole.mxnet as tm

    global_reduce_config = tm.ReductionConfig(reductions=["max", "mean"])
    hook = tm.TornasoleHook(
        out_dir=out_dir, save_config=global_save_config, reduction_config=global_reduce_config
    )

    hook.register_hook(net)
    train(net, steps=3)
    trial = trial_of(hook)
    assert trial.steps() == [0, 2]
    for name in PARAMETERS | GRADIENTS:
        kept = trial.tensor(name).reduction_values(2)
        assert set(kept) == {("max", False), ("mean", False)}


def test_the_block_with_reduction_configs_for_collections_runs(out_dir, net):
    import tornasole.mxnet as tm

    tm.get_collection("ReluActivation").include(["relu*"])
    tm.get_collection("ReluActivation").set_save_config(SaveConfig(save_steps=[4, 5, 6]))
    tm.get_collection("ReluActivation").set_reduction_config(
        ReductionConfig(reductions=["min"], abs_reductions=["max"])
    )
    tm.get_collection("flatten").include(["flatten*"])
    tm.get_collection("flatten").set_save_config(SaveConfig(save_steps=[4, 5, 6]))
    tm.get_collection("flatten").set_reduction_config(
        ReductionConfig(norms=["l1"], abs_norms=["l2"])
    )
    hook = TornasoleHook(
        out_dir=out_dir,
        include_collections=[
            "weights", "bias", "gradients", "default", "ReluActivation", "flatten"
        ],
    )  # fmt: skip

    hook.register_hook(net)
    train(net, steps=8)
    trial = trial_of(hook)
    relu, flatten = trial.tensor("net_conv0_relu_output_0"), trial.tensor("net_flatten0_output_0")
    assert relu.steps() == flatten.steps() == [4, 5, 6]
    assert set(relu.reduction_values(4)) == {("min", False), ("max", True)}
    assert set(flatten.reduction_values(4)) == {("l1", False), ("l2", True)}
    assert trial.tensor("net_conv0_weight").steps() == [0]
    assert trial.tensor("net_conv0_bias").value(0).shape == (2,)
    assert set(trial.tensor_names(step=0)) == PARAMETERS | GRADIENTS


# -- how to save tensors ---------------------------------------------------------------------------


def test_regexes_belong_to_the_default_collection_and_its_save_config(saved):
    tm.get_collection("default").set_save_config(SaveConfig(save_interval=2))
    trial = saved(steps=4, save_config=SaveConfig(save_interval=3), include_regex=["flatten0_out"])
    assert trial.tensor_names(collection="default") == ["net_flatten0_output_0"]
    assert trial.tensor("net_flatten0_output_0").steps() == [0, 2]
    assert trial.tensor("net_conv0_weight").steps() == [0, 3]


def test_the_default_collections_are_saved_when_none_is_asked_for(saved):
    trial = saved(steps=3, save_config=SaveConfig(save_interval=2))
    assert trial.steps() == [0, 2]
    assert set(trial.tensor_names(collection="weights")) == {n for n in PARAMETERS if "weight" in n}
    assert set(trial.tensor_names(collection="biases")) == {n for n in PARAMETERS if "bias" in n}
    assert set(trial.tensor_names(collection="gradients")) == GRADIENTS
    assert trial.tensor_names(collection="default") == []


def test_collections_that_are_asked_for_replace_the_default_ones(saved):
    tm.get_collection("relus").include("relu_output")
    assert saved(include_collections=["relus"]).tensor_names() == ["net_conv0_relu_output_0"]


def test_losses_are_saved_only_if_their_collection_is_included(saved):
    assert LOSS not in saved().tensor_names()


def test_losses_are_saved_if_their_collection_is_included(saved):
    assert saved(include_collections=["losses"]).tensor_names() == [LOSS]


def test_bias_and_biases_are_the_same_collection(saved):
    assert tm.get_collection("bias") is tm.get_collection("biases")
    trial = saved(include_collections=["bias"])
    assert set(trial.tensor_names()) == {"net_conv0_bias", "net_dense0_bias"}
    assert trial.tensor_names(collection="bias") == trial.tensor_names(collection="biases")


def test_an_existing_collection_can_be_modified(out_dir, net):
    import tornasole.mxnet as tm

    tm.get_collection("weights").include(["weight"])

    hook = TornasoleHook(out_dir, include_collections=["weights"])
    hook.register_hook(net)
    train(net)
    names = [
        "gradient/net_conv0_weight",
        "gradient/net_dense0_weight",
        "net_conv0_weight",
        "net_dense0_weight",
    ]
    assert trial_of(hook).tensor_names(collection="weights") == names


def test_tensors_are_added_by_regex(out_dir, net):
    import tornasole.mxnet as tm

    tm.get_collection("ReluActivation").include(["relu*", "input_*"])

    hook = TornasoleHook(out_dir, include_collections=["ReluActivation"])
    hook.register_hook(net)
    train(net)
    assert trial_of(hook).tensor_names() == [
        "net_conv0_input_0",
        "net_conv0_relu_input_0",
        "net_conv0_relu_output_0",
        "net_dense0_input_0",
        "net_flatten0_input_0",
        "net_input_0",
    ]


def test_tensors_are_added_by_the_variables_that_represent_them(saved, net):
    tm.get_collection("mine").add([net[0].weight, net[2].bias])
    trial = saved(include_collections=["mine"])
    assert trial.tensor_names(collection="mine") == ["net_conv0_weight", "net_dense0_bias"]


def test_inputs_and_outputs_of_a_block_are_added(out_dir, net):
    conv2d = net[0]

    import tornasole.mxnet as tm

    tm.get_collection("Conv2DBlock").add_block_tensors(conv2d, inputs=True, outputs=True)

    hook = TornasoleHook(out_dir, include_collections=["Conv2DBlock"])
    hook.register_hook(net)
    train(net)
    trial = trial_of(hook)
    names = ["net_conv0_input_0", "net_conv0_output_0"]
    assert trial.tensor_names() == trial.tensor_names(collection="Conv2DBlock") == names
    assert trial.tensor("net_conv0_input_0").value(0).shape == (2, 1, 4, 4)
    assert trial.tensor("net_conv0_output_0").value(0).shape == (2, 2, 2, 2)


def test_a_collection_object_can_be_made_and_added(out_dir, net):
    hook = TornasoleHook(out_dir, include_collections=["mine"])
    hook.add_collection(Collection("mine", include_regex=["relu_output"]))
    hook.register_hook(net)
    train(net)
    assert trial_of(hook).tensor_names() == ["net_conv0_relu_output_0"]


def test_save_all_saves_all_tensors_under_the_collection_all(saved):
    trial = saved(save_all=True)
    assert trial.tensor_names(collection="all") == trial.tensor_names()
    assert len(trial.tensor_names()) == len(PARAMETERS | GRADIENTS) + 10 + 3
    assert trial.tensor_names(collection="default") == []
