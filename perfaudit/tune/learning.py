"""What is known of the source as it stands: findings of its text, judged by a run of it, and the facts of the training."""

from __future__ import annotations

from perfaudit.errors import UserError
from perfaudit.findings import Finding
from perfaudit.knobs import knob
from perfaudit.knobs._code import inside_project
from perfaudit.knobs._rewritten import Rewritten
from perfaudit.measure.child import ChildFailed
from perfaudit.tune.observed import observed_findings
from perfaudit.tune.observed_biases import RULES
from perfaudit.tune.plan import runs
from perfaudit.tune.tuning import Tuning


def learn(tuning: Tuning, knobs: list[str]) -> None:
    """Scan the source and, where one of the knobs takes fixes that a run can judge, run and observe it."""
    findings = _scanned(tuning)
    tuning.never_run = _never_run(tuning, findings, knobs)
    tuning.learn(finding for finding in findings if finding.fingerprint not in tuning.never_run)
    if not any(set(knob(name).rules) & set(RULES) for name in knobs):
        return
    tuning.watch.stage("observing one step of it")
    merged = observed_findings(tuning)
    tuning.learn(merged.findings)
    tuning.notes += [f"not observed: {problem}" for problem in merged.problems]
    tuning.notes += [f"{f.rule} at {f.location}: withdrawn, {f.note}" for f in merged.withdrawn]


def _never_run(tuning: Tuning, findings: list[Finding], knobs: list[str]) -> frozenset[str]:
    """Fingerprints of what knobs that rewrite the model would patch in vain: building the training and two steps do not run it.

    A repository of many models has many such places, and each would cost a race.
    """
    rules = {rule for name in knobs if isinstance(knob(name), Rewritten) for rule in knob(name).rules}
    asked = [f for f in findings if f.rule in rules and f.location is not None and f.fingerprint]
    files = sorted({f.location.path for f in asked if f.location is not None and inside_project(f.location.path)})
    if not files:
        return frozenset()
    try:
        lines = tuning.workshop.trace(files)["lines"]
    except ChildFailed:  # then nothing is known of it
        return frozenset()
    known = [f for f in asked if f.location is not None and f.location.path in lines]
    return frozenset(f.fingerprint for f in known if f.location and not runs(f, set(lines[f.location.path])))


def _scanned(tuning: Tuning) -> list[Finding]:
    from perfaudit.static.scan import Options, scan

    try:
        return list(scan(tuning.survey.facts.project_files or [tuning.target.file], Options(processes=1)).findings)
    except UserError:
        return []
