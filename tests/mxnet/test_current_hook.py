"""get_hook, set_hook and del_hook as Gluon scripts use them."""

import json

import numpy as np
import pytest

mx = pytest.importorskip("mxnet")

import tornasole  # noqa: E402
import tornasole.mxnet as smd  # noqa: E402


@pytest.fixture
def config(tmp_path, out_dir):
    path = tmp_path / "hook.json"
    path.write_text(
        json.dumps(
            {
                "LocalPath": str(out_dir),
                "HookParameters": {"save_interval": "2"},
                "CollectionConfigurations": [{"CollectionName": "weights"}],
            }
        )
    )
    return path


def test_the_hook_made_is_the_current_one(new_hook):
    hook = new_hook()
    assert smd.get_hook() is hook
    smd.del_hook()
    assert smd.get_hook(create_if_not_exists=False) is None
    smd.set_hook(hook)
    assert smd.get_hook() is hook


def test_a_closed_hook_is_not_the_current_one(new_hook):
    new_hook().close()
    assert smd.get_hook(create_if_not_exists=False) is None


def test_get_hook_makes_one_from_a_file(config, out_dir):
    hook = smd.get_hook(str(config))
    assert type(hook) is smd.Hook
    assert hook.out_dir == str(out_dir)
    assert smd.get_hook() is hook
    hook.close()


def test_a_hook_from_a_file_saves_what_the_file_says(config, net, train, read):
    hook = smd.get_hook(config)
    hook.register_block(net)
    weight = net[0].weight.data().asnumpy()
    train(net, 3)
    hook.close()
    assert read().steps() == [0, 2]
    assert len(read().tensor_names(collection="weights")) == len(read().tensor_names()) == 3
    np.testing.assert_array_equal(read().tensor("net_dense0_weight").value(0), weight)


def test_get_hook_takes_the_file_from_the_environment(config, out_dir, monkeypatch):
    monkeypatch.setenv("SMDEBUG_CONFIG_FILE_PATH", str(config))
    hook = smd.get_hook()
    assert hook.out_dir == str(out_dir)
    hook.close()


def test_get_hook_makes_none_if_not_asked_to(config):
    assert smd.get_hook(str(config), create_if_not_exists=False) is None


def test_get_hook_makes_none_without_a_file(tmp_path):
    assert smd.get_hook(str(tmp_path / "none")) is None


def test_get_hook_makes_none_when_switched_off(config, monkeypatch):
    monkeypatch.setenv("USE_SMDEBUG", "0")
    assert smd.get_hook(str(config)) is None


def test_a_hook_of_another_kind_is_not_the_hook_of_mxnet(tmp_path):
    with tornasole.Hook(tmp_path / "other"):
        assert smd.get_hook(str(tmp_path / "none")) is None


def test_the_trial_names_framework_and_version(new_hook, out_dir):
    new_hook().close()
    about = json.loads((out_dir / "trial.json").read_text())
    assert about["framework"] == "mxnet"
    assert about["versions"]["mxnet"] == mx.__version__
