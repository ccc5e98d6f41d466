"""Formats are found by their files, named on the command line, and imported only when they are asked for."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Done
from gates import GATES
from reports import EMPTY, NOTEBOOK, ODD, SMALL

import perfaudit.render
from perfaudit.render import all_formats, renderer

Run = Callable[..., Done]
Project = Callable[..., Path]
CODE = "import torch\ntorch.autograd.set_detect_anomaly(True)\n"


def test_every_format_has_a_test_of_its_own() -> None:
    tests = {path.stem for path in Path(__file__).parent.glob("test_*.py")}
    assert {f"test_{name}" for name in all_formats()} <= tests


def test_which_formats_there_are() -> None:
    assert all_formats() == ("concise", "github", "gitlab", "html", "json", "junit", "markdown", "sarif", "text")


@pytest.mark.parametrize("name", all_formats())
def test_every_format_renders_every_report(name: str) -> None:
    for report in (EMPTY, SMALL, ODD, NOTEBOOK, *GATES.values()):
        text = renderer(name)(report)
        assert not text or text.endswith("\n")
        assert "\x1b" not in text


def test_a_new_format_is_a_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shout.py").write_text("def render(report):\n    return f'{report.files} FILES\\n'\n")
    monkeypatch.setattr(perfaudit.render, "__path__", [*perfaudit.render.__path__, str(tmp_path)])
    importlib.invalidate_caches()
    try:
        assert "shout" in all_formats()
        assert renderer("shout")(EMPTY) == "2 FILES\n"
    finally:
        sys.modules.pop("perfaudit.render.shout", None)


def test_full_is_text(project: Project, perfaudit: Run) -> None:
    project(**{"a.py": CODE})
    text = perfaudit("scan", "a.py", "--format", "text").out
    assert perfaudit("scan", "a.py", "--format", "full").out == perfaudit("scan", "a.py").out == text


@pytest.mark.parametrize(
    ("name", "reads"),
    [
        ("concise", lambda text: text.startswith("a b/größe.py:2:1: PA501 ")),
        ("github", lambda text: text.startswith("::error file=a b/größe.py,line=2,")),
        ("gitlab", lambda text: json.loads(text)[0]["location"]["path"] == "a b/größe.py"),
        ("html", lambda text: "a b/größe.py:2 " in text),
        ("json", lambda text: json.loads(text)["findings"][0]["path"] == "a b/größe.py"),
        ("junit", lambda text: len(list(ET.fromstring(text).iter("failure"))) == 1),
        ("markdown", lambda text: "| `a b/größe.py:2:1` |" in text),
        ("sarif", lambda text: json.loads(text)["runs"][0]["results"][0]["ruleId"] == "PA501"),
    ],
)
def test_the_command_line(project: Project, perfaudit: Run, name: str, reads: Callable[[str], bool]) -> None:
    folder = project(**{"a b/größe.py": CODE, "broken.py": "def torch(:\n"})
    done = perfaudit("scan", ".", "--format", name)
    assert done.code == 1
    assert reads(done.out)
    assert "broken.py" in done.out
    assert perfaudit("scan", ".", "--format", name, "--output", "report").out == ""
    assert (folder / "report").read_bytes().decode() == done.out


@pytest.mark.parametrize("name", [name for name in all_formats() if name != "text"])
def test_nothing_audited_is_still_a_report(project: Project, perfaudit: Run, name: str) -> None:
    """A pipeline that uploads the file finds one, and the exit code says what happened."""
    project(**{"broken.py": "def torch(:\n"})
    done = perfaudit("scan", "broken.py", "--format", name)
    assert done.code == 3
    assert "does not parse at line 1" in done.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["scan", ".", "--format", "xml"],
            "'xml' is none of concise, github, gitlab, html, json, junit, markdown, sarif, text",
        ),
        (["tune", "--format", "sarif"], "'sarif' is none of text, json, markdown, html"),
        (["rules", "--format", "sarif"], "'sarif' is none of text, json"),
        (["explain", "PA501", "--format", "sarif"], "'sarif' is none of text, json, markdown"),
        (["scan", ".", "--diff", "--format", "sarif"], "--diff prints a patch, not sarif"),
    ],
)
def test_a_format_that_does_not_fit(perfaudit: Run, arguments: list[str], message: str) -> None:
    done = perfaudit(*arguments)
    assert done.code == 2
    assert message in done.err


def test_only_the_format_asked_for_is_imported(project: Project) -> None:
    project(**{"a.py": CODE})
    code = (
        "import sys; sys.argv = ['perfaudit', 'scan', 'a.py', '--exit-zero', '--format', 'concise']\n"
        "from perfaudit.cli.entry import run\n"
        "assert not run()\n"
        "from perfaudit.render import all_formats\n"
        "print([name for name in all_formats() if f'perfaudit.render.{name}' in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "['concise']"
