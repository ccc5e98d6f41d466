"""The report as a person reads it: ranked findings with their basis and patch, trials as tables, counts at the end."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

from perfaudit import rank
from perfaudit.findings import SEVERITIES, Finding, Fix, Location, Saving
from perfaudit.render import tables
from perfaudit.render.paint import Paint, colour, painted_diff, plain, wrapped
from perfaudit.report import Report

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|\r(?!\n)")
_MARK = {"error": "red", "warning": "yellow", "info": "cyan"}


def render(report: Report, in_colour: bool = False, width: int = 100) -> str:
    """The whole report as text; `width` in characters bounds sentences and tables, not code and diffs."""
    paint = colour if in_colour else plain
    report = _printable(report)
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
        parts.append(_finding(number, finding, paint, width))
    skipped = [f"{item.path}: {paint('not audited', 'yellow')}: {item.reason}\n" for item in report.skipped]
    parts.append("".join(skipped))
    parts += [wrapped(f"note: {note}", width, "") + "\n" for note in report.notes]
    parts.append(_closing(report, paint, width))
    return "\n".join(part for part in parts if part)


def _printable(report: Report) -> Report:
    """The report with signs in place of the control characters of the code it shows: a terminal would obey them."""
    return report.with_(
        findings=tuple(
            f.with_(
                location=_printable_place(f.location),
                message=_signs(f.message),
                snippet=_signs(f.snippet),
                note=_signs(f.note),
                fix=_printable_fix(f.fix),
            )
            for f in report.findings
        ),
        skipped=tuple(replace(s, path=_signs(s.path), reason=_signs(s.reason)) for s in report.skipped),
        winners=tuple(
            replace(w, fix=_printable_fix(w.fix), location=_printable_place(w.location)) for w in report.winners
        ),
    )


def _printable_place(place: Location | None) -> Location | None:
    return replace(place, path=_signs(place.path)) if place is not None else None


def _printable_fix(fix: Fix | None) -> Fix | None:
    return replace(fix, title=_signs(fix.title), diff=_signs(fix.diff)) if fix is not None else None


def _signs(text: str) -> str:
    """The text with a sign for each control character but tab and the ends of lines: "\\x1b" becomes "␛"."""
    return _CONTROL.sub(lambda found: _sign(ord(found.group())), text)


def _sign(code: int) -> str:
    return chr(0x2400 + code) if code < 0x20 else "␡" if code == 0x7F else "\ufffd"


_HEADINGS = {
    rank.PAYS: "MEASURED: these pay here, by the lower bound of what they save",
    rank.NOT_MEASURED: "NOT MEASURED: known from documents",
    rank.DOES_NOT_PAY: "MEASURED: no saving shown here",
}


def _finding(number: int, finding: Finding, paint: Paint, width: int) -> str:
    def add(text: str) -> None:
        lines.append(wrapped(text, width, "     "))

    place = f"{finding.location}" if finding.location else "(no source line)"
    lines = [
        f"{number:>3}  {paint(place, 'bold')}  {paint(finding.rule, _MARK[finding.severity])} {finding.name}",
    ]
    if finding.snippet:
        lines.append(f"     {paint('│', 'dim')} {finding.snippet}")
    add(finding.message)
    if len(finding.places) > 1:
        add(f"lines {', '.join(str(place.line) for place in finding.places)}")
    if finding.saving is not None:
        add(saving_text(finding.saving, paint))
    if finding.note:
        add(finding.note)
    if finding.fix is not None:
        add(_fix_title(finding.fix, paint))
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
        return f"documented: saves up to {high:.0f} % of a step ({saving.source})"
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


def _closing(report: Report, paint: Paint, width: int) -> str:
    if report.command == "tune":
        return ""
    skipped = f", {len(report.skipped)} not audited" if report.skipped else ""
    files = f"in {_count(report.files, 'file')}{skipped}"
    if not report.findings:
        return f"{paint('nothing found', 'bold')} {files}\n"
    by_severity = Counter(finding.severity for finding in report.findings)
    parts = [_count(by_severity[s], s, s if s == "info" else f"{s}s") for s in SEVERITIES if by_severity[s]]
    total = paint(_count(len(report.findings), "finding"), "bold")
    lines = [wrapped(f"{total} {files}: {', '.join(parts)}", width, "")]
    lines += [wrapped(sentence, width, "") for sentence in _what_next(report)]
    return "\n".join(lines) + "\n"


_SEARCHED = {"PA101"}  # their patch is the winner of a search, which a plain scan does not know


def _what_next(report: Report) -> list[str]:
    """What can be typed next, about what there is; of a measured report, only what was shown to pay."""
    if any(rank.group(finding) != rank.NOT_MEASURED for finding in report.findings):
        return [_take_what_pays(report)]
    fixes = Counter(finding.fix.safety for finding in report.findings if finding.fix)
    offers = []
    if fixes["safe"]:
        offers.append(f"`--fix` applies {_count(fixes['safe'], 'safe fix', 'safe fixes')}")
    if fixes["unsafe"]:
        more = f"{fixes['unsafe']} more" if offers else _count(fixes["unsafe"], "fix", "fixes")
        verb = "" if offers else "applies "
        offers.append(
            f"`--fix --unsafe-fixes` {verb}{more} that {_plural(fixes['unsafe'], 'changes', 'change')} results too"
        )
    if by_hand := len(report.findings) - fixes["safe"] - fixes["unsafe"]:
        offers.append(f"{by_hand} to change by hand")
    return [", ".join(offers), f"`perfaudit explain {report.findings[0].rule}` says why the first one costs time"]


def _take_what_pays(report: Report) -> str:
    paying = [f for f in report.findings if rank.group(f) == rank.PAYS and f.fix is not None and f.fix.edits]
    rules = list(dict.fromkeys(f.rule for f in paying if f.rule not in _SEARCHED))
    paths = list(dict.fromkeys(f.location.path for f in paying if f.location is not None))
    said = []
    if rules:
        said.append(
            f"`perfaudit scan {' '.join(paths)} --select {','.join(rules)} --fix --unsafe-fixes` writes the patches that pay here"
        )
    if any(f.rule in _SEARCHED for f in paying):
        said.append(f"`perfaudit tune {report.target} --dataloader --apply` searches and writes the loader's")
    return "; ".join(said) if said else "nothing was shown to pay here, so there is nothing to apply"


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {_plural(number, one, many or one + 's')}"


def _plural(number: int, one: str, many: str) -> str:
    return one if number == 1 else many
