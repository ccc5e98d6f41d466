"""Bounds of a log ratio from groups of quads that resemble each other."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from perfaudit.gate import signed_rank
from perfaudit.measure.stats import student_quantile, student_within

Groups = Sequence[Sequence[float]]  # log ratios of quads, one list per pair of processes or batch


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of the log ratio, as one look has them. p: of "not above the threshold". Infinite where the data are too few."""

    low: float = -math.inf
    high: float = math.inf
    p: float = 1.0


# Log ratios, threshold of the test, and how often the lower and the upper bound may miss.
Rule = Callable[[Groups, float, float, float], Bounds]


def between_pairs(groups: Groups, threshold: float, alpha_low: float, alpha_high: float) -> Bounds:
    """Student's interval over the Hodges-Lehmann centres of the pairs; nothing is known of one pair."""
    centres = [signed_rank.hodges_lehmann(group) for group in groups]
    if len(centres) < 2:
        return Bounds()
    freedom = len(centres) - 1
    mean, error = statistics.fmean(centres), statistics.stdev(centres) / math.sqrt(len(centres))
    low = mean - error * student_quantile(freedom, 2 * alpha_low)
    high = mean + error * student_quantile(freedom, 2 * alpha_high)
    return Bounds(low, high, _tail(mean - threshold, error, freedom))


def within_quads(groups: Groups, threshold: float, alpha_low: float, alpha_high: float) -> Bounds:
    """The signed-rank interval over all quads, as if they were independent."""
    quads = [value for group in groups for value in group]
    low, high = signed_rank.interval(quads, alpha_low, alpha_high)
    return Bounds(low, high, signed_rank.p_above(quads, threshold))


def both(groups: Groups, threshold: float, alpha_low: float, alpha_high: float) -> Bounds:
    """The wider of both intervals on each side: the rule of the gate."""
    a = between_pairs(groups, threshold, alpha_low, alpha_high)
    b = within_quads(groups, threshold, alpha_low, alpha_high)
    return Bounds(min(a.low, b.low), max(a.high, b.high), max(a.p, b.p))


def _tail(above: float, error: float, freedom: int) -> float:
    """P(Student's t >= above / error), for so many degrees of freedom; of no error, whether it is above at all."""
    if error == 0:
        return 0.0 if above > 0 else 1.0
    t = above / error
    beyond = max(0.0, 1 - student_within(math.atan(abs(t) / math.sqrt(freedom)), freedom)) / 2
    return beyond if t > 0 else 1 - beyond
