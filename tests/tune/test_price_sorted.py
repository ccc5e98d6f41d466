"""What of a scan's findings is measured, and why the others are not: notes in whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_clock import FakeClock
from pricing import PROGRAM, switch
from surveys import profile_of, survey_of
from test_price import dial  # noqa: F401  # a fixture

from perfaudit.findings import Edit, Finding, Fix, Location, Span
from perfaudit.measure.ledger import Ledger
from perfaudit.rules import all_rules
from perfaudit.tune import price
from perfaudit.tune.candidates import Candidate, texts_of
from perfaudit.tune.loops import OF_SEVERAL_PROCESSES, READ_AT_START, candidates_of_findings
from perfaudit.tune.priced_findings import Priced, Waiting
from perfaudit.tune.pricing_races import as_sources

SWITCH = switch("a")
ALL = {"t.py": {1, 3, 4}}
Sorting = Callable[..., Priced]


@pytest.fixture
def sort(clock: FakeClock, project: Callable[..., Path]) -> Sorting:
    """`sort(finding, ...)`: what waits to be measured, and what is not."""
    project(**{"t.py": PROGRAM})

    def run(*findings: Finding, lines: dict[str, set[int]] = ALL, device: str = "cpu") -> Priced:
        known = survey_of(findings, device={"type": device}, project_files=("t.py",))
        priced = Priced()
        price._sort(known, lines, priced)
        return priced

    return run


def told(priced: Priced) -> list[str]:
    """Notes of what is not measured; what waits is told by its key."""
    return [*(finding.note for finding in priced.kept), *priced.waiting]


@pytest.mark.parametrize(
    ("finding", "lines", "note"),
    [
        (SWITCH, ALL, "PA003 t.py"),
        (SWITCH, {"t.py": {4}}, "not measured: building the training and making a step does not run this line of t.py"),
        (SWITCH, {}, "not measured: building the training and making a step does not run this line of t.py"),
        (replace(SWITCH, location=None), ALL, "not measured: there is no patch to measure"),
        (replace(SWITCH, fix=None), ALL, "not measured: there is no patch to measure"),
        (replace(SWITCH, fix=Fix("think", "manual")), ALL, "not measured: there is no patch to measure"),
        (
            replace(SWITCH, fix=Fix("think", "manual"), note="observed: so"),
            ALL,
            "not measured: there is no patch to measure; observed: so",
        ),
        (
            replace(SWITCH, location=Location("../t.py", 3, 1, 3, 6)),
            ALL,
            "not measured: the file lies outside the working directory",
        ),
        (
            replace(SWITCH, rule="PA102"),
            ALL,
            "not measured: pinned memory speeds up copies to an accelerator, and there is none here",
        ),
        (
            replace(SWITCH, rule="PA701"),
            ALL,
            "not measured: its patch makes a program of several processes, which `torchrun … -m perfaudit run` looks at as a "
            "whole",
        ),
        (
            replace(SWITCH, rule="PA504"),
            ALL,
            "not measured: what its patch changes is read once, as a process starts; `perfaudit run` shows it, before and after",
        ),
    ],
)
def test_why_a_finding_is_not_measured(sort: Sorting, finding: Finding, lines: Any, note: str) -> None:
    assert told(sort(finding, lines=lines)) == [note]


def test_rules_of_several_processes_are_those_that_say_so() -> None:
    assert {rule.id for rule in all_rules().values() if rule.several_processes} == OF_SEVERAL_PROCESSES
    assert candidates_of_findings([replace(SWITCH, rule="PA701")]) == []


def test_rules_of_what_is_read_at_start_are_those_that_say_so() -> None:
    assert {rule.id for rule in all_rules().values() if rule.read_at_start} == READ_AT_START
    assert candidates_of_findings([replace(SWITCH, rule="PA504")]) == []


def test_findings_of_one_rule_and_file_are_measured_together(sort: Sorting) -> None:
    one = replace(switch("a"), note="observed: so")
    other = replace(switch("b"), rule=one.rule)
    ((key, waiting),) = sort(one, other).waiting.items()
    assert (key, waiting.finding.note) == ("PA003 t.py", "observed to be so at 1 of 2 places")
    own = waiting.own
    assert (waiting.tried, own.key, own.settings) == ([own], key, {"patch": "PA003", "path": "t.py"})
    assert texts_of([own]) == {"t.py": PROGRAM.replace("a = 0", "a = 1").replace("b = 0", "b = 1")}
    assert own.before == PROGRAM


def test_one_finding_keeps_its_own_note(sort: Sorting) -> None:
    priced = sort(replace(switch("a"), note="observed: so"))
    assert [waiting.finding.note for waiting in priced.waiting.values()] == ["observed: so"]


def test_a_file_that_is_gone_since_it_was_read_is_not_patched(sort: Sorting) -> None:
    finding = switch("a")
    Path("t.py").unlink()
    assert told(sort(finding)) == ["not measured: the file changed while it was read"]


def test_a_setting_that_does_not_apply_here_is_not_measured(sort: Sorting, dial: Callable[..., None]) -> None:  # noqa: F811
    dial(
        [1], not_applicable=lambda survey: "" if survey.facts.device.type == "cuda" else "there is no accelerator here"
    )
    assert told(sort(switch("a"))) == ["not measured: there is no accelerator here"]
    assert told(sort(switch("a"), device="cuda")) == ["PA003 t.py"]


def test_what_is_raced_as_source_is_text_and_nothing_is_applied_to_it(sort: Sorting) -> None:
    (waiting,) = sort(switch("a")).waiting.values()
    race = as_sources(profile_of(survey_of()), [waiting.own], Ledger())
    assert [(v.key, v.settings, v.overlay, v.applied) for v in (race.start, race.top)] == [
        ("as it is", {"patch": "none"}, {}, ""),
        ("PA003 t.py", {"patch": "PA003", "path": "t.py"}, {"t.py": PROGRAM.replace("a = 0", "a = 1")}, ""),
    ]
    assert race.changes == {"PA003 t.py": ("rounding",)}


LOADERS = "import torch\n\ntrain = DataLoader(a, 8)\ntest = DataLoader(b, 8)\nworkers = 0\n"


@pytest.mark.parametrize(
    ("line", "text", "site", "is_other"),
    [
        (3, "DataLoader(a, 8)", ("t.py", 3, 3, 8, 24), False),
        (4, "DataLoader(b, 8)", ("t.py", 3, 3, 8, 24), True),
        (4, "DataLoader(b, 8)", ("other.py", 4, 4, 7, 23), True),
        (4, "DataLoader(b, 8)", None, False),  # nobody knows
        (5, "0", ("t.py", 3, 3, 8, 24), False),  # a number that both may be given
    ],
)
def test_a_finding_about_another_loader_than_the_one_that_is_trained_on(
    project: Callable[..., Path], line: int, text: str, site: Any, is_other: bool
) -> None:
    project(**{"t.py": LOADERS})
    at = LOADERS.index(text)
    column = at - LOADERS.rindex("\n", 0, at)
    fix = Fix("load with workers", "unsafe", ("rng",), (Edit(Span(at + len(text) - 1, at + len(text) - 1), " "),))
    finding = Finding("PA101", "no-workers", "warning", "none", Location("t.py", line, column, line, column), fix=fix)
    own = Candidate("PA101 t.py", "patch", {}, fix, finding.location, LOADERS, "code")
    survey = survey_of((finding,), loader={"site": site})
    assert price.is_of_another_loader(survey, Waiting(finding, own, [own])) is is_other
