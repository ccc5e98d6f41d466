"""Code in a page: the lines around a place, and a patch with both sides beside each other and as text to be copied."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from perfaudit.render.html.markup import Markup, Part, element, fold_away, together, words
from perfaudit.render.words import inert, one_line

MOST_PATCH = 6000  # characters of a patch
LEAST_COMMON = 4  # characters of two lines, for what differs to be marked
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Lines of a file around a place. first: number of the first of them; here: first and last number of the place."""

    lines: tuple[str, ...]
    first: int
    here: tuple[int, int]


def excerpt_table(excerpt: Excerpt, name: str) -> Markup:
    """The lines with their numbers, those of the place marked."""
    rows = []
    for number, line in enumerate(excerpt.lines, start=excerpt.first):
        is_here = excerpt.here[0] <= number <= excerpt.here[1]
        cells = element("th", str(number), scope="row"), element("td", element("code", one_line(line)))
        rows.append(element("tr", *cells, class_="here" if is_here else None))
    # A caption that is only spoken is a row to the layout, which would make both columns equally wide.
    widths = element("colgroup", element("col", class_="no"), element("col"))
    return element("table", _caption(f"Lines of {name}"), widths, element("tbody", rows), class_="code")


def patch(diff: str, name: str, whole: str | None = None) -> Markup:
    """A unified diff with both sides beside each other, and as text. whole: the text that may be copied, None for none."""
    cut = len(diff) > MOST_PATCH
    shown = diff[:MOST_PATCH]
    lines = shown.split("\n")
    text = together(together(line, Markup("\n")) for line in (lines[:-1] if lines[-1] == "" else lines))
    may_copy = whole is not None and not cut and is_copyable(whole)
    pre = element("pre", text, tabindex="0", aria_label=f"Patch of {name}", data_copy="the patch" if may_copy else None)
    more = element("p", words("Cut here; `--format json` has all of it."), class_="dim") if cut else ""
    return together(_side_by_side(shown, name), fold_away("The patch as text", pre, more), more)


def is_copyable(diff: str) -> bool:
    """Whether what a browser copies is the patch to the byte: no sign stands for another, and no end of a line changes."""
    return bool(diff) and "\r" not in diff and inert(diff) == diff and "\ufeff" not in diff


def copyable_diff(diff: str, encoding: str) -> str | None:
    """The patch where it can be copied as text: the bytes of other encodings are not what a browser hands over."""
    return diff if encoding.lower().replace("-", "") == "utf8" or diff.isascii() else None


def _side_by_side(diff: str, name: str) -> Markup:
    rows = [_hunk_row() if pair is None else _pair_row(*pair) for pair in _pairs(diff)]
    if not rows:
        return Markup()
    head = element("tr", (element("th", said, scope="col", class_=c) for said, c in _HEADINGS))
    caption = _caption(f"{name} before and after the patch")
    return element("table", caption, element("thead", head), element("tbody", rows), class_="diff")


_HEADINGS = (("", "no"), ("before", "side"), ("", "no"), ("after", "side"))
_Side = tuple[int, str] | None  # number and text of a line
_Pair = tuple[_Side, _Side]


def _pairs(diff: str) -> Iterator[_Pair | None]:
    """Lines beside each other; None between two hunks."""
    old = new = 0  # numbers of the next lines
    left = [0, 0]  # lines of the hunk that are still to come, of the old and the new text
    removed: list[tuple[int, str]] = []
    added: list[tuple[int, str]] = []
    is_first = True
    for line in [*diff.split("\n"), ""]:
        sign, text = line[:1], line[1:].rstrip("\r")
        if sign == "-" and left[0]:
            removed.append((old, text))
            old, left[0] = old + 1, left[0] - 1
            continue
        if sign == "+" and left[1]:
            added.append((new, text))
            new, left[1] = new + 1, left[1] - 1
            continue
        if sign == "\\":  # "\ No newline at end of file"
            continue
        yield from zip_longest(removed, added)
        removed, added = [], []
        if found := _HUNK.match(line):
            if not is_first:
                yield None
            is_first = False
            old, new, left = int(found[1]), int(found[3]), [int(found[2] or 1), int(found[4] or 1)]
        elif sign == " " and left[0]:
            yield (old, text), (new, text)
            old, new, left = old + 1, new + 1, [left[0] - 1, left[1] - 1]


def _hunk_row() -> Markup:
    return element("tr", element("td", "…", colspan="4"), class_="gap")


def _pair_row(old: _Side, new: _Side) -> Markup:
    if old is not None and new is not None and old[1] == new[1]:
        return element(
            "tr",
            _number(old),
            element("td", element("code", old[1])),
            _number(new),
            element("td", element("code", new[1])),
            class_="same",
        )
    before, after = _mark_differences(old[1] if old else "", new[1] if new else "") if old and new else (None, None)
    left, right = _cell(old, before, "del", "removed"), _cell(new, after, "ins", "added")
    return element("tr", _number(old), left, _number(new), right, class_="changed")


def _number(side: _Side) -> Markup:
    return element("td", str(side[0]) if side else "", class_="no" if side else "no none")


def _cell(side: _Side, marked: Part | None, name: str, class_: str) -> Markup:
    if side is None:
        return element("td", class_="none")
    return element("td", element(name, element("code", marked if marked is not None else side[1])), class_=class_)


def _mark_differences(before: str, after: str) -> tuple[Part, Part]:
    """Both texts, with the words that differ marked; unmarked where they have little in common."""
    shorter = min(len(before), len(after))
    start = next((at for at in range(shorter) if before[at] != after[at]), shorter)
    end = next((at for at in range(shorter - start) if before[-1 - at] != after[-1 - at]), shorter - start)
    while start and _is_word(before[start - 1]) and any(_is_word(text[start : start + 1]) for text in (before, after)):
        start -= 1
    while end and _is_word(before[-end]) and any(_is_word(text[-end - 1 : -end]) for text in (before, after)):
        end -= 1
    if len(before[:start].strip()) + len(before[len(before) - end :].strip()) < LEAST_COMMON:
        return before, after
    return _with_mark(before, start, end), _with_mark(after, start, end)


def _is_word(sign: str) -> bool:
    return sign.isalnum() or sign == "_"


def _with_mark(text: str, start: int, end: int) -> Part:
    changed = text[start : len(text) - end]
    return text[:start], element("mark", changed) if changed else "", text[len(text) - end :]


def _caption(text: str) -> Markup:
    return element("caption", text, class_="spoken")


def around(lines: Sequence[str], first: int, last: int, margin: int = 3) -> Excerpt:
    """An excerpt of a text's lines around those from first to last, which count from 1; of a long place its beginning."""
    last = min(last, first + 11)
    start, end = max(1, first - margin), min(len(lines), last + margin)
    return Excerpt(tuple(lines[start - 1 : end]), start, (first, last))
