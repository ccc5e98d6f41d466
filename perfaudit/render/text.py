"""The report as a person reads it: ranked findings with their basis and patch, trials as tables, counts at the end."""

from __future__ import annotations

from collections import Counter

from perfaudit import rank
from perfaudit.findings import SEVERITIES, Finding
from perfaudit.render.paint import Paint, colour, painted_diff, plain, wrap
from perfaudit.render.words import (
    count,
    distrust,
    fix_title,
    kept_text,
    lines_of,
    place_of,
    printable,
    remarks,
    saving_text,
    unused_text,
)
from perfaudit.report import Report

_MARK = {"error": "red", "warning": "yellow", "info": "cyan", "hint": "cyan"}


def render(report: Report, in_colour: bool = False, width: int = 100, verbose: bool = False) -> str:
    """The whole report as text; `width` in characters bounds sentences and tables, not code and diffs.

    verbose: of a climb or a measured scan, also what only an expert asks for.
    """
    paint = colour if in_colour else plain
    report = printable(report)
    parts: list[str] = []
    if report.gate is not None:
        return _gate(report, paint, width)
    if report.ladder is not None:
        from perfaudit.render.ladder import climb

        return "\n".join(climb(report, paint, width, verbose))
    if report.command == "trace":
        from perfaudit.render.trace import trace_page

        return trace_page(report, paint, width, verbose)
    if report.command == "doctor":
        from perfaudit.render.machine import machine_page

        return machine_page(report, paint, width)
    if report.run is not None:
        from perfaudit.render.run import run_page

        return run_page(report, report.run, paint, width)
    if doubt := distrust(report):
        parts.append(wrap(paint(doubt, "bold red"), width, "") + "\n")
    parts += _measurement_parts(report, paint, width, verbose)
    timed_any = any(rank.group(f) != rank.NOT_MEASURED for f in report.findings)
    previous = None
    seen: set[str] = set()  # rules whose documented or benchmarked saving was said already
    for number, finding in enumerate(report.findings, start=1):
        group = rank.group(finding)
        if timed_any and group != previous:
            parts.append(paint(_HEADINGS[group], "bold") + "\n")
            previous = group
        parts.append(_finding(number, _said_once(finding, seen), paint, width))
    parts += _left_out(report, paint)
    parts += [wrap(f"note: {note}", width, "") + "\n" for note in report.notes]
    parts.append(_closing(report, paint, width))
    parts.append(_where_kept(report, paint, width))
    return "\n".join(part for part in parts if part)


def _measurement_parts(report: Report, paint: Paint, width: int, verbose: bool) -> list[str]:
    """The machine, a step's time and what knobs gave, as far as the report has it; a plain scan has none of it."""
    has_knobs = report.trials or report.comparisons or report.not_applicable or report.winners
    if report.environment is None and report.calibration is None and not has_knobs:
        return []
    from perfaudit.render import tables

    parts = []
    if report.environment is not None:
        parts.append(tables.environment(report, paint, width))
    if report.calibration is not None:
        parts.append(tables.calibration(report, width, verbose))
    return parts + tables.knobs(report, paint, width) if has_knobs else parts


def _gate(report: Report, paint: Paint, width: int) -> str:
    """What a gate judged, in place of what a scan found: new findings stand in the block of their layer."""
    from perfaudit.render.gate import gate_parts
    from perfaudit.render.gate import what_next as what_next_of_gate

    seen: set[str] = set()
    findings = [_finding(n, _said_once(f, seen), paint, width) for n, f in enumerate(report.findings, start=1)]
    parts = [*gate_parts(report, findings, paint, width), *_left_out(report, paint)]
    parts += [wrap(f"note: {note}", width, "") + "\n" for note in remarks(report)]
    parts.append("".join(wrap(line, width, "") + "\n" for line in what_next_of_gate(report)))
    parts.append(_where_kept(report, paint, width))
    return "\n".join(part for part in parts if part)


def _where_kept(report: Report, paint: Paint, width: int) -> str:
    kept = kept_text(report)
    return paint(wrap(kept, width, ""), "dim") + "\n" if kept else ""


_HEADINGS = {
    rank.PAYS: "MEASURED: these pay here, by the lower bound of what they save",
    rank.SCREENED: "SCREENED: these pay in a training that runs, by the lower bound of what they save",
    rank.NOT_MEASURED: "NOT MEASURED: nothing was shown of these here",
    rank.DOES_NOT_PAY: "TIMED: no saving shown here",
}


def _left_out(report: Report, paint: Paint) -> list[str]:
    skipped = [f"{item.path}: {paint('not audited', 'yellow')}: {item.reason}\n" for item in report.skipped]
    idle = [f"{place_of(item)}: {unused_text(item)}\n" for item in report.unused_suppressions]
    return ["".join(skipped), "".join(idle)]


def _said_once(finding: Finding, seen: set[str]) -> Finding:
    """The finding without what is known of its rule's saving where an earlier one of the report has said it."""
    if finding.saving is None or finding.saving.basis not in ("documented", "benchmarked"):
        return finding
    known = finding.rule in seen
    seen.add(finding.rule)
    return finding.with_(saving=None) if known else finding


