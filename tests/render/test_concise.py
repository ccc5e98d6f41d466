"""One line a finding, whole."""

from __future__ import annotations

import re

from reports import EMPTY, ERROR, NOTEBOOK, ODD, SMALL

from perfaudit.findings import Basis, Saving
from perfaudit.render.concise import render
from perfaudit.report import Report


def test_a_whole_report() -> None:
    assert render(SMALL) == (
        "pkg/a.py:2:1: PA000 `slow(True)` waits for the device: 100 % of the time (lines 2, 9)\n"
        "pkg/a.py:4:3: PA001 `f(a | b)` is slow, too; saves 10.0 to 20.0 % of the step, 4.00 ms a step (measured)\n"
        "perfaudit: PA002 the whole program is slow\n"
        "b.py: not audited: binary\n"
        "pkg/a.py:7:1: `perfaudit: ignore[PA101]` silences nothing here\n"
        "perfaudit: 2 findings of the baseline not shown\n"
        "perfaudit: stopped at the budget\n"
    )


def test_nothing_to_say() -> None:
    assert render(EMPTY) == ""


def test_a_finding_stays_on_its_line() -> None:
    assert render(ODD) == (
        "dir, 100%:größe/训练 𝒳|`x`.py:1:2: PA000 `x␛[2J`␊::error::<b>&]]>␀\ufffd\n"
        "␇\ufffd␊.py:1:1: PA000 a \ufffd *b* _c_ [d](e) `\n"
        "␛|.py: not audited: ␛[2J␊::error::\n"
    )


def test_a_notebook() -> None:
    assert render(NOTEBOOK).splitlines()[0] == "n.ipynb:cell 3:2:5: PA000 slow"


def test_what_an_editor_reads() -> None:
    """The pattern of vim's default 'errorformat', `%f:%l:%c: %m`."""
    found = re.findall(r"^([^:\n]+):(\d+):(\d+): (.*)$", render(SMALL), flags=re.MULTILINE)
    assert [(path, line, column) for path, line, column, _ in found] == [
        ("pkg/a.py", "2", "1"),
        ("pkg/a.py", "4", "3"),
        ("pkg/a.py", "7", "1"),
    ]


def test_what_was_timed_here_says_on_what_basis() -> None:
    bases: list[Basis] = ["measured", "screened", "profiled", "documented"]
    found = tuple(ERROR.with_(saving=Saving(basis, 0.1, 0.2)) for basis in bases)
    said = [line.partition("of the time (lines 2, 9)")[2] for line in render(Report("scan", found)).splitlines()]
    saves = "; saves 10.0 to 20.0 % of the step"
    assert said == [f"{saves} (measured)", f"{saves} (screened)", "", ""]
