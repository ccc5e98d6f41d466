"""What each finding of a scan is worth on the user's model: its own patch against the code as it is.

All patches are raced beside each other in one training (`tune.screening`); what cannot be put in place there is raced as
patched source in fresh processes. What pays is checked in fresh processes, each patch alone, and all of it together is raced
there (`tune.pricing_races`). `tune.priced_findings` says what came of it.
"""

from __future__ import annotations

import ast
import os
from dataclasses import replace

from perfaudit import rank
from perfaudit.errors import NothingMeasured, UserError
from perfaudit.findings import CHANGES, Finding
from perfaudit.knobs import Refused, Survey, all_knobs, knob
from perfaudit.knobs._code import inside_project
from perfaudit.measure.child import ChildFailed
from perfaudit.measure.clock import Clock, Deadline, WallClock
from perfaudit.measure.facts import from_json
from perfaudit.measure.nursery import START_SECONDS
from perfaudit.measure.time_limit import time_limit
from perfaudit.measure.watch import Watch
from perfaudit.measurements import NotApplicable
from perfaudit.report import Report, to_json
from perfaudit.target.names import Target
from perfaudit.tune.candidates import candidates_of
from perfaudit.tune.first_steps import first_profile, needs_time, time_phases
from perfaudit.tune.loops import OF_SEVERAL_PROCESSES, READ_AT_START, expect_candidates, expect_findings
from perfaudit.tune.observed_findings import observed_findings
from perfaudit.tune.own_loop import own_loop
from perfaudit.tune.plan import candidate_of, runs
from perfaudit.tune.priced_findings import (
    BASE,
    Priced,
    Waiting,
    evidence_of,
    findings_of,
    prepend_note,
    together_words,
)
from perfaudit.tune.pricing_races import PricingRaces
from perfaudit.tune.profile import Profile
from perfaudit.tune.put_by_knob import put_by_knobs
from perfaudit.tune.race_results import notes_of
from perfaudit.tune.recording import Begin, Record, start_line
from perfaudit.tune.screening import calibration_of
from perfaudit.tune.session import INTERRUPTED, Session, interruptible
from perfaudit.tune.too_short import ended_words, is_too_short, longer_words, too_short_words
from perfaudit.tune.workshop import Children, as_user_error, workshop_for

# Times the budget, after which a question that is under way is left: ending processes takes a while besides.
OVERTIME = 1.1
OBSERVED_STEPS = 10  # about as many are made, some under modes that double their time
OBSERVING_SHARE = 0.1  # of the budget
OBSERVING_SECONDS = 10.0  # at least, where the budget is small
ASKING_SHARE = 0.15  # of what is left, for what a knob must know before it has candidates

Lines = dict[str, set[int]]  # that run, by path


def price(
    target: Target,
    report: Report,
    budget: float,
    device: str,
    watch: Watch,
    timeout: float = START_SECONDS,
    selected: frozenset[str] | None = None,
    workshop: Children | None = None,
    clock: Clock | None = None,
    begin: Begin = lambda start: Record(),
    in_place: bool = False,
) -> Report:
    """The report with screened and measured savings, ranked. Ends early on Ctrl-C with what there is.

    budget: seconds for all measuring, OVERTIME times which it ends at the latest; timeout: seconds that loading or one step may
    take; selected: rules of which a run may show what reading missed, None for all; in_place: a script writes its own files;
    begin: opens the record of the run, see `tune.recording`. Raises TargetError when the target does not load, NothingMeasured
    when it cannot make a step, or nothing was compared.
    """
    priced, record = Priced(), Record()
    profile: Profile | None = None
    clock = clock or WallClock()
    deadline = Deadline(budget, clock)
    at_work = workshop_for(workshop, replace(target, in_place=in_place), device, watch, timeout)
    try:
        with interruptible() as interrupted, time_limit(OVERTIME * budget) as is_over, at_work as workshop:
            profile, lines = _build(target, workshop, watch, timeout, report)
            record = begin(start_line(target, profile, [], budget, 0, command="scan"))
            session = Session(target, workshop, watch, clock, record, timeout, skips_idle=True)
            needs_time(target, profile, budget, deadline.seconds_left() or budget)
            expect_findings(target, workshop, report.findings)
            profile = _observe(session, profile, report, lines, budget, selected)
            profile = time_phases(session, profile, budget)
            _sort(profile.survey, lines, priced)
            _list_settings(session, profile.survey, priced, deadline)
            asking = session.deadline(ASKING_SHARE * deadline.seconds_left())
            put_by_knobs(session, profile.survey, priced.waiting.values(), asking)
            expect_candidates(session, profile, [*priced.candidates_by_key.values()], deadline)
            races = PricingRaces(session, profile, priced, deadline)
            races.screen()
            races.check()
            races.race_as_source()
            races.race_together()
        if is_over[0] and not priced.waiting:
            over = f"the budget of {budget:.0f} s was over before anything was compared"
            raise NothingMeasured(f"{target}: {over}; give it longer with --budget")
        report = _report_of(target, profile, priced, report, budget, interrupted[0])
    except UserError:
        record.end("failed")
        raise
    if why := record.journal.trouble:
        report = report.with_(notes=(*report.notes, why))
    report = report.with_(kept_in=record.journal.place)
    status = "interrupted" if interrupted[0] else "finished" if deadline.seconds_left() > 0 else "out of time"
    record.end(status, to_json(report))
    return report


