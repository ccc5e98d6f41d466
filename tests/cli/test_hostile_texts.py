"""What a project calls its files and writes in its code is shown, and neither a terminal nor the log of a CI obeys it."""

from __future__ import annotations

import json
import os
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

import pytest
from conftest import Done

from perfaudit.render import all_formats
from perfaudit.render.words import inert, json_text

Run = Callable[..., Done]

NAMES = [
    "\x1b]0;title\x07.py",
    "line\n::warning::end\n.py",
    "::add-mask::x.py",
    "##[add-mask]x.py",
    "gnp\u202eyp.exe\u2066.py",
    "paragraph\u2029.py",
]
CODE = '''import torch
"""
  ::add-mask::torch
##[add-mask]torch ##vso[task.setvariable variable=x]y
\u202e\u2066\u200f\u061c \x1b]8;;http://a\x07b\x1b]8;;\x07
"""
torch.autograd.set_detect_anomaly(True)
"""
  ::add-mask::torch ##[add-mask]torch
"""
x = 1  # perfaudit: ignore[\u202eXX\x1b[31m\u061c]
'''
# What a terminal obeys, and what turns text around; commands as runners read them: github.com/actions/runner, ActionCommand.cs.
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]|##(?:\\[|vso\\[)")
COMMAND = re.compile(r"\s*::")


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in NAMES:
        (tmp_path / name).write_text(CODE)
        (tmp_path / name.replace(".py", "Z.py")).write_text("import torch\nnothing(")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", all_formats())
def test_no_format_holds_what_is_obeyed(hostile: Path, perfaudit: Run, name: str) -> None:
    done = perfaudit("scan", ".", "--no-cache", "--format", name)
    assert (done.code, done.err) == (1, "")
    log = done.out.replace("##[", "") if name == "github" else done.out  # no command in a line that is one already
    assert not OBEYED.search(log)
    commands = [line for line in done.out.split("\n") if COMMAND.match(line)]
    ours = ("::error file=", "::notice file=", "::notice title=perfaudit::")
    assert all(name == "github" and line.startswith(ours) for line in commands)


def test_formats_for_programs_name_the_very_files(hostile: Path, perfaudit: Run) -> None:
    report = json.loads(perfaudit("scan", ".", "--format", "json").out)
    assert {finding["path"] for finding in report["findings"]} == set(NAMES)
    assert any("##[add-mask]torch" in finding["fix"]["diff"] for finding in report["findings"])
    log = json.loads(perfaudit("scan", ".", "--format", "sarif").out)["runs"][0]
    places = [result["locations"][0]["physicalLocation"]["artifactLocation"] for result in log["results"]]
    assert {unquote(place["uri"]) for place in places} == set(NAMES)
    root = ET.fromstring(perfaudit("scan", ".", "--format", "junit").out)
    texts = "".join(case.text or "" for case in root.iter("failure"))
    assert "\n   ::add-mask::torch ##[add-mask]torch\n" in texts


def test_neither_errors_nor_what_is_said_is_obeyed(hostile: Path, perfaudit: Run) -> None:
    broken = NAMES[1].replace(".py", "Z.py")
    for arguments in (
        *(["apply", name] for name in NAMES),
        ["scan", broken],
        ["scan", NAMES[0], "--baseline", NAMES[1]],
    ):
        done = perfaudit(*arguments)
        assert done.err
        assert not OBEYED.search(done.err)
        assert not any(COMMAND.match(line) for line in done.err.split("\n"))


def test_a_patch_is_exact_but_on_a_terminal(hostile: Path, perfaudit: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    (hostile / "a.py").write_text(CODE.replace("(True)\n", "(True)  # \x1b[2J\u202e\n"))
    assert "(False)  # \x1b[2J\u202e\n" in perfaudit("scan", "a.py", "--diff").out
    report = perfaudit("scan", "a.py", "--format", "json").out
    (hostile / "report.json").write_text(report)
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda _: True)
    for arguments in (["scan", "a.py", "--diff"], ["apply", "report.json", "--check"]):
        assert "(False)  # ␛[2J<U+202E>\n" in perfaudit(*arguments).out


def test_texts_of_rules_that_nobody_trusts(hostile: Path, perfaudit: Run) -> None:
    from perfaudit.rules import all_rules

    path = all_rules()["PA501"].path
    text = Path(path).read_text().replace("PA501", "XA501")
    (hostile / "own").mkdir()
    odd = re.sub('title = "', r'title = "\\u001b]0;x\\u0007 \\u202e ##[add-mask]', text, count=1)
    (hostile / "own" / Path(path).name.replace("PA501", "XA501")).write_text(odd)
    (hostile / "pyproject.toml").write_text('[tool.perfaudit]\nrules = ["own"]\n')
    for arguments in (["rules"], ["explain", "XA501"], ["rules", "--format", "markdown"]):
        done = perfaudit(*arguments)
        assert (done.code, "␛]0;x␇ <U+202E> ♯♯[add-mask]" in done.out) == (0, True)
        assert not OBEYED.search(done.out)
    (rule_,) = [r for r in json.loads(perfaudit("rules", "--format", "json").out) if r["id"] == "XA501"]
    assert rule_["title"].startswith("\x1b]0;x\x07 \u202e ##[add-mask]")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a::b\n\t ::c::d\n\n::e", "a::b\n\t ∷c::d\n\n∷e"),
        ("\u3000::c::d", "\u3000∷c::d"),  # .NET trims this too
        ("x ##[group] ##vso[a] ##teamcity[b] ## [c] ###[d]", "x ♯♯[group] ♯♯vso[a] ♯♯teamcity[b] ## [c] #♯♯[d]"),
        ("\x1b[31mred\x1b[0m", "␛[31mred␛[0m"),
    ],
)
def test_lines_that_a_log_would_take_for_commands(text: str, shown: str) -> None:
    assert inert(text) == shown


def test_of_colours_those_that_show_text_stay() -> None:
    assert inert("\x1b[1;31mred\x1b[0m \x1b[8mhidden \x1b[2J", in_colour=True) == "\x1b[1;31mred\x1b[0m ␛[8mhidden ␛[2J"


def test_json_reads_back() -> None:
    value = {"##[a]": ["\\##vso[b]", "####[c]", "\u202e"]}
    assert json.loads(json_text(value)) == value
    assert not OBEYED.search(json_text(value))
    assert os.linesep in json_text(value)
