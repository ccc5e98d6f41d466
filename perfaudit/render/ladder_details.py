"""What only an expert asks of a climb: noise, every candidate that was raced, how losses were compared, what does not apply."""

from __future__ import annotations

import math

from perfaudit.measurements import NOT_CLAIMED, Comparison
from perfaudit.render.paint import Paint, colour, wrap
from perfaudit.render.tables import calibration, candidate_name, not_searched, table
from perfaudit.render.words import count, interval_text, unit_of
from perfaudit.report import Report

# By `way`: how a candidate was put in place of the user's code.
_WAYS = {
    "code": "patched code",
    "setting": "set between steps",
    "loader": "a second loader",
    "twin": "a second training",
}


def details(report: Report, paint: Paint, width: int) -> list[tuple[str, str]]:
    """Each detail that there is: what it is called in a list, and its text."""
    found = report.ladder
    assert found is not None
    parts = []
    if report.calibration is not None:
        parts.append(("phases of a step, control, noise", calibration(report, width, verbose=True)))
    if report.comparisons:
        raced = f"every candidate that was raced ({len(report.comparisons)})"
        parts.append((raced, f"raced against your code:\n{_race_table(report.comparisons, paint, width)}"))
    if found.verified:
        checked = "checked" if NOT_CLAIMED in found.verified or found.not_learning else "verified"
        parts.append(("how losses were compared", wrap(f"{checked}: {found.verified}", width, "") + "\n"))
    if found.untested:
        why = "a later patch changes what it wrote, or time or memory were too short"
        text = f"not raced beside the others: {', '.join(found.untested)}, because {why}"
        parts.append(("why some were not raced beside the others", wrap(text, width, "") + "\n"))
    idle = tuple(item for item in report.not_applicable if not item.late)  # those are left, not idle
    if idle:
        shown = not_searched(report.with_(not_applicable=idle), paint, width)
        parts.append((f"{count(len(idle), 'knob')} that cannot matter here", shown))
    return parts


def _race_table(compared: tuple[Comparison, ...], paint: Paint, width: int) -> str:
    columns = ["candidate", "of your step", "verdict", "compared", "put in place"]
    sees = any(c.smallest is not None for c in compared)
    columns += ["resolves"] if sees else []
    rows = []
    for c in sorted(compared, key=lambda c: (not c.has_ratio, c.ratio)):
        is_new = c.basis == "screened" and not math.isfinite(c.high)
        ratio = (
            ("no interval yet" if c.has_ratio else "no ratio yet") if is_new else interval_text(c.ratio, c.low, c.high)
        )
        raced = count(c.n, "time" if unit_of(c) == "comparison" else unit_of(c))
        way = " and ".join(_WAYS[way] for way in c.way.split(" and ")) if c.way else "in fresh processes"
        row = [candidate_name(c), ratio, "stopped early" if c.given_up else c.verdict, raced, way]
        rows.append(row + ([f"{100 * c.smallest:.1f} %" if c.smallest is not None else ""] if sees else []))
    return table(columns, rows, paint is colour, width, ("of your step", "compared"))
