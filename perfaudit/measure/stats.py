"""Intervals of ratios from interleaved rounds, and the verdict on them. Standard library only."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence

from perfaudit.measurements import Verdict

LEVEL = 0.95  # of every interval that is printed
FEWEST_ROUNDS = 6  # below, the signed-rank interval at 95 % does not exist (2 / 2**5 > 0.05)

FEW_PROCESSES = 2.2  # under three generations the spread between processes is unknown; it was up to this wide here

# Two-sided 95 % quantiles of Student's t by degrees of freedom, for the spread between processes.
_T95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228}


class TooFewRounds(ValueError):
    """Fewer rounds than an interval needs."""


def ratio_interval(groups: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """Ratio candidate / baseline of the time per step, as (centre, low, high); below 1 the candidate is faster.

    groups: log ratios, one list per pair of processes, one value per round (a round holds each variant twice, in mirrored
    order, so that drift cancels).
    Centre: Hodges-Lehmann. Error: the larger of the signed-rank interval over all rounds and Student's interval over the
    processes' medians, because rounds of one process share its memory layout and are not independent. Under three
    processes the first is widened by FEW_PROCESSES instead.
    Raises TooFewRounds under FEWEST_ROUNDS rounds.
    Method: Hollander, Wolfe & Chicken, Nonparametric Statistical Methods (2014), ch. 3.
    """
    values = [value for group in groups for value in group]
    if len(values) < FEWEST_ROUNDS:
        raise TooFewRounds(f"{len(values)} rounds; {FEWEST_ROUNDS} are needed")
    walsh = sorted((a + b) / 2 for i, a in enumerate(values) for b in values[i:])
    centre = statistics.median(walsh)
    rank = signed_rank_quantile(len(values))
    low, high = walsh[rank], walsh[-1 - rank]
    medians = [statistics.median(group) for group in groups if group]
    if len(medians) >= 3:
        t = _T95.get(len(medians) - 1, _T95[10])
        error = t * statistics.stdev(medians) / math.sqrt(len(medians))
        low, high = min(low, centre - error), max(high, centre + error)
    else:
        low, high = centre - FEW_PROCESSES * (centre - low), centre + FEW_PROCESSES * (high - centre)
    return math.exp(centre), math.exp(low), math.exp(high)


@functools.cache
def signed_rank_quantile(n: int, level: float = LEVEL) -> int:
    """Largest w with P(W <= w) <= (1 - level) / 2: how many Walsh averages lie below the interval, and above it.

    Exact distribution of Wilcoxon's signed-rank statistic for n values without ties. Raises TooFewRounds where even the
    full range has not that level.
    """
    total = n * (n + 1) // 2
    counts = [1] + [0] * total
    for rank in range(1, n + 1):
        for value in range(total, rank - 1, -1):
            counts[value] += counts[value - rank]
    tail, cumulated = (1 - level) / 2 * 2**n, 0
    for value, count in enumerate(counts):
        cumulated += count
        if cumulated > tail:
            if value == 0:
                break
            return value - 1
    raise TooFewRounds(f"{n} rounds give no interval at {level:.0%}")


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
