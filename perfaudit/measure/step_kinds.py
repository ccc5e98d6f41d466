"""Whether steps of several kinds take turns, told from how long they take. Pure.

An actor that is updated in every second step, or two batches an epoch of which the second is short: two steps in a row are never
alike then, and a ratio of two of them says more of their kinds than of what was in place. Blocks of whole rounds are alike.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

MOST_KINDS = 4  # steps of a round; what comes less often is an outlier of few blocks
ROUNDS = 3  # that must be seen before an order is believed
# Of the sum of distances from the middle of all, what is left of distances from the middle of each place in a round. At 0.45, of
# a thousand rows of twelve steps that are noise 1 % look like an order, and 88 % of those in which every second step takes twice
# as long and all scatter by 20 % are seen (simulated). Where one is seen that is none, blocks are longer, and tell as much.
LEFT = 0.45
UNEVEN = 1.25  # times as long as the shortest kind the longest one takes, at least


def period_of(seconds: Sequence[float]) -> int:
    """How many steps a round has, after which the same kinds come again; 1 where none is seen. seconds: of steps in a row."""
    logs = [math.log(max(each, 1e-9)) for each in seconds]
    if not logs:  # of a device whose steps take long, none is timed by itself
        return 1
    whole = _distances(logs)
    for period in range(2, MOST_KINDS + 1):
        if len(logs) < ROUNDS * period or not whole:
            break
        places = [logs[first::period] for first in range(period)]
        middles = [statistics.median(place) for place in places]
        if sum(map(_distances, places)) <= LEFT * whole and max(middles) - min(middles) >= math.log(UNEVEN):
            return period
    return 1


def may_take_turns(seconds: Sequence[float]) -> bool:
    """Whether a few steps differ by so much that more of them are worth a look."""
    return max(seconds) >= UNEVEN * min(seconds)


def _distances(logs: Sequence[float]) -> float:
    middle = statistics.median(logs)
    return sum(abs(each - middle) for each in logs)
