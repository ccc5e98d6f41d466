"""Changes as unified diffs that `patch -p1` and `git apply` take: of edits, of two texts, of a file with its encoding."""

from __future__ import annotations

import bisect
import functools
import os
import re

from perfaudit.findings import Edit, Span
from perfaudit.static.edit import Edits, apply
from perfaudit.static.line_diff import hunks

_MARKED = "utf-8-sig"  # what Python calls UTF-8 behind a byte-order mark
CONTEXT_LINES = 3  # around a change in a diff, as `diff -u` shows them


def diff_of(path: str, text: str, edits: Edits) -> str:
    """The `diff` of one set of edits. Only the lines around them are looked at: a file with 100,000 findings has as many diffs.

    Raises ValueError where two edits overlap.
    """
    if not edits:
        return ""
    starts = _line_starts(text)
    first = bisect.bisect_right(starts, min(edit.span.start for edit in edits)) - 1 - (CONTEXT_LINES + 1)
    last = bisect.bisect_right(starts, max(edit.span.end for edit in edits)) + CONTEXT_LINES + 1
    above = max(first, 0)
    begin, end = starts[above], starts[last] if last < len(starts) else len(text)
    inside = tuple(Edit(Span(e.span.start - begin, e.span.end - begin), e.text) for e in edits)
    return diff(path, text[begin:end], apply(text[begin:end], inside), above)


@functools.lru_cache(maxsize=1)  # asked for by each finding of a file
def _line_starts(text: str) -> list[int]:
    """Where lines begin as git sees them, the empty one behind the last included."""
    return [0, *(match.end() for match in re.finditer("\n", text))]


def diff(path: str, before: str, after: str, above: int = 0) -> str:
    """Unified diff that `patch -p1` and `git apply` take; empty when nothing changed. Line ends stay as they are.

    Only the lines from the first change to the last are compared. above: lines of the file before these texts begin.
    """
    if before == after:
        return ""
    start, end, other_end = _changed_lines(before, after)
    a, b = _split_keepends(before[start:end]), _split_keepends(after[start:other_end])
    above += before.count("\n", 0, start)
    head = f"--- {_name_in_diff(f'a/{path}')}\n+++ {_name_in_diff(f'b/{path}')}\n"
    lines = hunks(a, b, CONTEXT_LINES, above)
    return head + "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines)


def plain(encoding: str) -> str:
    """The encoding of what follows a byte-order mark."""
    return "utf-8" if encoding == _MARKED else encoding


def diff_of_file(path: str, before: str, after: str, encoding: str) -> str:
    """The `diff` of two whole texts of a file, its byte-order mark included: git compares bytes."""
    mark = "\ufeff" if encoding == _MARKED else ""
    return diff(path, mark + before, mark + after)


def in_bytes(diff: str, encoding: str) -> bytes:
    """A diff as git reads it: names as the file system has them, lines in the encoding of the file."""
    begin = diff.find("\n", diff.find("\n") + 1) + 1
    return os.fsencode(diff[:begin]) + diff[begin:].encode(plain(encoding))


def _name_in_diff(name: str) -> str:
    """A name as git writes it: in quotes where it holds a control character, a quote or a backslash."""
    if re.search(r'[\x00-\x1f\x7f"\\]', name):
        signs = {"\n": "\\n", "\t": "\\t", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
        quoted = "".join(signs.get(c) or (f"\\{ord(c):03o}" if ord(c) < 32 or ord(c) == 127 else c) for c in name)
        return f'"{quoted}"'
    return f"{name}\t" if " " in name else name  # else a name is read up to its first space


def _changed_lines(before: str, after: str) -> tuple[int, int, int]:
    """Where the lines that differ begin, and where they end in each text, with the lines around that a diff shows."""
    alike = _alike(before, after)
    start = alike
    for _ in range(CONTEXT_LINES + 1):
        start = before.rfind("\n", 0, max(start - 1, 0)) + 1 if start else 0
    same_end = _alike(before[alike:][::-1], after[alike:][::-1])
    end = len(before) - same_end
    for _ in range(CONTEXT_LINES + 1):
        end = before.find("\n", end) + 1 or len(before)
    return start, end, end - len(before) + len(after)


def _alike(a: str, b: str) -> int:
    """With how many characters both texts begin; by halves, because comparing slices is fast."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _split_keepends(text: str) -> list[str]:
    """Lines as git sees them: only "\\n" ends one."""
    lines = text.split("\n")
    return [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
