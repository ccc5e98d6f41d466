"""Patterns as in `.gitignore`: pathspec reads them, and those on which its expressions would backtrack are rewritten."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec, Pattern

MAX_PATTERNS = 2_000  # that hold for one path, each of which is matched with it; people write them by hand
MAX_LENGTH = 1_000  # characters of a pattern
MAX_STARS = 2  # that pathspec may match: with six in one pattern it took 3 s for a name of 60 letters, with eight 150 s

_ANYTHING = "[^/]+"


def is_pattern(text: str) -> bool:
    """Whether a text is a pattern of `.gitignore` of usual length; a lone "!" is none."""
    try:
        pattern_of(text)
    except (ValueError, re.error):  # re.error: `[z-a]`
        return False
    return True


def spec_of(lines: Iterable[str]) -> GitIgnoreSpec:
    """What these patterns say together. Raises ValueError or re.error for one that is none."""
    return join_patterns(map(pattern_of, lines))


def join_patterns(patterns: Iterable[Pattern]) -> GitIgnoreSpec:
    """What these patterns say together, the last that matches deciding."""
    from pathspec import GitIgnoreSpec

    return GitIgnoreSpec(list(patterns))  # type: ignore[arg-type]  # any with an expression does


def pattern_of(line: str) -> Pattern:
    """One pattern. Raises ValueError or re.error for a text that is none, or that is too long."""
    from pathspec import GitIgnoreSpec

    if len(line) > MAX_LENGTH:
        raise ValueError(f"longer than {MAX_LENGTH} characters")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a "possible nested set" in brackets
        if line.count("*") <= MAX_STARS:
            (pattern,) = GitIgnoreSpec.from_lines([line]).patterns
            return pattern
        return _with_many_stars(line)


def _with_many_stars(line: str) -> Pattern:
    from pathspec.pattern import RegexPattern

    text = line if line.endswith("\\ ") else line.rstrip()
    if text.startswith("#"):
        return RegexPattern(None, None)
    include = not text.startswith("!")
    try:
        return RegexPattern(re.compile(_without_backtracking(text if include else text[1:])), include)
    except _Discarded:
        return RegexPattern(None, None)


class _Discarded(Exception):
    """A bracket that nothing closes: git passes over such a pattern."""


def _without_backtracking(text: str) -> str:
    """The expression of a pattern of which each part takes the first place where it fits, and no other is tried.

    That is enough: what follows a star can only have more room behind an earlier place. Only the last part tries
    several, because the end decides whether a folder (the group "ps_d") or the path itself was meant.
    """
    parts = text.split("/")
    is_folder = parts[-1] == ""
    parts = parts[:-1] if is_folder else parts
    anywhere = len(parts) == 1
    parts = parts[1:] if parts and parts[0] == "" else parts
    rows: list[list[str]] = [[]]  # of segments between two `**`
    for part in ["**", *parts] if anywhere else parts:
        if part == "**":
            rows.append([])
        else:
            rows[-1].append(_segment(part))
    open_end = len(rows) > 1 and not rows[-1]  # `a/**` is what lies below
    first, *others = rows
    others = [row for row in others if row]
    if not first and others in ([], [[_ANYTHING]]):  # whatever is there
        return "(?P<ps_d>/)" if is_folder else "/" if open_end and others else "."
    pieces = ["^" + "/".join(first)] if first else []
    for number, row in enumerate(others, start=1):
        joined, before = "/".join(row), "/" if pieces else ""
        if number == len(others):
            gap = "(?:/.+)?" if pieces else "^(?:.+/)?"
            pieces.append(f"{gap}{before}{joined}")
        else:
            gap = "(?:/[^/]++)*?" if pieces else "(?:[^/]++/)*?"
            pieces.append(f"{'' if pieces else '^'}(?>{gap}{before}{joined}(?=/))")
    end = "(?P<ps_d>/)" if is_folder else "/" if open_end else "(?:(?P<ps_d>/)|$)"
    return "".join(pieces) + end


def _segment(text: str) -> str:
    """The expression of what stands between two slashes."""
    rows: list[str] = [""]  # of single characters, between two stars
    at = 0
    while at < len(text):
        character = text[at]
        at += 1
        if character == "*":
            rows.append("")
        elif character == "?":
            rows[-1] += "[^/]"
        elif character == "[":
            end = text.find("]", at + (text[at : at + 1] in ("!", "^")) + 1)
            if end < 0:
                raise _Discarded
            inside = text[at:end]
            inside = "^" + inside[1:] if inside[:1] in ("!", "^") else inside
            rows[-1] += "(?!/)[" + inside.replace("\\", "\\\\") + "]"
            at = end + 1
        else:
            if character == "\\":
                character, at = text[at : at + 1], at + 1
                if not character:
                    raise ValueError("a backslash at the end")
            rows[-1] += re.escape(character)
    if rows == ["", ""]:
        return _ANYTHING
    first, *others = rows
    return first + "".join(
        f"[^/]*{row}" if number == len(others) else f"(?>[^/]*?{row})"
        for number, row in enumerate(others, start=1)
        if row or number == len(others)
    )
