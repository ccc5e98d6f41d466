"""The order of findings: measured savings by their lower bound, screened ones, the rest, what was timed and not shown to pay."""

from __future__ import annotations

from perfaudit.findings import SEVERITIES, Finding

PAYS, SCREENED, NOT_MEASURED, DOES_NOT_PAY = 0, 1, 2, 3


def group(finding: Finding) -> int:
    """PAYS for a measured saving whose whole interval is above zero, SCREENED for one that was timed in a training that runs.

    DOES_NOT_PAY for either where the interval is not.
    """
    saving = finding.saving
    if saving is None or saving.basis not in ("measured", "screened"):
        return NOT_MEASURED
    if saving.low <= 0:
        return DOES_NOT_PAY
    return PAYS if saving.basis == "measured" else SCREENED


def sort_findings(findings: list[Finding] | tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Findings in the order of a report.

    What was not measured is ordered by severity, then by the lower bound of our own benchmark of the rule, then by what runs
    on every step, then by place: a figure that somebody cites for another program moves no finding.
    What a profile of the user's run says stands before it.
    """
    return tuple(sorted(findings, key=_key))


def _key(finding: Finding) -> tuple[object, ...]:
    at = finding.location
    place = (at.path, at.cell or 0, at.line, at.column) if at else ("", 0, 0, 0)
    saving = finding.saving
    where = group(finding)
    if where != NOT_MEASURED and saving is not None:
        return (where, -saving.low, place)
    basis = saving.basis if saving is not None else ""
    ours = max(saving.low, 0.0) if saving is not None and basis in ("profiled", "benchmarked") else 0.0
    severity = SEVERITIES.index(finding.severity)
    return (where, basis != "profiled", severity, -ours, not finding.hot, place, finding.rule)
