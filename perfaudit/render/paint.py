"""Colour for terminals: a word in a style, or as it is."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from perfaudit.expressions import regex

Paint = Callable[[str, str], str]

_CODES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "cyan": "36",
    "bold green": "1;32",
    "bold red": "1;31",
}

_ESCAPES = regex("\x1b\\[[0-9;]*m")
_BOLD = regex("\x1b\\[1m([^\x1b\n]*)\x1b\\[0m")
_WORDS = regex(r"(?:`[^`\n]*`|(?<=\d) %|\S)+")  # "(`a b`," and "12 %," are one


def colour(text: str, style: str) -> str:
    """The text in a style, with the escape codes every terminal knows."""
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m"


def plain(text: str, style: str) -> str:
    """The text as it is."""
    return text


def link_places(text: str, addresses: Mapping[str, str]) -> str:
    """The text, in which a terminal opens a file by a click on its place (OSC 8, which others pass over).

    addresses: a URI of each place; only one that stands in bold by itself, as at the head of a finding, gets its link.
    """

    def link(found: re.Match[str]) -> str:
        uri = addresses.get(found[1])
        return f"\x1b]8;;{uri}\x1b\\{found[0]}\x1b]8;;\x1b\\" if uri is not None else found[0]

    return _BOLD.sub(link, text) if addresses else text


def wrap(text: str, width: int, indent: str) -> str:
    """The text in lines of at most `width` characters, each after `indent`; colours do not count.

    Code in backticks stays whole, also where it is longer than a line: it is there to be copied.
    """
    lines = [""]
    for word in _WORDS.findall(text):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if lines[-1] and len(indent) + len(_ESCAPES.sub("", longer)) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return "\n".join(indent + line for line in lines)


def hanging(first: str, text: str, width: int) -> str:
    """The text behind `first`, which later lines leave blank: a finding behind its number. Where all fits, it stays as it is."""
    if len(first) + len(_ESCAPES.sub("", text)) <= width:
        return first + text
    return first + wrap(text, width, " " * len(first))[len(first) :]


def painted_diff(diff: str, paint: Paint) -> list[str]:
    """The lines of a unified diff, additions green and removals red."""
    lines = []
    for line in diff.split("\n")[:-1]:
        style = "bold" if line.startswith(("---", "+++")) else {"+": "green", "-": "red", "@": "cyan"}.get(line[:1])
        lines.append(paint(line, style) if style else line)
    return lines
