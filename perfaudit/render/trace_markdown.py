"""Traces as Markdown for a job's summary or a comment: the verdict, findings, and the shares of each rank."""

from __future__ import annotations

from collections.abc import Callable

from perfaudit.findings import Finding
from perfaudit.render.html.trace_ranks import choose_ranks, label, share
from perfaudit.render.words import count, fix_title, step_time
from perfaudit.report import Report
from perfaudit.traces import NOTE_WORDS, SHARE_WORDS, TraceChange, Traces

MOST_RANKS = 16
LEAST = 0.005  # of the time
Written = Callable[[str], str]  # a text as Markdown that is no markup


def parts(report: Report, text: Written, code: Written) -> list[list[str]]:
    """The page in groups of entries, the most important first."""
    traces = report.traces
    skipped = [f"- not read: {code(item.path)}: {text(item.reason)}\n" for item in report.skipped]
    if traces is None:
        return [["## perfaudit trace\n\n**Nothing could be read.**\n", "\n"], skipped]
    head = [f"## perfaudit trace\n\n**{text(traces.verdict)}**\n"]
    if traces.compared is not None:
        head.append(_changes(traces.compared, text, code))
    if report.findings:
        head.append("\n| could save at most | rule | what was found | what to do |\n|---:|---|---|---|\n")
    rows = [_row(finding, text, code) for finding in report.findings]
    return [
        head,
        rows,
        [_closing(report, traces)],
        _shares(report, traces, text),
        ["\n"],
        skipped,
        _notes(report, traces, text),
    ]


def _row(finding: Finding, text: Written, code: Written) -> str:
    saving = share(finding.saving.high) if finding.saving is not None else ""
    said = [text(finding.message), *([text(finding.note)] if finding.note else [])]
    if finding.location is not None:
        said.append(code(f"{finding.location.path}:{finding.location.line}"))
    todo = [text(fix_title(finding.fix))] if finding.fix is not None else []
    todo.append(code(f"perfaudit explain {finding.rule}"))
    cells = (saving, text(f"{finding.rule} {finding.name}"), "<br>".join(said), "<br>".join(todo))
    return _cells(cells)


def _cells(cells: tuple[str, ...]) -> str:
    return "".join("| " + cell.replace("|", "\\|") + " " for cell in cells) + "|\n"  # in code, too, a pipe ends a cell


def _closing(report: Report, traces: Traces) -> str:
    if not report.findings:
        return ""
    more = f" {count(traces.more_findings, 'smaller finding')} not shown." if traces.more_findings else ""
    return f"\nEach saving is an upper bound. Findings overlap in time, so savings do not add up.{more}\n"


def _shares(report: Report, traces: Traces, text: Written) -> list[str]:
    """A row for each rank, columns for what takes time; the ranks that are late, where no finding says it."""
    ranks = tuple(rank for rank in traces.ranks if rank.has_device)
    shown = choose_ranks(ranks, traces, MOST_RANKS)
    if not shown:
        return []
    used = [name for name in SHARE_WORDS if any(rank.shares[name] >= LEAST for rank in shown)]
    head = _cells(("device", *(SHARE_WORDS[name] for name in used))) + "|---|" + "---:|" * len(used) + "\n"
    rows = [_cells((text(label(rank)), *(share(rank.shares[name]) for name in used))) for rank in shown]
    left = f"\n{len(shown)} of {len(ranks):,} ranks are shown.\n" if len(shown) < len(ranks) else ""
    late = [
        f"\nRank {one.rank} comes last to {one.last} of {one.of} collectives; the others wait for it for "
        f"{share(one.share)} of the time.\n"
        for one in traces.stragglers
        if not any(finding.rule == "PA904" for finding in report.findings)
    ]
    return ["\n" + head, *rows, left, *late]


def _changes(change: TraceChange, text: Written, code: Written) -> str:
    lines = [f"\nFrom {code(change.before)} to {code(change.after)}:\n\n"]
    before, after = change.seconds_per_step_before, change.seconds_per_step_after
    if before and after:
        lines.append(f"- {step_time(before)} → {step_time(after)} a step: {after / before:.3f} times as long\n")
    for name, points in sorted(change.shares.items(), key=lambda item: -abs(item[1])):
        if abs(points) >= LEAST:
            times = change.seconds.get(name)
            each = f", {step_time(times[0])} → {step_time(times[1])} a step" if times else ""
            lines.append(f"- {SHARE_WORDS[name]}: {100 * points:+.1f} points{each}\n")
    for one in change.findings:
        was, now = ("no finding" if value is None else share(value) for value in (one.before, one.after))
        lines.append(f"- {text(one.rule)} could save at most: {was} → {now}\n")
    return "".join(lines)


def _notes(report: Report, traces: Traces, text: Written) -> list[str]:
    meanings = [said for note, said in NOTE_WORDS.items() if any(note in rank.notes for rank in traces.ranks)]
    return [f"- {text(said)}\n" for said in (*meanings, *report.notes)]
