"""What tests of HTML pages ask of each: which elements it has, that it loads and runs nothing, what its tables and texts say."""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
from html.parser import HTMLParser

EVIL = "</script><script>alert(1)</script><img src=\"http://x/\" onerror='a'>&amp;\x1b[2J\x00|`*b*"
VOID = {"meta", "link", "col"}
ELEMENTS = {
    "html", "head", "meta", "title", "link", "style", "body", "main", "header", "nav", "footer", "section", "a", "p", "h1", "h2",
    "h3", "ul", "ol", "li", "span", "code", "pre", "div", "figure", "figcaption", "details", "summary", "table", "caption",
    "colgroup", "col",
    "thead", "tbody", "tr", "th", "td", "del", "ins", "mark", "strong", "svg", "defs", "pattern", "rect", "path", "line", "text",
    "script",
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

    def of(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of all elements of a name."""
        return [attributes for name, attributes in self.elements if name == tag]


def check_page(text: str) -> Page:
    """The page, after what holds for every one: elements of ours, ids that are unique and exist, nothing loaded, one script."""
    page = Page(text)
    assert {tag for tag, _ in page.elements} <= ELEMENTS
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = {(a["href"] or "")[1:] for a in page.of("a") if (a["href"] or "").startswith("#")}
    assert links | {a["aria-labelledby"] for _, a in page.elements if "aria-labelledby" in a} <= set(ids)
    levels = [int(tag[1]) for tag, _ in page.elements if tag in ("h1", "h2", "h3")]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))  # none is skipped
    for tag, attributes in page.elements:
        assert not any(name.startswith("on") or name in ("src", "style") for name in attributes)
        if tag == "a":
            assert (attributes["href"] or "").startswith(("https://", "#"))
    assert [one["href"] for one in page.of("link")] == ["data:,"]
    assert re.findall(r"url\((?!#)", text) == []
    data, script = page.of("script")
    assert (data, script) == ({"type": "application/json", "id": "report"}, {})
    policy = next(one["content"] or "" for one in page.of("meta") if "http-equiv" in one)
    assert policy.startswith("default-src 'none'; ")
    for name, element in (("style", page.texts["style"]), ("script", page.texts["script"][1:])):
        digest = base64.b64encode(hashlib.sha256("".join(element).encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}'" in policy
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f]", text)
    return page


def readable(text: str) -> str:
    """What a page says, without its style, data and script: a line for each text that is not blank."""
    body = text.partition("<main>")[2].partition("</main>")[0]
    return "\n".join(line for line in re.sub(r"<[^>]*>", "\n", body).splitlines() if line.strip())
