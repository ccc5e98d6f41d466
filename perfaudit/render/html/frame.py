"""The frame of every page: head, policy, style, the way to its sections, the report as data, and one script that copies.

Drawn as SVG and tables by Python; docs/html.md says which libraries were weighed. All of them need JavaScript, without which this
page must be whole: the script only adds buttons.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from perfaudit.render.html.markup import Markup, element, together
from perfaudit.render.html.style import style

OWN_BYTES = 5000  # of the frame without style and script, at most
LEAST_SECTIONS = 3  # of a page that lists them at its beginning
_HEADING = re.compile(r'<h2 id="([^"]+)">([^<]*)</h2>')


@functools.cache
def script() -> str:
    """What copies. The page is whole without it."""
    return Path(__file__).with_name("page.js").read_text(encoding="utf-8")


def frame_bytes() -> int:
    """How much of a page is not its body and data."""
    return len(style().encode()) + len(script().encode()) + OWN_BYTES


def whole_page(title: str, header: Markup, body: Markup, footer: Markup, data: Markup) -> str:
    """The whole page. header, body, footer: what is read, in this order; data: the element with the report."""
    sheet = style()
    policy = (
        f"default-src 'none'; style-src '{_digest(sheet)}'; script-src '{_digest(script())}'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", title),
        element("link", rel="icon", href="data:,"),
        element("style", Markup(sheet)),
    )
    sections = _HEADING.findall(body)
    first = next((id_ for id_, _ in sections if id_ == "findings"), sections[0][0] if sections else "")
    skip = element(
        "a", f"Skip to the {'findings' if first == 'findings' else 'details'}", href=f"#{first}", class_="skip"
    )
    main = element("main", header, _contents(sections), body, element("footer", footer))
    said = element("p", role="status", id="said", class_="spoken")
    whole = element("body", skip if first else "", main, said, data, element("script", Markup(script())))
    return f"<!DOCTYPE html>\n{element('html', head, whole, lang='en')}\n"


def _contents(sections: Sequence[tuple[str, str]]) -> Markup:
    """Links to the sections of a page that has several."""
    if len(sections) < LEAST_SECTIONS:
        return Markup()
    links = (element("li", element("a", Markup(said), href=f"#{id_}")) for id_, said in sections)
    return element("nav", element("ul", together(links)), aria_label="On this page", class_="contents")


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
