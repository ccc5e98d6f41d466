"""The page of a metric: counts have whole numbers at the axis, and gates of one day their times."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from perfaudit.render.html.history import GateValue, MetricHistory, metric_page


def page(values: Sequence[float], whens: Sequence[str]) -> str:
    """A page of a metric without changes of level."""
    gates = tuple(
        GateValue(when, "c0ffee", value, None, None, (f"{value:g}", ""), "pass")
        for when, value in zip(whens, values, strict=True)
    )
    shown = MetricHistory("findings", "", "", gates, {}, (), (), (), (), "{:g}".format)
    return metric_page("findings", [shown], {})


def texts(drawn: str) -> list[str]:
    """What stands in the picture."""
    return re.findall(r"<text[^>]*>([^<]*)</text>", drawn)


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([4, 4, 2], ["2", "3", "4"]),
        ([2, 3, 3], ["2", "3"]),
        ([2.0, 2.5, 4.0], ["2", "2.5", "3", "3.5", "4"]),
        ([3, 3, 3], ["3"]),
    ],
)
def test_a_count_has_whole_numbers_at_its_axis(values: list[float], ticks: list[str]) -> None:
    days = [f"2026-11-{day} 12:00" for day in (26, 27, 28)]
    found = texts(page(values, days))
    assert [text for text in found if re.fullmatch(r"[\d.]+", text)] == ticks
    assert [text for text in found if text.startswith("2026")] == ["2026-11-26", "2026-11-27", "2026-11-28"]


def test_gates_of_one_day_have_their_times() -> None:
    found = texts(page([4, 4, 2], [f"2026-11-28 12:{minute}" for minute in (20, 30, 40)]))
    assert [text for text in found if text.startswith("2026")] == [f"2026-11-28 12:{minute}" for minute in (20, 30, 40)]
