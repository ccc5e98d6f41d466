"""What the fix of a rule saves of a step: its programs have its finding, and its file says what is on record."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from perfaudit.rules import all_rules

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

import rule_effects  # noqa: E402  # lies outside the package
from records import read  # noqa: E402

PROGRAMS = sorted(rule_effects.PROGRAMS.glob("*.py"))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
def test_the_rule_mends_its_program(program: Path) -> None:
    rule = program.name.partition("_")[0]
    after = rule_effects.fixed(program, rule)
    compile(after, program.name, "exec")
    assert after != program.read_text(encoding="utf-8")
    assert rule_effects.program_of(rule) == program, "two programs of one rule"


def test_a_program_without_the_finding_is_named(tmp_path: Path) -> None:
    (tmp_path / "calm.py").write_text("x = 1\n")
    with pytest.raises(SystemExit, match=r"calm\.py: PA201"):
        rule_effects.fixed(tmp_path / "calm.py", "PA201")


def test_the_page_is_that_of_the_records() -> None:
    assert rule_effects.PAGE.read_text(encoding="utf-8") == rule_effects.page(read(rule_effects.RECORDS))


@pytest.mark.parametrize("rule", all_rules().values(), ids=lambda rule: rule.id)
def test_a_rule_says_what_is_on_record(rule: rule_effects.Rule) -> None:
    said = tomllib.loads(Path(rule.path).read_text(encoding="utf-8")).get("benchmarked")
    own = [r for r in read(rule_effects.RECORDS) if r["rule"] == rule.id and r["device"] == "cpu"]
    assert said == (rule_effects.saving_of(rule.id, own) if own else None)


def test_a_rule_with_a_patch_has_a_program_or_a_reason() -> None:
    missing = [rule.id for rule in all_rules().values() if rule.has_patch and rule_effects.program_of(rule.id) is None]
    assert [id_ for id_ in missing if id_ not in rule_effects.WITHOUT and not all_rules()[id_].accelerator_only] == []


def test_the_widest_bounds_of_several_runs() -> None:
    runs = [{"ratio": 0.8, "low": 0.7, "high": 0.9}, {"ratio": 0.8, "low": 0.75, "high": 0.95}]
    low, middle, high = rule_effects.bounds(runs)
    assert (low, round(middle, 9), high) == (0.7, 0.8, 0.95)
