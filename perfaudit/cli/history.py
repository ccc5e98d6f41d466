"""`perfaudit history`: what was measured in this folder before, from the journals of the runs."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from perfaudit.cli.options import HtmlFile, format_option
from perfaudit.cli.output import check_writable, is_terminal, say, text_width, write
from perfaudit.errors import NothingMeasured, UserError

if TYPE_CHECKING:
    import pandas as pd

    from perfaudit.measure.journal import Run
    from perfaudit.render.paint import Paint
    from perfaudit.report import Json

HELP = """List what was measured in this folder, newest first, or show the trials of one run.

\b
    perfaudit history                               the runs: what, how it ended, the best saving found
    perfaudit history 20261121-2015                 one run: its trials, comparisons and winners
    perfaudit history 20261121-2015 --format csv    its trials; --table comparisons for those
    perfaudit history 20261121-2015 --format json   its report

A run is named by its id, by the beginning of its id, or by its file in .perfaudit/runs. Nothing of yours is run.

With --metric, what the gates of this folder measured, gate by gate, with a sparkline and the changes of its level:

\b
    perfaudit history --metric step_time            seconds per step, from .perfaudit/gate.sqlite
    perfaudit history --metric step_time --target train.py --format csv
    perfaudit history --metric drift                slow drifts: the ratios of consecutive gates, multiplied

