"""HTML by construction: every text is escaped where it enters, so that nothing of a trace or of code becomes markup."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import TypeAlias

from perfaudit.render.words import one_line

LONGEST = 600  # characters of a text in a page; names of kernels with all their templates are longer
EMPTY_ELEMENTS = {"meta", "link", "col", "rect", "path", "line", "circle"}


class Markup(str):
    """Text that is markup already. Only `element`, `together` and constants of these modules make it."""

    __slots__ = ()


Part: TypeAlias = "str | Iterable[Part]"


def element(name: str, /, *parts: Part, **attributes: str | float | bool | None) -> Markup:
    """An element with its attributes and parts, of which only markup is taken as it is.

    `class_` is the attribute `class`, `aria_label` is `aria-label`; attributes that are None or False are left out.
    """
    head = "".join(
        _attribute(key, value) for key, value in attributes.items() if value is not None and value is not False
    )
    if name in EMPTY_ELEMENTS:
        return Markup(f"<{name}{head}>" if name in ("meta", "link", "col") else f"<{name}{head}/>")
    return Markup(f"<{name}{head}>{together(*parts)}</{name}>")


def together(*parts: Part) -> Markup:
    """The parts one after the other."""
    return Markup("".join(_escape(part) if isinstance(part, str) else together(*part) for part in parts))


def shorten(text: str, most: int = LONGEST) -> str:
    """The text, or its beginning with an ellipsis where it is longer."""
    return text if len(text) <= most else text[: most - 1] + "…"


def words(text: str, most: int = 4 * LONGEST) -> Markup:
    """A sentence, with what stands in backticks as code; a script of the page offers to copy our own commands."""
    parts = shorten(text, most).split("`")
    if len(parts) % 2 == 0:  # a backtick without its other
        return together(shorten(text, most))
    return together(_code(part) if number % 2 else part for number, part in enumerate(parts))


def _code(text: str) -> Markup:
    return element("code", text, data_copy="the command" if text.startswith("perfaudit ") else None)


def table(caption: str, columns: Iterable[str], rows: Iterable[Iterable[Part]], class_: str | None = None) -> Markup:
    """A table that scrolls by itself where it is too wide, by keyboard too; the first cell of a row is its heading."""
    head = element("tr", (element("th", column, scope="col") for column in columns))
    body = (_row(list(row)) for row in rows)
    inner = element("table", element("caption", caption), element("thead", head), element("tbody", body), class_=class_)
    return element("div", inner, class_="scroll", tabindex="0", role="region", aria_label=caption)


def section(heading: str, id_: str, *parts: Part) -> Markup:
    """A section with its heading, nothing where it has nothing to show."""
    inner = together(*parts)
    if not inner:
        return inner
    return element("section", element("h2", heading, id=id_), inner, aria_labelledby=id_)


def fold_away(summary: Part, *parts: Part, is_open: bool = False) -> Markup:
    """What is shown on request; nothing where there is nothing to show."""
    inner = together(*parts)
    return element("details", element("summary", summary), inner, open=is_open) if inner else inner


def paragraphs(sentences: Iterable[str], class_: str | None = None) -> Markup:
    """Each sentence that is not empty as a paragraph, with what stands in backticks as code."""
    return together(element("p", words(sentence), class_=class_) for sentence in sentences if sentence)


def bullets(items: Iterable[Part]) -> Markup:
    """A list, nothing for no items."""
    inner = together(element("li", item) for item in items)
    return element("ul", inner, class_="plain") if inner else inner


def command(text: str) -> Markup:
    """A command to be typed, on a line of its own, that a script of the page offers to copy."""
    return element("p", element("code", text, data_copy="the command"), class_="command")


def sentence(text: str) -> str:
    """The text with a capital letter at its beginning."""
    return text[:1].upper() + text[1:]


def _row(cells: list[Part]) -> Markup:
    return element("tr", element("th", cells[0], scope="row"), (_cell(cell) for cell in cells[1:]))


def _cell(cell: Part) -> Markup:
    return cell if isinstance(cell, Markup) and cell.startswith("<td") else element("td", cell)


def _attribute(key: str, value: str | float | bool) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    said = f"{value:.6g}" if isinstance(value, float) else str(value)
    return f' {name}="{html.escape(one_line(said))}"'


def _escape(text: str) -> str:
    return text if isinstance(text, Markup) else html.escape(one_line(text))
