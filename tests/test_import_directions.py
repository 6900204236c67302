"""Every import in src, those inside functions included, follows the directions of docs/design.md.

The table says what a room may import of the others. A new room is a new line; a line that has to
grow is a question about the design.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

SRC = Path(__file__).resolve().parent.parent / "src"

BOTTOM = {"types", "errors", "registry", "_version"}
ADAPTER = {"capture", "selection", "stats", *BOTTOM}

MAY_IMPORT = {
    # bottom layer
    "_version": set(),
    "types": set(),
    "errors": {"types"},
    "registry": {"errors"},
    # pure
    "selection": BOTTOM,
    "stats": BOTTOM,
    # the waist of the hourglass
    "store": BOTTOM,
    "format": {"store", *BOTTOM},
    # write side
    "capture": {"selection", "stats", "format", *BOTTOM},
    "pytorch": ADAPTER,
    "tensorflow": ADAPTER,
    "mxnet": ADAPTER,
    "xgboost": ADAPTER,
    # read side
    "trial": {"format", "selection", "stats", *BOTTOM},
    "rules": {"trial", "format", "selection", "stats", *BOTTOM},
    "views": {"rules", "trial", "selection", "demo", *BOTTOM},
    # on top
    "demo": {"pytorch", "trial"},
    "testing": {"capture", "store", "format", "trial", "rules", "selection", "stats", *BOTTOM},
    "__main__": {"views"},
    "__init__": {"capture", "selection", "trial", "types", "errors", "_version"},
}

# The facade of a framework also offers create_trial, as scripts written for smdebug expect, and a
# report.
FACADES_MAY_ALSO_IMPORT = {"trial", "views"}

FRAMEWORKS = {"jax", "jaxlib", "keras", "mxnet", "tensorflow", "torch", "xgboost"}
FRAMEWORKS_OF = {
    "pytorch": {"torch"},
    "tensorflow": {"tensorflow", "keras"},
    "mxnet": {"mxnet"},
    "xgboost": {"xgboost"},
    "stats/torch.py": {"torch"},
    "demo": {"torch"},
}

VAGUE_NAMES = {"utils", "helpers", "common", "manager", "core"}


class Import(NamedTuple):
    line: int
    module: str  # "tornasole.trial", "torch.nn"; from tornasole import x: "tornasole.x"


def imports_of(source: str) -> Iterator[Import]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import"
            for alias in node.names:
                yield Import(node.lineno, f"{node.module}.{alias.name}")


def complaint(path: str, imported: str) -> str | None:
    """Why a file, named from src on, may not import a module; None when it may."""
    package, *inside = path.split("/")
    target, *below = imported.split(".")
    if package == "smdebug":
        return None if target in {"tornasole", "__future__"} or is_standard(target) else "not ours"

    room = inside[0].removesuffix(".py")
    if room not in MAY_IMPORT:
        return f"room {room!r} has no line in the table of this test"
    if target == "smdebug":
        return "the old name is for users"
    if target in FRAMEWORKS:
        allowed = FRAMEWORKS_OF.get(room, set()) | FRAMEWORKS_OF.get("/".join(inside), set())
        return None if target in allowed else f"{'/'.join(inside)} may not import {target}"
    if target != "tornasole":
        return None

    to = below[0] if below else ""
    allowed = MAY_IMPORT[room] | {room}
    if room in FRAMEWORKS_OF and inside[1:] == ["__init__.py"]:
        allowed = allowed | FACADES_MAY_ALSO_IMPORT
    if to in allowed:
        return None
    if to in MAY_IMPORT:
        return f"{room} may not import {to}"
    return "import from the room that holds it, not from the package"


def is_standard(module: str) -> bool:
    return module in sys.stdlib_module_names


FILES = sorted(path.relative_to(SRC).as_posix() for path in SRC.rglob("*.py"))


@pytest.mark.parametrize("path", FILES)
def test_a_file_imports_only_what_its_room_may(path):
    wrong = [
        f"src/{path}:{found.line}: {found.module}: {why}"
        for found in imports_of((SRC / path).read_text("utf-8"))
        if (why := complaint(path, found.module))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("path", [path for path in FILES if path.startswith("tornasole/")])
def test_no_module_has_a_name_that_says_nothing(path):
    assert not VAGUE_NAMES & set(path.removesuffix(".py").split("/"))


@pytest.mark.parametrize(
    ("path", "imported"),
    [
        ("tornasole/trial/trial.py", "tornasole.capture.hook"),
        ("tornasole/capture/hook.py", "tornasole.trial"),
        ("tornasole/capture/hook.py", "tornasole.store.local"),
        ("tornasole/capture/hook.py", "torch"),
        ("tornasole/pytorch/hook.py", "tornasole.trial"),
        ("tornasole/pytorch/hook.py", "tensorflow.keras"),
        ("tornasole/stats/numpy.py", "torch"),
        ("tornasole/trial/trial.py", "tornasole.create_trial"),
        ("tornasole/types.py", "tornasole.errors"),
        ("tornasole/attic/old.py", "os"),
        ("smdebug/__init__.py", "numpy"),
    ],
)
def test_a_wrong_direction_is_seen(path, imported):
    assert complaint(path, imported)


@pytest.mark.parametrize(
    ("path", "imported"),
    [
        ("tornasole/pytorch/__init__.py", "tornasole.trial"),
        ("tornasole/pytorch/hook.py", "torch.nn"),
        ("tornasole/stats/torch.py", "torch"),
        ("tornasole/trial/trial.py", "tornasole.errors.NoMoreData"),
        ("tornasole/format/reader.py", "pyarrow.parquet"),
    ],
)
def test_a_right_direction_is_let_through(path, imported):
    assert complaint(path, imported) is None


def test_imports_inside_functions_are_seen():
    source = "def f():\n    if x:\n        from tornasole.trial import Trial\n"
    assert list(imports_of(source)) == [Import(3, "tornasole.trial.Trial")]
