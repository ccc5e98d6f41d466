"""Tiers: which rules are stable by what was read of them, and that findings of the others are hints everywhere."""

from __future__ import annotations

import functools
import json
import re
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Done

from perfaudit.rules import STABLE_BY_DECISION, Reading, Rule, all_rules
from perfaudit.static.registry import join_findings, run_checks
from perfaudit.static.source import Source

Run = Callable[..., Done]
Project = Callable[..., Path]

ROOT = Path(__file__).parents[1]
# What the project began with is reported at once, whatever a reading says: it has to be mended, not hidden.
ALWAYS_STABLE = ("PA101", "PA102", "PA103", "PA201", "PA301", "PA404", "PA405", "PA406", "PA501", "PA701")
PAGES = ("scan_quality.md", "scan_reading.md", "scan_reading_fifth.md", "scan_reading_sixth.md")

PREVIEW = """import torch

pieces = torch.zeros(0, 8)
for batch in loader:
    pieces = torch.cat([pieces, model(batch)])
"""  # PA207


@pytest.mark.parametrize(
    ("reading", "is_stable"),
    [
        (Reading(20, 18, 2, 0, 0, ""), True),
        (Reading(20, 17, 2, 1, 0, ""), False),
        (Reading(20, 17, 2, 1, 2, ""), True),
        (Reading(3, 2, 0, 1, 0, ""), True),
        (Reading(3, 1, 1, 1, 0, ""), False),
        (Reading(3, 0, 3, 0, 3, ""), True),
        (Reading(20, 2, 18, 0, 0, "", together=4), True),  # of several rules: nothing is known of this one
    ],
)
def test_the_policy(reading: Reading, is_stable: bool) -> None:
    assert reading.is_mostly_right == is_stable


@pytest.mark.parametrize("rule", all_rules().values(), ids=lambda rule: rule.id)
def test_a_tier_is_what_the_reading_says(rule: Rule) -> None:
    assert "tier" in tomllib.loads(Path(rule.path).read_text(encoding="utf-8"))
    if rule.id in {*ALWAYS_STABLE, *STABLE_BY_DECISION}:
        assert rule.tier == "stable"
    elif rule.reading is not None and rule.reading.together == 1:
        assert rule.tier == ("stable" if rule.reading.is_mostly_right else "preview")


@functools.cache
def rows_of_pages() -> dict[str, dict[tuple[str, ...], list[int]]]:
    """What each heading's table of readings says of rules: read, right, arguable, wrong, and how many of the last two went.

    By page and heading, in their order; rows of one rule are added up. The reading of code that shaped the rules is left out.
    """
    pages: dict[str, dict[tuple[str, ...], list[int]]] = {}
    for name in PAGES:
        where, columns = "", []
        for line in (ROOT / "benchmarks" / name).read_text(encoding="utf-8").splitlines():
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if line.startswith("## "):
                heading = re.sub(r"[^a-z0-9_ -]", "", line[3:].lower()).replace(" ", "-")
                where = f"benchmarks/{name}#{heading}" if name == PAGES[0] else f"benchmarks/{name}"
            if not line.startswith("|"):
                columns = []
            elif not columns:
                columns = cells
            elif columns[0] == "rule" and "right" in columns and (ids := re.findall(r"PA\d{3}", cells[0])):
                at = columns.index("right")
                numbers = [int(text.split()[0]) if text else 0 for text in cells[at - 1 : at + 3]]
                has_after = "after" in " ".join(columns[at + 3 : at + 4]) and columns.count("wrong") == 2
                went = sum(numbers[2:]) - sum(map(int, cells[at + 5 : at + 7])) if has_after else 0
                rows = pages.setdefault(where, {})
                before = rows.get(tuple(ids), [0] * 5)
                rows[tuple(ids)] = [one + other for one, other in zip(before, [*numbers, max(went, 0)], strict=True)]
    shaped = ("on-repositories-that-were-used", "nine-new-rules", "a-second-reading")
    return {where: rows for where, rows in pages.items() if not where.partition("#")[2].startswith(shaped)}


