"""The notebooks of examples/ run from their first cell to their last."""

import pytest
from places import ROOT

REASON = "the extra `jupyter` is not installed"


@pytest.mark.slow
def test_search_your_images(tmp_path, environment, monkeypatch):
    nbformat = pytest.importorskip("nbformat", reason=REASON)
    nbclient = pytest.importorskip("nbclient", reason=REASON)
    pytest.importorskip("ipykernel", reason=REASON)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    notebook = nbformat.read(ROOT / "examples" / "search_your_images.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)  # none are stored
    resources = {"metadata": {"path": str(tmp_path)}}
    kernel = {"kernel_name": "python3", "timeout": 900, "resources": resources}
    nbclient.NotebookClient(notebook, **kernel).execute()
    assert (tmp_path / "runs" / "own" / "report.html").exists()
    shown = [
        output["data"]["text/plain"]
        for output in notebook.cells[-1]["outputs"]
        if output["output_type"] == "execute_result"
    ]
    assert "digit_" in shown[0]