Metrics are step_time, reference_step_time, ratio, drift, smallest_slowdown, findings, new_findings and every counter of the
gates; a name that is none of them lists what is there. ▲ marks where a new level begins (E-divisive means).
"""

_SHOWN_KNOBS = 2  # by name in the list of runs; more are counted
_WIDE = 98  # characters; the list of runs with all its columns cannot be narrower without breaking words
_NARROW = 66  # below it the table without two of its columns would cut ids
_SHOWN_TARGET = 16  # characters
_FOLDED = ("settings", "candidate", "knobs", "best saving")  # columns whose words may take several lines
_TABLES = ("trials", "comparisons")


def _table_name(name: str) -> str:
    if name not in _TABLES:
        raise typer.BadParameter(f"{name!r} is none of {', '.join(_TABLES)}")
    return name


def command(
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="A run; without it, all of this folder are listed.")
    ] = None,
    metric: Annotated[
        str | None, typer.Option(metavar="NAME", help="Show a metric of the gates instead of the runs.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(metavar="TARGET", help="With --metric: of this target only, as the gate names it.")
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="List so many runs or gates at most; 0 lists all.")] = 20,
    table: Annotated[
        str, typer.Option(metavar="|".join(_TABLES), callback=_table_name, help="What --format csv writes of a run.")
    ] = "trials",
    format: Annotated[str, format_option("text", "csv", "json", "html", what="history")] = "text",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the history to a file.")] = None,
    html: HtmlFile = None,
) -> None:
    """Parse, read, print, exit."""
    from perfaudit.measure.journal import find_run, read_run

    check_writable(output, html)
    if metric is not None:
        from perfaudit.cli.gate_history import show

        if run is not None:
            raise UserError(f"--metric is of the gates, {run} is a run: ask for one of them")
        show(metric, target, format, output, limit, html)
        return
    if target is not None:
        raise UserError("--target goes with --metric; `perfaudit history --metric step_time` shows the gates")
    if run is None:
        _list_runs(format, output, limit, html)
        return
    shown = read_run(find_run(Path.cwd(), run))
    if html is not None:
        write(_one_run(shown, "html", table, to_stdout=False), html)
    write(_one_run(shown, format, table, output is None), output)


def _list_runs(format_: str, output: Path | None, limit: int, page: Path | None) -> None:
    """Write the runs of the working directory. Raises NothingMeasured where there is none, or none that can be read."""
    from perfaudit.cli.gate_history import gate_runs_words
    from perfaudit.measure.journal import all_runs
    from perfaudit.tune import history

    runs, gates = all_runs(Path.cwd()), _gates()
    if not runs and gates is None:
        raise NothingMeasured(f"nothing was measured below {Path.cwd()} so far; `perfaudit tune` writes its runs there")
    shown = runs[:limit] if limit else runs
    data = {"schema": history.SCHEMA, "runs": [history.run_row(run) for run in shown], "gates": gates}
    if page is not None:
        write(_runs_page(shown, gates, data), page)
    if format_ == "json":
        write(_as_json(data), output)
    elif format_ == "html":
        write(_runs_page(shown, gates, data), output)
    elif format_ == "csv":
        write(history.runs_table(shown).to_csv(index=False), output)
    else:
        write(_runs_text(shown, output is None) if shown else "no run of `perfaudit tune` here\n", output)
    if gates is not None:
        say(gate_runs_words(gates))
    for run in shown:
        if run.problem:
            say(f"perfaudit: {run.problem}")
    if len(shown) < len(runs):
        say(f"{len(runs) - len(shown)} older not shown; --limit 0 shows all")
    if runs and all(run.problem for run in runs):
        raise NothingMeasured("none of these runs can be read")


def _gates() -> Json | None:
    """The gates of this folder; a history of them that cannot be read is said and hides no run."""
    from perfaudit.cli.gate_history import gate_runs

    try:
        return gate_runs(Path.cwd())
    except UserError as error:
        say(f"perfaudit: {error}")
        return None


def _one_run(run: Run, format_: str, table: str, to_stdout: bool) -> str:
    from perfaudit.tune import history

    if format_ == "json":
        return _as_json(history.as_json(run))
    if format_ == "html":
        from perfaudit.cli.history_pages import run_page

        return run_page(run, _about_run(run))
    if format_ == "csv":
        frame = history.trials_table(run) if table == "trials" else history.comparisons_table(run)
        return frame.to_csv(index=False)
    return _run_text(run, to_stdout)


def _as_json(data: Json) -> str:
    from perfaudit.render.words import json_text

    return json_text(data)


def _runs_text(runs: list[Run], to_stdout: bool) -> str:
    """The list for lines of 100 characters: ids say when a run began, and of targets the file's name is shown.

    A narrow terminal gets fewer columns, a very narrow one a block of lines for each run.
    """
    columns, rows = _run_rows(runs)
    if text_width() < _NARROW:
        return _run_blocks(rows)
    if text_width() < _WIDE:
        kept = [index for index, name in enumerate(columns) if name not in ("knobs", "took")]
        columns, rows = [columns[i] for i in kept], [[row[i] for i in kept] for row in rows]
    return _draw_table(columns, rows, ("trials", "took"), to_stdout)


def _run_blocks(rows: list[list[str]]) -> str:
    """A line for the id of each run, so that it can be copied, and indented ones for what else is known of it."""
    from perfaudit.render.paint import wrap
    from perfaudit.render.words import count, one_line

    lines = []
    for id_, asked, _, trials, status, _, best in rows:
        lines.append(one_line(id_))
        told = [asked, f"{status}, {count(int(trials), 'trial')}", *filter(None, [best])]
        lines += [wrap(one_line(line), text_width(), "  ") for line in told]
    return "".join(f"{line}\n" for line in lines)


def _run_rows(runs: list[Run]) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of the list of runs."""
    from perfaudit.tune import history

    rows = []
    for row in _rows(history.runs_table(runs)):
        took = "" if row["status"] == "damaged" else _duration(row["seconds"])
        knobs = _few(row["knobs"].split(", "))
        asked = f"{row['command']} {_end_of(row['target'])}"
        rows.append([row["id"], asked, knobs, str(row["trials"]), row["status"], took, row["best_saving"]])
    return ["run", "command", "knobs", "trials", "status", "took", "best saving"], rows


def _runs_page(runs: list[Run], gates: Json | None, data: Json) -> str:
    from perfaudit.cli.gate_history import gate_runs_words
    from perfaudit.render.html.history import runs_page

    notes = [gate_runs_words(gates)] if gates is not None else []
    return runs_page(*_run_rows(runs), [*notes, *(run.problem for run in runs if run.problem)], data)


