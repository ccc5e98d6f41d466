"""The hunks of a unified diff, right by construction: what is alike at both ends is never compared, so that every hunk has
its context and ends without any only where the file does.

`difflib.unified_diff` gives no such promise. From 200 lines on it anchors nothing on lines that repeat, and the blank lines
behind the last change may come out as taken away and put in again; git reads a hunk that ends so as the end of the file.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from perfaudit.records import NamedTuple

MAX_PAIRS = (
    1_000_000  # of equal lines in a part without an anchor; comparing them takes a second, more could take hours
)


class Change(NamedTuple):
    """Lines `start` to `end` of one text that are lines `new_start` to `new_end` of the other, counted from 0."""

    start: int
    end: int
    new_start: int
    new_end: int


def hunks(before: Sequence[str], after: Sequence[str], context: int, above: int = 0) -> Iterator[str]:
    """The lines of all hunks, headers included. above: lines of the file before these texts begin.

    Both texts must have at least `context` equal lines in front of the first change, or begin where the file does; likewise
    at their end.
    """
    for group in _changes_by_hunk(changes(before, after), context):
        yield from _hunk(before, after, group, context, above)


def changes(before: Sequence[str], after: Sequence[str]) -> list[Change]:
    """What has to change, in order; no two of them touch, and what stands between is equal."""
    begin = _equal(before, after)
    tail = _equal(before[begin:][::-1], after[begin:][::-1])
    whole = Change(begin, len(before) - tail, begin, len(after) - tail)
    if _pairs(before, after, whole) <= MAX_PAIRS:
        return list(_changes_in(before, after, whole))
    parts = _between_anchors(before, after, whole)
    return [change for part in parts for change in _changes_in(before, after, part)]


def _equal(a: Sequence[str], b: Sequence[str]) -> int:
    """With how many equal lines both begin."""
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _between_anchors(before: Sequence[str], after: Sequence[str], whole: Change) -> Iterator[Change]:
    """The parts that differ, cut at lines that stand once in each text and in the same order, and at what is equal around."""
    at, new_at = whole.start, whole.new_start
    for place, new_place in [*_anchors(before, after, whole), (whole.end, whole.new_end)]:
        if place < at:  # equal lines behind an earlier anchor reached this one
            continue
        skipped = _equal(before[at:place], after[new_at:new_place])
        at, new_at = at + skipped, new_at + skipped
        tail = _equal(before[at:place][::-1], after[new_at:new_place][::-1])
        if at < place - tail or new_at < new_place - tail:
            yield Change(at, place - tail, new_at, new_place - tail)
        at, new_at = place, new_place


def _anchors(before: Sequence[str], after: Sequence[str], whole: Change) -> list[tuple[int, int]]:
    """Places of lines that stand once in each part: the longest row of them that has the same order in both."""
    counts, new_counts = Counter(before[whole.start : whole.end]), Counter(after[whole.new_start : whole.new_end])
    where = {after[n]: n for n in range(whole.new_start, whole.new_end)}
    shared = [
        (n, where[line])
        for n, line in enumerate(before[whole.start : whole.end], whole.start)
        if counts[line] == 1 and new_counts[line] == 1
    ]
    return _longest_rising(shared)


def _longest_rising(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest row of pairs whose second numbers rise, by patience sorting."""
    tops: list[int] = []  # the lowest number on which a row of each length ends, and below where its pair is
    ends: list[int] = []
    earlier: list[int] = []
    for n, (_, number) in enumerate(pairs):
        length = bisect.bisect_left(tops, number)
        earlier.append(ends[length - 1] if length else -1)
        tops[length : length + 1], ends[length : length + 1] = [number], [n]
    row: list[tuple[int, int]] = []
    at = ends[-1] if ends else -1
    while at >= 0:
        row.append(pairs[at])
        at = earlier[at]
    return row[::-1]


def _changes_in(before: Sequence[str], after: Sequence[str], part: Change) -> Iterator[Change]:
    """The changes in a part; the part itself where equal lines would take too long to pair."""
    pairs = _pairs(before, after, part)
    if pairs > MAX_PAIRS or not pairs:
        yield part
        return
    import difflib  # most changes are between lines that all differ, as above

    a, b = before[part.start : part.end], after[part.new_start : part.new_end]
    for kind, i, j, k, m in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if kind != "equal":
            yield Change(part.start + i, part.start + j, part.new_start + k, part.new_start + m)


def _pairs(before: Sequence[str], after: Sequence[str], part: Change) -> int:
    """How many pairs of equal lines a part has, one of each text."""
    counts = Counter(after[part.new_start : part.new_end])
    return sum(counts[line] for line in before[part.start : part.end])


def _changes_by_hunk(found: list[Change], context: int) -> Iterator[list[Change]]:
    """Changes that share a hunk: no more than twice the context lies between them."""
    begin = 0
    for n, (one, other) in enumerate(pairwise(found), 1):
        if other.start - one.end > 2 * context:
            yield found[begin:n]
            begin = n
    if found:
        yield found[begin:]


def _hunk(before: Sequence[str], after: Sequence[str], group: list[Change], context: int, above: int) -> Iterator[str]:
    first, last = group[0], group[-1]
    lead = min(context, first.start)
    start, end = first.start - lead, min(last.end + context, len(before))
    new_start, new_end = first.new_start - lead, last.new_end + end - last.end
    yield f"@@ -{_range(start, end, above)} +{_range(new_start, new_end, above)} @@\n"
    at = start
    for change in group:
        yield from (f" {line}" for line in before[at : change.start])
        yield from (f"-{line}" for line in before[change.start : change.end])
        yield from (f"+{line}" for line in after[change.new_start : change.new_end])
        at = change.end
    yield from (f" {line}" for line in before[at:end])


def _range(start: int, end: int, above: int) -> str:
    """Lines as a header counts them: from 1, the length left out where it is 1, and of none the line before them."""
    length = end - start
    if length == 1:
        return str(start + above + 1)
    return f"{start + above + (length > 0)},{length}"
