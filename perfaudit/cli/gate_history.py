"""`perfaudit history --metric`: what the gates of this folder measured, as tables, sparklines and changes of level."""

from __future__ import annotations

import csv
import difflib
import io
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perfaudit.cli.gate_history_text import history_text, local
from perfaudit.cli.history_pages import metric_page
from perfaudit.cli.output import write
from perfaudit.errors import NothingMeasured, UserError

if TYPE_CHECKING:
    from perfaudit.gate.change_points import ChangePoint
    from perfaudit.gate.series import Point, Series
    from perfaudit.report import Json

SCHEMA = "perfaudit.gate-history/1"

_COLUMNS = (
    *("series", "target", "environment", "at", "commit", "reference"),
    *("value", "low", "high", "n", "verdict", "change_from", "change_p", "kind"),
)


@dataclass(frozen=True, slots=True)
class Shown:
    """A series with what is seen in it.

    drift: what the whole of a chain says, "slower", "faster" or ""; most: the gate that did most for it, as a ratio.
    """

    series: Series
    changes: tuple[ChangePoint, ...] = ()
    drift: str = ""
    most: Point | None = None


def series_with_changes(series: Series, ratios: Sequence[Series] = ()) -> Shown:
    """The series with its changes. A product carries its errors along, so a drift is judged as a whole instead.

    ratios: what a drift is made of.
    """
    from perfaudit.gate.change_points import change_points, exact_changes
    from perfaudit.gate.drift import drift_direction, largest
    from perfaudit.gate.series import DRIFT

    if series.metric == DRIFT:
        return Shown(series, drift=drift_direction(series), most=largest(series, ratios))
    values = [point.value for point in series.points]
    return Shown(series, tuple(exact_changes(values) if series.is_exact else change_points(values)))


def gate_runs(folder: Path) -> Json | None:
    """How many gates were run in a folder and how the last one ended; None without any. Raises UserError."""
    from perfaudit.gate.series import gates, metrics

    seen = gates(folder)
    if not seen.count:
        return None
    noted = metrics(folder)
    metric = next((name for name in ("step_time", *noted) if name in noted), None)
    return {"count": seen.count, "at": seen.at, "verdict": seen.verdict, "metric": metric}


def gate_runs_words(runs: Json) -> str:
    """One line on the gates of a folder, for the list of runs."""
    from perfaudit.render.words import count, one_line

    last = f"the last {local(runs['at'])}: {runs['verdict'].replace('_', ' ')}"
    shows = f"; `perfaudit history --metric {runs['metric']}` shows them" if runs["metric"] else ""
    return one_line(f"{count(runs['count'], 'gate')} run here, {last}{shows}")


def show(
    metric: str, target: str | None, format_: str, output: Path | None, limit: int, page: Path | None = None
) -> None:
    """Write the history of a metric. Raises NothingMeasured where no gate was run, UserError for a name nobody knows.

    page: a file that gets it as a page besides.
    """
    from perfaudit.render.words import json_text

    shown = _shown_series(Path.cwd(), metric, target)
    data = {"schema": SCHEMA, "metric": metric, "series": [_json(each) for each in shown]}
    if page is not None:
        write(metric_page(metric, shown, data), page)
    if format_ == "json":
        write(json_text(data), output)
    elif format_ == "html":
        write(metric_page(metric, shown, data), output)
    elif format_ == "csv":
        write(_csv(shown), output)
    else:
        from perfaudit.render.sparkline import has_blocks, in_ascii

        signs = output is not None or has_blocks(getattr(sys.stdout, "encoding", None))
        text = history_text(shown, output is None, signs, limit)
        write(text if signs else in_ascii(text), output)


def _shown_series(folder: Path, metric: str, target: str | None) -> list[Shown]:
    """The series of a metric with what is seen in them, the one with the newest gate first. Raises as `show`."""
    from perfaudit.gate.drift import drifts
    from perfaudit.gate.series import DRIFT, metrics, series, targets

    known = metrics(folder)
    if not known:
        raise NothingMeasured(f"no gate was run in {folder} so far; `perfaudit gate` notes what it measures there")
    if metric not in known:
        raise UserError(
            f"no gate here noted a metric {metric!r}{_suggestion(metric, known)}; they have: {_name_list(known)}"
        )
    ratios = series(folder, "ratio", target) if metric == DRIFT else []
    found = drifts(ratios) if metric == DRIFT else series(folder, metric, target)
    if not found and target is not None and target not in targets(folder):
        raise UserError(f"no gate here noted a target {target!r}; they have: {_name_list(targets(folder))}")
    if not found and metric == DRIFT:
        raise NothingMeasured("no gate against a commit had an interval so far, so there is nothing to multiply")
    if not found:
        raise NothingMeasured(f"no gate of {target} noted {metric}")
    return [series_with_changes(one, ratios) for one in found]


def _name_list(names: list[str]) -> str:
    from perfaudit.render.words import one_line

    return one_line(", ".join(names)) or "none"


def _suggestion(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {_name_list(close)}?)" if close else ""


def _json(shown: Shown) -> Json:
    series = shown.series
    changes = [
        {
            "at": series.points[c.index].at,
            "commit": series.points[c.index].head,
            "before": c.before,
            "after": c.after,
            "p": c.p,
        }
        for c in shown.changes
    ]
    points = [
        {
            "at": p.at,
            "commit": p.head,
            "reference": p.reference,
            "value": p.value,
            "low": p.low,
            "high": p.high,
            "n": p.n,
            "verdict": p.verdict,
        }
        for p in series.points
    ]
    drift = {"drift": shown.drift} if series.metric == "drift" else {}
    return {
        "target": series.target,
        "kind": series.kind,
        "environment": series.environment,
        "points": points,
        "changes": changes,
        **drift,
    }


def _csv(shown: list[Shown]) -> str:
    """All points, series by series; change_from and change_p stand where a new level begins."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(_COLUMNS)
    for number, each in enumerate(shown):
        changes = {change.index: change for change in each.changes}
        machine = json.dumps(each.series.environment, sort_keys=True)
        for i, p in enumerate(each.series.points):
            change = changes.get(i)
            begins = (change.before, change.p) if change else (None, None)
            measured = (p.value, p.low, p.high, p.n, p.verdict)
            place = (number, each.series.target, machine, p.at, p.head, p.reference)
            rows.writerow([*place, *measured, *begins, each.series.kind])
    return out.getvalue()