def _about_run(run: Run) -> list[str]:
    """When a run began, how it ended after how long, and on what machine."""
    from perfaudit.tune import history

    row = history.run_row(run)
    environment = run.start.get("environment")
    machine = [f"{k} {v}" for k, v in environment.items() if v] if isinstance(environment, dict) else []
    pairs = [f"{target}: {number} pairs of processes" for target, number in history.pairs(run).items()]
    return [
        ", ".join([f"began {row['began']}", f"{row['status']} after {_duration(row['seconds'])}", *machine]),
        *pairs,
    ]


def _run_text(run: Run, to_stdout: bool) -> str:
    """What was measured where, then a table for each knob, the comparisons, and what was recommended."""
    from perfaudit.render.words import one_line
    from perfaudit.tune import history

    paint = _paint(to_stdout)
    row = history.run_row(run)
    began = _about_run(run)[0]
    asked = f"{row['command']} {row['target']}"
    parts = [f"{paint(one_line(run.id), 'bold')}  {one_line(asked)}\n{one_line(began)}\n"]
    trials = history.trials_table(run)
    for (knob, _), frame in trials.groupby(["knob", "metric"], sort=False):
        parts.append(f"{paint(one_line(str(knob)), 'bold')}\n{_trials_text(_rows(frame), to_stdout)}")
    compared = history.comparisons_table(run)
    screened = compared[compared["basis"] == "screened"]
    pairs = [f"{one_line(target)}: {count} pairs of processes\n" for target, count in history.pairs(run).items()]
    if trials.empty and screened.empty:
        parts.append("".join(pairs) or "no trial was finished\n")
    if not screened.empty:
        heading = paint("raced in one training, time against your code as it is", "bold")
        parts.append(f"{heading}\n{_screened_text(_rows(screened), to_stdout)}")
    for (knob, baseline), frame in compared[compared["basis"] != "screened"].groupby(["knob", "baseline"], sort=False):
        rows = _rows(frame)
        (base, *candidates), _ = _apart([str(baseline), *(row["candidate"] for row in rows)])
        heading = paint(one_line(f"{knob}, time against {base}"), "bold")
        parts.append(f"{heading}\n{_comparisons_text(rows, candidates, to_stdout)}")
    found = [f"{paint('→', 'bold')} {one_line(w['knob'])}: {one_line(w['words'])}\n" for w in history.winners(run)]
    return "\n".join([*parts, "".join(found)] if found else parts)


def _trials_text(trials: list[Json], to_stdout: bool) -> str:
    """Trials of one knob in one metric. What all have the same is said once, below, so that lines stay short."""
    from perfaudit.render.paint import wrap
    from perfaudit.render.tables import size
    from perfaudit.render.words import one_line

    own, shared = _apart([trial["settings"] for trial in trials])
    per_step = trials[0]["metric"] == "seconds_per_step"
    scale = 1e3 if per_step else 1.0
    unit = "ms/step" if per_step else trials[0]["metric"].replace("_per_second", "/s")
    rows = []
    for trial, settings in zip(trials, own, strict=True):
        median, *quartiles = (_number(trial[name], scale) for name in ("median", "low", "high"))
        between = " … ".join(quartiles) if all(quartiles) else ""
        peak = size(int(trial["peak_memory_bytes"])) if _there(trial["peak_memory_bytes"]) else ""
        n = str(trial["n"]) if _there(trial["n"]) else ""
        rows.append([settings, trial["status"].replace("_", " "), median, between, n, peak])
    columns = ["settings", "status", unit, "quartiles", "n", "peak memory"]
    text = _draw_table(columns, rows, (unit, "quartiles", "n", "peak memory"), to_stdout)
    said = [f"all with {shared}"] if shared else []
    said += [f"{settings}: {t['reason']}" for t, settings in zip(trials, own, strict=True) if t["reason"]]
    return text + "".join(wrap(one_line(line), text_width(), "  ") + "\n" for line in said)


