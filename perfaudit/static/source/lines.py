"""Where the lines of a text begin, and the place of a span by line and column."""

from __future__ import annotations

import bisect
import functools
from itertools import accumulate

from perfaudit.expressions import regex
from perfaudit.findings import Location, Span

NEWLINE = regex(r"\r\n|\r|\n")


@functools.lru_cache(maxsize=1)  # asked for by each edit of a file
def line_starts(text: str) -> list[int]:
    """Where the lines of a text begin."""
    if "\r" not in text:
        return [0, *accumulate(len(line) + 1 for line in text.split("\n")[:-1])]
    return [0, *(match.end() for match in NEWLINE.finditer(text))]


def location(path: str, text: str, span: Span) -> Location:
    """Where a span of a text is, by line and column."""
    starts = line_starts(text)
    line, end_line = bisect.bisect_right(starts, span.start), bisect.bisect_right(starts, span.end)
    return Location(path, line, span.start - starts[line - 1] + 1, end_line, span.end - starts[end_line - 1] + 1)
