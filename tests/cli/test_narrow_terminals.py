"""What commands print where a terminal is narrow, or has no signs but those of ASCII."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from perfaudit.cli.app import application
from perfaudit.cli.help_text import fit
from perfaudit.render.page import render as rule_page
from perfaudit.render.paint import hanging
from perfaudit.render.sparkline import BLOCKS, encodable
from perfaudit.render.text import render as text_page
from perfaudit.report import Report
from perfaudit.rules import all_rules
from perfaudit.runs import Run

RUN = Run(
    "train.py", "enough", steps=140, counted=137, seconds_per_step=0.1, quartiles=(0.09, 0.12), samples_per_second=101.0,
    phases={"data_wait": 0.25, "forward": 0.5, "other": 0.25}, limited_by="data", device="cpu",
)  # fmt: skip
COMMAND = "    perfaudit scan train.py      rules; your code is not run"


@pytest.mark.parametrize(
    ("line", "columns", "fitting"),
    [
        (COMMAND, 80, [COMMAND]),
        (COMMAND, 40, ["    perfaudit scan train.py", "        rules; your code is not run"]),
        (COMMAND, 30, ["    perfaudit scan train.py", "        rules; your code is", "        not run"]),
        (
            "    perfaudit scan a/very/long/path.py",
            20,
            ["    perfaudit scan a/very/long/path.py"],
        ),  # is there to be copied
    ],
)
def test_an_example_of_the_help_that_is_too_long(line: str, columns: int, fitting: list[str]) -> None:
    assert fit(line, columns) == fitting


@pytest.mark.parametrize("columns", [40, 60, 71, 72, 80])
@pytest.mark.parametrize("command", ["", "scan", "tune", "run", "rules", "history", "gate"])
def test_help_fits(monkeypatch: pytest.MonkeyPatch, command: str, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = CliRunner().invoke(application(command), [command, "--help"] if command else ["--help"]).output
    assert "Usage: " in shown
    wide = [line for line in shown.splitlines() if len(line) > columns]
    is_code = re.compile(r"\s+(torchrun .*|perfaudit .*|\w+\(model.*)")  # which stays whole
    assert [line for line in wide if not is_code.fullmatch(line)] == []


@pytest.mark.parametrize(
    ("text", "encoding", "shown"),
    [
        ("a │ 3 → 4 · 5 × 6 µs … ▲", "ascii", "a | 3 -> 4 - 5 x 6 us ... ^"),
        (BLOCKS, "ascii", "_.-=+*#@"),
        ("größe → 語", "latin-1", "größe -> ?"),
        ("größe → 語", "utf-8", "größe → 語"),
        ("größe", "no such encoding", "gr??e"),
        ("größe", None, "gr??e"),
    ],
)
def test_signs_that_a_stream_lacks(text: str, encoding: str | None, shown: str) -> None:
    assert encodable(text, encoding) == shown


def test_the_page_of_a_rule_fits() -> None:
    page = rule_page(all_rules()["PA101"], width=40).splitlines()
    sentences = page[: page.index("Reported")]
    assert [line for line in sentences if len(line) > 40 and "`" not in line] == []
    assert [line[:10] for line in sentences if line.startswith(("severity", "tier", "fix"))] == [
        "severity  ",
        "tier      ",
        "fix       ",
    ]


@pytest.mark.parametrize(("width", "has_bars"), [(40, False), (60, True), (80, True)])
def test_a_run_fits(width: int, has_bars: bool) -> None:
    text = text_page(Report("run", target="train.py", run=RUN), width=width)
    assert [line for line in text.splitlines() if len(line) > width and "perfaudit " not in line] == []
    assert ("█" in text) is has_bars


@pytest.mark.parametrize(
    ("width", "lines"), [(40, ["  1  a.py:1  PA101 name"]), (20, ["  1  a.py:1 PA101", "     name"])]
)
def test_a_finding_behind_its_number(width: int, lines: list[str]) -> None:
    assert hanging("  1  ", "a.py:1  PA101 name", width).split("\n") == lines
