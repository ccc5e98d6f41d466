"""Workflow commands, whole, and read back as the runner does."""

from __future__ import annotations

import re

import pytest
from gates import MAIN, NEW, NO_NEW, SLOWER
from reports import EMPTY, ERROR, NOTEBOOK, ODD, ODD_PATH, SMALL

from perfaudit.findings import Finding
from perfaudit.render.github import render
from perfaudit.report import Report
from perfaudit.verdicts import Gate


def commands(text: str) -> list[tuple[str, dict[str, str], str]]:
    """Name, properties and message of each command, by the rules of the runner: one a line, escapes undone."""

    def unescaped(value: str) -> str:
        for sign, code in ((":", "%3A"), (",", "%2C"), ("\r", "%0D"), ("\n", "%0A"), ("%", "%25")):
            value = value.replace(code, sign)
        return value

    read = []
    for line in text.splitlines():
        name, properties, message = re.fullmatch(r"::(\w+) (.*?)::(.*)", line).groups()  # type: ignore[union-attr]
        pairs = (part.split("=", 1) for part in properties.split(","))
        read.append((name, {key: unescaped(value) for key, value in pairs}, unescaped(message)))
    return read


def test_a_whole_report() -> None:
    assert render(SMALL) == (
        "::error file=pkg/a.py,line=2,endLine=2,col=1,endColumn=10,title=PA000 slow-thing::`slow(True)` waits for the device:"
        " 100 %25 of the time%0Adocumented: saves up to 50 %25 of a step (a paper)%0Afix (safe): switch it off\n"
        "::warning file=pkg/a.py,line=4,endLine=6,title=PA001 other-thing::`f(a | b)` is slow, too%0Asaves 10.0 to 20.0 %25"
        " of the step, 4.00 ms a step (measured)%0Aadvice: do less\n"
        "::notice title=PA002 no-place::the whole program is slow\n"
        "::notice file=b.py,title=not audited::binary\n"
        "::notice file=pkg/a.py,line=7,endLine=7,col=1,endColumn=1,title=unused suppression::`perfaudit: ignore[PA101]`"
        " silences nothing here\n"
        "::notice title=perfaudit::2 findings of the baseline not shown\n"
        "::notice title=perfaudit::stopped at the budget\n"
    )


def test_nothing_to_say() -> None:
    assert render(EMPTY) == ""


def test_what_is_in_a_name_stays_in_it() -> None:
    first, second, third = commands(render(ODD))
    assert first[1]["file"] == ODD_PATH
    assert first[2] == "`x␛[2J`\r\n::error::<b>&]]>␀\ufffd"
    assert second[1]["file"] == "␇\ufffd␊.py"
    assert third == ("notice", {"file": "␛|.py", "title": "not audited"}, "␛[2J\n::error::")


@pytest.mark.parametrize(
    ("gate", "findings", "level"),
    [
        (Gate(MAIN, "ref", "regressed", fails=True, findings=NEW), (ERROR,), "notice"),  # the finding says it
        (Gate(MAIN, "ref", "regressed", fails=True, findings=NEW), (), "error"),
        (Gate(MAIN, "ref", "regressed", fails=True, times=(SLOWER,)), (), "notice"),
        (Gate(MAIN, "ref", "failed", fails=True, findings=NO_NEW), (), "error"),  # interrupted
        (Gate(MAIN, "ref", "failed", fails=True, findings=NO_NEW), (ERROR,), "error"),
        (Gate(MAIN, "ref", "pass", findings=NO_NEW), (), "notice"),
    ],
)
def test_the_verdict_is_an_error_where_nothing_else_is(gate: Gate, findings: tuple[Finding, ...], level: str) -> None:
    last = commands(render(Report("gate", findings, gate=gate)))[-1]
    assert last[:2] == (level, {"title": "perfaudit gate"})


def test_a_notebook_has_no_lines_of_its_file() -> None:
    assert commands(render(NOTEBOOK))[0] == (
        "error",
        {"file": "n.ipynb", "title": "PA000 slow-thing"},
        "cell 3, line 2: slow\nfix (safe): mend it",
    )
