"""Traces as text: the verdict, a bar of 100 % for each rank, what could be saved, and what the notes mean."""

from __future__ import annotations

from perfaudit.findings import Finding
from perfaudit.render.paint import Paint, wrapped
from perfaudit.render.words import count, fix_title, one_line, step_time
from perfaudit.report import Report
from perfaudit.traces import NOTE_WORDS, SHARE_WORDS, RankTrace, TraceChange, Traces

BAR = 30  # characters of a bar of 100 %
LONGEST_NAME = 32  # of a file beside its bar; head and end are shown of a longer one
MOST_BARS = 16  # ranks that are shown without --verbose
_STYLES = {
    "compute": ("█", "green"),
    "communication_exposed": ("▓", "cyan"),
    "memory_exposed": ("▒", "yellow"),
    "idle_data": ("d", "red"),
    "idle_sync": ("s", "red"),
    "idle_allocation": ("a", "red"),
    "idle_launch": ("l", "red"),
    "idle_other": ("·", "dim"),
}
_SHORT = {
    "compute": "computing",
    "communication_exposed": "communicating",
    "memory_exposed": "copying",
    "idle_data": "data",
    "idle_sync": "host waits",
    "idle_allocation": "allocation",
    "idle_launch": "launching",
    "idle_other": "other",
}


def trace_page(report: Report, paint: Paint, width: int, verbose: bool = False) -> str:
    """The report; `verbose` adds kernels and where idle time lies."""
    traces = report.traces
    if traces is None:
        parts = [f"{item.path}: {item.reason}\n" for item in report.skipped]
        said = " ".join(report.notes) or "Nothing could be read."
        return "".join([*parts, paint(said, "bold red"), "\n"])
    parts = [wrapped(paint(traces.verdict, "bold"), width, "") + "\n"]
    if traces.compared is not None:
        parts.append(_changes(traces.compared, paint, width))
    parts.append(_bars(traces, paint, verbose))
    if traces.stragglers:
        parts.append("\n".join(_straggler_lines(traces)) + "\n")
    parts += [_finding(number, one, paint, width) for number, one in enumerate(report.findings, start=1)]
    if report.findings:
        parts.append(_closing(report, traces, width))
    if verbose:
        parts += [_where(rank, width) for rank in traces.ranks]
    parts += _notes(report, traces, paint, width, verbose)
    return "\n".join(part for part in parts if part)


def _bars(traces: Traces, paint: Paint, verbose: bool) -> str:
    shown = traces.ranks if verbose else traces.ranks[:MOST_BARS]
    used = [name for name in SHARE_WORDS if any(rank.shares[name] >= 0.005 for rank in traces.ranks)]
    lines = []
    labels = [_label(rank) for rank in shown]
    longest = max(len(label) for label in labels)
    for rank, label in zip(shown, labels, strict=True):
        words = "  ".join(
            f"{_SHORT[name]} {100 * rank.shares[name]:.0f} %" for name in used if rank.shares[name] >= 0.005
        )
        lines.append(f"  {label:<{longest}}  {_bar(rank, paint)}  {words}".rstrip())
    if len(shown) < len(traces.ranks):
        lines.append(f"  and {len(traces.ranks) - len(shown)} more: --verbose shows all, --format json too")
    legend = "  ".join(f"{_STYLES[name][0]} {SHARE_WORDS[name]}" for name in used)
    return "\n".join([*lines, "", f"  {legend}"]) + "\n"


def _label(rank: RankTrace) -> str:
    file = rank.file.rpartition("/")[2]
    short = file if len(file) <= LONGEST_NAME else f"{file[: LONGEST_NAME // 2 - 1]}..{file[-LONGEST_NAME // 2 + 1 :]}"
    name = f"rank {rank.rank}" if rank.rank is not None else short
    return f"{name} {rank.device}"


def _bar(rank: RankTrace, paint: Paint) -> str:
    """Whole characters by largest remainder, so that the bar is always as long."""
    exact = {name: BAR * rank.shares[name] for name in SHARE_WORDS}
    cells = {name: int(size) for name, size in exact.items()}
    for name in sorted(exact, key=lambda name: cells[name] - exact[name])[: BAR - sum(cells.values())]:
        cells[name] += 1
    return "".join(paint(_STYLES[name][0] * number, _STYLES[name][1]) for name, number in cells.items() if number)