def _report_of(
    target: Target, profile: Profile | None, priced: Priced, report: Report, budget: float, interrupted: bool
) -> Report:
    """The report with what was measured. Raises NothingMeasured where that is nothing, and not because it was interrupted."""
    notes = [*(profile.notes if profile is not None else ()), *notes_of(priced.raced, priced.beside)]
    notes += [INTERRUPTED] if interrupted else []
    if interrupted and not (priced.kept or priced.waiting):
        return report.with_(target=str(target), notes=tuple(notes), interrupted=True)
    ended = "the training ended" if priced.raced.gave_up else "the budget ended"
    ended = "interrupted" if interrupted else ended
    notes += together_words(priced, ended)
    notes += filter(None, [too_short_words(target, priced.open_rules, [priced.raced])])
    findings = findings_of(priced, ended)
    trials, comparisons = evidence_of(priced)
    ledgers = [priced.checks, *(race.ledger for race in priced.races)]
    if not interrupted:
        for ledger in ledgers:
            if failure := ledger.failures.get(BASE.key):
                why = "; ".join(filter(None, [failure, ended_words(target, failure)]))
                raise NothingMeasured(f"{target}: your code as it is could not be measured: {why}")
        failed = priced.raced.failures or any(ledger.failures for ledger in ledgers)
        if priced.waiting and not comparisons and not failed:
            why = f"within the budget of {budget:.0f} s; give it longer with --budget"
            if is_too_short(priced.raced):
                why = f"before the script ended by itself: {longer_words(target)}"
            raise NothingMeasured(f"{target}: no comparison was finished {why}")
    return report.with_(
        findings=rank.sort_findings(findings),
        target=str(target),
        own_loop=own_loop(target),
        environment=profile.environment if profile is not None else None,
        calibration=calibration_of(priced.raced, profile) if profile is not None else None,
        trials=tuple(trials),
        comparisons=tuple(comparisons),
        not_applicable=tuple(priced.not_applicable),
        notes=tuple(notes),
        interrupted=interrupted,
    )


def _build(target: Target, workshop: Children, watch: Watch, timeout: float, report: Report) -> tuple[Profile, Lines]:
    """Build the training once under a line trace: what is known of it, and lines that run, by path."""
    watch.stage(f"loading {target}")
    places = (finding.location for finding in report.findings if finding.location is not None)
    files = sorted({place.path for place in places if inside_project(place.path)})
    try:
        reply = workshop.trace(files)
    except ChildFailed as failure:
        raise as_user_error(target, failure, timeout) from failure
    profile = first_profile(from_json(reply["facts"]), reply["seconds_per_step"])
    return profile, {path: set(lines) for path, lines in reply["lines"].items()}


