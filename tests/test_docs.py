"""Documents are tested like code: their Python runs, their links lead somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NEEDS = {
    "README.md": "torch",
    "compatibility.md": "mxnet",
    "configuration.md": "torch",
    "tensorflow.md": "tensorflow",
    "xgboost.md": "xgboost",
}


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def trial_path(tmp_path: Path) -> str:
    import numpy as np

    import tornasole

    hook = tornasole.Hook(out_dir=tmp_path / "trial", save_all=True)
    hook.set_mode(tornasole.modes.TRAIN)
    for step in range(3):
        hook.begin_step()
        hook.save_tensor("loss", np.float32(1 / (step + 1)), "losses")
        hook.save_tensor("weight", np.ones((2, 3), np.float32), "weights")
    hook.close()
    return str(tmp_path / "trial")


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=lambda page: page.name)
def test_the_python_of_every_page_runs(
    page: Path, trial_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if page.name in NEEDS:
        pytest.importorskip(NEEDS[page.name])
    if "to_pandas" in page.read_text():
        pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"path": trial_path, "__name__": "docs"}
    for number, block in enumerate(blocks(page)):
        code = compile(block, f"{page.name}, block {number + 1}", "exec")
        exec(code, names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= 600
