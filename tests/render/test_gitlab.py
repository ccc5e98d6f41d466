"""GitLab's code quality report, whole, and what GitLab requires of every entry."""

from __future__ import annotations

import json

import pytest
from gates import GATES
from reports import EMPTY, NOTEBOOK, ODD, SMALL

from perfaudit.render.gitlab import render
from perfaudit.report import Report, UnusedSuppression


def entry(description: str, check: str, fingerprint: str, severity: str, path: str, line: int) -> dict[str, object]:
    return {
        "description": description,
        "check_name": check,
        "fingerprint": fingerprint,
        "severity": severity,
        "location": {"path": path, "lines": {"begin": line}},
    }


def test_a_whole_report() -> None:
    slow = "PA000: `slow(True)` waits for the device: 100 % of the time"
    unused = "`perfaudit: ignore[PA101]` silences nothing here"
    assert json.loads(render(SMALL)) == [
        entry(slow, "PA000", "0123", "major", "pkg/a.py", 2),
        entry("PA001: `f(a | b)` is slow, too", "PA001", "4567", "minor", "pkg/a.py", 4),
        entry("PA002: the whole program is slow", "PA002", "995b2b8d6f83e8e422d1", "info", ".", 1),
        entry(unused, "unused-suppression", "e20e309c690669c5cbbd", "info", "pkg/a.py", 7),
        entry("not audited: binary", "not-audited", "ea175e97d44ec0353a57", "info", "b.py", 1),
    ]


def test_nothing_to_say() -> None:
    assert render(EMPTY) == "[]\n"


def test_a_comment_in_a_notebook_has_no_line_of_its_file() -> None:
    idle = UnusedSuppression("n.ipynb", 7, ("PA101",), 3)
    (found,) = json.loads(render(Report("scan", unused_suppressions=(idle,))))
    text = "cell 3, line 7: `perfaudit: ignore[PA101]` silences nothing here"
    assert found == entry(text, "unused-suppression", "685855014b0b55886312", "info", "n.ipynb", 1)


def test_equal_fingerprints_are_told_apart() -> None:
    slow = "PA000: cell 3, line 2: slow"
    assert json.loads(render(NOTEBOOK)) == [
        entry(slow, "PA000", "89", "major", "n.ipynb", 1),
        entry(slow, "PA000", "678e4dac7d70c49a2160", "major", "n.ipynb", 1),
    ]


@pytest.mark.parametrize("report", [SMALL, ODD, NOTEBOOK, *GATES.values()])
def test_what_gitlab_requires(report: Report) -> None:
    """https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format"""
    text = render(report)
    assert text.isascii()
    entries = json.loads(text)
    json.dumps(entries, ensure_ascii=False).encode()  # Ruby refuses half a surrogate pair, as this does
    for one in entries:
        assert one["description"]
        assert one["check_name"]
        assert one["severity"] in ("info", "minor", "major", "critical", "blocker")
        assert one["location"]["path"]
        assert one["location"]["lines"]["begin"] >= 1
    fingerprints = [one["fingerprint"] for one in entries]
    assert len(set(fingerprints)) == len(entries)
    assert all(fingerprints)
