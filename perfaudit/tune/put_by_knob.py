"""Fixes that a knob can apply to a running script, because the lines they change ran before its loop."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from perfaudit.findings import CHANGES
from perfaudit.knobs import Refused, Survey, all_knobs, knob
from perfaudit.measure.clock import Deadline
from perfaudit.tune.candidates import Candidate, candidates_of
from perfaudit.tune.priced_findings import Waiting
from perfaudit.tune.session import Session


def put_by_knobs(session: Session, survey: Survey, waiting: Iterable[Waiting], deadline: Deadline) -> None:
    """Have the fix of each finding put in place by a setting of a knob whose patch is the same text, where there is one.

    deadline: for what knobs ask.
    """
    if not survey.facts.is_script:
        return
    known: dict[str, list[Candidate]] = {}
    for each in waiting:
        for name in all_knobs():
            if each.finding.rule not in knob(name).rules or not knob(name).fixed_batch or each.tried != [each.own]:
                continue
            if name not in known:
                try:
                    known[name] = candidates_of(session, survey, name, frozenset(CHANGES), deadline)
                except Refused:  # it has nothing to put in place here: the fix is raced as it is
                    known[name] = []
            same = [c for c in known[name] if c.way == "setting" and _edits(c) == _edits(each.own)]
            if same:
                told = same[0].settings_in_child or same[0].settings
                each.own = replace(each.own, way="setting", settings_in_child=told, applying_knob=name)
                each.tried = [each.own]


def _edits(candidate: Candidate) -> tuple[str, set[tuple[int, int, str]]]:
    return candidate.path, {(edit.span.start, edit.span.end, edit.text) for edit in candidate.edits}
