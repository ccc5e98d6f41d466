"""The ranks of a run as a part of a page: what ended badly, a bar of each rank's step, and its phases as a table."""

from __future__ import annotations

from collections.abc import Sequence

from perfaudit.render.html.charts import BarRow, axis_from_zero, bars
from perfaudit.render.html.markup import Markup, Part, element, paragraphs, section, table, together
from perfaudit.render.run import milliseconds
from perfaudit.render.run_ranks import COLUMNS, WORTH_A_COLUMN, communication, faults, milliseconds_of, ranks_shown
from perfaudit.runs import RankRun, Run


def ranks_section(run: Run) -> Markup:
    """Nothing for a run of one process."""
    timed = [each for each in run.by_rank if each.seconds_per_step is not None]
    shown = [timed[number] for number in ranks_shown(timed)] if len(timed) > 1 else []
    return section(
        "Ranks", "ranks", paragraphs(faults(run.by_rank), class_="doubt"), paragraphs(communication(run, timed)),
        _bars(shown), _phases(shown, len(timed)),
    )  # fmt: skip


def _bars(ranks: Sequence[RankRun]) -> Markup:
    """What a step takes each rank, without the time in collectives where that is known."""
    knows_own = all(each.own_seconds_per_step is not None for each in ranks)
    rows = []
    for each in ranks:
        step, own = each.seconds_per_step or 0.0, each.own_seconds_per_step
        before = f", {milliseconds(own)} of its own" if own is not None else ""
        length = own if knows_own and own is not None else step
        rows.append(BarRow(f"rank {each.rank}", f"{milliseconds(step)} a step{before}", 0.0, length, "working"))
    if not rows:
        return Markup()
    what = "without the time in collectives, and without waiting for cores" if knows_own else "by rank"
    axis = axis_from_zero(max(row.end for row in rows), milliseconds)
    return element(
        "figure", element("figcaption", f"Time of a step, {what}."), bars(rows, axis, f"Time of a step, {what}")
    )


def _phases(ranks: Sequence[RankRun], of: int) -> Markup:
    columns = [name for name in COLUMNS if any(each.phases.get(name, 0.0) >= WORTH_A_COLUMN for each in ranks)]
    if not ranks:
        return Markup()
    rows: list[list[Part]] = [
        [
            f"rank {each.rank}",
            *(milliseconds_of(each.phases.get(name, 0.0) * (each.seconds_per_step or 0.0)) for name in columns),
        ]
        for each in ranks
    ]
    left = (
        element("p", f"{of - len(ranks)} ranks between these are not shown.", class_="dim") if len(ranks) < of else ""
    )
    return together(table("Milliseconds of a step", ("", *(COLUMNS[name] for name in columns)), rows), left)
