"""Sets of instants as sorted lists of (start, end) that do not overlap."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import frexp

Intervals = list[tuple[float, float]]


def union(pairs: Iterable[tuple[float, float]]) -> Intervals:
    """All instants of any of the pairs, which may overlap and come in any order; empty ones vanish."""
    merged: Intervals = []
    last_start, last_end = 0.0, float("-inf")
    for start, end in sorted(pairs):
        if end <= start:
            continue
        if start <= last_end:
            if end > last_end:
                last_end = end
                merged[-1] = (last_start, end)
        else:
            last_start, last_end = start, end
            merged.append((start, end))
    return merged


def intersection(first: Sequence[tuple[float, float]], second: Sequence[tuple[float, float]]) -> Intervals:
    """The instants of both."""
    found: Intervals = []
    here = there = 0
    while here < len(first) and there < len(second):
        start = max(first[here][0], second[there][0])
        end = min(first[here][1], second[there][1])
        if start < end:
            found.append((start, end))
        if first[here][1] < second[there][1]:
            here += 1
        else:
            there += 1
    return found


def difference(first: Sequence[tuple[float, float]], second: Sequence[tuple[float, float]]) -> Intervals:
    """The instants of the first that are not in the second."""
    left: Intervals = []
    there = 0
    for start, end in first:
        while there < len(second) and second[there][1] <= start:
            there += 1
        index = there
        while index < len(second) and second[index][0] < end:
            if second[index][0] > start:
                left.append((start, second[index][0]))
            start = max(start, second[index][1])
            index += 1
        if start < end:
            left.append((start, end))
    return left


def clip(intervals: Sequence[tuple[float, float]], start: float, end: float) -> Intervals:
    """The instants between start and end."""
    return intersection(intervals, [(start, end)]) if start < end else []


def total(intervals: Iterable[tuple[float, float]]) -> float:
    """How long all of it is."""
    return sum(end - start for start, end in intervals)


class Total:
    """How much of some intervals lies between two instants, asked for often."""

    def __init__(self, intervals: Sequence[tuple[float, float]]) -> None:
        self._starts = [start for start, _ in intervals]
        self._intervals = intervals
        self._before = [0.0]
        for start, end in intervals:
            self._before.append(self._before[-1] + end - start)

    def up_to(self, time: float) -> float:
        """How much lies before an instant."""
        index = bisect_right(self._starts, time) - 1
        if index < 0:
            return 0.0
        start, end = self._intervals[index]
        return self._before[index] + min(time, end) - start

    def between(self, start: float, end: float) -> float:
        """How much lies between two instants."""
        return self.up_to(end) - self.up_to(start)


def without_short_holes(intervals: Sequence[tuple[float, float]], longest: float) -> Intervals:
    """The same, with holes up to `longest` closed."""
    closed: Intervals = []
    for start, end in intervals:
        if closed and start - closed[-1][1] <= longest:
            closed[-1] = (closed[-1][0], end)
        else:
            closed.append((start, end))
    return closed


class ByTime:
    """Stretches that may overlap, in the order of their start; those around an instant are found without looking at all.

    Stretches of about one length lie together: only those that begin at most that long before the instant can reach it.
    """

    def __init__(self, pairs: Sequence[tuple[float, float]]) -> None:
        by_length: dict[int | None, list[int]] = {}
        reached = float("-inf")
        for index, (start, end) in enumerate(pairs):
            # Those that do not overlap an earlier one need no class: the one before an instant alone can reach it.
            length = frexp(end - start)[1] if start < reached else None
            reached = max(reached, end)
            by_length.setdefault(length, []).append(index)
        self._pairs = pairs
        self._classes = []
        for rows in by_length.values():
            longest = max(pairs[row][1] - pairs[row][0] for row in rows)
            is_apart = all(pairs[later][0] >= pairs[earlier][1] for earlier, later in pairwise(rows))
            self._classes.append((rows, [pairs[row][0] for row in rows], longest, is_apart))

    def touching(self, start: float, end: float) -> list[int]:
        """Indices of those that share an instant with the stretch, ends included, in the order of their start."""
        found: list[int] = []
        for rows, starts, longest, is_apart in self._classes:
            last = bisect_right(starts, end)
            first = max(0, bisect_left(starts, start) - 1) if is_apart else bisect_left(starts, start - longest)
            found += [row for row in rows[first:last] if self._pairs[row][1] >= start]
        return sorted(found) if len(self._classes) > 1 else found
