"""``MirroredStrategy`` on two logical CPUs: one worker for each replica, or one for all.

Devices can be divided only before TensorFlow first looks at them, so it runs in a process of its
own.
"""

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

pytest.importorskip("keras")
pytest.importorskip("tensorflow")

import tornasole.tensorflow as smd

pytestmark = pytest.mark.backend("tensorflow")

SCRIPT = """
    import sys
    import numpy as np
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    import keras
    import tornasole.tensorflow as smd

    folder = sys.argv[1]
    x = np.random.default_rng(0).normal(size=(16, 4)).astype("float32")
    y = x[:, :2]


    def train(hook=None):
        keras.utils.set_random_seed(0)
        strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        with strategy.scope():
            model = keras.Sequential(
                [keras.Input((4,)), keras.layers.Dense(3, name="hidden"),
                 keras.layers.Dense(2, name="out")], name="net")
            model.compile(keras.optimizers.SGD(0.1), "mse")
        data = tf.data.Dataset.from_tensor_slices((x, y)).batch(8)
        model.fit(data, epochs=2, verbose=0, callbacks=[hook] if hook else [])
        if hook:
            model.evaluate(data, verbose=0, callbacks=[hook])
            hook.close()
        return [np.array(w) for w in model.get_weights()]


    def hook(name, workers):
        return smd.KerasHook(
            f"{folder}/{name}", save_all=True, include_workers=workers, on_error="raise",
            save_config=smd.SaveConfig(save_interval=1))


    np.savez(f"{folder}/plain.npz", *train())
    np.savez(f"{folder}/all.npz", *train(hook("all", "all")))
    np.savez(f"{folder}/one.npz", *train(hook("one", "one")))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mirrored")
    script = folder / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    run = subprocess.run(
        [sys.executable, str(script), str(folder)],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-4000:]
    return folder


@pytest.fixture(scope="module")
def every(folder):
    return smd.create_trial(str(folder / "all"))


@pytest.fixture(scope="module")
def one(folder):
    return smd.create_trial(str(folder / "one"))


@pytest.fixture(scope="module")
def batch():
    return np.random.default_rng(0).normal(size=(16, 4)).astype("float32")


def weights_in(folder, name):
    with np.load(folder / f"{name}.npz") as file:
        return [file[key] for key in file.files]


@pytest.mark.parametrize("name", ["all", "one"])
def test_the_weights_are_those_without_a_hook(folder, name):
    for watched, plain in zip(weights_in(folder, name), weights_in(folder, "plain"), strict=True):
        np.testing.assert_array_equal(watched, plain)


def test_each_replica_is_a_worker(every):
    assert every.workers() == ["worker_0", "worker_1"]


def test_with_one_worker_the_first_replica_is_saved(one, batch):
    assert one.workers() == ["worker_0"]
    np.testing.assert_array_equal(one.tensor("inputs").value(0), batch[:4])


def test_each_replica_saves_its_part_of_the_batch(every, batch):
    for step, start in enumerate((0, 8, 0, 8)):
        for replica in range(2):
            part = slice(start + 4 * replica, start + 4 * replica + 4)
            value = every.tensor("inputs").value(step, worker=f"worker_{replica}")
            np.testing.assert_array_equal(value, batch[part])


def test_each_replica_saves_what_its_layers_compute(every, batch):
    for replica in range(2):
        worker = f"worker_{replica}"
        weights = {
            name.rpartition("/")[2].partition(":")[0]: every.tensor(name).value(0, worker=worker)
            for name in every.tensor_names(regex="^hidden/weights/")
        }
        expected = batch[4 * replica : 4 * replica + 4] @ weights["kernel"] + weights["bias"]
        found = every.tensor("hidden/outputs").value(0, worker=worker)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_the_gradients_of_replicas_differ(every):
    names = every.tensor_names(collection="gradients")
    assert len(names) == 4
    for name in names:
        values = [every.tensor(name).value(0, worker=f"worker_{i}") for i in range(2)]
        assert not np.array_equal(*values)


def test_the_update_is_by_the_gradients_of_all_replicas(every):
    name = next(n for n in every.tensor_names(collection="gradients") if "out/kernel" in n)
    weight = next(n for n in every.tensor_names(regex="^out/weights/.*kernel"))
    total = sum(every.tensor(name).value(0, worker=f"worker_{i}") for i in range(2))
    before, after = (every.tensor(weight).value(step, worker="worker_0") for step in (0, 1))
    np.testing.assert_allclose(before - 0.1 * total, after, rtol=1e-5, atol=1e-6)


def test_weights_and_losses_are_the_same_for_all_replicas(every):
    for name in [*every.tensor_names(collection="weights"), "loss"]:
        values = [every.tensor(name).value(1, worker=f"worker_{i}") for i in range(2)]
        np.testing.assert_array_equal(*values)


def test_all_replicas_count_the_same_steps(every):
    assert every.steps() == list(range(6))
    for replica in range(2):
        tensor = every.tensor("predictions")
        steps = [step for step in range(6) if f"worker_{replica}" in tensor.workers(step)]
        assert steps == list(range(6))
    assert every.tensor("predictions").steps(mode=smd.modes.EVAL) == [0, 1]
