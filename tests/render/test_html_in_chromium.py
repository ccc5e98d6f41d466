"""Pages in a real browser: nothing complains and nothing is asked for, both themes, narrow and wide, by keyboard, copied.

PERFAUDIT_SCREENSHOTS names a folder that gets each page as it looks.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import chromium
import pytest
from browser_pages import PAGES, THEMES, WIDTHS
from reports import DIFF, ERROR, SMALL

from perfaudit.findings import Fix
from perfaudit.render.html import render

if not chromium.PROGRAM:
    pytest.skip("there is no Chromium here", allow_module_level=True)


@pytest.fixture(scope="module")
def page() -> Iterator[chromium.Tab]:
    with chromium.tab() as found:
        yield found


@pytest.mark.parametrize("name", PAGES)
def test_a_page_in_a_browser(page: chromium.Tab, tmp_path: Path, name: str) -> None:
    file = tmp_path / f"{name}.html"
    file.write_text(PAGES[name]())
    page.open(file)
    for width in WIDTHS:
        layouts = []
        for theme, colours in THEMES.items():
            page.look(width, theme)
            page.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
            assert page.value("document.documentElement.scrollWidth - innerWidth") <= 0
            shown = page.value("getComputedStyle(document.body).backgroundColor")
            red, green, blue = (int(colours["page"][n : n + 2], 16) for n in (1, 3, 5))
            assert shown == f"rgb({red}, {green}, {blue})"
            assert page.value(TEXT_OUTSIDE) == []
            assert page.value(INDENTATION_ALONE) == []
            assert page.value(NUMBERS_OF_LINES) <= 60
            layouts.append(page.value(LAYOUT))
            if folder := os.environ.get("PERFAUDIT_SCREENSHOTS"):
                Path(folder).mkdir(parents=True, exist_ok=True)
                picture = page.ask("Page.captureScreenshot", captureBeyondViewport=True)["data"]
                Path(folder, f"{name}-{width}-{theme}.png").write_bytes(base64.b64decode(picture))
        assert layouts[0] == layouts[1]  # a theme changes colours and nothing else
        assert len(layouts[0]) > 50
    assert page.said("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded") == []
    asked = [one["request"]["url"] for one in page.said("Network.requestWillBeSent")]
    assert [url for url in asked if not url.startswith(("data:", file.as_uri()))] == []
    names = [
        node["name"].get("value")
        for node in nodes(page)
        if node["role"].get("value") in ("image", "img", "region", "table")
    ]
    assert all(names)


# Where each element is.
LAYOUT = """
[...document.querySelectorAll("main *")].map((one) => {
  const box = one.getBoundingClientRect();
  return [box.left, box.top, box.width, box.height].map(Math.round).join(" ");
})
"""
# Texts of pictures, and headings of tables, that stick out of the page.
TEXT_OUTSIDE = """
[...document.querySelectorAll("svg text, caption:not(.spoken)")].filter((text) => {
  const box = text.getBoundingClientRect();
  return box.width && (box.left < -1 || box.right > innerWidth + 1);
}).map((text) => text.textContent)
"""
# Lines of code whose indentation stands on a line of its own, since a long word behind it has no room there.
INDENTATION_ALONE = """
[...document.querySelectorAll(".diff code, .code code")].filter((code) => {
  const text = document.createTreeWalker(code, NodeFilter.SHOW_TEXT).nextNode();
  const at = text ? text.data.search(/\\S/) : -1;
  if (at < 1 || !code.getClientRects().length) return false;
  const [first, word] = [document.createRange(), document.createRange()];
  first.setStart(text, 0), first.setEnd(text, 1), word.setStart(text, at), word.setEnd(text, at + 1);
  return word.getBoundingClientRect().top > first.getBoundingClientRect().bottom - 1;
}).map((code) => code.textContent)
"""
# Pixels of the widest column of numbers of lines.
NUMBERS_OF_LINES = "Math.max(0, ...[...document.querySelectorAll('.code th, .diff .no')].map((one) => one.offsetWidth))"


def nodes(page: chromium.Tab) -> list[chromium.Json]:
    """What a screen reader is told, but for what is hidden from it."""
    return [
        node for node in page.ask("Accessibility.getFullAXTree")["nodes"] if not node.get("ignored") and "name" in node
    ]


def test_the_keyboard_reaches_everything(page: chromium.Tab, tmp_path: Path) -> None:
    file = tmp_path / "scan.html"
    file.write_text(PAGES["scan"]())
    page.open(file)
    page.look(1400, "light")
    page.value("document.querySelectorAll('details').forEach(one => one.open = true)")
    reachable = page.value("document.querySelectorAll('a[href], button, summary, [tabindex=\"0\"]').length")
    seen = []
    for _ in range(reachable + 5):
        page.press("Tab")
        at = page.value(
            "(() => { const one = document.activeElement; if (one === document.body) return ''; one.id ||= `at${Math.random()}`; "
            "return [one.id, getComputedStyle(one).outlineStyle] })()"
        )
        if not at or at[0] in [one for one, _ in seen]:
            break
        seen.append(at)
    assert len(seen) == reachable > 10
    assert {outline for _, outline in seen} == {"solid"}  # where one is can be seen
    page.value("document.querySelector('.skip').focus()")
    page.press("Enter")
    assert page.value("location.hash") == "#findings"


def test_a_patch_is_copied_to_the_byte(page: chromium.Tab, tmp_path: Path) -> None:
    file = tmp_path / "copy.html"
    diff = DIFF.replace("import torch", "import torch  # größe <b> & \\t\t")
    file.write_text(render(SMALL.with_(findings=(replace(ERROR, fix=Fix("x", "safe", diff=diff)),))))
    page.open(file)
    page.value(
        "window.copied = []; navigator.clipboard.writeText = async (text) => { window.copied.push(text) }; "
        "document.querySelectorAll('button.copy').forEach(one => one.click())"
    )
    copied = page.value("new Promise(done => setTimeout(() => done(window.copied), 50))")
    assert diff in copied
    assert "perfaudit explain PA000" in copied or any(text.startswith("perfaudit ") for text in copied)
    assert page.value("document.getElementById('said').textContent").startswith("Copied the ")


def test_without_javascript_the_page_is_whole(page: chromium.Tab, tmp_path: Path) -> None:
    file = tmp_path / "plain.html"
    file.write_text(PAGES["scan"]())
    page.open(file)
    with_script = page.value("document.querySelector('main').innerText.replaceAll(/ ?Copy/g, '')")
    page.ask("Emulation.setScriptExecutionDisabled", value=True)
    page.open(file)
    page.ask("Emulation.setScriptExecutionDisabled", value=False)
    assert page.value("document.querySelectorAll('button').length") == 0
    without = page.value("document.querySelector('main').innerText")
    assert without.split() == with_script.split()
