"""The history of a metric as people read it: heading, sparkline, table, and what is seen in it."""

from __future__ import annotations

import sys
import time
from calendar import timegm
from typing import TYPE_CHECKING

from perfaudit.cli.output import is_terminal, say, text_width

if TYPE_CHECKING:
    from perfaudit.cli.gate_history import Shown
    from perfaudit.gate.change_points import ChangePoint
    from perfaudit.gate.series import Series
    from perfaudit.render.paint import Paint

WORDS = {
    "step_time": "seconds per step of the code as it is",
    "reference_step_time": "seconds per step of the reference",
    "ratio": "step time of the code over that of its reference, measured side by side",
    "drift": "step time over that of the first commit, as the product of the ratios",
    "smallest_slowdown": "the smallest slowdown that the gate could have called",
    "findings": "findings of the scan",
    "new_findings": "findings that the reference does not have",
}
_WAYS = {"ref": "timed in turns with the reference", "baseline": "timed alone"}
_TIMES = ("step_time", "reference_step_time")
_RATIOS = ("ratio", "drift")
_COMMIT = 12  # characters of a hash
_NARROW = 56  # columns of a terminal; with fewer, words of a table with hashes would be broken
_CHANGES_SHOWN = 10  # of the newest; of counters every change of value is one
_OTHERS_SHOWN = 5


def history_text(shown: list[Shown], to_stdout: bool, signs: bool, limit: int) -> str:
    """The newest series of each target, and a line on each other one."""
    from perfaudit.render.paint import colour, plain

    paint = colour if to_stdout and is_terminal(sys.stdout) else plain
    width = text_width()
    parts = []
    for target in dict.fromkeys(each.series.target for each in shown):
        first, *others = [each for each in shown if each.series.target == target]
        parts.append(_section(first, paint, width, signs, limit) + _others(first.series, others, width))
        if limit and len(first.series.points) > limit:
            say(f"{len(first.series.points) - limit} older not in the table; --limit 0 shows all")
    return "\n".join(parts)


def what_it_is(series: Series) -> str:
    """The metric in words, "" for one that has only its name."""
    return WORDS.get(series.metric, "of one training step" if series.layer == "counters" else "")


def about(series: Series) -> list[str]:
    """How many gates, when and on what machine; the lowest, the highest and the last value."""
    from perfaudit.render.words import count, one_line

    values = [point.value for point in series.points]
    first, last = local(series.points[0].at), local(series.points[-1].at)
    when = first if len(values) == 1 else f"{first} to {last}"
    machine = _machine(series.environment)
    way = f", {_WAYS['baseline']}" if series.kind == "baseline" else ""
    said = [one_line(f"{count(len(values), 'gate')}, {when}{machine}{way}")]
    low, high, newest = (value_text(series, v) for v in (min(values), max(values), values[-1]))
    return [*said, f"lowest {low}, highest {high}, last {newest}"]


def _section(shown: Shown, paint: Paint, width: int, signs: bool, limit: int) -> str:
    from perfaudit.render.paint import wrap
    from perfaudit.render.sparkline import ASCII, BLOCKS, sparkline
    from perfaudit.render.words import one_line

    series = shown.series
    values = [point.value for point in series.points]
    of = f" of {series.target}" if series.target else ""
    what = what_it_is(series)
    heading = paint(one_line(series.metric + of), "bold") + (f": {what}" if what else "")
    line = sparkline(values, width - 4, BLOCKS if signs else ASCII)
    lines = [
        wrap(heading, width, ""),
        *(wrap(text, width, "") for text in about(series)),
        "",
        f"  {paint(line, 'cyan')}",
        "",
    ]
    table = _table(shown, paint, width, limit).lstrip("\n")
    told = [wrap(text, width, "") for text in verdicts(shown, paint)]
    return "\n".join([*lines, table, *told]) + "\n"


def _table(shown: Shown, paint: Paint, width: int, limit: int) -> str:
    """The newest gates first, the first gate of a new level marked. A narrow terminal gets dates, values and verdicts."""
    from perfaudit.render.paint import colour
    from perfaudit.render.tables import table
    from perfaudit.render.words import one_line

    series = shown.series
    begins = {change.index for change in shown.changes}
    has_interval = any(point.low is not None for point in series.points)
    columns = ["when", "commit", one_line(series.metric), *(["interval"] if has_interval else []), "verdict"]
    rows = []
    for i, p in reversed(list(enumerate(series.points))[-limit if limit else None :]):
        value = ("▲ " if i in begins else "") + value_text(series, p.value)
        between = (
            f"[{value_text(series, p.low)}, {value_text(series, p.high)}]"
            if p.low is not None and p.high is not None
            else ""
        )
        cells = [
            local(p.at),
            commit_text(p.head),
            value,
            *([between] if has_interval else []),
            p.verdict.replace("_", " "),
        ]
        rows.append([one_line(cell) for cell in cells])
    if width < _NARROW:
        columns = [columns[0], *columns[2:3], columns[-1]]
        rows = [[row[0][: len("2026-11-21")], row[2], row[-1]] for row in rows]
    return table(columns, rows, paint is colour, width)


