"""Tiers: which rules are stable by what was read of them, and that findings of the others are hints everywhere."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Done

from perfaudit.rules import Reading, Rule, all_rules
from perfaudit.static.registry import join_findings, run_checks
from perfaudit.static.source import Source

Run = Callable[..., Done]
Project = Callable[..., Path]

ROOT = Path(__file__).parents[1]
# What the project began with is reported at once, whatever a reading says: it has to be mended, not hidden.
ALWAYS_STABLE = ("PA101", "PA102", "PA103", "PA201", "PA301", "PA404", "PA405", "PA406", "PA501", "PA701")
RIGHT = 0.9  # of the findings read, without those that are mended
FEW = 10  # findings read, of which two that are not right say little

PREVIEW = """import torch

pieces = torch.zeros(0, 8)
for batch in loader:
    pieces = torch.cat([pieces, model(batch)])
"""  # PA207


def should_be_stable(reading: Reading) -> bool:
    """As docs/scan.md has it."""
    counted = reading.read - reading.mended
    return not counted or reading.right / counted >= (RIGHT if reading.read >= FEW else 0.5)


@pytest.mark.parametrize(
    ("reading", "is_stable"),
    [
        (Reading(20, 18, 2, 0, 0, ""), True),
        (Reading(20, 17, 2, 1, 0, ""), False),
        (Reading(20, 17, 2, 1, 2, ""), True),
        (Reading(3, 2, 0, 1, 0, ""), True),
        (Reading(3, 1, 1, 1, 0, ""), False),
        (Reading(3, 0, 3, 0, 3, ""), True),
    ],
)
def test_the_policy(reading: Reading, is_stable: bool) -> None:
    assert should_be_stable(reading) == is_stable


@pytest.mark.parametrize("rule", all_rules().values(), ids=lambda rule: rule.id)
def test_a_tier_is_what_the_reading_says(rule: Rule) -> None:
    assert "tier" in tomllib.loads(Path(rule.path).read_text(encoding="utf-8"))
    if rule.id in ALWAYS_STABLE:
        assert rule.tier == "stable"
    elif rule.reading is not None:
        assert rule.tier == ("stable" if should_be_stable(rule.reading) else "preview")


def test_readings_are_those_of_the_pages_that_they_name() -> None:
    row = r"^\| (PA\d+)%s \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$"
    with_names = "benchmarks/scan_quality.md"  # and the number of reports beside that of those read
    tables: dict[str, dict[str, tuple[int, ...]]] = {}
    for rule in all_rules().values():
        if (reading := rule.reading) is None:
            continue
        total = [0, 0, 0, 0]
        for page in reading.where.split(" and "):
            if page not in tables:
                text = (ROOT / page).read_text(encoding="utf-8")
                rows = re.findall(row % (r" \S+ \| \d+" if page == with_names else ""), text, re.MULTILINE)
                tables[page] = {found[0]: tuple(map(int, found[1:])) for found in rows}
            total = [one + other for one, other in zip(total, tables[page].get(rule.id, (0, 0, 0, 0)), strict=True)]
        assert total == [reading.read, reading.right, reading.arguable, reading.wrong], rule.id


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
    ("tiers", "severity"),
    [
        (("stable", "stable"), "warning"),
        (("preview", "stable"), "warning"),
        (("stable", "preview"), "warning"),
        (("preview", "preview"), "hint"),
    ],
)
def test_a_finding_of_two_rules_is_a_hint_where_both_are(tiers: tuple[str, str], severity: str) -> None:
    text = "import torch\nfor batch in torch.utils.data.DataLoader(data, 64):\n    model(batch.cuda()).backward()\n"
    rules = {
        id_: replace(all_rules()[id_], tier=tier)  # type: ignore[arg-type]  # a row's text
        for id_, tier in zip(("PA101", "PA102"), tiers, strict=True)
    }
    (finding,) = join_findings(run_checks(Source("a.py", text), rules, frozenset(rules)))
    assert (finding.also, finding.severity) == (("PA102",), severity)


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
