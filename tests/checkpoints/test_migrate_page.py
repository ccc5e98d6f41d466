"""The example of docs/migrate-checkpoint.md, followed from an empty folder."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from forked_programs import run_code

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "migrate-checkpoint.md"
if not PAGE.exists():
    pytest.skip("the pages are not in this distribution", allow_module_level=True)


def comparable(text: str) -> list[str]:
    """The lines of a text, in which every rounding is the same number."""
    return [re.sub(r"\d+\.\d+(e[-+]\d+)?", "0.0", line.rstrip()) for line in text.splitlines()]


@pytest.mark.slow
def test_the_example_of_the_page(
    perfaudit: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = PAGE.read_text().partition("## An example\n")[2].partition("\n## ")[0]
    program, typed, shown = re.findall(r"```(?:python|sh|text)\n(.*?)```", example, re.DOTALL)
    shutil.copy(ROOT / "sample_models" / "photo_resnet.py", tmp_path / "model.py")
    monkeypatch.chdir(tmp_path)
    made = run_code(program, "make_old.py", [], tmp_path)
    assert made.code == 0, made.err
    done = [perfaudit(*shlex.split(line)[1:]) for line in typed.splitlines()]
    assert [each.code for each in done] == [0, 0], [each.err for each in done]
    printed = comparable(done[-1].out)
    places = [printed.index(line) for line in comparable(shown) if line.strip() != "…"]
    assert places == sorted(places) and places[0] == 0 and places[-1] == len(printed) - 1
    assert (tmp_path / "new.pt").exists()
