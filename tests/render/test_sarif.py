"""SARIF: whole results, the published schema, and patches that give the text that was promised."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from reports import EMPTY, ERROR, NOTEBOOK, ODD, SMALL

from perfaudit import __version__
from perfaudit.findings import Edit, Fix, Span
from perfaudit.render.sarif import _replacements, render
from perfaudit.report import Report
from perfaudit.rules import Example, Rule, all_rules, read_rule
from perfaudit.static import edit
from perfaudit.static.audit import audit
from perfaudit.static.document import Document

PUBLISHED = json.loads((Path(__file__).parent / "schemas" / "sarif-schema-2.1.0.json").read_text())
VALIDATOR = jsonschema.Draft4Validator(PUBLISHED, format_checker=jsonschema.FormatChecker())

RULE = """
id = "PA000"
name = "slow-thing"
title = "A slow thing"
area = "host"
severity = "error"
fix = "unsafe"
changes = ["rng"]
why = "It is slow."
sources = ["https://docs.pytorch.org/"]
[[example]]
bad = '''
slow(True)
'''
lines = [1]
fixed = '''
slow(False)
'''
[[example]]
good = "fast()"
"""


def run(report: Report, **rules: Any) -> dict[str, Any]:
    (only,) = json.loads(render(report, rules))["runs"]
    return only


def test_the_results_of_a_whole_report() -> None:
    found = run(SMALL)
    assert found["results"] == [
        {
            "ruleId": "PA000",
            "ruleIndex": 0,
            "level": "error",
            "message": {
                "text": "`slow(True)` waits for the device: 100 % of the time.\n"
                "documented: saves up to 50 % of a step (a paper).\nfix (safe): switch it off"
            },
            "locations": [place("pkg/a.py", 2, 1, 2, 11)],
            "relatedLocations": [place("pkg/a.py", 9, 1, 9, 11)],
            "partialFingerprints": {"perfaudit/v1": "0123"},
            "fixes": [
                {
                    "description": {"text": "fix (safe): switch it off"},
                    "artifactChanges": [
                        {
                            "artifactLocation": {"uri": "pkg/a.py", "uriBaseId": "%SRCROOT%"},
                            "replacements": [
                                {
                                    "deletedRegion": {"startLine": 2, "startColumn": 6, "endLine": 2, "endColumn": 10},
                                    "insertedContent": {"text": "False"},
                                }
                            ],
                        }
                    ],
                }
            ],
            "properties": {
                "saving": {
                    "basis": "documented",
                    "low": 0.0,
                    "high": 0.5,
                    "seconds_per_step": None,
                    "source": "a paper",
                    "clock": "wall",
                    "conditions": "",
                    "expected": None,
                }
            },
        },
        {
            "ruleId": "PA001",
            "ruleIndex": 1,
            "level": "warning",
            "message": {
                "text": "`f(a | b)` is slow, too.\nsaves 10.0 to 20.0 % of the step, 4.00 ms a step (measured).\n"
                "advice: do less"
            },
            "locations": [place("pkg/a.py", 4, 3, 6, 2)],
            "partialFingerprints": {"perfaudit/v1": "4567"},
            "properties": {
                "saving": {
                    "basis": "measured",
                    "low": 0.1,
                    "high": 0.2,
                    "seconds_per_step": 0.004,
                    "source": "",
                    "clock": "wall",
                    "conditions": "",
                    "expected": None,
                }
            },
        },
        {
            "ruleId": "PA002",
            "ruleIndex": 2,
            "level": "note",
            "message": {"text": "the whole program is slow"},
            "locations": [],
        },
    ]
    assert found["invocations"] == [
        {
            "executionSuccessful": True,
            "toolExecutionNotifications": [
                {
                    "descriptor": {"id": "not-audited"},
                    "level": "warning",
                    "message": {"text": "binary"},
                    "locations": [
                        {"physicalLocation": {"artifactLocation": {"uri": "b.py", "uriBaseId": "%SRCROOT%"}}},
                    ],
                },
                {
                    "descriptor": {"id": "unused-suppression"},
                    "level": "note",
                    "message": {"text": "`perfaudit: ignore[PA101]` silences nothing here"},
                    "locations": [place("pkg/a.py", 7, 1, 7, 1)],
                },
                {"level": "note", "message": {"text": "2 findings of the baseline not shown"}},
                {"level": "note", "message": {"text": "stopped at the budget"}},
            ],
        }
    ]


def place(uri: str, line: int, column: int, end_line: int, end_column: int) -> dict[str, Any]:
    return {
        "physicalLocation": {
            "artifactLocation": {"uri": uri, "uriBaseId": "%SRCROOT%"},
            "region": {"startLine": line, "startColumn": column, "endLine": end_line, "endColumn": end_column},
        }
    }


def test_the_rest_of_a_whole_report(tmp_path: Path) -> None:
    path = tmp_path / "PA000-slow-thing.toml"
    path.write_text(RULE)
    log = json.loads(render(EMPTY, {"PA000": read_rule(path)}))
    assert log == {
        "$schema": "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "perfaudit",
                        "version": __version__,
                        "rules": [
                            {
                                "id": "PA000",
                                "name": "slow-thing",
                                "shortDescription": {"text": "A slow thing."},
                                "fullDescription": {"text": "It is slow."},
                                "help": {
                                    "text": "It is slow.\n\nhttps://docs.pytorch.org/",
                                    "markdown": "It is slow.\n\nReported:\n\n```python\nslow(True)\n```\n\n"
                                    "After the fix (unsafe: also changes rng):\n\n```python\nslow(False)\n```\n\n"
                                    "- https://docs.pytorch.org/\n\n`perfaudit explain PA000` shows more.\n",
                                },
                                "defaultConfiguration": {"level": "error"},
                                "properties": {"tags": ["performance", "host"], "problem.severity": "error"},
                            }
                        ],
                        "notifications": [
                            {
                                "id": "not-audited",
                                "shortDescription": {"text": "A file that could not be audited."},
                            },
                            {
                                "id": "unused-suppression",
                                "shortDescription": {"text": "A comment that silences nothing."},
                            },
                        ],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "originalUriBaseIds": {
                    "%SRCROOT%": {"description": {"text": "The folder in which perfaudit was started."}}
                },
                "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": []}],
                "results": [],
            }
        ],
    }


PLAIN_RULE = Rule(
    "PA001", "other-thing", "Another thing", "data", "info", "safe", (), "It is dear.", ("a.org", "b.org"), None,
    (Example("fast()"), Example("\nslow()\n", (1,), "fast()\n")), "rules/PA001.md",
)  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "level", "problem", "fix"),
    [
        (PLAIN_RULE, "note", "recommendation", "safe: nothing but speed changes"),
        (replace(PLAIN_RULE, severity="error", tier="preview"), "note", "recommendation", "safe: nothing but speed changes"),
        (replace(PLAIN_RULE, severity="warning", fix="unsafe", changes=("rng", "order")), "warning", "warning",
         "unsafe: also changes rng, order"),
    ],
)  # fmt: skip
def test_a_rule_is_described_by_its_file(rule: Rule, level: str, problem: str, fix: str) -> None:
    (described, unknown) = run(SMALL.with_(findings=SMALL.findings[:2]), PA001=rule)["tool"]["driver"]["rules"]
    assert unknown == {"id": "PA000", "name": "slow-thing"}
    assert (described["name"], described["defaultConfiguration"]) == ("other-thing", {"level": level})
    assert described["properties"] == {"tags": ["performance", "data"], "problem.severity": problem}
    assert described["help"] == {
        "text": "It is dear.\n\na.org\n\nb.org",
        "markdown": "It is dear.\n\nReported:\n\n```python\nslow()\n```\n\n"
        f"After the fix ({fix}):\n\n```python\nfast()\n```\n\n- a.org\n- b.org\n\n`perfaudit explain PA001` shows more.\n",
    }


def test_a_log_is_indented_by_two() -> None:
    text = render(SMALL, {})
    assert text == json.dumps(json.loads(text), indent=2) + "\n"


def test_a_single_place_is_not_related_to_itself() -> None:
    (result,) = run(Report("scan", (replace(ERROR, places=ERROR.places[:1]),)))["results"]
    assert "relatedLocations" not in result


def test_names_become_uris() -> None:
    first, second = run(ODD)["results"]
    odd = "dir%2C%20100%25%3Agr%C3%B6%C3%9Fe/%E8%AE%AD%E7%BB%83%20%F0%9D%92%B3%7C%60x%60.py"
    assert first["locations"] == [place(odd, 1, 2, 1, 3)]
    assert first["message"] == {"text": "`x␛[2J`\r\n::error::<b>&]]>␀\ufffd"}
    assert second["locations"] == [place("%07%FF%0A.py", 1, 1, 1, 2)]


def test_a_path_outside_the_folder() -> None:
    skipped = SMALL.skipped[0]
    report = Report("scan", skipped=(type(skipped)("/x y/b.py", "binary"),))
    (notification,) = run(report)["invocations"][0]["toolExecutionNotifications"]
    assert notification["locations"] == [{"physicalLocation": {"artifactLocation": {"uri": "file:///x%20y/b.py"}}}]


def test_a_notebook_has_no_lines_of_its_file() -> None:
    first, _ = run(NOTEBOOK)["results"]
    assert first == {
        "ruleId": "PA000",
        "ruleIndex": 0,
        "level": "error",
        "message": {"text": "cell 3, line 2: slow.\nfix (safe): mend it"},
        "locations": [
            {
                "physicalLocation": {"artifactLocation": {"uri": "n.ipynb", "uriBaseId": "%SRCROOT%"}},
                "logicalLocations": [{"name": "cell 3", "kind": "module"}],
            }
        ],
        "partialFingerprints": {"perfaudit/v1": "89"},
    }


def test_an_interrupted_run_did_not_succeed() -> None:
    assert run(Report("scan", interrupted=True))["invocations"][0]["executionSuccessful"] is False


@pytest.mark.parametrize("report", [EMPTY, SMALL, ODD, NOTEBOOK])
def test_the_schema(report: Report) -> None:
    text = render(report)
    assert text.isascii()
    VALIDATOR.validate(json.loads(text))


def test_the_schema_refuses_what_is_wrong() -> None:
    log = json.loads(render(SMALL))
    log["runs"][0]["results"][0]["level"] = "fatal"
    assert not VALIDATOR.is_valid(log)


def test_what_github_asks_of_rules() -> None:
    """https://docs.github.com/en/code-security/reference/code-scanning/sarif-files/sarif-support"""
    driver = run(EMPTY, **all_rules())["tool"]["driver"]
    assert [rule["id"] for rule in driver["rules"]] == list(all_rules())
    for rule in driver["rules"]:
        assert len(rule["name"]) <= 255
        assert 0 < len(rule["shortDescription"]["text"]) <= 1024
        assert 0 < len(rule["fullDescription"]["text"]) <= 1024, rule["id"]
        assert rule["help"]["text"]


