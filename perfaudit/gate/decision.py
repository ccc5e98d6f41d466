"""Whether steps got slower: verdicts from quads of log ratios. Knows no torch, no process and no clock.

The unit is a quad: rounds of four blocks, each the mean of the logs of the head's two minus that of the base's, and of the
rounds the centre. Two intervals are asked, and both must say so before anything is called: the signed-rank one over all
quads, which no hiccup moves, and Student's over the centres of the pairs of processes, because quads of one pair share its
memory layout and the mood of the machine (pairs of identical code differed by up to 2.2 times what one pair predicts).

Where both versions run in one training, its quads are cut into batches, which stand where pairs stand (`one_training_quads`);
the rest is the same. There the interval of the control, which is identical code, must hold 1: else nothing is called.

The data are looked at after 4, 8 and 16 pairs, or after 16 to 2048 quads of one training. Each look has its own share of the
error, so by Bonferroni's inequality all looks together err in at most `ALPHA` of cases, whatever the dependence between
them. The bounds of all looks hold together, so the tightest count (repeated confidence intervals: Jennison & Turnbull, JRSS
B 51 (1989) 305). Where the tightest ones contradict each other, those of the last look count, which has the most data. The
ratio that is told is the centre of all quads, or the end of the interval that is nearest to it.

Where a step has other samples than in the reference, the ratio is of seconds per sample, and the reason says so.

Several targets: a loss is called after Holm's correction (Scand. J. Stat. 6 (1979) 65), so that some false alarm among
all of them stays as rare as for one. A pass needs no correction: the gate passes only where every target does, and all of
several claims are wrongly made at most as often as one (intersection-union: Berger, Technometrics 24 (1982) 295).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from perfaudit.gate import signed_rank
from perfaudit.gate.bounds import Bounds, Groups, Rule, both
from perfaudit.gate.one_training_quads import LOOKS as LOOKS_OF_ONE
from perfaudit.gate.one_training_quads import batches, control, differs_from_itself
from perfaudit.gate.records import TargetRecord
from perfaudit.measure.stats import Look, is_look, looks_made
from perfaudit.verdicts import PER_SAMPLE, GateVerdict, TimeVerdict

# Pairs of processes, and how often a bound may miss on its side. Most goes to the last look, where small effects are decided.
LOOKS = (Look(4, 0.002), Look(8, 0.003), Look(16, 0.005))
ALPHA = sum(look.alpha for look in LOOKS)  # how often identical code is called slower, at most
PAIRS = LOOKS[-1].generations
LIMIT, TOLERATED = 0.05, 0.01
Settles = Callable[[TargetRecord], bool]  # see `is_settled`


def time_verdict(
    record: TargetRecord,
    limit: float = LIMIT,
    tolerated: float = TOLERATED,
    family: int = 1,
    ended: bool = False,
    rule: Rule = both,
) -> TimeVerdict:
    """What the looks made so far say of a target.

    regressed: the whole interval above `tolerated`, asked first: a loss that is shown counts also where it is below the
    limit. improved: the whole interval as far below 1 as `tolerated` is above it, since identical code in other processes
    differs by that. pass: the whole interval below `limit`. inconclusive: none of them, yet.
    family: over how many targets the error of a false alarm is shared out. ended: the budget, not the data, ended the
    measuring; then all pairs count, at what the looks before them have left unspent (`measure.stats.interval_at` has the
    argument). A record that a look has settled is judged at its looks alone. Nothing measured is inconclusive.
    """
    if record.failures:
        return _verdict(record, "failed", _failure(record), limit, tolerated)
    if not record.log_ratios():
        return _verdict(record, "inconclusive", _why_unmeasured(record), limit, tolerated)
    threshold = math.log1p(tolerated)
    low, high, p, last = -math.inf, math.inf, 1.0, Bounds()
    ended = ended and not record.settled
    for groups, alpha in _looks(record, ended):
        last = rule(groups, threshold, alpha / family, alpha)
        low, high, p = max(low, last.low), min(high, last.high), min(p, last.p * ALPHA / alpha)
    if low > high:  # some bound misses, and nobody knows which
        low, high = last.low, last.high
    verdict: GateVerdict = "inconclusive"
    if low > threshold:
        verdict = "regressed"
    elif high < -threshold:
        verdict = "improved"
    elif high < math.log1p(limit):
        verdict = "pass"
    doubt = differs_from_itself(record.one, ended) if record.one is not None else ""
    if record.one is not None and verdict != "inconclusive" and control(record.one, ended) is None:
        doubt = "in one training identical code was timed too briefly for an interval"
    verdict = "inconclusive" if doubt else verdict
    reasons = [doubt or _why_undecided(record, low, high, limit, tolerated)] if verdict == "inconclusive" else []
    if reasons and record.one is None and record.steps_to_end is not None:
        reasons.append(f"it ends {record.steps_to_end} steps after its warm-up: let it train longer")
    reason = "; ".join(reasons + _per_sample(record))
    return _verdict(record, verdict, reason, limit, tolerated, Bounds(low, high, p), (last.high - last.low) / 2)


def judged_together(
    records: Sequence[TargetRecord],
    limit: float = LIMIT,
    tolerated: float = TOLERATED,
    ended: bool = True,
    rule: Rule = both,
) -> tuple[TimeVerdict, ...]:
    """The verdict of every target, in the order given, after Holm's correction.

    The smallest p is tested at a share of the error as if all targets were still open, the next one as if one were decided,
    and so on; from the first that is not rejected on, the correction stays as it is.
    """
    alone = [time_verdict(record, limit, tolerated, 1, ended, rule) for record in records]
    p_values = [1.0 if verdict.p is None else verdict.p for verdict in alone]
    found = dict(enumerate(alone))
    family = len(records)
    for i in sorted(found, key=p_values.__getitem__):
        found[i] = time_verdict(records[i], limit, tolerated, family, ended, rule)
        if found[i].verdict == "regressed":
            family -= 1
    return tuple(found[i] for i in range(len(records)))


def is_settled(record: TargetRecord, limit: float, tolerated: float, family: int) -> bool:
    """Whether a target needs no more data: its last pair completes a look, and the looks say something."""
    at_look = record.one is not None or is_look(LOOKS, len(record.groups()))
    return at_look and time_verdict(record, limit, tolerated, family).verdict != "inconclusive"


def _looks(record: TargetRecord, ended: bool) -> list[tuple[Groups, float]]:
    """The data of each look made so far, and how often a bound may miss on its side."""
    if record.one is not None:
        logs = record.one.log_ratios
        return [(batches(logs[:quads]), alpha) for quads, alpha in looks_made(LOOKS_OF_ONE, len(logs), ended)]
    groups = record.groups()
    return [(groups[:pairs], alpha) for pairs, alpha in looks_made(LOOKS, len(groups), ended)]


def _verdict(
    record: TargetRecord,
    verdict: GateVerdict,
    reason: str,
    limit: float,
    tolerated: float,
    bounds: Bounds | None = None,
    error: float = math.inf,
) -> TimeVerdict:
    """error: of the log ratio, by the last look, which says what could have been called."""
    quads = record.log_ratios()
    units = [value for group in batches(quads) for value in group] if record.one is not None else quads
    centre = signed_rank.hodges_lehmann(units) if units else None
    found = bounds or Bounds()
    same = control(record.one, not record.settled) if record.one is not None else None
    told_nothing = record.one is not None and not quads
    return TimeVerdict(
        record.target,
        verdict,
        reason,
        ratio=None if centre is None else math.exp(min(max(centre, found.low), found.high)),
        low=math.exp(found.low),
        high=math.exp(found.high),
        pairs=len(record.groups()),
        quads=len(quads),
        seconds_before=record.seconds_per_step("base"),
        seconds_after=record.seconds_per_step("head"),
        smallest=math.expm1(math.log1p(tolerated) + error) if error < math.inf else None,
        p=None if bounds is None else bounds.p,
        limit=limit,
        tolerated=tolerated,
        wall_over_cpu=record.wall_over_cpu(),
        load=record.load,
        way=record.way if quads else "",
        why_so="" if record.failures or told_nothing else record.why,
        control=(same.low, same.high) if same is not None else None,
    )


def _failure(record: TargetRecord) -> str:
    """Which side does not run, and why. Where neither does, the reference is named: nothing can be said of the change."""
    reference = f"the reference {record.reference}".strip()
    if len(record.failures) == 2:
        return f"neither {reference} nor your code runs: {record.failures['base']}"
    side, why = next(iter(record.failures.items()))
    return f"{reference if side == 'base' else 'your code'} does not run: {why}"


def _why_undecided(record: TargetRecord, low: float, high: float, limit: float, tolerated: float) -> str:
    groups, quads = record.groups(), len(record.log_ratios())
    if math.isinf(low) or math.isinf(high):
        seconds = record.seconds_per_step("base") or 0.0
        slow = f" (a step takes {seconds:.2g} s)" if seconds > 0.1 else ""
        pairs = "1 pair" if len(groups) == 1 else f"{len(groups)} pairs"
        where = f"{pairs} of processes" if record.one is None else "one training"
        made, are = ("1 comparison", "is") if quads == 1 else (f"{quads} comparisons", "are")
        few = f"{made} in {where} {are} too few for an interval{slow}"
        return f"interrupted: {few}" if record.interrupted else f"{few}: raise --budget"
    return f"the interval reaches from below +{100 * tolerated:g} % to above +{100 * limit:g} %"


def _why_unmeasured(record: TargetRecord) -> str:
    """Why a target without a failure has no quad, and what to do."""
    if record.interrupted:
        return (
            "interrupted before anything was measured"
            if record.is_begun or record.pairs or record.one is not None
            else "not reached: interrupted before its turn"
        )
    if record.one is not None:
        return "nothing was measured within the budget, because the first steps in one training took it: raise --budget"
    if not record.pairs:
        return "not reached: the budget ended before its turn; raise --budget"
    seconds = record.pairs[-1].quad_seconds
    shortest = "the shortest comparison" + (f" ({seconds:.2g} s)" if seconds else "")
    return (
        f"nothing was measured: once both versions had started, the budget had no room for {shortest}; raise --budget"
    )


def _per_sample(record: TargetRecord) -> list[str]:
    samples = record.samples_per_step()
    return [f"{PER_SAMPLE} a step has {samples[1]:g} samples now, {samples[0]:g} before"] if samples else []
