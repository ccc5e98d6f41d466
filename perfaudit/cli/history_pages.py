"""`perfaudit history` as pages: what is read from the history, in the words that pages draw."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfaudit.cli.gate_history import Shown
    from perfaudit.findings import Basis
    from perfaudit.gate.change_points import ChangePoint
    from perfaudit.measure.journal import Run
    from perfaudit.measurements import ClockName, Comparison, Trial, Verdict, Winner
    from perfaudit.render.html.history import GateValue, MetricHistory
    from perfaudit.report import Json, Report


def metric_page(metric: str, shown: Sequence[Shown], data: Json) -> str:
    """The newest series of each target as a chart, and a line on each other one."""
    from perfaudit.render.html import history

    targets = dict.fromkeys(each.series.target for each in shown)
    grouped = [[each for each in shown if each.series.target == target] for target in targets]
    return history.metric_page(metric, [_history(first, others) for first, *others in grouped], data)


def _history(shown: Shown, others: list[Shown]) -> MetricHistory:
    from perfaudit.cli.gate_history_text import about, not_compared, value_text, verdicts, what_it_is
    from perfaudit.render.html.history import MetricHistory
    from perfaudit.render.paint import plain
    from perfaudit.render.words import one_line

    series = shown.series
    changes = {change.index: _change(shown, change) for change in shown.changes}
    values = tuple(_value(shown, index) for index in range(len(series.points)))
    return MetricHistory(
        one_line(series.metric), what_it_is(series), one_line(series.target), values, changes,
        _levels(shown), tuple(about(series)), tuple(one_line(said) for said in verdicts(shown, plain)),
        tuple(not_compared(series, others)), lambda value: value_text(series, value),
    )  # fmt: skip


def _change(shown: Shown, change: ChangePoint) -> str:
    """ "+6.7 %" of times, "−14" of counts."""
    from perfaudit.cli.gate_history_text import value_text

    if not shown.series.is_exact and change.change is not None:
        return f"{100 * change.change:+.1f} %".replace("-", "−")
    by = change.after - change.before
    return f"{'+' if by > 0 else '−'}{value_text(shown.series, abs(by))}"


def _value(shown: Shown, index: int) -> GateValue:
    from perfaudit.cli.gate_history_text import commit_text, local, value_text
    from perfaudit.render.html.history import GateValue
    from perfaudit.render.words import one_line

    series, point = shown.series, shown.series.points[index]
    interval = ""
    if point.low is not None and point.high is not None:
        interval = f"[{value_text(series, point.low)}, {value_text(series, point.high)}]"
    when, commit, verdict = (
        one_line(t) for t in (local(point.at), commit_text(point.head), point.verdict.replace("_", " "))
    )
    return GateValue(
        when, commit, point.value, point.low, point.high, (value_text(series, point.value), interval), verdict
    )


def _levels(shown: Shown) -> tuple[float | None, ...]:
    """At which level each gate lies, () where no change of level was found: exact values are their own."""
    if not shown.changes or shown.series.is_exact:
        return ()
    levels: list[float | None] = [shown.changes[0].before] * len(shown.series.points)
    for change in shown.changes:
        levels[change.index :] = [change.after] * (len(levels) - change.index)
    return tuple(levels)


def run_page(run: Run, notes: Sequence[str]) -> str:
    """One run: what was measured, as the page of a search shows it."""
    from perfaudit.render.html.page import report_page
    from perfaudit.report import Report
    from perfaudit.tune import history

    row = history.run_row(run)
    report: Report = Report(
        "history", target=f"{row['id']}, {row['command']} {row['target']}", trials=tuple(map(_trial, history.trials(run))),
        comparisons=tuple(compared for each in history.comparisons(run) if (compared := _comparison(each)) is not None),
        winners=tuple(map(_winner, history.winners(run))), notes=tuple(notes),
    )  # fmt: skip
    return report_page(report, {}, history.as_json(run))


def _trial(row: Json) -> Trial:
    from perfaudit.measurements import Trial

    return Trial(
        row["knob"], row["settings"], row["status"], row["metric"], row["median"], row["low"], row["high"], row["n"] or 0,
        row["peak_memory_bytes"], row["reason"],
    )  # fmt: skip


def _comparison(row: Json) -> Comparison | None:
    """None for one of which not even the ratio can be read; one that was screened too briefly has none."""
    from perfaudit.measurements import Comparison

    if row["ratio"] is None and row["basis"] != "screened":
        return None
    ratio = row["ratio"] if row["ratio"] is not None else 1.0
    verdicts: dict[str, Verdict] = {"faster": "faster", "slower": "slower"}
    verdict = verdicts.get(row["verdict"], "undecided")
    low, high = (row["low"], row["high"]) if None not in (row["low"], row["high"]) else (0.0, math.inf)
    clocks: dict[str, ClockName] = {"cpu": "cpu", "own": "own"}
    clock = clocks.get(row["clock"], "wall")
    basis: Basis = "screened" if row["basis"] == "screened" else "measured"
    return Comparison(
        row["knob"], row["baseline"], row["candidate"], ratio, low, high, verdict, row["n"] or 0, clock, basis=basis
    )  # fmt: skip


def _winner(row: Json) -> Winner:
    from perfaudit.findings import Saving
    from perfaudit.measurements import Winner

    saving = row["saving"] and Saving("measured", row["saving"]["low"], row["saving"]["high"])
    return Winner(row["knob"], {}, row["keeps_current"], row["words"], saving)
