"""A text without its comments and with every text in it empty: names, operators and brackets, which can be searched safely."""

from __future__ import annotations

import re

from perfaudit.expressions import regex
from perfaudit.records import NamedTuple

# A comment, or a text from its first quote on; the letters before it stay in the code.
_TEXT = regex(
    r"#[^\n]*+"
    r'|"""[^"\\]*+(?:(?:\\.|"(?!""))[^"\\]*+)*+"""'
    r"|'''[^'\\]*+(?:(?:\\.|'(?!''))[^'\\]*+)*+'''"
    r'|"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"'
    r"|'[^'\\\n]*+(?:\\.[^'\\\n]*+)*+'",
    re.DOTALL,
)
# Comments, and texts of several lines, each without what would end it.
_COMMENTS = regex(rb"#[^\n]*+|\"\"\"(?:[^\"]++|\"(?!\"\"))*+\"\"\"|'''(?:[^']++|'(?!''))*+'''")


class BareCode(NamedTuple):
    """The code; the f-strings that were in it, from their first quote on; whether it is sure that nothing else was taken out.

    Where it is not sure, only a tree tells what is code. It never is where names are not ASCII, which the parser spells anew.
    """

    code: str
    f_strings: tuple[str, ...]
    is_sure: bool


def bare_code(text: str) -> BareCode:
    """The code of a text whose lines end in a line feed."""
    f_strings: list[str] = []
    texts = 0

    def blank_out(match: re.Match[str]) -> str:
        nonlocal texts
        found = match[0]
        if found[0] == "#":
            return ""
        texts += 1
        start = match.start()
        if "f" in text[max(0, start - 2) : start].lower():
            f_strings.append(found)
        return "'' "  # with a space: two texts side by side would become the beginning of a third

    code = _TEXT.sub(blank_out, text)
    is_sure = '"' not in code and code.count("'") == 2 * texts and code.isascii()
    # A brace that nothing closes there: a quote inside the braces, as Python 3.12 allows it.
    is_sure = is_sure and all(part.count("{") == part.count("}") for part in f_strings)
    return BareCode(code, tuple(f_strings), is_sure)


def without_comments(data: bytes) -> bytes:
    """The bytes of a file without comments and texts of several lines, as far as a quick look tells."""
    return _COMMENTS.sub(b"", data)
