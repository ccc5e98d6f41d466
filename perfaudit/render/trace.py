"""Traces as text: the verdict, a bar of 100 % for each rank, what could be saved, and what the notes mean."""

from __future__ import annotations

from perfaudit.findings import Finding
from perfaudit.render.paint import Paint, wrap
from perfaudit.render.words import count, fix_title, one_line, step_time
from perfaudit.report import Report
from perfaudit.traces import NOTE_WORDS, SHARE_WORDS, RankTrace, TraceChange, Traces, duration

BAR = 30  # characters of a bar of 100 %, where a line has room for it
SHORTEST_BAR = 10
COLUMN = 4  # characters of a share
LONGEST_NAME = 32  # of a file beside its bar; head and end are shown of a longer one
MOST_NAMED = 3  # ranks beside a note
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
NOWHERE = "outside any annotation or operator"
LEAST = 0.005  # of the time; what takes less in all ranks has no column


def trace_page(report: Report, paint: Paint, width: int, verbose: bool = False) -> str:
    """The report; `verbose` adds kernels and where idle time lies."""
    traces = report.traces
    if traces is None:
        parts = [wrap(f"{item.path}: {item.reason}", width, "") + "\n" for item in report.skipped]
        said = " ".join(report.notes) or "Nothing could be read."
        return "".join([*parts, wrap(paint(said, "bold red"), width, ""), "\n"])
    parts = [wrap(paint(traces.verdict, "bold"), width, "") + "\n"]
    if traces.compared is not None:
        parts.append(_changes(traces.compared, paint, width))
    parts.append(_bars([rank for rank in traces.ranks if rank.has_device], paint, width, verbose))
    if traces.stragglers and not any(one.rule == "PA904" for one in report.findings):  # which says the same
        parts.append("\n".join(wrap(line, width, "  ") for line in _straggler_lines(traces)) + "\n")
    parts += [_finding(number, one, paint, width) for number, one in enumerate(report.findings, start=1)]
    if report.findings:
        parts.append(_closing(report, traces, width))
    if verbose:
        parts += [_where(rank, width) for rank in traces.ranks]
    parts += _notes(report, traces, paint, width, verbose)
    return "\n".join(part for part in parts if part)


def _bars(ranks: list[RankTrace], paint: Paint, width: int, verbose: bool) -> str:
    """A bar for each device. The shares of one stand in a list below it, those of several in columns beside them."""
    if not ranks:
        return ""
    used = [name for name in SHARE_WORDS if any(rank.shares[name] >= LEAST for rank in ranks)]
    if len(ranks) == 1:
        (rank,) = ranks
        lines = [f"  {_label(rank)}  {_bar(rank, paint, BAR)}", ""]
        lines += [f"  {_STYLES[name][0]}  {_share(rank, name)} %  {SHARE_WORDS[name]}" for name in used]
        return "\n".join(lines) + "\n"
    shown = ranks if verbose else ranks[:MOST_BARS]
    labels = [_label(rank) for rank in shown]
    longest = max(len(label) for label in labels)
    length = max(SHORTEST_BAR, min(BAR, width - longest - 4 - COLUMN * len(used)))
    head = "".join(f"{_STYLES[name][0]:>{COLUMN}}" for name in used)
    lines = [f"{'% of the time':>{longest + length + 4}}{head}"]
    for rank, label in zip(shown, labels, strict=True):
        shares = "".join(f"{_share(rank, name):>{COLUMN}}" for name in used)
        lines.append(f"  {label:<{longest}}  {_bar(rank, paint, length)}{shares}")
    if len(shown) < len(ranks):
        lines.append(f"  and {len(ranks) - len(shown)} more: --verbose shows all, --format json too")
    return "\n".join([*lines, "", *_legend(used, width)]) + "\n"


def _share(rank: RankTrace, name: str) -> str:
    return f"{100 * rank.shares[name]:3.0f}"


def _legend(used: list[str], width: int) -> list[str]:
    """What each sign of the bars stands for, as many on a line as there is room for."""
    lines = [""]
    for name in used:
        entry = f"  {_STYLES[name][0]} {SHARE_WORDS[name]}"
        if lines[-1] and len(lines[-1] + entry) > width:
            lines.append("")
        lines[-1] += entry
    return lines


def _label(rank: RankTrace) -> str:
    file = rank.file.rpartition("/")[2]
    short = file if len(file) <= LONGEST_NAME else f"{file[: LONGEST_NAME // 2 - 1]}..{file[-LONGEST_NAME // 2 + 1 :]}"
    name = f"rank {rank.rank}" if rank.rank is not None else short
    return f"{name} {rank.device}"


