"""The interval of a ratio from quads of steps of one training, valid at several looks although neighbours resemble each other.

Quads of one candidate lie apart in time, with those of the others between, but a mood of the machine outlasts a round, so they
are no independent draws. They are cut into at most BATCHES consecutive batches, of which each counts with its median, and
Student's interval over these holds as soon as a batch is long against what hangs together (batch means: Law & Kelton, Simulation
Modeling and Analysis, 5th ed. 2015, ch. 9.5.3). The number of batches stays and their length grows from look to look, so that
the later an interval is, the less it takes for granted.

On a machine that others use, a few steps in a hundred take twice as long or longer, and each such step spoils a quad or two. So
the smallest and the largest of the batches are left out, one in TRIM on each side (trimmed mean with winsorized variance: Tukey
& McLaughlin, Sankhyā A 25, 1963).

A few quads of a candidate tell its scatter badly, so that Student's interval over eight of them is wide for want of degrees of
freedom, not of data. The others raced in the same rounds scatter about as much: what disturbs them is the machine. Their
variance enters as a prior worth PRIOR degrees of freedom (moderated t: Smyth, Statistical Applications in Genetics and Molecular
Biology 3(1), 2004). A candidate that scatters by far more than they do is judged by its own scatter alone.

Looks lie at numbers of quads that double, and each may miss so seldom that all of them together miss in 5 % at most. So the
error is spent bit by bit (Lan & DeMets, Biometrika 70, 1983; at numbers that double: Howard, Ramdas, McAuliffe & Sekhon, Annals
of Statistics 49, 2021), and a race may go on for as long as the sum holds. Steps of 10 ms come to 128 quads or 512 pairs in ten
seconds, and on a machine that others use, gains of 3 to 4 % are undecided there. So the last half of the error, or 40 % of it for
pairs, is not spent at that look alone: three later ones share it, with half as much each. Where time ends a race before these,
all that is left of the error goes to its end. benchmarks/simulated_calibration.md has what it costs and gains.

Up to BATCHES quads a batch is one quad, and quads are taken for independent. What makes neighbours alike is the machine, whose
mood cancels within a quad. benchmarks/simulated_calibration.md has how often identical code is called different then, and where
quads resemble each other themselves, which more than doubles it; benchmarks/engine_calibration.py asks real trainings.
"""

from __future__ import annotations

import math
import operator
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from perfaudit.measure import stats
from perfaudit.measure.stats import Look, looks_made, student_quantile

BATCHES = 16
TRIM = 8
# Degrees of freedom that the scatter of others is worth, at most; and how many times their variance a candidate may have and be
# judged with it. With these, intervals over eight quads are a tenth narrower where all scatter alike, and the one candidate that
# scatters twice or three times as much is called different in 1.5 % where 1 % is told (simulated; 2.3 % with a prior of 8).
PRIOR = 4
ALIKE = 2.0
FEWEST = 4  # quads, of which there is an interval where time has ended a race before its first look
# Quads after which the data are looked at, and how often that interval may miss: by Bonferroni's inequality all of them
# together miss in at most 5 %, whatever the dependence between looks. At the first only what is worth LARGE of the step or more
# is told, as a loader that keeps the training waiting is: four quads are few. For the last four see above.
LOOKS = (
    Look(4, 0.0025), Look(8, 0.005), Look(16, 0.005), Look(32, 0.005), Look(64, 0.0075), Look(128, 0.01),
    Look(256, 0.005), Look(512, 0.005), Look(1024, 0.005),
)  # fmt: skip
# The same of pairs of blocks with half of all candidates in each (`halves`): they come quickly, a pair in the steps of one block
# each.
PAIR_LOOKS = (
    Look(8, 0.005), Look(16, 0.005), Look(32, 0.005), Look(64, 0.005), Look(128, 0.005), Look(256, 0.005), Look(512, 0.008),
    Look(1024, 0.004), Look(2048, 0.004), Look(4096, 0.004),
)  # fmt: skip
LARGE = 1 / 3
# Quads after which what gains some percent can first be told; time is planned for these.
USUAL_LOOK = LOOKS[1].generations


@dataclass(frozen=True, slots=True)
class Interval:
    """A ratio candidate / base of the time per step, as centre, low and high; quads: how many it rests on."""

    ratio: float
    low: float
    high: float
    quads: int


def is_look(quads: int, looks: Sequence[Look] = LOOKS) -> bool:
    """Whether the data are looked at after so many quads."""
    return stats.is_look(looks, quads)


