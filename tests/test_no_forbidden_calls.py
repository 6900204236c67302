"""Nothing in src unpickles, evaluates text or prints; only the command line talks to a terminal."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parent.parent / "src"
FILES = sorted(path.relative_to(SRC).as_posix() for path in SRC.rglob("*.py"))

UNPICKLING = {"_pickle", "cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve"}
EVALUATING = {"__import__", "compile", "eval", "exec"}
MAY_PRINT = "tornasole/views/cli/"


def offences(path: str, source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules = {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules = {(node.module or "").partition(".")[0]}
        else:
            modules = set()
        for module in sorted(modules & UNPICKLING):
            yield f"line {node.lineno}: imports {module}"

        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id in EVALUATING:
            yield f"line {node.lineno}: calls {node.func.id}()"
        if (
            isinstance(node.func, ast.Name)
            and node.func.id == "print"
            and not path.startswith(MAY_PRINT)
        ):
            yield f"line {node.lineno}: calls print()"
        if isinstance(node.func, ast.Attribute) and ast.unparse(node.func) == "torch.load":
            yield f"line {node.lineno}: calls torch.load()"
        for keyword in node.keywords:
            if keyword.arg == "allow_pickle" and ast.unparse(keyword.value) != "False":
                yield f"line {node.lineno}: allows pickles"


@pytest.mark.parametrize("path", FILES)
def test_a_file_makes_no_forbidden_call(path):
    assert list(offences(path, (SRC / path).read_text("utf-8"))) == []


@pytest.mark.parametrize(
    "source",
    [
        "print('x')",
        "eval('x')",
        "def f():\n    exec(text)",
        "import pickle",
        "from pickle import loads",
        "np.load(path, allow_pickle=True)",
        "torch.load(path)",
    ],
)
def test_a_forbidden_call_is_seen(source):
    assert list(offences("tornasole/trial/trial.py", source))


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("tornasole/views/cli/show.py", "print('x')"),
        ("tornasole/trial/trial.py", "np.load(path, allow_pickle=False)"),
        ("tornasole/trial/trial.py", "re.compile('x')"),
        ("tornasole/trial/trial.py", "model.eval()"),
    ],
)
def test_an_innocent_call_is_let_through(path, source):
    assert list(offences(path, source)) == []
