"""One step of a device as a picture: a row for each use of time, so that no one has to tell colours apart."""

from __future__ import annotations

from perfaudit.render.html.markup import Markup, Part, element, table, together
from perfaudit.render.html.trace_ranks import choose_ranks, label, left_out_sentence
from perfaudit.render.words import step_time
from perfaudit.traces import SHARE_WORDS, RankTrace, Stretch, Traces

MOST_STEPS = 6  # ranks whose step is drawn
WIDTH = 2000  # units of the picture; a stretch is at least one of them wide
MOST_NAMED = 5  # idle stretches in the table


def timelines(traces: Traces) -> Markup:
    """The steps of some ranks, the first unfolded, all at the same scale."""
    ranks = [rank for rank in traces.ranks if rank.timeline]
    shown = choose_ranks(ranks, traces, MOST_STEPS)
    if not shown:
        return Markup()
    length = max(stretch.end for rank in shown for stretch in rank.timeline)
    part = (
        "The step that is nearest to the median, from the end of the work before it to the end of its own. "
        if any(rank.steps for rank in shown)
        else "The whole window, because no steps are marked. "
    )
    what = f"{part}Each instant of the picture shows what takes most of it; the times beside it are exact."
    drawn = (_step(rank, length, number == 0) for number, rank in enumerate(shown))
    return together(element("p", what, class_="dim"), drawn, left_out_sentence(len(shown), len(ranks)))


def _step(rank: RankTrace, length: float, is_open: bool) -> Markup:
    whole = max(stretch.end for stretch in rank.timeline)
    rows = [_lane(rank, kind, length) for kind in SHARE_WORDS if kind in _kinds(rank)]
    scale = element(
        "li",
        element("span"),
        element(
            "span", element("span", "0"), element("span", step_time(length / 2)), element("span", step_time(length))
        ),
        element("span"),
        class_="scale",
        aria_hidden="true",
    )
    lanes = element("ul", rows, scale, class_="lanes", aria_label=f"What {label(rank)} does, and for how long")
    summary = element("summary", f"{label(rank)}: {step_time(whole)}")
    return element("details", summary, lanes, _longest(rank), open=is_open)


def _kinds(rank: RankTrace) -> set[str]:
    return {one.kind for one in rank.timeline} | set(rank.timeline_seconds)


def _lane(rank: RankTrace, kind: str, length: float) -> Markup:
    """A name, the stretches of one kind, and how long they are together."""
    stretches = [one for one in rank.timeline if one.kind == kind]
    path = "".join(_box(one, length) for one in stretches)
    picture = element(
        "svg",
        element("path", d=path, class_=kind),
        viewBox=f"0 0 {WIDTH} 10",
        preserveAspectRatio="none",
        aria_hidden="true",
        focusable="false",
    )
    total = rank.timeline_seconds.get(kind, sum(one.end - one.start for one in stretches))
    return element("li", element("span", SHARE_WORDS[kind]), picture, element("span", step_time(total)))


def _box(stretch: Stretch, length: float) -> str:
    start = WIDTH * stretch.start / length
    width = max(1.0, WIDTH * (stretch.end - stretch.start) / length)
    return f"M{start:.1f} 0h{width:.1f}v10h-{width:.1f}z"


def _longest(rank: RankTrace) -> Part:
    idle = [one for one in rank.timeline if one.kind.startswith("idle")]
    longest = sorted(idle, key=lambda one: one.start - one.end)[:MOST_NAMED]
    if not longest:
        return ""
    rows = [[SHARE_WORDS[one.kind], step_time(one.start), step_time(one.end - one.start)] for one in longest]
    return table(f"The longest idle stretches in this picture of {label(rank)}", ("cause", "from", "for"), rows)
