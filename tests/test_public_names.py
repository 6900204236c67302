"""The public names exist, say what they are, and are the same objects under the old import name."""

import importlib
import subprocess
import sys

import pytest

import smdebug
import tornasole

NEEDS = {
    "mxnet": "mxnet",
    "pytorch": "torch",
    "tensorflow": "keras",
    "xgboost": "xgboost",
}  # a framework's room -> the framework
FRAMEWORK_NAMES = [
    "Hook",
    "Collection",
    "CollectionKeys",
    "SaveConfig",
    "SaveConfigMode",
    "ReductionConfig",
    "modes",
    "create_trial",
    "get_hook",
    "set_hook",
    "del_hook",
]
OLD_MODULES = sorted(smdebug.ALIASES)
OLD_NAMES = [
    (module, name, home)
    for module, held in sorted(smdebug.ALIASES.items())
    if isinstance(held, dict)
    for name, home in held.items()
]


def import_old(module):
    room = module.split(".")[1]
    if room in NEEDS:
        pytest.importorskip(NEEDS[room])
    return importlib.import_module(module)


@pytest.mark.parametrize("name", tornasole.__all__)
def test_a_public_name_resolves(name):
    assert getattr(tornasole, name) is not None


@pytest.mark.parametrize("name", [n for n in tornasole.__all__ if n != "__version__"])
def test_a_public_name_has_a_docstring(name):
    assert (getattr(tornasole, name).__doc__ or "").strip()


def test_dir_lists_every_public_name():
    assert set(tornasole.__all__) <= set(dir(tornasole))
    assert set(smdebug.__all__) <= set(dir(smdebug))


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"tornasole.*no_such_name"):
        tornasole.no_such_name  # noqa: B018
    with pytest.raises(AttributeError, match=r"smdebug.*no_such_name"):
        smdebug.no_such_name  # noqa: B018


def test_modes_is_mode_keys():
    assert tornasole.modes is tornasole.ModeKeys


@pytest.mark.parametrize("name", smdebug.__all__)
def test_a_name_of_the_old_package_is_ours(name):
    assert getattr(smdebug, name) is getattr(tornasole, name)


@pytest.mark.parametrize("module", OLD_MODULES)
def test_an_old_module_imports(module):
    assert import_old(module) is sys.modules[module]


@pytest.mark.parametrize("module", [m for m in OLD_MODULES if isinstance(smdebug.ALIASES[m], str)])
def test_an_old_module_that_is_one_of_ours_is_that_module(module):
    assert import_old(module) is importlib.import_module(smdebug.ALIASES[module])


@pytest.mark.parametrize(("module", "name", "home"), OLD_NAMES)
def test_a_name_of_an_old_module_is_our_object(module, name, home):
    source, _, attribute = home.partition(":")
    found = getattr(import_old(module), name)
    assert found is getattr(importlib.import_module(source), attribute)


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("smdebug.trials", ["create_trial", "Trial"]),
        ("smdebug.exceptions", ["SMDebugError", "StepUnavailable", "NoMoreData"]),
        ("smdebug.core.modes", ["ModeKeys"]),
        ("smdebug.core.collection", ["Collection", "CollectionKeys"]),
        ("smdebug.core.save_config", ["SaveConfig", "SaveConfigMode"]),
        (
            "smdebug.core.reduction_config",
            ["ReductionConfig", "ALLOWED_REDUCTIONS", "ALLOWED_NORMS"],
        ),
        ("smdebug.core.json_config", ["CONFIG_FILE_PATH_ENV_STR"]),
        ("smdebug.core.tensor", ["Tensor", "StepState"]),
        ("smdebug.core.hook", ["BaseHook"]),
        (
            "smdebug.analysis.utils",
            ["no_refresh", "refresh", "parse_bool", "parse_list_from_str"],
        ),
        ("smdebug.pytorch", FRAMEWORK_NAMES),
        ("smdebug.mxnet", FRAMEWORK_NAMES),
        (
            "smdebug.tensorflow",
            ["KerasHook", "SessionHook", "EstimatorHook", *FRAMEWORK_NAMES[1:]],
        ),
    ],
)
def test_an_old_module_has_the_names_that_scripts_import(module, names):
    found = import_old(module)
    assert [name for name in names if not hasattr(found, name)] == []


def test_a_module_inside_an_aliased_room_is_not_loaded_twice():
    package = importlib.import_module("smdebug.trials")
    inside = importlib.import_module("smdebug.trials.trial")
    assert inside is importlib.import_module("tornasole.trial.trial")
    assert package.__spec__.name == "tornasole.trial"


def test_an_alias_leaves_our_module_as_it_is():
    module = importlib.import_module("smdebug.exceptions")
    assert module.__name__ == module.__spec__.name == "tornasole.errors"


@pytest.mark.parametrize("module", ["smdebug.no_such", "smdebug.core.no_such"])
def test_an_old_module_that_we_do_not_have_says_so(module):
    with pytest.raises(
        ModuleNotFoundError, match=rf"{module}.*tornasole.*smdebug\.trials"
    ) as caught:
        importlib.import_module(module)
    assert caught.value.name == module


def test_old_import_statements_work_in_a_fresh_process():
    script = (
        "from smdebug.core.modes import ModeKeys\n"
        "import smdebug.exceptions as old\n"
        "import smdebug, tornasole, tornasole.errors\n"
        "assert smdebug.modes is ModeKeys is tornasole.ModeKeys\n"
        "assert old is tornasole.errors is smdebug.exceptions\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