def verdicts(shown: Shown, paint: Paint) -> list[str]:
    """What is seen in a series, a sentence each."""
    from perfaudit.gate.change_points import LEVEL, MINIMUM

    series = shown.series
    if series.metric == "drift":
        return _drift_words(shown, paint)
    said = [_change_words(series, change, paint) for change in shown.changes[-_CHANGES_SHOWN:]]
    if len(shown.changes) > _CHANGES_SHOWN:
        said.insert(0, f"{len(shown.changes) - _CHANGES_SHOWN} earlier changes not shown")
    if series.is_exact:
        return said or ["the same in all of them"]
    if len(series.points) < 2 * MINIMUM:
        said.append(f"too few gates to look for changes of level: it takes {MINIMUM} before and {MINIMUM} after")
    elif not said:
        said.append(f"no change of level (E-divisive means, p ≤ {LEVEL}, at least {MINIMUM} gates on each side)")
    if series.metric == "step_time" and shown.changes:
        before = series.points[shown.changes[-1].index - 1]
        settled = f": {command}" if (command := _settled_by(series, before.head)) else ""
        said.append(f"times of different hours differ with the machine's state too{settled}")
    return said


def _settled_by(series: Series, commit: str) -> str:
    """What measures the code as it is and a commit side by side, whatever lies between them; "" without a commit."""
    from perfaudit.render.words import one_line

    if not (known := commit.rstrip("+")[:_COMMIT]):
        return ""
    return f"`{one_line(f'perfaudit gate {series.target} --against {known}')}` measures both side by side"


def _change_words(series: Series, change: ChangePoint, paint: Paint) -> str:
    """ "▲ 2026-11-20 1f2e3d4: 41.20 ms → 43.90 ms, +6.6 %, p 0.002"."""
    from perfaudit.render.words import one_line

    point = series.points[change.index]
    if series.is_exact:
        by = change.after - change.before
        share = f", {'+' if by > 0 else '−'}{value_text(series, abs(by))}"
    else:
        share = f", {100 * change.change:+.1f} %" if change.change is not None else ""
    p = f", p {change.p:.3f}" if change.p is not None else ""
    levels = f"{value_text(series, change.before)} → {value_text(series, change.after)}"
    text = one_line(f"▲ {local(point.at)[:10]} {commit_text(point.head)}: {levels}{share}{p}")
    return paint(text, "red" if change.after > change.before else "green")


def _drift_words(shown: Shown, paint: Paint) -> list[str]:
    from perfaudit.gate.drift import CALLED_BEYOND
    from perfaudit.render.words import count, one_line

    points = shown.series.points
    last = points[-1]
    low, high = value_text(shown.series, last.low or 0.0), value_text(shown.series, last.high or 0.0)
    ratio = f"{value_text(shown.series, last.value)} [{low}, {high}] over {count(last.n or 1, 'gate')}"
    settled = f"each gate adds its error; {_settled_by(shown.series, points[0].reference)}"
    if not shown.drift or shown.most is None:
        return [
            f"{ratio}: no drift beyond {100 * CALLED_BEYOND:.0f} % can be told",
            *([settled] if len(points) > 1 else []),
        ]
    by_one = f"most of one gate: {shown.most.value:.3f} in {commit_text(shown.most.head)}"
    text = f"▲ {shown.drift} since {local(points[0].at)[:10]}: {ratio}; {by_one}"
    return [paint(one_line(text), "red" if shown.drift == "slower" else "green"), settled]


def _others(first: Series, others: list[Shown], width: int) -> str:
    from perfaudit.render.paint import wrap

    return "".join(wrap(line, width, "") + "\n" for line in not_compared(first, others))


def not_compared(first: Series, others: list[Shown]) -> list[str]:
    """A line on each series that is not shown, and why it is one of its own."""
    from statistics import median

    from perfaudit.render.words import count, one_line

    lines = []
    for other in others[:_OTHERS_SHOWN]:
        series = other.series
        differs = {k: v for k, v in series.environment.items() if first.environment.get(k) != v}
        why = _machine(differs) or (f", {_WAYS.get(series.kind, series.kind)}" if series.kind != first.kind else "")
        why = why or ", another chain of commits"
        value = value_text(series, median(point.value for point in series.points))
        ended = local(series.points[-1].at)[:10]
        lines.append(f"not compared: {count(len(series.points), 'gate')} until {ended}{why}: median {value}")
    if len(others) > _OTHERS_SHOWN:
        lines.append(f"not compared: {len(others) - _OTHERS_SHOWN} more series; --format csv has them")
    return [one_line(line) for line in lines]


def _machine(environment: dict[str, str]) -> str:
    """What is known of a machine: ", on cpu, AMD EPYC 7763, 2 cores, 1 thread, torch 2.13.0, Python 3.11.4"."""
    words = {"torch": "torch {}", "python": "Python {}"}
    for name in ("cores", "threads"):
        words[name] = f"{{}} {name.removesuffix('s') if environment.get(name) == '1' else name}"
    order = ("device", "cpu", "driver", "cores", "threads", "torch", "python", "platform")
    parts = [
        words.get(name, "{}").format(environment[name]) for name in order if environment.get(name) not in (None, "")
    ]
    return f", on {', '.join(parts)}" if parts else ""


def value_text(series: Series, value: float) -> str:
    """A value of the series with its unit."""
    from perfaudit.render.tables import size
    from perfaudit.render.words import seconds

    if series.metric in _TIMES:
        return seconds(value)
    if series.metric in _RATIOS:
        return f"{value:.3f}"
    if series.metric == "smallest_slowdown":
        return f"{100 * value:.1f} %"
    if "bytes" in series.metric and value >= 0:
        return size(round(value))
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def commit_text(head: str) -> str:
    """The commit of a gate, shortened; the "+" of changed files stays."""
    return head[:_COMMIT] + ("+" if head.endswith("+") else "") if head.rstrip("+") else "?"


def local(at: str) -> str:
    """Local time of a time in UTC, "2026-11-20 13:02"; the text itself where it is none."""
    try:
        moment = timegm(time.strptime(at, "%Y-%m-%dT%H:%M:%SZ"))
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))
    except (ValueError, OverflowError):
        return at
