"""What of a scan's findings is measured, and why the others are not: notes in whole."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import FakeClock
from test_price_together import TEXT, Start, sizes, start, switch  # noqa: F401  # fixtures

from perfaudit.findings import Finding, Fix, Location
from perfaudit.report import Report
from perfaudit.tune import price

SWITCH = switch("a")
ALL = {"t.py": {1, 3, 4}}


def sorted_out(start: Start, *findings: Finding, lines: dict[str, set[int]] = ALL, **facts: Any) -> list[str]:  # noqa: F811
    """Notes of what is not measured; what waits is told by its key."""
    tuning, priced, _ = start({})
    tuning.facts = {**tuning.facts, **facts}
    price._sort(tuning, Report("scan", findings), lines, priced)
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
    ],
)
def test_why_a_finding_is_not_measured(start: Start, finding: Finding, lines: Any, note: str) -> None:  # noqa: F811
    assert sorted_out(start, finding, lines=lines) == [note]


def test_findings_of_one_rule_and_file_are_measured_together(start: Start) -> None:  # noqa: F811
    tuning, priced, _ = start({})
    one = replace(switch("a"), note="observed: so")
    other = replace(switch("b"), rule=one.rule)
    price._sort(tuning, Report("scan", (one, other)), ALL, priced)
    ((key, (finding, variant)),) = priced.waiting.items()
    assert (key, finding.note) == ("PA003 t.py", "observed to be so at 1 of 2 places")
    assert variant.overlay == {"t.py": TEXT.replace("0", "1")}
    assert variant.settings == {"patch": "PA003", "path": "t.py"}


def test_one_finding_keeps_its_own_note(start: Start) -> None:  # noqa: F811
    tuning, priced, _ = start({})
    price._sort(tuning, Report("scan", (replace(switch("a"), note="observed: so"),)), ALL, priced)
    assert [finding.note for finding, _ in priced.waiting.values()] == ["observed: so"]


def test_a_file_that_is_gone_since_it_was_read_is_not_patched(start: Start, clock: FakeClock) -> None:  # noqa: F811
    tuning, priced, _ = start({})
    Path("t.py").unlink()
    price._sort(tuning, Report("scan", (switch("a"),)), ALL, priced)
    assert [finding.note for finding in priced.kept] == ["not measured: the file changed while it was read"]


def test_a_setting_that_does_not_apply_here_is_not_measured(
    start: Start,  # noqa: F811
    sizes: Callable[..., None],  # noqa: F811
) -> None:
    sizes([1], not_applicable=lambda facts: "" if facts["device"] == "cuda" else "there is no accelerator here")
    assert "perfaudit.knobs.sizes" in sys.modules
    assert sorted_out(start, switch("a")) == ["not measured: there is no accelerator here"]
    assert sorted_out(start, switch("a"), device="cuda") == ["PA003 t.py"]
