"""get_hook as TensorFlow scripts use it."""

import json

import pytest

tf = pytest.importorskip("tensorflow")

import tornasole  # noqa: E402
from tornasole.capture import del_hook  # noqa: E402
from tornasole.errors import SMDebugValueError  # noqa: E402
from tornasole.tensorflow.current import get_hook  # noqa: E402
from tornasole.tensorflow.keras_hook import KerasHook  # noqa: E402
from tornasole.tensorflow.session import SessionHook  # noqa: E402


@pytest.fixture(autouse=True)
def alone():
    del_hook()
    yield
    hook = tornasole.get_hook()
    if hook is not None:
        hook.close()


@pytest.fixture
def out_dir(tmp_path):
    return str(tmp_path / "trial")


@pytest.fixture
def config(tmp_path, out_dir):
    path = tmp_path / "hook.json"
    path.write_text(json.dumps({"LocalPath": out_dir, "HookParameters": {"save_interval": "2"}}))
    return path


@pytest.mark.parametrize("kind", [SessionHook, KerasHook])
def test_the_hook_made_is_the_current_one(out_dir, kind):
    assert get_hook() is None
    hook = kind(out_dir)
    assert get_hook() is hook
    hook.close()
    assert get_hook() is None


def test_a_hook_of_another_kind_is_not_the_one_asked_for(out_dir):
    hook = SessionHook(out_dir)
    assert get_hook("session") is get_hook("estimator") is hook
    assert get_hook("keras") is None


def test_a_hook_of_another_framework_is_none(out_dir):
    with tornasole.Hook(out_dir):
        assert get_hook() is None


@pytest.mark.parametrize(
    ("name", "kind"), [("session", SessionHook), ("estimator", SessionHook), ("keras", KerasHook)]
)
def test_one_is_made_from_a_file_on_request(config, out_dir, name, kind):
    assert get_hook(name, str(config)) is None
    hook = get_hook(name, str(config), create_if_not_exists=True)
    assert type(hook) is kind
    assert hook.out_dir == out_dir
    assert get_hook(name, create_if_not_exists=True) is hook


def test_none_is_made_without_a_file(tmp_path):
    assert get_hook("keras", tmp_path / "none", create_if_not_exists=True) is None


def test_none_is_made_when_switched_off(config, monkeypatch):
    monkeypatch.setenv("USE_SMDEBUG", "0")
    assert get_hook("keras", config, create_if_not_exists=True) is None


def test_none_is_made_of_no_kind(config):
    with pytest.raises(SMDebugValueError, match="hook_type"):
        get_hook(json_config_path=config, create_if_not_exists=True)


def test_a_kind_that_does_not_exist_is_refused():
    with pytest.raises(SMDebugValueError, match="session"):
        get_hook("sesion")
