"""Importing the package loads nothing but itself and the standard library."""

import json
import subprocess
import sys

import pytest

LISTING = """
import json, sys
before = set(sys.modules)
import {module}
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def loaded_by_importing(module):
    run = subprocess.run(
        [sys.executable, "-c", LISTING.format(module=module)],
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(run.stdout)


@pytest.mark.parametrize("module", ["tornasole", "smdebug"])
def test_importing_it_loads_no_other_package(module):
    packages = {name.partition(".")[0] for name in loaded_by_importing(module)}
    assert packages - sys.stdlib_module_names <= {"tornasole", "smdebug"}


@pytest.mark.parametrize("module", ["tornasole", "smdebug"])
def test_importing_it_loads_none_of_the_rooms(module):
    ours = {name for name in loaded_by_importing(module) if name.startswith("tornasole")}
    assert ours == {"tornasole", "tornasole._version"}


def test_importing_it_starts_no_machinery():
    heavy = {"asyncio", "concurrent", "http", "multiprocessing", "sqlite3", "subprocess", "urllib"}
    packages = {name.partition(".")[0] for name in loaded_by_importing("tornasole")}
    assert not packages & heavy
