"""Keras 3 on its other backends: the same tests, each backend in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

keras = pytest.importorskip("keras")

HERE = Path(__file__).parent
FILES = ["values", "steps", "models", "unharmed", "bad_input"]
CHOSEN = {  # JAX takes long to compile
    "torch": "test",
    "jax": (
        "values or steps or weights_and_history or within_a_step or own_function or after_close"
        " or sequential or subclassed or recurrent or unknown_length or eagerly or several"
    ),
}


@pytest.fixture(scope="module")
def runs():
    """The tests on each backend, side by side."""
    found = {}
    for backend in ("torch", "jax"):
        pytest.importorskip(backend)
        found[backend] = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short"]
            + ["-k", CHOSEN[backend]]
            + [str(HERE / f"test_fit_{name}.py") for name in FILES],
            env={**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"},
            cwd=HERE.parent.parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    yield found
    for process in found.values():
        process.kill()
        process.wait()


@pytest.mark.keras_3
@pytest.mark.backend("tensorflow")
@pytest.mark.slow
@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_the_tests_of_fit_pass_on_another_backend(runs, backend):
    output, _ = runs[backend].communicate(timeout=280)
    assert runs[backend].returncode == 0, output
    assert " passed" in output