def quads_to_look(quads: int) -> int:
    """How many quads are wanting to the next look; behind the last one, to a multiple of it."""
    last = LOOKS[-1].generations
    return next((look.generations for look in LOOKS if look.generations > quads), (quads // last + 1) * last) - quads


def is_last_look(quads: int, looks: Sequence[Look] = LOOKS) -> bool:
    """Whether no look is planned after so many quads."""
    return quads >= looks[-1].generations


def interval_of_quads(
    log_ratios: Sequence[float],
    ended: float = 0.0,
    of_control: bool = False,
    others: Sequence[Sequence[float]] = (),
    looks: Sequence[Look] = LOOKS,
    freedom: int | None = None,
) -> Interval | None:
    """The interval after these quads, in the order in which they were run; None before the first look.

    Between looks it is that of the last one, from its quads alone; at the first look, only of what gains LARGE. ended: the time,
    not the data, ended the race; then all quads count, FEWEST of them at least, at so much of what the looks before have left
    unspent (see `stats.interval_at` for why this holds): 1 for all of it, less where the race could have ended at another time,
    too. of_control: of identical code, whose interval is wanted at the first look, whatever it is. others: log ratios of quads of
    the same length that were run in the same rounds; those that are shorter by two quads or more do not count. looks: PAIR_LOOKS
    where these are values of pairs, of which there is no interval before their first look; freedom: the degrees that are left of
    these pairs.
    """
    n = len(log_ratios)
    if looks is LOOKS and n < (FEWEST if ended else USUAL_LOOK):
        return _at_first_look(log_ratios, -math.inf if of_control else LARGE, others)
    if n < looks[0].generations:
        return None
    if ended and is_last_look(n, looks):
        return _moderated_interval(log_ratios, ended * looks[-1].alpha, others, freedom)
    made = looks_made(looks, n, ended)
    if not made:
        return None
    counted, alpha = made[-1]
    left = None if freedom is None else freedom - (n - counted)
    return _moderated_interval(log_ratios[:counted], alpha, others, left)


def error_of(log_ratios: Sequence[float], others: Sequence[Sequence[float]]) -> float:
    """A standard error of the middle of these quads, for guesses at what is worth more of them; it is no interval.

    A few quads can lie close together by chance, so their scatter is at least that of as many of each of the others.
    """
    n = len(log_ratios)
    beside = [_variance(other[:n]) for other in others if len(other) >= max(2, n - 1)]
    usual = statistics.fmean(beside) if beside else 0.0
    return math.sqrt(max(usual, _variance(log_ratios)) / n)


def _variance(values: Sequence[float]) -> float:
    """As `statistics.variance`, to some roundings, in a fifth of the time: it is asked for in each round."""
    middle = statistics.fmean(values)
    gaps = [value - middle for value in values]
    return math.fsum(map(operator.mul, gaps, gaps)) / (len(values) - 1)


def is_hopeful(
    log_ratios: Sequence[float], others: Sequence[Sequence[float]], least: float, errors: float = 1.0
) -> bool:
    """Whether these quads look as if they gained a share `least` of the step: by their middle, and so many errors of it more."""
    return statistics.median(log_ratios) + errors * error_of(log_ratios, others) <= math.log(1 - least)


def _at_first_look(log_ratios: Sequence[float], least: float, others: Sequence[Sequence[float]]) -> Interval | None:
    """The interval at the first look, where all of it gains this share of the step; None elsewhere."""
    look = LOOKS[0]
    if len(log_ratios) < look.generations:
        return None
    found = _moderated_interval(log_ratios[: look.generations], look.alpha, others)
    return found if 1 - found.high >= least else None


@dataclass(frozen=True, slots=True)
class _Middle:
    """The trimmed mean of log ratios, the variance of that mean, and the degrees of freedom of this variance."""

    centre: float
    variance: float
    freedom: int


def _moderated_interval(
    log_ratios: Sequence[float], alpha: float, others: Sequence[Sequence[float]], most: int | None = None
) -> Interval:
    """The trimmed interval, its variance drawn towards that of the others where they scatter alike.

    most: degrees of freedom that it may have.
    """
    n = len(log_ratios)
    own = _middle(log_ratios)
    variance, freedom = own.variance, own.freedom
    beside = [_middle(other[:n]) for other in others if len(other) >= max(2, n - 1)]
    if beside and own.variance <= ALIKE * (usual := statistics.fmean(other.variance for other in beside)):
        prior = min(PRIOR, sum(other.freedom for other in beside))
        freedom = prior + own.freedom
        variance = (prior * usual + own.freedom * own.variance) / freedom
    freedom = freedom if most is None else max(1, min(freedom, most))
    error = student_quantile(freedom, alpha) * math.sqrt(variance)
    return Interval(math.exp(own.centre), math.exp(own.centre - error), math.exp(own.centre + error), n)


def _middle(log_ratios: Sequence[float]) -> _Middle:
    """The trimmed mean over the medians of batches that differ in length by one quad at most."""
    n, count = len(log_ratios), min(len(log_ratios), BATCHES)
    ends = [at * n // count for at in range(count + 1)]
    medians = sorted(statistics.median(log_ratios[a:b]) for a, b in pairwise(ends))
    cut = count // TRIM
    kept = medians[cut : count - cut]
    winsorized = [kept[0]] * cut + kept + [kept[-1]] * cut
    squares = (count - 1) * _variance(winsorized)
    return _Middle(statistics.fmean(kept), squares / (len(kept) * (len(kept) - 1)), len(kept) - 1)
