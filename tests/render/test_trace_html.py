"""The HTML page of traces: valid, by itself, escaped, small enough, with the same figures in bars and table."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from html_pages import EVIL, Page, check_page
from trace_reports import SHARES, made_report

from perfaudit.render.html import render
from perfaudit.render.html.page import LIMIT
from perfaudit.render.html.style import BEHIND_TEXT, DARK, KINDS, LIGHT, SIGNS, WAITS
from perfaudit.report import Report, Skipped, to_json
from perfaudit.traces import IdleWhere


@pytest.fixture(scope="module")
def hostile() -> str:
    return render(made_report())


def test_the_page_is_by_itself(hostile: str) -> None:
    assert len([one for _, one in check_page(hostile).elements if "id" in one]) > 8


def test_nothing_of_a_trace_is_markup(hostile: str) -> None:
    assert "alert(1)</script>" not in hostile


def test_the_report_is_in_it_as_data(hostile: str) -> None:
    data = json.loads(Page(hostile).texts["script"][0])
    assert data == json.loads(json.dumps(to_json(made_report())))
    assert data["trace"]["ranks"][0]["kernels"][0]["name"] == EVIL


def test_bars_and_table_have_the_same_figures(hostile: str) -> None:
    widths = [a["width"] for tag, a in Page(hostile).elements if tag == "rect" and (a.get("width") or "").endswith("%")]
    assert widths == [f"{100 * share:.2f}%" for share in SHARES.values()] * 2
    table = hostile.partition("<caption>Shares of the window</caption>")[2].partition("</table>")[0]
    assert re.findall(r"<td>([\d.]+) %</td>", table) == [f"{100 * share:.1f}" for share in SHARES.values()] * 2


def test_a_thousand_ranks_fit_and_what_is_left_out_is_said() -> None:
    report = made_report(1024, 1500, 120, "kernel" * 40)
    page = render(report)
    assert len(page.encode()) <= LIMIT
    assert "64 of 1,024 ranks are shown" in page
    assert "rank 1023 cuda:0" in page  # others wait for it
    assert "Left out for its size: timelines" in page
    assert "timelines" in json.loads(Page(page).texts["script"][0])["left_out"]


def test_nothing_could_be_read() -> None:
    page = render(Report("trace", skipped=(Skipped("a.json", "no trace"),)))
    assert "Nothing could be read" in page
    assert "no trace" in page
    assert "Nothing worth doing" not in page
    assert "#findings" not in page


def brightness(colour: str) -> float:
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio"""
    low, high = sorted((brightness(one), brightness(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_contrast(theme: dict[str, str]) -> None:
    assert min(contrast(theme[name], theme["page"]) for name in ("text", "dim", "link", "error", "warning")) >= 4.5
    assert min(contrast(theme[name], theme["page"]) for name in (*KINDS, *SIGNS)) >= 3
    assert min(contrast(theme["text"], theme[name]) for name in BEHIND_TEXT) >= 4.5
    for number in range(WAITS + 1):
        assert contrast(theme[f"wait{number}"], theme["on-wait4" if number >= 4 else "text"]) >= 4.5


def test_where_idle_time_lies_has_no_empty_rows_and_columns() -> None:
    report = made_report(2, name="mod")
    assert report.traces is not None
    where = (IdleWhere("data", 0.1, "loading"), IdleWhere("launch", 0.2), IdleWhere("sync", 0.1, "", "aten::item"))
    ranks = tuple(replace(rank, where=where) for rank in report.traces.ranks)
    page = render(report.with_(traces=replace(report.traces, ranks=ranks)))
    table = page.partition("<caption>For each cause of idle time")[2].partition("</table>")[0]
    head = table.partition("</thead>")[0]
    assert re.findall(r"<th[^>]*>([^<]+)</th>", head) == ["device", "of the time", "cause", "annotation", "operator"]
    assert table.count("waiting for data") == table.count("aten::item") == 2
    assert "launching" not in table
    nowhere = tuple(replace(rank, where=where[1:2]) for rank in report.traces.ranks)
    assert "Where idle time lies" not in render(report.with_(traces=replace(report.traces, ranks=nowhere)))


def test_without_marked_steps_the_window_is_drawn() -> None:
    report = made_report(1, name="mod")
    assert report.traces is not None
    assert "The step that is nearest to the median" in render(report)
    page = render(report.with_(traces=replace(report.traces, ranks=(replace(report.traces.ranks[0], steps=0),))))
    assert "The whole window, because no steps are marked." in page
    assert "The step that is nearest" not in page and "One step" not in page


def test_the_name_of_a_file_keeps_its_head_and_its_end() -> None:
    report = made_report(1, name="mod")
    assert report.traces is not None
    rank = replace(
        report.traces.ranks[0], rank=None, file="folder/model_of_a_very_long_name_of_somebody_rank_7.pt.trace.json"
    )
    page = render(report.with_(traces=replace(report.traces, ranks=(rank,))))
    assert "model_of_a_very_long..rank_7.pt.trace.json cuda:0" in page


def test_the_verdict_is_a_sentence_whose_numbers_stay_whole() -> None:
    report = made_report(1, name="mod")
    assert report.traces is not None
    page = render(report.with_(traces=replace(report.traces, verdict="the device computes for 40 % of the time")))
    assert "The device computes for 40\u00a0% of the time</p>" in page