def _straggler_lines(traces: Traces) -> list[str]:
    return [
        f"  rank {one.rank} comes last to {one.last} of {one.of} collectives; the others wait for it for "
        f"{100 * one.share:.0f} % of the time"
        for one in traces.stragglers
    ]


def _finding(number: int, finding: Finding, paint: Paint, width: int) -> str:
    high = finding.saving.high if finding.saving is not None else 0.0
    head = f"{number:>3}  {paint(f'at most {100 * high:.0f} %', 'bold')}  {finding.rule} {finding.name}"
    if finding.location is not None:
        head += f"  {finding.location.path}:{finding.location.line}"
    lines = [head, wrapped(finding.message, width, "     ")]
    if finding.note:
        lines.append(wrapped(finding.note, width, "     "))
    if finding.fix is not None:
        lines.append(wrapped(f"fix: {fix_title(finding.fix)}", width, "     "))
    return "\n".join(lines) + "\n"


def _closing(report: Report, traces: Traces, width: int) -> str:
    more = f" {count(traces.more_findings, 'smaller finding')} not shown." if traces.more_findings else ""
    said = (
        f"Savings are upper bounds, and findings overlap in time: they do not add up.{more} What to do: perfaudit explain "
        f"{report.findings[0].rule}"
    )
    return wrapped(said, width, "") + "\n"


def _where(rank: RankTrace, width: int) -> str:
    lines = [f"{_label(rank)}: {rank.steps} steps in {1000 * rank.window_seconds:.4g} ms, {rank.events:,} events"]
    if rank.communication_overlap is not None:
        lines.append(f"  communication overlapped with computing: {100 * rank.communication_overlap:.0f} %")
    if rank.tensor_core_share is not None:
        lines.append(f"  matrix products on tensor cores: {100 * rank.tensor_core_share:.0f} % of their time")
    for one in rank.where:
        place = one_line(", ".join(part for part in (one.annotation, one.operator, one.source) if part))
        lines.append(
            f"  {SHARE_WORDS[f'idle_{one.cause}']}: {100 * one.share:.1f} %, mostly {place or 'outside what is marked'}"
        )
    room = width - 26
    lines += [
        f"  {one_line(row.name)[:room]:<{room}}  {100 * row.share:>4.1f} %  {row.calls:>7,} x"
        for row in rank.kernels[:10]
    ]
    return "\n".join(lines) + "\n"


def _notes(report: Report, traces: Traces, paint: Paint, width: int, verbose: bool) -> list[str]:
    """What was not read, and what the reader must know of the figures."""
    parts = [f"not read: {item.path}: {item.reason}" for item in report.skipped]
    quiet = () if verbose else ("times-as-text", "nanoseconds", "rank-from-name")
    for note in NOTE_WORDS:
        with_it = [rank for rank in traces.ranks if note in rank.notes]
        if with_it and note not in quiet:
            where = "" if len(with_it) == len(traces.ranks) else f" ({', '.join(_label(rank) for rank in with_it[:3])})"
            parts.append(f"note: {NOTE_WORDS[note]}{where}")
    parts += [f"note: {note}" for note in report.notes]
    return ["".join(wrapped(paint(part, "dim"), width, "") + "\n" for part in parts)] if parts else []


def _changes(change: TraceChange, paint: Paint, width: int) -> str:
    before, after = change.seconds_per_step_before, change.seconds_per_step_after
    lines = [wrapped(f"from {change.before} to {change.after}", width, "")]
    if before and after:
        lines.append(f"  {1000 * before:.4g} ms -> {1000 * after:.4g} ms a step ({after / before:.3f})")
    for name, points in sorted(change.shares.items(), key=lambda item: -abs(item[1])):
        if abs(points) >= 0.005:
            times = change.seconds.get(name)
            each = f"  {step_time(times[0])} -> {step_time(times[1])} a step" if times else ""
            lines.append(f"  {SHARE_WORDS[name]:<40}{100 * points:>+6.1f} points{each}")
    for one in change.findings:
        was = "-" if one.before is None else f"{100 * one.before:.0f} %"
        now = "gone" if one.after is None else f"{100 * one.after:.0f} %"
        lines.append(f"  {one.rule:<40}{was:>6} -> {paint(now, 'green' if one.after is None else 'bold')}")
    return "\n".join(lines) + "\n"
