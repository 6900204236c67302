"""The plug-in loader: a name becomes an object, or an error that says what to do."""

from importlib.metadata import EntryPoint

import pytest

from tornasole import registry
from tornasole.errors import MissingExtra, SMDebugValueError


@pytest.fixture
def add(monkeypatch):
    """Adds a built-in plug-in of kind "store" for one test."""
    table = {kind: dict(paths) for kind, paths in registry.BUILT_IN.items()}
    monkeypatch.setattr(registry, "BUILT_IN", table)
    return lambda name, path: table["store"].__setitem__(name, path)


@pytest.fixture
def install(monkeypatch):
    """Adds an entry point, as another package's installation would."""

    def install(group, name, value):
        point = EntryPoint(name, value, group)
        monkeypatch.setattr(
            registry, "entry_points", lambda *, group: [point] if group == point.group else []
        )

    return install


def test_a_built_in_plug_in_is_the_object_at_its_path(add):
    add("nearby", "collections:OrderedDict")
    from collections import OrderedDict

    assert registry.load("store", "nearby") is OrderedDict


@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, name) for kind in registry.BUILT_IN for name in registry.BUILT_IN[kind]],
)
def test_every_built_in_plug_in_loads(kind, name):
    assert callable(registry.load(kind, name))


def test_another_package_adds_a_plug_in_by_entry_point(install):
    install("tornasole.store", "ordered", "collections:OrderedDict")
    assert registry.load("store", "ordered").__name__ == "OrderedDict"
    assert registry.names("store") == ["file", "memory", "ordered"]


def test_an_entry_point_cannot_take_over_a_built_in_name(install, add):
    add("file", "collections:Counter")
    install("tornasole.store", "file", "collections:OrderedDict")
    assert registry.load("store", "file").__name__ == "Counter"


def test_an_unknown_name_says_what_exists_and_what_is_nearest():
    with pytest.raises(
        SMDebugValueError, match=r"'memmory'.*Did you mean 'memory'\? There are: file, memory"
    ):
        registry.load("store", "memmory")


def test_an_unknown_name_far_from_all_others_gets_no_guess():
    with pytest.raises(SMDebugValueError, match=r"'xyz'\. There are: file, memory"):
        registry.load("store", "xyz")


def test_an_unknown_kind_says_which_kinds_there_are():
    with pytest.raises(SMDebugValueError, match=r"kind of plug-in 'stroe'.*'store'"):
        registry.load("stroe", "file")


def test_a_missing_extra_is_named_with_the_command_that_installs_it(add, monkeypatch):
    add("far", "no_such_package.store:Store")
    monkeypatch.setitem(registry.EXTRAS, "no_such_package", "far")
    with pytest.raises(MissingExtra, match=r"store plug-in 'far'.*pip install 'tornasole\[far\]'"):
        registry.load("store", "far")


def test_a_missing_package_of_another_plug_in_is_named(install):
    install("tornasole.store", "ftp", "acme_ftp:open_ftp")
    with pytest.raises(MissingExtra, match=r"'ftp' needs 'acme_ftp'"):
        registry.load("store", "ftp")


def test_a_missing_module_of_our_own_is_not_blamed_on_an_extra(add):
    add("lost", "tornasole.no_such_module:Store")
    with pytest.raises(ModuleNotFoundError, match=r"tornasole\.no_such_module") as caught:
        registry.load("store", "lost")
    assert not isinstance(caught.value, MissingExtra)


def test_a_path_without_its_attribute_is_named(add):
    add("hollow", "collections:NoSuchThing")
    with pytest.raises(SMDebugValueError, match=r"'collections:NoSuchThing'.*no 'NoSuchThing'"):
        registry.load("store", "hollow")


def test_every_extra_that_errors_name_is_declared():
    tomllib = pytest.importorskip("tomllib")
    from pathlib import Path

    text = (Path(__file__).parent.parent / "pyproject.toml").read_text("utf-8")
    declared = tomllib.loads(text)["project"]["optional-dependencies"]
    assert set(registry.EXTRAS.values()) <= set(declared)