def _finding(number: int, finding: Finding, paint: Paint, width: int) -> str:
    def add(text: str) -> None:
        lines.append(wrap(text, width, "     "))

    place = f"{finding.location}" if finding.location else "(no source line)"
    fits = len(f"{number:>3}  {place}  {finding.rule} {finding.name}") <= width
    lines = [
        f"{number:>3}  {paint(place, 'bold')}{'  ' if fits else chr(10) + '     '}"
        f"{paint(finding.rule, _MARK[finding.severity])} {finding.name}",
    ]
    if finding.snippet:
        lines.append(f"     {paint('│', 'dim')} {finding.snippet}")
    add(finding.message)
    if len(finding.places) > 1:
        add(lines_of(finding.places))
    if finding.saving is not None:
        add(saving_text(finding.saving, paint))
    if finding.note:
        add(finding.note)
    if finding.fix is not None:
        add(fix_title(finding.fix, paint))
        lines += [f"       {line}" if line else "" for line in painted_diff(finding.fix.diff, paint)]
    return "\n".join(lines) + "\n"


def _closing(report: Report, paint: Paint, width: int) -> str:
    if report.command == "tune":
        return ""
    skipped = f", {paint(f'{len(report.skipped)} not audited', 'yellow')}" if report.skipped else ""
    files = f"in {count(report.files, 'file')}{skipped}"
    left_out = "; ".join(_with_option(remark) for remark in remarks(report.with_(notes=(), calibration=None)))
    unread = _unread_words(len(report.skipped))
    if not report.findings:
        what = "nothing new" if report.known else "nothing found"
        return "\n".join([f"{paint(what, 'bold')} {files}", *(line for line in (unread, left_out) if line), ""])
    by_severity = Counter(finding.severity for finding in report.findings)
    parts = [count(by_severity[s], s, s if s == "info" else f"{s}s") for s in SEVERITIES if by_severity[s]]
    total = paint(count(len(report.findings), "finding"), "bold")
    lines = [wrap(f"{total} {files}: {', '.join(parts)}", width, "")]
    lines += [wrap(sentence, width, "") for sentence in (unread, left_out, *what_next(report)) if sentence]
    return "\n".join(lines) + "\n"


def _unread_words(skipped: int) -> str:
    """That what is not audited is not thereby fine; "" where there is none."""
    if not skipped:
        return ""
    return f"nothing is known of what was not audited; {'the line above says' if skipped == 1 else 'the lines above say'} why"


_OPTION = {"test": "--tests reads them", "hint": "--severity hint shows them"}  # for what is left out


def _with_option(remark: str) -> str:
    """A remark on what was left out with the option that asks for it."""
    words = remark.split()
    if words[-2:] != ["left", "out"]:
        return remark
    return f"{remark} ({_OPTION[words[1].removesuffix('s')]})"


_PAY = (rank.PAYS, rank.SCREENED)
_SEARCHED = {"PA101"}  # their patch is the winner of a search, which a plain scan does not know


def _is_safe_in_part(finding: Finding) -> bool:
    """Whether a finding that speaks for several rules has a patch that is not safe as a whole, and a part of it is."""
    is_whole = finding.fix is None or finding.fix.safety == "safe"
    return not is_whole and any(p.fix is not None and p.fix.safety == "safe" and p.fix.edits for p in finding.parts)


def what_next(report: Report) -> list[str]:
    """What can be typed next, about what there is; of a measured report, only what was shown to pay."""
    if any(rank.group(finding) in (*_PAY, rank.DOES_NOT_PAY) for finding in report.findings):
        return [_take_what_pays(report)]
    fixes = Counter(finding.fix.safety for finding in report.findings if finding.fix)
    safe = fixes["safe"] + sum(_is_safe_in_part(finding) for finding in report.findings)
    offers = []
    if safe:
        offers.append(f"`--fix` applies {count(safe, 'safe fix', 'safe fixes')}")
    if fixes["unsafe"]:
        more = f"{fixes['unsafe']} more" if offers else count(fixes["unsafe"], "fix", "fixes")
        verb = "" if offers else "applies "
        offers.append(
            f"`--fix --unsafe-fixes` {verb}{more} that {_plural(fixes['unsafe'], 'changes', 'change')} results too"
        )
    if by_hand := len(report.findings) - fixes["safe"] - fixes["unsafe"]:
        offers.append(f"{by_hand} to change by hand")
    return [", ".join(offers), f"`perfaudit explain {report.findings[0].rule}` says why the first one costs time"]


def _take_what_pays(report: Report) -> str:
    paying = [f for f in report.findings if rank.group(f) in _PAY and f.fix is not None and f.fix.edits]
    rules = list(dict.fromkeys(f.rule for f in paying if f.rule not in _SEARCHED))
    paths = list(dict.fromkeys(f.location.path for f in paying if f.location is not None))
    is_unsafe = any(f.fix is not None and f.fix.safety == "unsafe" for f in paying if f.rule in rules)
    how = "--fix --unsafe-fixes" if is_unsafe else "--fix"
    said = []
    if rules:
        said.append(
            f"`perfaudit scan {' '.join(paths)} --select {','.join(rules)} {how}` writes the patches that pay here"
        )
    if any(f.rule in _SEARCHED for f in paying):
        said.append(f"`perfaudit tune {report.target} --dataloader --apply` searches and writes the loader's")
    if not said and any(rank.group(finding) in _PAY for finding in report.findings):
        return "no patch of what pays is handed over, so there is nothing to apply"
    return "; ".join(said) if said else "nothing was shown to pay here, so there is nothing to apply"


def _plural(number: int, one: str, many: str) -> str:
    return one if number == 1 else many
