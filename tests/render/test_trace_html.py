"""The HTML page of traces: valid, by itself, escaped, small enough, with the same figures in bars and table."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest
from trace_reports import EVIL, SHARES, made_report

from perfaudit.render import all_formats
from perfaudit.render.html import render
from perfaudit.render.html.page import LIMIT
from perfaudit.render.html.style import DARK, KINDS, LIGHT, WAITS
from perfaudit.report import Report, Skipped, to_json

VOID = {"meta", "link"}
ELEMENTS = {
    "html", "head", "meta", "title", "link", "style", "body", "main", "header", "footer", "section", "a", "p", "h1", "h2",
    "h3", "ul", "ol", "li", "span", "code", "pre", "div", "figure", "details", "summary", "table", "caption", "thead", "tbody",
    "tr", "th", "td", "svg", "defs", "pattern", "rect", "path", "script",
}  # fmt: skip


class Page(HTMLParser):
    """What is in a page; complains of elements that are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)


@pytest.fixture(scope="module")
def hostile() -> str:
    return render(made_report())


def test_only_traces_offer_it() -> None:
    assert "html" not in all_formats()


def test_elements_are_ours_and_ids_are_unique(hostile: str) -> None:
    page = Page(hostile)
    assert {tag for tag, _ in page.elements} <= ELEMENTS
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids)) > 8
    referred = {a["aria-labelledby"] for _, a in page.elements if "aria-labelledby" in a}
    assert referred <= set(ids)


def test_nothing_is_loaded_or_run(hostile: str) -> None:
    for tag, attributes in Page(hostile).elements:
        assert not any(name.startswith("on") or name in ("src", "style") for name in attributes)
        if tag == "script":
            assert attributes["type"] == "application/json"
        if tag == "link":
            assert attributes["href"] == "data:,"
        if tag == "a":
            assert (attributes["href"] or "").startswith(("https://", "#"))
    assert "default-src &#x27;none&#x27;" in hostile
    assert re.findall(r"url\((?!#)", hostile) == []


def test_no_control_character_is_left(hostile: str) -> None:
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f]", hostile)
    assert "alert(1)</script>" not in hostile


def test_the_report_is_in_it_as_data(hostile: str) -> None:
    data = json.loads("".join(Page(hostile).texts["script"]))
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
    assert "timelines" in json.loads("".join(Page(page).texts["script"]))["left_out"]


def test_nothing_could_be_read() -> None:
    page = render(Report("trace", skipped=(Skipped("a.json", "no trace"),)))
    assert "Nothing could be read." in page
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
    assert min(contrast(theme[name], theme["page"]) for name in ("text", "dim", "link")) >= 4.5
    assert min(contrast(theme[name], theme["page"]) for name in KINDS) >= 3
    for number in range(WAITS + 1):
        assert contrast(theme[f"wait{number}"], theme["on-wait4" if number >= 4 else "text"]) >= 4.5