def _bar(rank: RankTrace, paint: Paint, length: int) -> str:
    """Whole characters by largest remainder, so that the bar is always as long."""
    exact = {name: length * rank.shares[name] for name in SHARE_WORDS}
    cells = {name: int(size) for name, size in exact.items()}
    for name in sorted(exact, key=lambda name: cells[name] - exact[name])[: length - sum(cells.values())]:
        cells[name] += 1
    return "".join(paint(_STYLES[name][0] * number, _STYLES[name][1]) for name, number in cells.items() if number)


def _straggler_lines(traces: Traces) -> list[str]:
    return [
        f"rank {one.rank} comes last to {one.last} of {one.of} collectives; the others wait for it for "
        f"{100 * one.share:.0f} % of the time"
        for one in traces.stragglers
    ]


def _finding(number: int, finding: Finding, paint: Paint, width: int) -> str:
    high = finding.saving.high if finding.saving is not None else 0.0
    head = f"{number:>3}  {paint(f'at most {100 * high:.0f} %', 'bold')}  {finding.rule} {finding.name}"
    if finding.location is not None:
        head += f"  {finding.location.path}:{finding.location.line}"
    lines = [head, wrap(finding.message, width, "     ")]
    if finding.note:
        lines.append(wrap(finding.note, width, "     "))
    if finding.fix is not None:
        lines.append(wrap(fix_title(finding.fix), width, "     "))
    return "\n".join(lines) + "\n"


def _closing(report: Report, traces: Traces, width: int) -> str:
    more = f" {count(traces.more_findings, 'smaller finding')} not shown." if traces.more_findings else ""
    said = (
        f"Each saving is an upper bound. Findings overlap in time, so savings do not add up.{more} What to do: `perfaudit "
        f"explain {report.findings[0].rule}`"
    )
    return wrap(said, width, "").replace("`", "") + "\n"


def _where(rank: RankTrace, width: int) -> str:
    steps = f"{count(rank.steps, 'step')} in " if rank.steps else ""
    lines = [f"{_label(rank)}: {steps}{duration(rank.window_seconds)}, {rank.events:,} events in the file"]
    if rank.communication_overlap is not None:
        lines.append(f"  communication overlapped with computing: {100 * rank.communication_overlap:.0f} %")
    if rank.tensor_core_share is not None:
        lines.append(f"  matrix products on tensor cores: {100 * rank.tensor_core_share:.0f} % of their time")
    for one in rank.where:
        place = one_line(", ".join(part for part in (one.annotation, one.operator, one.source) if part))
        said = (
            f"{SHARE_WORDS[f'idle_{one.cause}']}, {100 * one.share:.1f} %: mostly {f'in {place}' if place else NOWHERE}"
        )
        lines.append(wrap(said, width, "  "))
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
            more = f" and {len(with_it) - MOST_NAMED} more" if len(with_it) > MOST_NAMED else ""
            where = f" ({', '.join(_label(rank) for rank in with_it[:MOST_NAMED])}{more})"
            parts.append(f"note{where if len(with_it) < len(traces.ranks) else ''}: {NOTE_WORDS[note]}")
    parts += [f"note: {note}" for note in report.notes]
    return ["".join(wrap(paint(part, "dim"), width, "") + "\n" for part in parts)] if parts else []


def _changes(change: TraceChange, paint: Paint, width: int) -> str:
    before, after = change.seconds_per_step_before, change.seconds_per_step_after
    lines = [wrap(f"What changed from {change.before} to {change.after}:", width, "")]
    if before and after:
        lines.append(f"  {duration(before)} -> {duration(after)} a step: {after / before:.3f} times as long")
    for name, points in sorted(change.shares.items(), key=lambda item: -abs(item[1])):
        if abs(points) >= 0.005:
            times = change.seconds.get(name)
            each = f"  {step_time(times[0])} -> {step_time(times[1])} a step" if times else ""
            lines.append(f"  {SHARE_WORDS[name]:<37}{100 * points:>+6.1f} points{each}")
    if change.findings:
        lines.append("  What each finding could save at most:")
    for one in change.findings:
        was = "no finding" if one.before is None else f"{100 * one.before:.0f} %"
        now = "no finding" if one.after is None else f"{100 * one.after:.0f} %"
        lines.append(f"  {one.rule}  {was:>10} -> {paint(now, 'green' if one.after is None else 'bold')}")
    return "\n".join(lines) + "\n"
