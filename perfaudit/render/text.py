"""The report as a person reads it: ranked findings with their basis and patch, trials as tables, counts at the end."""

from __future__ import annotations

from collections import Counter

from perfaudit import rank
from perfaudit.findings import SEVERITIES, Finding, Fix, Saving
from perfaudit.render import tables
from perfaudit.render.paint import Paint, colour, painted_diff, plain
from perfaudit.report import Report

_MARK = {"error": "red", "warning": "yellow", "info": "cyan"}


def render(report: Report, in_colour: bool = False, width: int = 100) -> str:
    """The whole report as text; `width` in characters bounds tables, not code."""
    paint = colour if in_colour else plain
    parts: list[str] = []
    if report.environment is not None:
        parts.append(tables.environment(report, paint))
    if report.trials or report.not_applicable or report.winners:
        parts += tables.knobs(report, paint, width)
    measured_any = any(rank.group(f) != rank.NOT_MEASURED for f in report.findings)
    previous = None
    for number, finding in enumerate(report.findings, start=1):
        group = rank.group(finding)
        if measured_any and group != previous:
            parts.append(paint(_HEADINGS[group], "bold") + "\n")
            previous = group
        parts.append(_finding(number, finding, paint))
    for skipped in report.skipped:
        parts.append(f"{skipped.path}: {paint('not audited', 'yellow')}: {skipped.reason}\n")
    parts += [f"note: {note}\n" for note in report.notes]
    parts.append(_closing(report, paint))
    return "\n".join(parts)


_HEADINGS = {
    rank.PAYS: "MEASURED: these pay here, by the lower bound of what they save",
    rank.NOT_MEASURED: "NOT MEASURED: known from documents",
    rank.DOES_NOT_PAY: "MEASURED: no saving shown here",
}


def _finding(number: int, finding: Finding, paint: Paint) -> str:
    place = f"{finding.location}" if finding.location else "(no source line)"
    lines = [
        f"{number:>3}  {paint(place, 'bold')}  {paint(finding.rule, _MARK[finding.severity])} {finding.name}",
    ]
    if finding.snippet:
        lines.append(f"     {paint('│', 'dim')} {finding.snippet}")
    lines.append(f"     {finding.message}")
    if len(finding.places) > 1:
        lines.append(f"     lines: {', '.join(str(place.line) for place in finding.places)}")
    if finding.saving is not None:
        lines.append(f"     {saving_text(finding.saving, paint)}")
    if finding.note:
        lines.append(f"     {finding.note}")
    if finding.fix is not None:
        lines.append(f"     {_fix_title(finding.fix, paint)}")
        lines += [f"       {line}" if line else "" for line in painted_diff(finding.fix.diff, paint)]
    return "\n".join(lines) + "\n"


def _fix_title(fix: Fix, paint: Paint) -> str:
    if fix.safety == "manual":
        return f"{paint('advice', 'cyan')}: {fix.title}"
    changes = f": changes {', '.join(fix.changes)}" if fix.changes else ""
    return f"{paint(f'fix ({fix.safety}{changes})', 'cyan')}: {fix.title}"


def saving_text(saving: Saving, paint: Paint = plain) -> str:
    """What a saving is, with its basis: never the same words for measured and documented."""
    low, high = 100 * saving.low, 100 * saving.high
    if saving.basis == "documented":
        return f"may save up to {high:.0f} % of a step (documented: {saving.source})"
    step = "the step" if saving.clock == "wall" else "the step's processor time"
    per_step = f", {seconds(saving.seconds_per_step)} a step" if saving.seconds_per_step is not None else ""
    if saving.low > 0:
        return paint(f"saves {low:.1f} to {high:.1f} % of {step}{per_step}", "bold green") + f" ({saving.basis})"
    if saving.high < 0:
        return paint(f"costs {-high:.1f} to {-low:.1f} % of {step}", "bold red") + f" ({saving.basis})"
    return (
        paint(f"between {low:+.1f} and {high:+.1f} % of {step}: no saving could be shown", "yellow")
        + f" ({saving.basis})"
    )


def seconds(value: float) -> str:
    """A duration in the unit that keeps it readable; the sign stays."""
    size = abs(value)
    if size >= 1:
        return f"{value:.2f} s"
    if size >= 1e-3:
        return f"{value * 1e3:.2f} ms"
    return f"{value * 1e6:.0f} µs"


def _closing(report: Report, paint: Paint) -> str:
    if report.command == "tune":
        return ""
    counts = Counter(finding.severity for finding in report.findings)
    by_severity = ", ".join(
        f"{counts[s]} {s}{'s' if counts[s] != 1 and s != 'info' else ''}" for s in SEVERITIES if counts[s]
    )
    files = f"{report.files} file{'' if report.files == 1 else 's'}"
    skipped = f", {len(report.skipped)} not audited" if report.skipped else ""
    if not report.findings:
        return f"{paint('nothing found', 'bold')} in {files}{skipped}\n"
    total = f"{len(report.findings)} finding{'' if len(report.findings) == 1 else 's'}"
    lines = [f"{paint(total, 'bold')} ({by_severity}) in {files}{skipped}"]
    fixes = Counter(finding.fix.safety for finding in report.findings if finding.fix)
    safe, unsafe, manual = fixes["safe"], fixes["unsafe"], fixes["manual"]
    plural = "es" if safe != 1 else ""
    lines.append(
        f"--fix would apply {safe} safe fix{plural}, --unsafe-fixes {unsafe} more; {manual} "
        f"{'is' if manual == 1 else 'are'} advice only. `perfaudit explain {report.findings[0].rule}` says why."
    )
    return "\n".join(lines) + "\n"
