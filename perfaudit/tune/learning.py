"""What is known of the source as it stands: findings of its text, judged by a run of it, and the facts of the training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from perfaudit.errors import UserError
from perfaudit.findings import Finding
from perfaudit.knobs import knob
from perfaudit.knobs._code import inside_project
from perfaudit.knobs._source_knobs import Rewritten
from perfaudit.measure.child import ChildFailed
from perfaudit.tune.observed_biases import RULES
from perfaudit.tune.observed_findings import observed_findings
from perfaudit.tune.plan import runs
from perfaudit.tune.profile import Profile
from perfaudit.tune.session import Session


def learn(session: Session, profile: Profile, knobs: list[str]) -> Profile:
    """The profile with what a scan finds; where one of the knobs takes fixes that a run can judge, a step is observed too.

    knobs: those that are searched. Findings of others stay as the text has them, and cost no process.
    """
    findings = findings_in(profile.survey.facts.project_files or [session.target.file])
    never_run = _never_run(session, findings, knobs)
    survey = replace(profile.survey, findings=tuple(f for f in findings if f.fingerprint not in never_run))
    if session.target.is_script or not any(set(knob(name).rules) & set(RULES) for name in knobs):
        return replace(profile, survey=survey)
    session.watch.stage("observing one step of it")
    merged = observed_findings(session, survey)
    return replace(profile, survey=replace(survey, findings=merged.findings), notes=(*profile.notes, *merged.notes))


def _never_run(session: Session, findings: list[Finding], knobs: list[str]) -> frozenset[str]:
    """Fingerprints of what knobs that rewrite the model would patch in vain: building the training and two steps do not run it.

    A repository of many models has many such places, and each would cost a race.
    """
    rules = {rule for name in knobs if isinstance(knob(name), Rewritten) for rule in knob(name).rules}
    asked = [(f, f.location.path) for f in findings if f.rule in rules and f.location is not None and f.fingerprint]
    files = sorted({path for _, path in asked if inside_project(path)})
    if not files or session.target.is_script:
        return frozenset()
    try:
        lines = session.workshop.trace(files)["lines"]
    except ChildFailed:  # then nothing is known of it
        return frozenset()
    return frozenset(f.fingerprint for f, path in asked if path in lines and not runs(f, set(lines[path])))


def findings_in(files: Sequence[str]) -> list[Finding]:
    """What a scan of these files finds; nothing where they cannot be scanned."""
    from perfaudit.static.scan import Options, scan

    try:
        return list(scan([*files], Options(processes=1)).findings)
    except UserError:
        return []