def _comparisons_text(compared: list[Json], candidates: list[str], to_stdout: bool) -> str:
    """Comparisons with one baseline, their candidates in short words."""
    rows = []
    for c, candidate in zip(compared, candidates, strict=True):
        low, high = _number(c["low"]), _number(c["high"])
        interval = f"[{low}, {high}]" if low and high else "[too few rounds]"
        n = str(c["n"]) if _there(c["n"]) else ""
        rows.append([candidate, _number(c["ratio"]), interval, c["verdict"], n, c["clock"]])
    columns = ["candidate", "ratio", "interval", "verdict", "n", "clock"]
    return _draw_table(columns, rows, ("ratio", "interval", "n"), to_stdout)


def _screened_text(compared: list[Json], to_stdout: bool) -> str:
    """Candidates of a climb, the fastest first."""
    rows = []
    for c in sorted(compared, key=lambda c: c["ratio"] if _there(c["ratio"]) else math.inf):
        low, high = _number(c["low"]), _number(c["high"])
        interval = f"[{low}, {high}]" if low and high else "[no interval]"
        quads = str(c["n"]) if _there(c["n"]) else ""
        ratio = _number(c["ratio"]) if low and high else ""  # without an interval it is none
        rows.append([f"{c['knob']} {c['candidate']}", ratio, interval, c["verdict"], quads])
    columns = ["candidate", "ratio", "interval", "verdict", "timed"]
    return _draw_table(columns, rows, ("ratio", "interval", "timed"), to_stdout)


def _rows(frame: pd.DataFrame) -> list[Json]:
    return [{str(name): cell for name, cell in row.items()} for row in frame.to_dict("records")]


def _apart(settings: list[str]) -> tuple[list[str], str]:
    """What each has of its own, and what all of several share."""
    split = [text.split(", ") for text in settings]
    shared = [part for part in split[0] if len(split) > 1 and all(part in parts for parts in split)]
    own = [", ".join(part for part in parts if part not in shared) for parts in split]
    if not all(own):  # one of them would have no name
        return settings, ""
    return own, ", ".join(shared)


def _few(names: list[str]) -> str:
    more = len(names) - _SHOWN_KNOBS
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:_SHOWN_KNOBS])} and {more} more"


def _end_of(target: str) -> str:
    """What tells targets apart: "train.py:main" of a path, cut where it is long."""
    name = target.rpartition("/")[2]
    return name if len(name) <= _SHOWN_TARGET else "…" + name[1 - _SHOWN_TARGET :]


def _there(value: object) -> bool:
    """Whether a cell of a table holds a number: pandas has a sign of its own for what is missing."""
    return isinstance(value, (int, float)) and value == value


def _number(value: object, scale: float = 1.0) -> str:
    """Four digits, "" for what is missing: 0.9412, 27.41, 8,123."""
    if not isinstance(value, (int, float)) or value != value:
        return ""
    scaled = value * scale
    decimals = 0 if abs(scaled) >= 1000 else 1 if abs(scaled) >= 100 else 2 if abs(scaled) >= 10 else 3
    return f"{scaled:,.{decimals}f}"


def _duration(seconds: float) -> str:
    """Whole seconds on few characters: "48s", "4m10s", "1h02m"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02}m"


def _paint(to_stdout: bool) -> Paint:
    from perfaudit.render.paint import colour, plain

    return colour if to_stdout and is_terminal(sys.stdout) else plain


def _draw_table(columns: list[str], rows: list[list[str]], numbers: tuple[str, ...], to_stdout: bool) -> str:
    """A table as wide as the terminal at most: numbers to the right, words to the left and folded where they must be."""
    from io import StringIO

    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from perfaudit.render.words import one_line

    in_colour = to_stdout and is_terminal(sys.stdout)
    drawn = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in columns:
        justify: Literal["left", "right"] = "right" if name in numbers else "left"
        drawn.add_column(name, justify=justify, overflow="fold", no_wrap=name not in _FOLDED)
    for row in rows:
        drawn.add_row(*(Text(one_line(cell)) for cell in row))
    out = StringIO()
    Console(
        file=out, width=text_width(), force_terminal=in_colour, color_system="standard" if in_colour else None
    ).print(drawn)
    return "\n".join(line.rstrip() for line in out.getvalue().rstrip().splitlines()).lstrip("\n") + "\n"
