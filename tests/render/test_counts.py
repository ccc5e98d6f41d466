"""`--statistics`, as whole outputs."""

from __future__ import annotations

import json
from dataclasses import replace

from reports import EMPTY, ERROR, NOWHERE, WARNING

from perfaudit.findings import Edit, Fix, Location, Span
from perfaudit.render.counts import as_json, as_text
from perfaudit.report import Report

EDITS = (Edit(Span(0, 1), "x"),)
SAFE = replace(ERROR, fix=Fix("switch it off", "safe", edits=EDITS))
UNSAFE = replace(
    ERROR, fix=Fix("switch it off", "unsafe", ("rng",), edits=EDITS), location=Location("b.py", 1, 1, 1, 2)
)
ADVICE = replace(WARNING, fix=Fix("think", "safe"))
REPORT = Report("scan", (NOWHERE, SAFE, UNSAFE, replace(SAFE, fix=None), ADVICE), files=2)


def test_the_most_frequent_first_then_by_rule() -> None:
    assert as_text(REPORT) == (
        "findings  files  fixes  safe  rule\n"
        "       3      2      2     1  PA000 slow-thing\n"
        "       1      1      0     0  PA001 other-thing\n"
        "       1      0      0     0  PA002 no-place\n"
    )


def test_the_most_frequent_first_whatever_its_name() -> None:
    found = (SAFE, WARNING, NOWHERE, NOWHERE)
    assert [line.split()[-2] for line in as_text(Report("scan", found)).splitlines()[1:]] == ["PA002", "PA000", "PA001"]


def test_for_programs() -> None:
    text = as_json(REPORT)
    assert json.loads(text)[0] == {
        "rule": "PA000", "name": "slow-thing", "findings": 3, "files": 2, "fixes": 2, "safe": 1
    }  # fmt: skip
    assert text.startswith('[\n  {\n    "rule": "PA000",\n')
    assert text.endswith("]\n")


def test_nothing_was_found() -> None:
    assert as_text(EMPTY) == "nothing found in 2 files\n"
    assert as_text(Report("scan", files=1)) == "nothing found in 1 file\n"
    assert as_json(EMPTY) == "[]\n"
