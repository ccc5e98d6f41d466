"""A script that runs with another text than its files have."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfaudit.script.observe import observe
from perfaudit.script.request import Request, Script


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "parts.py").write_text("WORD = 'old part'\n")
    (tmp_path / "train.py").write_text(
        "import os, parts\nraise ValueError(f'old script, {parts.WORD}, {os.environ.get(\"PORT\")}')\n"
    )
    return tmp_path


@pytest.mark.parametrize("is_module", [False, True])
def test_script_and_what_it_imports_run_with_the_text_that_is_asked_for(project: Path, is_module: bool) -> None:
    script = Script("train" if is_module else "train.py", (), is_module)
    texts = {"train.py": (project / "train.py").read_text().replace("old", "new"), "parts.py": "WORD = 'new part'\n"}
    request = Request(script, steps=2, texts=texts)
    seen = observe(request, 20.0, variables={"PORT": "77"})
    assert seen.message.startswith("ValueError: new script, new part, 77")
    assert "old script" in (project / "train.py").read_text()
    assert observe(Request(script, steps=2), 20.0).message.startswith("ValueError: old script, old part, None")