def patched(text: str, replacements: list[dict[str, Any]]) -> str:
    """The text after a fix, as a consumer computes it: lines end at "\\n" or "\\r\\n", columns count characters."""
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    spans = []
    for one in replacements:
        region = one["deletedRegion"]
        start = starts[region["startLine"] - 1] + region["startColumn"] - 1
        end = starts[region["endLine"] - 1] + region["endColumn"] - 1
        spans.append(Edit(Span(start, end), one["insertedContent"]["text"]))
    return edit.apply(text, spans)


def handed_over(text: str, *edits: tuple[int, int, str]) -> tuple[Edit, ...]:
    """Edits with their places, as an audit hands them over."""
    fix = Fix("", "safe", (), tuple(Edit(Span(start, end), new) for start, end, new in edits))
    return Document(text, text).as_handed_over("a.py", fix).edits


def region(line: int, column: int, end_line: int, end_column: int, text: str) -> dict[str, Any]:
    place = {"startLine": line, "startColumn": column, "endLine": end_line, "endColumn": end_column}
    return {"deletedRegion": place, "insertedContent": {"text": text}}


@pytest.mark.parametrize(
    ("before", "edits", "found"),
    [
        ("a\nbb\nc\n", [(3, 4, "B")], [region(2, 2, 2, 3, "B")]),
        ("a\nbb\nc\n", [(2, 2, "new\n")], [region(2, 1, 2, 1, "new\n")]),
        ("a\nbb\nc\n", [(2, 5, "")], [region(2, 1, 3, 1, "")]),
        ("a\nb", [(3, 3, "\nnew")], [region(2, 2, 2, 2, "\nnew")]),
        ("", [(0, 0, "a\n")], [region(1, 1, 1, 1, "a\n")]),
        ("a\r\nbb\r\n", [(4, 5, "B")], [region(2, 2, 2, 3, "B")]),
        ("größe = '训练 𝒳'\n", [(12, 13, "𝒴")], [region(1, 13, 1, 14, "𝒴")]),  # characters, not bytes nor UTF-16
        ("f(a)\n", [(3, 3, ", x=1"), (3, 3, ", y=2")], [region(1, 4, 1, 4, ", x=1, y=2")]),  # regions must not meet
        ("f(a)\n", [(3, 3, ", x=1"), (3, 3, ", x=1")], [region(1, 4, 1, 4, ", x=1")]),  # the same edit counts once
        ("f(a)\ng()\n", [(5, 6, "h"), (0, 5, "")], [region(1, 1, 2, 2, "h")]),
        ("f(a)\ng()\n", [(5, 6, "h"), (2, 3, "b")], [region(1, 3, 1, 4, "b"), region(2, 1, 2, 2, "h")]),
    ],
)
def test_what_the_edits_of_a_patch_replace(
    before: str, edits: list[tuple[int, int, str]], found: list[dict[str, Any]]
) -> None:
    placed = handed_over(before, *edits)
    assert _replacements(placed) == found
    assert patched(before, found) == edit.apply(before, placed)


def test_the_patches_of_all_rule_examples(tmp_path: Path) -> None:
    tried = 0
    for rule in all_rules().values():
        for example in (e for e in rule.examples if e.fixed is not None):
            for line_end in ("\n", "\r\n"):
                text = example.text.replace("\n", line_end)
                for finding in audit(
                    Document(text, text), tmp_path / "a.py", "a.py", {rule.id: rule}, frozenset({rule.id})
                ).findings:
                    if finding.fix is not None and finding.fix.edits:
                        done = edit.apply(text, finding.fix.edits)
                        assert patched(text, _replacements(finding.fix.edits)) == done != text, rule.id
                        tried += 1
    assert tried > 20
