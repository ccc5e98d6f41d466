"""Notebooks: cells as one text, findings by cell, edits written back and nothing else touched."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfaudit.findings import Edit, Location, Span
from perfaudit.static.notebook import read_notebook
from perfaudit.static.source import Unreadable

PARSER = f" (read as Python {sys.version_info.major}.{sys.version_info.minor}, with which perfaudit runs)"

pytestmark = pytest.mark.usefixtures("in_this_process")

Project = Callable[..., Path]
Run = Callable[..., Any]


def cell(source: str | list[str], kind: str = "code") -> dict[str, Any]:
    return {"cell_type": kind, "metadata": {}, "source": source, "outputs": [{"data": {"text/plain": ["<é>"]}}]}


def notebook(*cells: dict[str, Any], language: str = "python", indent: int | None = 1, **dump: Any) -> str:
    data = {"cells": cells, "metadata": {"kernelspec": {"language": language}}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(data, indent=indent, **dump) + "\n"


@pytest.mark.parametrize(
    ("source", "python"),
    [
        ("x = 1\ny = 2", "x = 1\ny = 2\n"),
        (["x = 1\n", "y = 2\n"], "x = 1\ny = 2\n"),
        ("%matplotlib inline\nx = 1", "0#atplotlib inline\nx = 1\n"),
        ("if x:\n    !pip install y", "if x:\n    0#ip install y\n"),
        ("files = !ls *.py\nx", "files = 0#s *.py\nx\n"),
        ("model?\nx = 1", "0#del?\nx = 1\n"),
        ("%%time\nx = 1", "      \nx = 1\n"),
        ("%%bash\nrm -r x", "      \n       \n"),
        ("x = 5 %2", "x = 5 %2\n"),
        ("", "\n"),
    ],
)
def test_text_of_a_cell(source: str | list[str], python: str) -> None:
    assert read_notebook(notebook(cell(source))).text == python


def test_cells_are_counted_as_they_stand() -> None:
    found = read_notebook(notebook(cell("# title", "markdown"), cell("a\nb"), cell("c(")))
    assert found.text == "a\nb\n  \n"
    assert found.place(Location("n.ipynb", 2, 1, 2, 2)) == Location("n.ipynb", 2, 1, 2, 2, cell=2)
    assert found.problems == ((3, f"does not parse at line 1: '(' was never closed{PARSER}"),)


def test_of_cells_that_stand_there_twice_the_last_are_audited() -> None:
    """Those are the ones that Jupyter shows and runs."""
    one, other = json.dumps([cell("x = 1")]), json.dumps([cell("y = 2")])
    found = read_notebook(f'{{"cells": {one}, "nbformat": 4, "cells": {other}}}')
    assert found.text == "y = 2\n"
    after = found.rewritten([Edit(Span(4, 5), "3")])
    assert after == found.raw.replace("y = 2", "y = 3")


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ("", "not a notebook that can be read: "),
        ("{}", "not a notebook that can be read: it has no cells"),
        ('{"cells": 3}', "not a notebook that can be read: a list is missing"),
        ('{"cells": [1]}', "not a notebook that can be read: an object is missing"),
        ('{"cells": [{"cell_type": "code", "source": 3}]}', "not a notebook that can be read: "),
        ('{"cells": [{"cell_type": "code", "source": ["a', "not a notebook that can be read: "),
        ("[" * 100_000, "not a notebook that can be read: "),
        (notebook(language="R"), "a notebook in r"),
    ],
)
def test_damaged(raw: str, problem: str) -> None:
    with pytest.raises(Unreadable) as caught:
        read_notebook(raw)
    assert str(caught.value).startswith(problem)


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("indent", [None, 1, 4])
@pytest.mark.parametrize("source", ["a = 'é'\nb = 1\nc = 2", ["a = 'é'\n", "b = 1\n", "c = 2"], ["a = 'é'\n", "b = 1"]])
def test_edits_touch_one_cell(source: str | list[str], indent: int | None, ascii_only: bool) -> None:
    raw = notebook(cell("x"), cell(source), cell("%magic\ny"), indent=indent, ensure_ascii=ascii_only)
    found = read_notebook(raw)
    start = found.text.index("b = 1")
    last = Span(len(found.text) - 2, len(found.text) - 1)
    changed = found.rewritten([Edit(Span(start, start + 5), "b = 3\nbb = 'ö'"), Edit(last, "z")])
    before, after = json.loads(raw), json.loads(changed)
    expected = "".join(source).replace("b = 1", "b = 3\nbb = 'ö'")
    assert "".join(after["cells"][1].pop("source")) == expected
    assert "".join(after["cells"][2].pop("source")) == "%magic\nz"
    for index in (1, 2):
        del before["cells"][index]["source"]
    assert after == before
    assert changed.isascii() is ascii_only
    if indent is not None:  # what was not edited has the very same lines
        same = [line for line in raw.splitlines() if line in changed.splitlines()]
        assert len(same) >= len(raw.splitlines()) - 3


def test_no_edit_changes_nothing() -> None:
    raw = notebook(cell("x\n"), indent=2)
    assert read_notebook(raw).rewritten([]) == raw


def test_an_edit_across_cells_is_refused() -> None:
    found = read_notebook(notebook(cell("x"), cell("y")))
    with pytest.raises(ValueError, match="across two cells"):
        found.rewritten([Edit(Span(0, 3), "")])


TRAIN = "import torch\nfrom torch.utils.data import DataLoader\n"


def test_scan_and_fix(project: Project, perfaudit: Run) -> None:
    raw = notebook(
        cell("# Training", "markdown"), cell(TRAIN), cell(["%time\n", "torch.autograd.set_detect_anomaly(True)\n"])
    )
    folder = project()
    (folder / "nb.ipynb").write_text(raw)
    done = perfaudit("scan", ".", "--select", "PA501", "--format", "json")
    (finding,) = json.loads(done.out)["findings"]
    assert (finding["path"], finding["cell"], finding["line"], finding["column"]) == ("nb.ipynb", 3, 2, 1)
    assert "+++ b/nb.ipynb" in finding["fix"]["diff"]
    assert perfaudit("scan", ".", "--select", "PA501", "--fix").code == 0
    after = json.loads((folder / "nb.ipynb").read_text())
    assert "True" not in "".join(after["cells"][2]["source"])
    before = json.loads(raw)
    before["cells"][2]["source"] = after["cells"][2]["source"]
    assert after == before


def test_a_diff_of_a_notebook_is_one_of_its_file(project: Project, perfaudit: Run) -> None:
    import subprocess

    folder = project()
    (folder / "nb.ipynb").write_text(
        notebook(cell([*TRAIN.splitlines(keepends=True), "torch.autograd.set_detect_anomaly(True)"]))
    )
    patch = perfaudit("scan", ".", "--select", "PA501", "--diff").out
    subprocess.run(["git", "apply"], input=patch, text=True, check=True, cwd=folder)
    json.loads((folder / "nb.ipynb").read_text())
    assert perfaudit("scan", ".", "--select", "PA501").code == 0


def test_a_damaged_notebook_is_a_result(project: Project, perfaudit: Run) -> None:
    project(**{"a.ipynb": "{", "b.py": "import torch\n"})
    done = perfaudit("scan", ".", "--format", "json")
    assert done.code == 0
    assert [item["path"] for item in json.loads(done.out)["skipped"]] == ["a.ipynb"]


@pytest.mark.parametrize("line", ["!nvidia-smi", "files = !ls", "display?", "%time x"])
def test_a_patch_around_a_magic_line_is_advice(project: Project, perfaudit: Run, line: str) -> None:
    loop = ["model.eval()\n", "for x, y in loader:\n", f"    {line}\n", "    total += float(loss(model(x), y))\n"]
    raw = notebook(
        cell("import torch\nmodel = torch.nn.Linear(2, 2)\nloss = torch.nn.MSELoss()\ntotal = 0.0\n"), cell(loop)
    )
    folder = project()
    (folder / "nb.ipynb").write_text(raw)
    (finding,) = json.loads(perfaudit("scan", ".", "--select", "PA801", "--format", "json").out)["findings"]
    assert finding["fix"]["safety"] == "manual"
    perfaudit("scan", ".", "--fix", "--unsafe-fixes")
    assert line in "".join(json.loads((folder / "nb.ipynb").read_text())["cells"][1]["source"])


def test_the_diff_of_a_notebook_on_one_line_is_short(project: Project, perfaudit: Run) -> None:
    pictures = cell("x = 1")
    pictures["outputs"] = ["0" * 100_000]
    folder = project()
    (folder / "nb.ipynb").write_text(
        notebook(pictures, cell(TRAIN + "torch.autograd.set_detect_anomaly(True)"), indent=None)
    )
    (finding,) = json.loads(perfaudit("scan", ".", "--select", "PA501", "--format", "json").out)["findings"]
    assert finding["fix"]["diff"].startswith("--- a/nb.ipynb#cell-2\n+++ b/nb.ipynb#cell-2\n")
    assert len(finding["fix"]["diff"]) < 1000
    assert perfaudit("scan", ".", "--select", "PA501", "--fix").code == 0
    assert "False" in (folder / "nb.ipynb").read_text()
