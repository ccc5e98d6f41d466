"""Intervals of ratios from interleaved rounds, when to look at them, and the verdict. Standard library only.

Why the generation is the block. Rounds of one generation of processes share its memory layout, its caches and the mood of
the machine: neighbours resemble each other, and all are off by the same amount, which may be as large as their scatter.
Counted as independent they gave intervals at 95 % that called identical code different in 12 to 36 % (plain bootstrap) and
8 to 25 % (signed rank) of cases. Generations are started afresh, so one number of each, the median of its rounds, is
independent of the others, and Student's interval over these numbers holds however rounds hang together within. The median,
because it leaves out one hiccup among three rounds. Taking the larger of this interval and the signed-rank one over all
rounds prevents no error that this one makes beyond its alpha, and needs more rounds. All figures:
benchmarks/simulated_calibration.md, which also shows what this cannot mend: generations that resemble each other.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from perfaudit.measurements import Verdict

ERROR = 0.05  # how often an interval may miss the true ratio, over all looks at the data together


class TooFewRounds(ValueError):
    """Fewer generations than an interval needs."""


@dataclass(frozen=True, slots=True)
class Look:
    """A moment at which the data are judged: after so many generations, with an interval that misses in `alpha` of cases."""

    generations: int
    alpha: float


def is_look(looks: Sequence[Look], count: int) -> bool:
    """Whether the data are looked at when there are so many."""
    return any(look.generations == count for look in looks)


def looks_made(looks: Sequence[Look], count: int, ended: float) -> list[tuple[int, float]]:
    """How many count, and how often the interval may miss, for each look made when there are so many generations, or quads.

    ended: the time, not the data, ended the measuring; then all count, at what the looks before have left unspent, or at so
    much of it.
    """
    made = [(look.generations, look.alpha) for look in looks if look.generations <= count]
    unspent = ended * sum(look.alpha for look in looks if look.generations >= count)
    return [*made, (count, unspent)] if unspent else made


# Error is shared out among the looks by Bonferroni's inequality: whatever the dependence between them, and by whatever
# rule one stops at one of them, an interval misses at most as often as all alphas together. Chosen by simulation (tables in
# benchmarks/simulated_calibration.md): most goes to the last look, where small effects are decided. A first look after 3
# generations saves nothing at 2 % noise, where Student's t with two degrees of freedom, 9.9, leaves everything open.
LOOKS = (Look(4, 0.010), Look(6, 0.015), Look(12, 0.025))
# Where other data than those that are judged, a race in one training before it, say that a gain is large: a first look after 3.
# That of 4 tells as much as it does above, and less is left for the last ones. A saving of 50 % was shown after 3 in 98 % of
# races whose single rounds had 6 % noise, one of 30 % in 62 %.
LOOKS_OF_LARGE = (Look(3, 0.010), Look(4, 0.010), Look(6, 0.0125), Look(12, 0.0175))


def ratio_interval(groups: Sequence[Sequence[float]], alpha: float = ERROR) -> tuple[float, float, float]:
    """Ratio candidate / baseline of the time per step, as (centre, low, high); below 1 the candidate is faster.

    groups: log ratios, one list per generation of processes, one value per round (a round holds each variant twice, in
    mirrored order, so that drift cancels). A generation without rounds counts for nothing.
    alpha: how often the interval may miss the true ratio. This holds for one look; see `interval_at` for several.
    Raises TooFewRounds under two generations: one cannot know how far processes differ.
    Method: Student's interval over the medians of the generations (Law & Kelton, Simulation Modeling and Analysis, 5th ed.
    2015, ch. 9: independent replications).
    """
    medians = [statistics.median(group) for group in groups if group]
    if len(medians) < 2:
        raise TooFewRounds(f"{len(medians)} generations of processes; 2 are needed for an interval")
    centre = statistics.fmean(medians)
    error = student_quantile(len(medians) - 1, alpha) * statistics.stdev(medians) / math.sqrt(len(medians))
    return math.exp(centre), math.exp(centre - error), math.exp(centre + error)


def interval_at(
    groups: Sequence[Sequence[float]], looks: Sequence[Look] = LOOKS, ended: bool = False
) -> tuple[float, float, float]:
    """The interval that holds although the data are looked at several times, as `ratio_interval` gives it.

    While measuring goes on: the interval of the last look whose generations are all there, from these generations alone.
    Over all looks of a comparison it misses the true ratio in at most the sum of their alphas.
    ended: the budget, not the data, ended the measuring with this many generations. Then all of them count, at what the
    looks before them have left unspent. Proof: that some interval misses is the union of "look k misses", over the looks
    made, and "the last interval misses"; where the number of generations does not depend on the ratios, each of these has
    at most its alpha, and all alphas add up to the same sum. (A slow machine ends earlier, but it slows both variants,
    which leans to neither side.) Not for a comparison that a look has settled: there the data ended the measuring.
    The error is that of one comparison. Of several copies of the code raced against one base, some is called faster more
    often than that: in simulation in 1.5 % of races with one copy, 4 % with four, 8 % with eight. Where the family must
    hold, divide the alphas of the looks by the number of candidates, or race the winner again by itself.
    Raises TooFewRounds before the first look, and under two generations.
    """
    groups = [group for group in groups if group]
    made = looks_made(looks, len(groups), ended)
    if not made:
        raise TooFewRounds(f"{len(groups)} generations of processes; the first look is after {looks[0].generations}")
    count, alpha = made[-1]
    return ratio_interval(groups[:count], alpha)


def is_settled(low: float, high: float, least: float) -> bool:
    """Whether an interval of the ratio shows that a candidate gains the share `least` of the step, or that it cannot."""
    return 1 - high >= least or 1 - low < least


def smallest_callable(low: float, high: float) -> float:
    """The smallest saving, as a share of the step, that an interval of this width could have called faster.

    A candidate whose ratio is r is called faster if r times the half width is below 1; width is in logarithms.
    """
    return 1 - math.sqrt(low / high)


@functools.cache
def student_quantile(freedom: int, alpha: float) -> float:
    """The t that Student's distribution with so many degrees of freedom exceeds, in absolute value, in `alpha` of cases.

    Bisection of the finite sum for whole degrees of freedom: Abramowitz & Stegun, Handbook of Mathematical Functions
    (1964), 26.7.3 and 26.7.4. Exact to about 1e-16 / alpha, relatively.
    """
    if freedom < 1 or not 0 < alpha < 1:
        raise ValueError(f"no quantile for {freedom} degrees of freedom at alpha {alpha}")
    low, high = 0.0, math.pi / 2  # of the angle whose tangent is t / sqrt(freedom)
    for _ in range(80):
        middle = (low + high) / 2
        if student_within(middle, freedom) < 1 - alpha:
            low = middle
        else:
            high = middle
    return math.tan((low + high) / 2) * math.sqrt(freedom)


def student_within(angle: float, freedom: int) -> float:
    """P(|t| <= tan(angle) * sqrt(freedom)) for Student's t."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = term if freedom > 1 else 0.0
    for k in range(1 + odd, freedom - 1, 2):
        term *= cosine * cosine * k / (k + 1)
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


def verdict(low: float, high: float) -> Verdict:
    """What an interval of the ratio says; one that holds 1 decides nothing."""
    if high < 1:
        return "faster"
    return "slower" if low > 1 else "undecided"


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Median, lower and upper quartile; of one value, that value three times."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return middle, low, high
