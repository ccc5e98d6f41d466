"""Every example of every rule file: what is reported, where, and the text after the fix."""

from __future__ import annotations

import ast
from dataclasses import replace

import pytest

from perfaudit.rules import Example, Rule, all_rules
from perfaudit.static import edit
from perfaudit.static.registry import all_checks, run_checks
from perfaudit.static.source import Source

AS_STABLE = {
    id_: replace(rule, tier="stable") for id_, rule in all_rules().items()
}  # what the checks say by themselves
EXAMPLES = [
    pytest.param(rule, example, id=f"{rule.id}-{number}")
    for rule in all_rules().values()
    for number, example in enumerate(rule.examples, start=1)
]


@pytest.mark.parametrize(("rule", "example"), EXAMPLES)
def test_example(rule: Rule, example: Example) -> None:
    source = Source("example.py", example.text)
    findings = run_checks(source, AS_STABLE, frozenset([rule.id]))
    assert tuple(f.location.line for f in findings if f.location) == example.lines
    hints = tuple(f.location.line for f in findings if f.location and f.severity == "hint")
    assert hints == (example.lines if rule.severity == "hint" else example.hints)
    edits = [e for f in findings if f.fix for e in f.fix.edits]
    fixed = edit.apply(source.text, edits) if edits else None
    assert fixed == example.fixed


@pytest.mark.parametrize(("rule", "example"), [p for p in EXAMPLES if p.values[1].fixed is not None])
def test_fixed_code_parses_is_silent_and_keeps_comments(rule: Rule, example: Example) -> None:
    assert example.fixed is not None
    after = Source("example.py", example.fixed)
    assert [f for f in run_checks(after, all_rules(), frozenset([rule.id])) if f.fix and f.fix.edits] == []
    comments = [line.partition("#")[2] for line in example.text.splitlines() if "#" in line]
    assert all(comment in example.fixed for comment in comments)


@pytest.mark.parametrize("rule", all_rules().values(), ids=lambda rule: rule.id)
def test_fix_is_what_the_rule_file_says(rule: Rule) -> None:
    """A rule that promises a fix shows one; a manual one never edits."""
    has_fixed = any(example.fixed is not None for example in rule.examples)
    assert has_fixed == (rule.fix in ("safe", "unsafe"))


def test_one_check_per_rule_named_as_it() -> None:
    by_rule = {check.rule: check.function for check in all_checks()}
    static = [rule for rule in all_rules().values() if rule.area != "environment" and rule.found_in == "code"]
    for rule in static:
        module = by_rule[rule.id].__module__.rpartition(".")[2]
        assert module == rule.name.replace("-", "_")
    assert set(by_rule) == {rule.id for rule in static}


def test_examples_parse() -> None:
    for rule in all_rules().values():
        for example in rule.examples:
            ast.parse(example.text)
