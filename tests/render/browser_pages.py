"""The pages that a browser is shown, made of reports of the tests."""

from __future__ import annotations

from dataclasses import replace

from climbs import CLIMB, LADDER
from gates import SEVERAL
from html_pages import EVIL
from reports import ERROR, SMALL
from test_html_run import REPORT as RUN
from trace_reports import made_report
from tunes import TUNE

from perfaudit.findings import Location
from perfaudit.measurements import Losses
from perfaudit.render.html import render
from perfaudit.render.html.code import around
from perfaudit.render.html.history import GateValue, MetricHistory, metric_page
from perfaudit.render.html.style import DARK, LIGHT

THEMES = {"light": LIGHT, "dark": DARK}
WIDTHS = (400, 1400)


def history() -> str:
    values = [
        GateValue(f"2026-11-{day:02}", f"c{day}", 40.0 + day % 3, 39.0, 44.0, ("x", "y"), "pass")
        for day in range(1, 31)
    ]
    shown = MetricHistory(
        "step_time", EVIL, EVIL, tuple(values), {12: "+5 %"}, (41.0,) * 30, (EVIL,), (EVIL,), (EVIL,), str
    )
    return metric_page("step_time", [shown], {EVIL: EVIL})


WITH_LOSSES = LADDER.with_(
    losses=Losses((4.0, 3.5, 3.0), (4.0, 3.5, 3.0), (0.1,)), phases={"a": 1.0}, patched_phases={"a": 0.5}
)
AROUND = Location("elsewhere.py", 20, 9, 20, 20)
WITHOUT_PATCH = replace(ERROR, location=AROUND, fix=None)
PAGES = {
    "scan": lambda: render(
        SMALL.with_(findings=(*SMALL.findings, replace(ERROR, message=EVIL, rule="PA101"), WITHOUT_PATCH)),
        {AROUND: around([f"        optimizer.step_{n}({'a, ' * n})" for n in range(40)], 20, 20)},
    ),
    "run": lambda: render(RUN),
    "climb": lambda: render(CLIMB.with_(ladder=WITH_LOSSES)),
    "tune": lambda: render(TUNE),
    "gate": lambda: render(SEVERAL),
    "history": history,
    "trace": lambda: render(made_report()),
}
