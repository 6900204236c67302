"""What docs/format.md tells others to do is right, also for runs that were killed."""

import re
from pathlib import Path

import pytest

from tornasole.format import segment
from tornasole.format.payload import DTYPES
from tornasole.format.segment import SCHEMA
from tornasole.format.writer import Limits
from tornasole.store.local import LocalStore

PAGE = Path(__file__).parent.parent.parent / "docs" / "format.md"


class Keeping(LocalStore):
    """Deletes nothing, as if every merge had been cut off."""

    def delete(self, key):
        pass


@pytest.mark.parametrize("kind", [LocalStore, Keeping])
def test_the_reader_in_the_document_reads_each_row_once(tmp_path, making, kind):
    store = kind(tmp_path)
    making.claim(store)
    writer = making.writer(store, Limits(fan_in=3))
    making.segments(writer, [[making.step(number)] for number in range(20)], merge=True)
    names = {"path": str(tmp_path)}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        exec(block, names)
    steps = names["ordered"].column("step").to_pylist()
    assert steps == [number for number in range(20) for _ in range(3)]
    assert names["array"].tolist() == [0, 1, 2]


def test_every_column_and_dtype_is_in_the_document():
    text = PAGE.read_text()
    spelled = {*SCHEMA.names} - {name for name in segment.STATISTICS if name.startswith("abs_")}
    assert [name for name in sorted(spelled | DTYPES) if f"`{name}`" not in text] == []