def _observe(
    session: Session, profile: Profile, report: Report, lines: Lines, budget: float, selected: frozenset[str] | None
) -> Profile:
    """The profile with the report's findings and what a run confirms, takes back or adds to them.

    lines: those that run; the lines of what is added are put there.
    """
    survey = replace(profile.survey, findings=report.findings)
    if session.target.is_script:
        return replace(profile, survey=survey)
    if OBSERVED_STEPS * profile.seconds_per_step > OBSERVING_SHARE * budget:
        why = "the training was not observed: its steps are too long for this --budget"
        return replace(profile, survey=survey, notes=(*profile.notes, why))
    session.watch.stage("observing a step")
    seen = observed_findings(session, survey, seconds=max(OBSERVING_SECONDS, OBSERVING_SHARE * budget))
    places = {finding.location for finding in report.findings}
    new = [f for f in seen.findings if f.location not in places and (selected is None or f.rule in selected)]
    for place in (finding.location for finding in new):
        if place is not None:
            lines.setdefault(place.path, set()).update(range(place.line, place.end_line + 1))
    findings = (*(f for f in seen.findings if f.location in places), *new)
    return replace(profile, survey=replace(survey, findings=findings), notes=(*profile.notes, *seen.notes))


def _sort(survey: Survey, lines: Lines, priced: Priced) -> None:
    """Say of each finding why it is not measured, or put it among those of one rule and file that are measured together."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in survey.findings:
        place, fix = finding.location, finding.fix
        why = ""
        if place is None or fix is None or not fix.edits:
            why = "not measured: there is no patch to measure"
        elif not inside_project(place.path):
            why = "not measured: the file lies outside the working directory"
        elif reason := _pointless(survey, finding):
            why = f"not measured: {reason}"
        elif not runs(finding, lines.get(place.path, set())):
            why = f"not measured: building the training and making a step does not run this line of {place.path}"
        if why or place is None:
            priced.kept.append(prepend_note(finding, why))
        else:
            groups.setdefault((finding.rule, place.path), []).append(finding)
    for (rule, path), group in groups.items():
        if (merged := candidate_of(rule, path, group)) is None:
            priced.kept += [prepend_note(f, "not measured: the file changed while it was read") for f in group]
            continue
        finding, own = merged
        finding = finding.with_(note=_seen_together(group)) if len(group) > 1 else finding
        priced.waiting[own.key] = Waiting(finding, own, [own])


def _seen_together(group: list[Finding]) -> str:
    seen = sum(finding.note.startswith("observed:") for finding in group)
    return f"observed to be so at {seen} of {len(group)} places" if seen else ""


def _pointless(survey: Survey, finding: Finding) -> str:
    """Why a finding cannot matter on this device, "" if it can."""
    if finding.rule == "PA102" and survey.facts.device.type == "cpu":
        return "pinned memory speeds up copies to an accelerator, and there is none here"
    if finding.rule in OF_SEVERAL_PROCESSES:
        return "its patch makes a program of several processes, which `torchrun … -m perfaudit run` looks at as a whole"
    if finding.rule in READ_AT_START:
        return "what its patch changes is read once, as a process starts; `perfaudit run` shows it, before and after"
    for name in all_knobs():
        if finding.rule in knob(name).rules:
            return knob(name).why_not(survey)
    return ""


def is_of_another_loader(survey: Survey, waiting: Waiting) -> bool:
    """Whether a finding is about a call that builds another loader than the one whose batches are trained on."""
    site, place, own = survey.facts.loader.site, waiting.finding.location, waiting.own
    if site is None or place is None:
        return False
    start = (place.line, place.column - 1)
    calls = (node for node in ast.walk(ast.parse(own.before)) if isinstance(node, ast.Call))
    if all((call.lineno, call.col_offset) != start for call in calls):  # a number that some call is given
        return False
    lines = {own.before.count("\n", 0, each.span.start) + 1 for each in own.edits}
    is_here = os.path.realpath(site[0]) == os.path.realpath(place.path)
    return not (is_here and any(site[1] <= line <= site[2] for line in lines))


def _list_settings(session: Session, survey: Survey, priced: Priced, deadline: Deadline) -> None:
    """Findings whose setting has a best value get that knob's candidates in place of their own patch, where it has any."""
    searched = {rule: name for name in all_knobs() if not knob(name).fixed_batch for rule in knob(name).rules}
    names: set[str] = set()
    for waiting in priced.waiting.values():
        name = searched.get(waiting.finding.rule)
        if name is None or name in names or (name == "dataloader" and is_of_another_loader(survey, waiting)):
            continue
        names.add(name)
        asking = session.deadline(ASKING_SHARE * deadline.seconds_left())
        try:
            found = candidates_of(session, survey, name, frozenset(CHANGES), asking)
            waiting.tried = [each for each in found if not knob(name).covers(each.settings)]  # more than what was found
        except Refused as refusal:
            priced.not_applicable.append(NotApplicable(name, str(refusal)))
