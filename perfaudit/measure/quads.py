"""The interval of a ratio from quads of steps of one training, valid at several looks although neighbours resemble each other.

Quads of one candidate lie apart in time, with those of the others between, but a mood of the machine outlasts a round, so they
are no independent draws. They are cut into BATCHES consecutive batches; the median of each leaves out hiccups, and Student's
interval over the medians holds as soon as a batch is long against what hangs together (batch means: Law & Kelton, Simulation
Modeling and Analysis, 5th ed. 2015, ch. 9.5.3). The number of batches stays and their length grows from look to look, so that
the later an interval is, the less it takes for granted.

Where time ends a race early a batch is one quad or two, and quads are taken for independent. What makes neighbours alike is the
machine, whose mood cancels within a quad: in simulation, with blocks that resemble the one before by 0, 0.3 or 0.6, races of
identical code that end after 5 to 16 quads call it different in 4.2 to 6.5 %. Quads that resemble each other themselves, by 0.3,
make that 9 to 13 %, with 5 quads as with 11: waiting for a sixth mends nothing (benchmarks/simulated_calibration.md).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from perfaudit.measure.stats import Look, student_quantile

BATCHES = 8
FEWEST = 5  # quads, of which there is an interval where time has ended a race before its first look
# Quads after which the data are looked at, and how often that interval may miss: by Bonferroni's inequality all of them
# together miss in at most 5 %, whatever the dependence between looks. Half of it goes to the last.
LOOKS = (Look(8, 0.005), Look(16, 0.005), Look(32, 0.005), Look(64, 0.01), Look(128, 0.025))


@dataclass(frozen=True, slots=True)
class Interval:
    """A ratio candidate / base of the time per step, as centre, low and high; quads: how many it rests on."""

    ratio: float
    low: float
    high: float
    quads: int


def is_look(quads: int) -> bool:
    """Whether the data are looked at after so many quads."""
    return any(look.generations == quads for look in LOOKS)


def is_last_look(quads: int) -> bool:
    """Whether no look is planned after so many quads."""
    return quads >= LOOKS[-1].generations


def interval_of_quads(log_ratios: Sequence[float], ended: bool = False) -> Interval | None:
    """The interval after these quads, in the order in which they were run; None before the first look.

    Between looks it is that of the last one, from its quads alone. ended: the time, not the data, ended the race; then all
    quads count, FEWEST of them at least, at what the looks before have left unspent (see `stats.interval_at` for why this holds).
    """
    n = len(log_ratios)
    if ended and n >= FEWEST:
        unspent = sum(look.alpha for look in LOOKS if look.generations >= n) or LOOKS[-1].alpha
        batches = min(n, BATCHES)
        return _batch_interval(log_ratios[: n - n % batches], unspent, batches)
    reached = [look for look in LOOKS if look.generations <= n]
    if not reached:
        return None
    return _batch_interval(log_ratios[: reached[-1].generations], reached[-1].alpha)


def _batch_interval(log_ratios: Sequence[float], alpha: float, batches: int = BATCHES) -> Interval:
    size = len(log_ratios) // batches
    medians = [statistics.median(log_ratios[at * size : (at + 1) * size]) for at in range(batches)]
    centre = statistics.fmean(medians)
    error = student_quantile(batches - 1, alpha) * statistics.stdev(medians) / math.sqrt(batches)
    return Interval(math.exp(centre), math.exp(centre - error), math.exp(centre + error), len(log_ratios))
