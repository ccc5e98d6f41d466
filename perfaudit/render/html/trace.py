"""Traces as parts of an HTML page: the verdict and the bars before the findings, pictures and notes after them."""

from __future__ import annotations

from perfaudit.render.html.markup import Markup, Part, element, section, shorten, table, together, words
from perfaudit.render.html.trace_bars import bars, patterns
from perfaudit.render.html.trace_map import waits_map
from perfaudit.render.html.trace_ranks import choose_ranks, label, left_out_sentence, share
from perfaudit.render.html.trace_timeline import timelines
from perfaudit.render.words import count, step_time
from perfaudit.report import Report
from perfaudit.traces import NOTE_WORDS, SHARE_WORDS, IdleWhere, KernelRow, RankTrace, TraceChange, Traces

MOST_WHERE = 8  # ranks whose idle places are listed
MOST_TABLES = 6  # ranks whose kernels are listed
MOST_NAMED = 3  # ranks that a note names


def trace_header(report: Report, traces: Traces) -> Markup:
    """What the traces say in one sentence."""
    return element(
        "header",
        element("h1", f"perfaudit {report.command}"),
        element("p", words(_headline(traces.verdict)), class_="verdict"),
    )


def _headline(verdict: str) -> str:
    """The verdict with a capital letter, and with numbers that stay on one line with their percent sign."""
    return verdict[:1].upper() + verdict[1:].replace(" %", "\u00a0%")


def before_findings(traces: Traces) -> Markup:
    """What changed, and how each rank spends its time."""
    changed = _changes(traces.compared) if traces.compared is not None else Markup()
    return together(patterns(), changed, section("How time is spent", "shares", bars(traces), _stragglers(traces)))


def after_findings(report: Report, traces: Traces) -> Markup:
    """One step as a picture, waiting at collectives, where idle time lies, kernels, and what the notes mean."""
    return together(
        section("One step" if any(rank.steps for rank in traces.ranks) else "The window", "step", timelines(traces)),
        section("Who waits at which collective", "waits", waits_map(traces)),
        section("Where idle time lies", "where", _where(traces)),
        section("Kernels", "kernels", _kernels(traces)),
        section("What to know of these figures", "notes", _notes(report, traces)),
    )


def _stragglers(traces: Traces) -> Markup:
    said = (
        f"Rank {one.rank} comes last to {one.last} of {one.of} collectives; the others wait for it for "
        f"{100 * one.share:.0f} % of the time."
        for one in traces.stragglers
    )
    return together(element("p", one) for one in said)


def _changes(change: TraceChange) -> Markup:
    """What changed from the first trace to the second: the step, the shares, the findings."""
    parts: list[Part] = [element("p", "From ", _file(change.before), " to ", _file(change.after))]
    before, after = change.seconds_per_step_before, change.seconds_per_step_after
    if before and after:
        said = f"{step_time(before)} → {step_time(after)} a step, {after / before:.3f} times as long"
        parts.append(element("p", said, class_="better" if after < before else None))
    moved = [(name, points) for name, points in change.shares.items() if abs(points) >= 0.005]
    moved.sort(key=lambda item: -abs(item[1]))
    if moved:
        rows = [
            [SHARE_WORDS[name], f"{100 * points:+.1f}", *map(step_time, change.seconds.get(name, ()))]
            for name, points in moved
        ]
        times = ("a step, before", "after") if change.seconds else ()
        parts.append(table("Shares of the time that changed", ("", "points", *times), rows))
    if change.findings:
        findings = [
            [
                one.rule,
                "no finding" if one.before is None else share(one.before),
                "no finding" if one.after is None else share(one.after),
            ]
            for one in change.findings
        ]
        parts.append(table("Findings: what they could save at most", ("rule", "before", "after"), findings))
    return section("What changed", "changes", parts)


def _file(path: str) -> Markup:
    return element("code", shorten(path, 200))


def _where(traces: Traces) -> Markup:
    """Idle time of which the trace shows what the host was in; columns that would be empty are left out."""
    ranks = [rank for rank in traces.ranks if any(_places(one) for one in rank.where)]
    if not ranks:
        return Markup()
    shown = choose_ranks(ranks, traces, MOST_WHERE)
    known = [(rank, one) for rank in shown for one in rank.where if _places(one)]
    columns = [
        column
        for column in ("annotation", "operator", "source line")
        if any(column in _places(one) for _, one in known)
    ]
    rows = [
        [
            *([label(rank)] if len(shown) > 1 else []),
            share(one.share),
            _words_cell(SHARE_WORDS[f"idle_{one.cause}"].removeprefix("idle: ")),
            *(_words_cell(_places(one).get(column, "")) for column in columns),
        ]
        for rank, one in known
    ]
    caption = "For each cause of idle time, what the host did during most of it"
    headings = (*(["device"] if len(shown) > 1 else []), "of the time", "cause", *columns)
    return together(table(caption, headings, rows, class_="places"), left_out_sentence(len(shown), len(ranks)))


def _places(where: IdleWhere) -> dict[str, str]:
    """What is known of where idle time lies, by its column."""
    places = {"annotation": where.annotation, "operator": where.operator, "source line": where.source}
    return {column: place for column, place in places.items() if place}


def _words_cell(text: str) -> Markup:
    return element("td", shorten(text, 200), class_="words")


def _kernels(traces: Traces) -> Markup:
    ranks = [rank for rank in traces.ranks if rank.kernels]
    shown = choose_ranks(ranks, traces, MOST_TABLES)
    parts: list[Part] = []
    for number, rank in enumerate(shown):
        inner = table(
            f"Kernels of {label(rank)} that take most", ("kernel", "of the time", "calls"), _rows(rank.kernels), "names"
        )
        summary = element("summary", f"{label(rank)}{_about(rank)}")
        parts.append(element("details", summary, inner, open=number == 0))
    return together(parts, left_out_sentence(len(shown), len(ranks)))


def _rows(kernels: tuple[KernelRow, ...]) -> list[list[Part]]:
    return [[element("code", shorten(row.name, 240)), share(row.share, 1), f"{row.calls:,}"] for row in kernels]


def _about(rank: RankTrace) -> str:
    steps = f"{count(rank.steps, 'step')} in " if rank.steps else ""
    said = [f"{steps}{step_time(rank.window_seconds)}", f"{rank.events:,} events"]
    if rank.device_name:
        said.insert(0, shorten(rank.device_name, 60))
    if rank.communication_overlap is not None:
        said.append(f"{share(rank.communication_overlap)} of communication overlapped with computing")
    if rank.tensor_core_share is not None:
        said.append(f"{share(rank.tensor_core_share)} of matrix products' time on tensor cores")
    return ": " + ", ".join(said)


def _notes(report: Report, traces: Traces) -> Markup:
    items = []
    for note, meaning in NOTE_WORDS.items():
        ranks = [rank for rank in traces.ranks if note in rank.notes]
        if ranks:
            items.append(element("li", _of_which(ranks, len(traces.ranks)), meaning))
    items += [element("li", words(note)) for note in report.notes]
    return element("ul", items, class_="plain") if items else Markup()


def _of_which(ranks: list[RankTrace], of: int) -> str:
    if len(ranks) == of:
        return ""
    named = ", ".join(label(rank) for rank in ranks[:MOST_NAMED])
    more = f" and {len(ranks) - MOST_NAMED} more" if len(ranks) > MOST_NAMED else ""
    return f"{named}{more}: "
