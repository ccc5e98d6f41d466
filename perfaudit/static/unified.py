"""Unified diffs read back: the edits that one means, or why it does not fit. Nothing is guessed and nothing is moved."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate

from perfaudit.findings import Edit, Span
from perfaudit.static import edit
from perfaudit.static.edit import Edits

_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@\n")
_OPEN_END = "\\ No newline at end of file\n"


class DoesNotFit(ValueError):
    """A diff that is none, is of another file, or does not fit the text it is applied to; the message goes on a path."""


@dataclass(slots=True)
class _Hunk:
    """old, new: index of its first line on each side, from 0. lines: sign and line, with the line end it has."""

    old: int
    new: int
    lines: list[tuple[str, str]] = field(default_factory=list)

    def side(self, sign: str) -> list[str]:
        """The lines of the text before ("-") or after ("+")."""
        return [line for kind, line in self.lines if kind in (" ", sign)]


def header(path: str) -> str:
    """The two lines with which the diff of this file begins."""
    return "".join(lines_of(edit.diff(path, "", "\n"))[:2])


def lines_of(text: str) -> list[str]:
    """Lines with their ends, as git sees them: only a line feed ends one."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def edits(path: str, diff: str, text: str) -> Edits:
    """What a diff of this file, as `edit.diff` writes it, does to the text: one edit of whole lines for each change.

    Raises DoesNotFit unless every line stands exactly where the diff has it.
    """
    head = header(path)
    if not diff.startswith(head):
        raise DoesNotFit("its diff is of another file")
    lines = lines_of(text)
    starts = [0, *accumulate(len(line) for line in lines)]
    found: list[Edit] = []
    result: list[str] = []
    end = 0
    for hunk in _hunks(diff[len(head) :]):
        result += lines[end : hunk.old]
        old = hunk.side("-")
        if hunk.old < end or hunk.new != len(result) or lines[hunk.old : hunk.old + len(old)] != old:
            raise DoesNotFit("its diff does not fit the text")
        end = hunk.old + len(old)
        result += hunk.side("+")
        found += _edits_of(hunk, starts)
    if not all(line.endswith("\n") for line in [*result, *lines[end:]][:-1]):
        raise DoesNotFit("its diff ends the text before its end")
    if not found:
        raise DoesNotFit("its diff changes nothing")
    return tuple(found)


def undoing(path: str, diff: str) -> str:
    """The diff that takes this one back. Raises DoesNotFit where it cannot be read."""
    head = header(path)
    if not diff.startswith(head):
        raise DoesNotFit("its diff is of another file")
    turned = {"+": "-", "-": "+"}
    parts = [head]
    for hunk in _hunks(diff[len(head) :]):
        old, new = len(hunk.side("+")), len(hunk.side("-"))
        parts.append(f"@@ -{hunk.new + (old > 0)},{old} +{hunk.old + (new > 0)},{new} @@\n")
        for sign, line in hunk.lines:
            parts.append(turned.get(sign, sign) + line + ("" if line.endswith("\n") else "\n" + _OPEN_END))
    return "".join(parts)


def _edits_of(hunk: _Hunk, starts: list[int]) -> Iterator[Edit]:
    first = last = hunk.old
    added: list[str] = []
    for sign, line in [*hunk.lines, (" ", "")]:
        if sign == "+":
            added.append(line)
            continue
        if sign == "-":
            last += 1
            continue
        if added or last > first:
            yield Edit(Span(starts[first], starts[last]), "".join(added))
        first = last = last + 1
        added = []


def _hunks(body: str) -> Iterator[_Hunk]:
    lines = lines_of(body)
    at = 0
    while at < len(lines):
        match = _HUNK.fullmatch(lines[at])
        if match is None:
            raise DoesNotFit("its diff cannot be read")
        old, old_count, new, new_count = (int(part) if part is not None else 1 for part in match.groups())
        hunk = _Hunk(old - (old_count > 0), new - (new_count > 0))
        at += 1
        while old_count or new_count:
            sign, line = lines[at][:1] if at < len(lines) else "", lines[at][1:] if at < len(lines) else ""
            at += 1
            if at < len(lines) and lines[at] == _OPEN_END:
                line = line.removesuffix("\n")
                at += 1
            old_count -= sign in (" ", "-")
            new_count -= sign in (" ", "+")
            if sign not in (" ", "-", "+") or min(old_count, new_count) < 0:
                raise DoesNotFit("its diff cannot be read")
            hunk.lines.append((sign, line))
        yield hunk
