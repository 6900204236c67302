"""What each framework's hook starts with, by role."""

import pytest

from tornasole.errors import SMDebugValueError
from tornasole.selection import UNREDUCED_COLLECTIONS, Collection, builtin_for
from tornasole.types import Role

FRAMEWORKS = ["pytorch", "mxnet", "tensorflow", "xgboost"]
LAYERED = {
    *("all", "default", "weights", "biases", "gradients", "losses", "inputs", "outputs", "layers"),
    *("buffers", "optimizer_variables", "labels", "predictions", "metrics", "sm_metrics"),
}
NAMES = {
    "pytorch": LAYERED,
    "mxnet": LAYERED,
    "tensorflow": LAYERED,
    "xgboost": {
        *("all", "default", "metrics", "losses", "hyperparameters", "predictions", "labels"),
        *("feature_importance", "average_shap", "full_shap", "trees"),
    },
}


def collections_of(framework, role):
    collections = builtin_for(framework).collections().values()
    return {c.name for c in collections if c.matches("a tensor", role)} - {"all"}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_each_framework_has_its_built_in_collections(framework):
    collections = builtin_for(framework).collections()
    assert set(collections) == {c.name for c in collections.values()} == NAMES[framework]


@pytest.mark.parametrize("framework", ["pytorch", "mxnet", "tensorflow"])
@pytest.mark.parametrize(
    ("role", "names"),
    [
        (Role.WEIGHT, {"weights"}),
        (Role.BIAS, {"biases"}),
        (Role.GRADIENT, {"gradients"}),
        (Role.LOSS, {"losses"}),
        (Role.BUFFER, {"buffers"}),
        (Role.METRIC, {"metrics"}),
        (Role.OPTIMIZER_VARIABLE, {"optimizer_variables"}),
        (Role.INPUT, {"inputs"}),
        (Role.OUTPUT, {"outputs"}),
        (Role.SCALAR, set()),
        (Role.CUSTOM, set()),
    ],
)
def test_a_role_has_its_collections_in_layered_frameworks(framework, role, names):
    assert collections_of(framework, role) == names


@pytest.mark.parametrize("framework", ["pytorch", "mxnet"])
def test_layer_inputs_and_outputs_are_inputs_outputs_and_layers(framework):
    assert collections_of(framework, Role.LAYER_INPUT) == {"inputs", "layers"}
    assert collections_of(framework, Role.LAYER_OUTPUT) == {"outputs", "layers"}


def test_in_tensorflow_inputs_and_outputs_are_those_of_the_model():
    assert collections_of("tensorflow", Role.LAYER_INPUT) == {"layers"}
    assert collections_of("tensorflow", Role.LAYER_OUTPUT) == {"layers"}
    assert collections_of("tensorflow", Role.LABEL) == {"outputs", "labels"}
    assert collections_of("tensorflow", Role.PREDICTION) == {"outputs", "predictions"}


@pytest.mark.parametrize(
    ("role", "name"),
    [
        (Role.METRIC, "metrics"),
        (Role.HYPERPARAMETER, "hyperparameters"),
        (Role.PREDICTION, "predictions"),
        (Role.LABEL, "labels"),
        (Role.FEATURE_IMPORTANCE, "feature_importance"),
        (Role.AVERAGE_SHAP, "average_shap"),
        (Role.FULL_SHAP, "full_shap"),
        (Role.TREE, "trees"),
    ],
)
def test_a_role_has_its_collection_in_xgboost(role, name):
    assert collections_of("xgboost", role) == {name}


def test_in_xgboost_a_loss_is_a_metric_too():
    assert collections_of("xgboost", Role.LOSS) == {"losses", "metrics"}


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("role", Role)
def test_all_matches_all_tensors(framework, role):
    assert builtin_for(framework).collections()["all"].matches("a tensor", role)


@pytest.mark.parametrize(
    ("framework", "included", "interval"),
    [
        ("pytorch", {"losses"}, 500),
        ("mxnet", {"losses"}, 500),
        ("tensorflow", {"metrics", "losses", "sm_metrics"}, 500),
        ("xgboost", {"metrics"}, 10),
    ],
)
def test_the_defaults_of_each_framework(framework, included, interval):
    assert builtin_for(framework).included == included
    assert builtin_for(framework).save_interval == interval


def test_collections_are_made_anew_for_each_hook():
    one = builtin_for("pytorch").collections()
    one["weights"].include("relu")
    assert builtin_for("pytorch").collections()["weights"].include_regex == []


def test_collections_can_be_of_the_frameworks_own_kind():
    class Mine(Collection):
        pass

    assert type(builtin_for("pytorch").collections(Mine)["weights"]) is Mine


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_collections_that_are_never_reduced_have_no_histograms(framework):
    collections = builtin_for(framework).collections()
    without = {name for name, c in collections.items() if not c.save_histogram}
    assert without == UNREDUCED_COLLECTIONS & collections.keys()


def test_an_unknown_framework_is_refused_with_the_nearest():
    with pytest.raises(SMDebugValueError, match="Did you mean 'pytorch'"):
        builtin_for("torch")