@pytest.mark.parametrize("rule", [rule for rule in all_rules().values() if rule.reading], ids=lambda rule: rule.id)
def test_a_reading_is_that_of_the_pages_that_it_names(rule: Rule) -> None:
    reading = rule.reading
    assert reading is not None
    rows = [(ids, row) for page in reading.where.split(" and ") for ids, row in rows_of_pages()[page].items()]
    of_rule = [row for ids, row in rows if rule.id in ids and len(ids) == reading.together]
    said = [reading.read, reading.right, reading.arguable, reading.wrong, reading.mended]
    assert said == [sum(numbers) for numbers in zip(*of_rule, strict=True)]


@pytest.mark.parametrize("rule", all_rules().values(), ids=lambda rule: rule.id)
def test_a_reading_is_the_newest(rule: Rule) -> None:
    """Of the readings that name the rule by itself, the newest that together have ten findings; of several rules the newest."""
    first = [page for page in rows_of_pages() if page.endswith(("#by-rule", "-mended-after-it"))]
    in_files_of_their_own = [page for page in rows_of_pages() if "#" not in page]
    oldest = [*first, *in_files_of_their_own]
    newest = [*reversed([*oldest, *(page for page in rows_of_pages() if page not in oldest)])]
    alone = [(page, row) for page in newest if (row := rows_of_pages()[page].get((rule.id,))) and row[0]]
    read, named = 0, []
    for page, row in alone:
        if read < 10:
            read += row[0]
            named.append(page)
    if not alone:
        named = [page for page in newest if any(rule.id in ids for ids in rows_of_pages()[page])][:1]
    assert (rule.reading.where if rule.reading else "") == " and ".join(named)


def test_findings_of_a_preview_rule_are_hints() -> None:
    preview = {id_: replace(rule, tier="preview") for id_, rule in all_rules().items()}
    found = 0
    for rule in preview.values():
        for example in rule.examples:
            findings = run_checks(Source("example.py", example.text), preview, frozenset([rule.id]))
            assert {finding.severity for finding in findings} <= {"hint"}
            found += len(findings)
    assert found > len(preview)


@pytest.mark.parametrize(
    ("tiers", "expected"),
    [
        (("stable", "stable"), [(("PA102",), "warning")]),
        (("preview", "stable"), [((), "hint"), ((), "warning")]),
        (("stable", "preview"), [((), "warning"), ((), "hint")]),
        (("preview", "preview"), [(("PA102",), "hint")]),
    ],
)
def test_a_hint_is_no_part_of_a_warning(tiers: tuple[str, str], expected: list[tuple[tuple[str, ...], str]]) -> None:
    text = "import torch\nfor batch in torch.utils.data.DataLoader(data, 64):\n    model(batch.cuda()).backward()\n"
    rules = {
        id_: replace(all_rules()[id_], tier=tier)  # type: ignore[arg-type]  # a row's text
        for id_, tier in zip(("PA101", "PA102"), tiers, strict=True)
    }
    findings = join_findings(run_checks(Source("a.py", text), rules, frozenset(rules)))
    assert [(finding.also, finding.severity) for finding in findings] == expected


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [((), []), (("--severity", "hint"), ["hint"]), (("--select", "PA207"), ["hint"]), (("--select", "PA2"), [])],
)
def test_a_preview_rule_is_reported_where_it_is_asked_for(
    project: Project, perfaudit: Run, arguments: tuple[str, ...], shown: list[str]
) -> None:
    project(**{"a.py": PREVIEW})
    done = perfaudit("scan", "a.py", "--format", "json", *arguments)
    report = json.loads(done.out)
    assert [finding["severity"] for finding in report["findings"] if finding["rule"] == "PA207"] == shown
    assert report["hints_left_out"] == 1 - len(shown)
