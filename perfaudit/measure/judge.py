"""What a ledger says: trials, comparisons with verdicts, savings, and which clock to trust."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

from perfaudit.findings import Saving
from perfaudit.measure.ledger import Block, Ledger, Pair, Variant, cpu, own, wall
from perfaudit.measure.stats import (
    LOOKS,
    Look,
    TooFewRounds,
    interval_at,
    is_look,
    is_settled,
    quartiles,
    smallest_callable,
    verdict,
)
from perfaudit.measurements import ClockName, Comparison, Trial

QUEUED = 0.15  # share of the wall seconds that a training's threads waited for a core; from here on, others held them
EXPLAINED = 0.9  # share of the wall seconds that computing and waiting for a core must explain; else it waits for data
HOPELESS = 1.05  # ratio in each of two or three generations; a true gain of 1 % looks so at 5 % noise in one case of 75
SECONDS: dict[ClockName, Callable[[Pair], float]] = {"wall": wall, "cpu": cpu, "own": own}  # of a step, by clock
NEXT_TO_NOTHING = 0.02  # of the wall seconds: less is left out without a word, no figure here is more exact
TELLS_NOTHING = 4.0  # high over low of an interval that is undecided; effects of half a step could not have been seen


def trial(ledger: Ledger, variant: Variant, peak_bytes: int | None = None, metric: str = "seconds_per_step") -> Trial:
    """What is known of one variant so far."""
    blocks = [block.seconds_per_step for block in ledger.blocks(variant.key)]
    if not blocks:
        failed = variant.key in ledger.failures
        return Trial(
            variant.knob,
            variant.settings,
            "failed" if failed else "not_measured",
            metric,
            peak_memory_bytes=peak_bytes,
            reason=ledger.failures.get(variant.key, "not reached"),
        )
    middle, low, high = quartiles(blocks)
    if metric == "samples_per_second":
        samples = ledger.samples_per_step(variant.key)
        middle, low, high = samples / middle, samples / high, samples / low
    return Trial(
        variant.knob,
        variant.settings,
        "ok",
        metric,
        middle,
        low,
        high,
        len(blocks),
        peak_bytes,
        reason=ledger.failures.get(variant.key, ""),
        samples=tuple(blocks),
    )


def comparison(
    ledger: Ledger,
    base: Variant,
    candidate: Variant,
    stage: str | None = None,
    phases: tuple[str, ...] = (),
    clock: ClockName = "wall",
    least: float | None = None,
    looks: Sequence[Look] = LOOKS,
) -> Comparison | None:
    """The candidate against the base in one stage of the measuring; None if no round holds both.

    phases: the step's ratio from these phases alone (see `Ledger.log_ratios_of_piece`), the whole step's without any. Where
    threads waited for cores that others held, these have no interval: of phases nothing says how much of them was waiting.
    least: the share of the step whose gain was to be settled, and ended the measuring where it was; None where the
    measuring was not ended by what it saw (see `stats.interval_at`). looks: that were planned.
    """
    if phases:
        groups = ledger.log_ratios_of_piece(base.key, candidate.key, stage, phases)
    else:
        groups = ledger.log_ratios(base.key, candidate.key, stage, SECONDS[clock])
    n = sum(map(len, groups))
    if not n:
        return None
    given_up = candidate.key in ledger.given_up
    try:
        if given_up:
            raise TooFewRounds("what was seen ended it at a moment that was no planned look, so there is no interval")
        if phases and any(_share_queued(ledger.blocks(variant.key)) >= QUEUED for variant in (base, candidate)):
            raise TooFewRounds("the seconds of phases hold what threads waited for cores, so there is no interval")
        centre, low, high = _interval(groups, least, looks)
    except TooFewRounds:
        centre = math.exp(statistics.median(value for group in groups for value in group))
        low, high = 0.0, math.inf
    word = verdict(low, high)
    if word == "undecided" and high > TELLS_NOTHING * low:
        low, high = 0.0, math.inf
    smallest = smallest_callable(low, high) if math.isfinite(high) else None
    of = "+".join(phases) or "step"
    return Comparison(
        candidate.knob,
        base.settings,
        candidate.settings,
        centre,
        low,
        high,
        word,
        n,
        told_clock(ledger, base, clock),
        of,
        smallest,
        given_up,
        per="token" if ledger.tells_tokens(base.key, candidate.key) else "step",
    )


def _share_queued(blocks: list[Block]) -> float:
    """Seconds that threads waited for a core, together, over those of the blocks; the median of them."""
    return statistics.median(block.queued / block.wall for block in blocks) if blocks else 0.0


def _interval(groups: list[list[float]], least: float | None, looks: Sequence[Look]) -> tuple[float, float, float]:
    if least is not None and is_look(looks, len(groups)):
        found = interval_at(groups, looks)
        if is_settled(found[1], found[2], least):
            return found
    return interval_at(groups, looks, ended=True)


def hopeless_variants(
    ledger: Ledger,
    base: Variant,
    candidates: list[Variant],
    stage: str,
    clock: ClockName = "wall",
    looks: Sequence[Look] = LOOKS,
) -> set[str]:
    """Keys of candidates that look clearly slower than the base before the first planned look at the data.

    Giving one up can only miss a gain, never invent one: nothing but the ratio is told of it, no interval and no verdict.
    """
    gone = set()
    for candidate in candidates:
        groups = ledger.log_ratios(base.key, candidate.key, stage, SECONDS[clock])
        medians = [statistics.median(group) for group in groups]
        if 2 <= len(medians) < looks[0].generations and min(medians) > math.log(HOPELESS):
            gone.add(candidate.key)
    return gone


def settled_variants(
    ledger: Ledger,
    base: Variant,
    candidates: list[Variant],
    least: float,
    stage: str,
    clock: ClockName = "wall",
    phases: Callable[[Variant], tuple[str, ...]] = lambda variant: (),
    looks: Sequence[Look] = LOOKS,
) -> set[str]:
    """Keys of candidates that were shown to gain the share `least` of the step, or to be unable to.

    Only the looks that were planned beforehand count: each further one would be another chance to be wrong.
    """
    done = set()
    for candidate in candidates:
        if not is_look(looks, ledger.generations_with(base.key, candidate.key, stage)):
            continue
        found = comparison(ledger, base, candidate, stage, phases(candidate), clock, least, looks)
        if found is not None and is_settled(found.low, found.high, least):
            done.add(candidate.key)
    return done


def clock_for(ledger: Ledger, base: Variant, computes_alone: bool) -> ClockName:
    """Which clock a comparison with this base should trust, decided from the base alone so that no result is picked.

    The one on the wall is what the user waits for. Where the training computes on the CPU in its own process
    (`computes_alone`: no accelerator, no loader workers in any variant, one thread, for the seconds of several do not add up
    to a step), others held the cores, and it waited for nothing else (no disk, no network), processor seconds resolve
    half the effect that wall seconds do. Decided once, from what there is by then: a later change of mind would be another
    chance to be wrong.
    """
    blocks = ledger.blocks(base.key)
    if not computes_alone or not blocks:
        return "wall"
    if ledger.clock is None:
        ledger.clock = _clock(blocks)
    return ledger.clock


def _clock(blocks: list[Block]) -> ClockName:
    step = statistics.median(block.seconds_per_step for block in blocks)
    computing = statistics.median(block.cpu_per_step for block in blocks)
    queued = statistics.median(block.queued / block.steps for block in blocks)
    return "cpu" if queued >= QUEUED * step and computing + queued >= EXPLAINED * step else "wall"


def own_clock(ledger: Ledger, variants: Sequence[Variant]) -> ClockName:
    """ "own" where each block of these says how long it takes without waiting for cores that others hold.

    Where one of them has loader workers, what it waits for cores is their doing, and the wall clock counts for all.
    """
    told = (block.own is not None for variant in variants for block in ledger.blocks(variant.key))
    return "own" if all(told) else "wall"


def told_clock(ledger: Ledger, base: Variant, clock: ClockName) -> ClockName:
    """The clock that a report names: where next to nothing was left out of the wall seconds, they are those of the wall."""
    blocks = ledger.blocks(base.key)
    counted, passed = sum(block.own_per_step for block in blocks), sum(block.seconds_per_step for block in blocks)
    return "wall" if clock == "own" and counted >= (1 - NEXT_TO_NOTHING) * passed else clock


def typical_step(ledger: Ledger, key: str, clock: ClockName) -> float | None:
    """The median seconds of a variant's step by this clock; None where none was timed."""
    steps = [SECONDS[clock]((block, block)) for block in ledger.blocks(key)]
    return statistics.median(steps) if steps else None


def saving(ledger: Ledger, base: Variant, compared: Comparison, share: float = 1.0) -> Saving:
    """A comparison as the share of the step that goes away.

    share: of the user's whole step that was compared; below 1 where loading was left out.
    """
    step = typical_step(ledger, base.key, compared.clock)
    per_step = (1 - compared.ratio) * step if step is not None else None
    return Saving("measured", share * (1 - compared.high), share * (1 - compared.low), per_step, clock=compared.clock)
