"""The notebooks run from top to bottom, and what they keep is what they give."""

from pathlib import Path

import nbclient
import nbformat
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    # What `dci build` has written, by the name that the docs give it, is not the sample's to replace.
    (tmp_path / "dci" / "data").mkdir(parents=True)
    for name in ("README.md", "data/test-00000-of-00001.parquet"):
        (tmp_path / "dci" / name).write_text("the user's own")
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert {file.read_text() for file in (tmp_path / "dci").rglob("*") if file.is_file()} == {"the user's own"}
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    kinds = {key for cell in code for output in cell.outputs for key in output.get("data", {})}
    assert "image/png" in kinds
    assert not [output for cell in code for output in cell.outputs if output.get("name") == "stderr"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_its_outputs_are_kept(path):
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert any(cell.outputs for cell in code)
    text = path.read_text()
    assert str(Path.home() / "") not in text or Path.home() == Path("/")
    assert ".ipynb_checkpoints" not in text
