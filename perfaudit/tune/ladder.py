"""A climb as a ladder for the report: rungs, the final race, one patch. Reads what was measured, measures nothing."""

from __future__ import annotations

import math
import statistics

from perfaudit.findings import FilePatch
from perfaudit.measure.judge import comparison
from perfaudit.measurements import Ladder, NotApplicable, Rung
from perfaudit.static.patching import file_patch
from perfaudit.tune.final import LEAST, texts_of
from perfaudit.tune.tuning import Accepted, Climb, Tuning
from perfaudit.tune.verify import was_compared

FAILED = "not handed over: "
CHANGED = f"{FAILED}source files changed while they were measured"
NOT_CONFIRMED = f"{FAILED}the final race did not show that all of it together is faster"
NO_TIME_FOR_ALL = f"{FAILED}the time ended before all of it was raced together"


def ladder_of(tuning: Tuning, withhold: bool = False) -> Ladder:
    """What the climb of this tuning has come to, complete or not.

    The patch is handed over only where a race against the user's code showed it to be faster and its losses were compared
    with those: the final race, or that of a single rung. withhold: hand over none, because the files are no longer what
    was measured.
    """
    state = tuning.climb
    assert state is not None
    left = tuple(NotApplicable(name, reason) for name, reason in state.left.items())
    step = tuning.calibration.seconds_per_step if tuning.calibration is not None else None
    ladder = Ladder(changes=state.changes, left=left, seconds_per_step=step, peak_memory_bytes=state.start_bytes)
    if not state.rungs:
        return ladder.with_(rungs=_rungs(state, step))
    raced = _of_final(state, ladder)
    if raced.ratio is None or raced.high >= 1:
        raced = _of_single_rung(state, raced)
    trouble = _trouble(state) or ("" if raced.ratio is not None and raced.high < 1 else NOT_CONFIRMED)
    if raced.ratio is None and not trouble.startswith(FAILED):
        trouble = NO_TIME_FOR_ALL
    peak = state.rungs[-1].peak_bytes if not state.dropped else None
    if not trouble and not was_compared(raced.verified):
        trouble = f"{FAILED}{raced.verified or 'the losses of all of it were not compared'}"
    trouble = CHANGED if withhold else trouble
    files = () if trouble else _files(state)
    rungs = _rungs(state, raced.seconds_per_step)
    untested = state.final.untested if state.final is not None else ()
    return raced.with_(rungs=rungs, files=files, untested=untested, trouble=trouble, patched_peak_memory_bytes=peak)


def _of_final(state: Climb, ladder: Ladder) -> Ladder:
    """The ladder with what the final race said, as it is where there was none."""
    if state.final is None:
        return ladder
    ledger, start, top = state.final.ledger, state.final.start, state.final.top
    seen = comparison(ledger, start, top, state.final.stage, least=LEAST)
    if seen is None:
        return ladder
    before = statistics.median(block.seconds_per_step for block in ledger.blocks(start.key))
    return ladder.with_(
        ratio=seen.ratio,
        low=seen.low,
        high=seen.high,
        clock=seen.clock,
        rounds=seen.n,
        verified=ledger.checked.get(top.key, ""),
        seconds_per_step=before,
        patched_seconds_per_step=before * seen.ratio,
    )


def _of_single_rung(state: Climb, ladder: Ladder) -> Ladder:
    """The ladder with the race of its only rung, which was one against the user's code; as it is where there are others.

    That race may have resolved more than one of whole steps does: a part of the step, timed inside it. Where the final race
    excludes what it says, the final race stands.
    """
    if len(state.rungs) != 1 or state.dropped or ladder.seconds_per_step is None or _trouble(state):
        return ladder
    (rung,) = state.rungs
    assert rung.winner.saving is not None
    ratio, low, high = _ratios(rung)
    if ladder.low > high:
        return ladder
    return ladder.with_(
        ratio=ratio,
        low=low,
        high=high,
        clock=rung.winner.saving.clock,
        rounds=rung.rounds,
        verified=rung.winner.verified,
        patched_seconds_per_step=ladder.seconds_per_step * ratio,
    )


def _trouble(state: Climb) -> str:
    """Why all of it together could not be raced, "" where it could or was not."""
    failed = state.final.ledger.failures if state.final is not None else {}
    for variant in (state.final.top, state.final.start) if state.final is not None else ():
        if variant.key in failed:
            return f"{FAILED}{failed[variant.key]}"
    return ""


def _rungs(state: Climb, step: float | None) -> tuple[Rung, ...]:
    """The rungs that stayed, each with the product of the races so far, and behind them those that were taken out.

    step: seconds per step of the user's code.
    """
    found, ratio, error = [], 1.0, 0.0
    lowest = min((at for _, _, at in state.dropped), default=len(state.rungs))
    for number, accepted in enumerate(state.rungs):
        if number >= lowest:  # raced on one that was taken out: what it makes of the step without that is not known
            found.append(_rung(accepted))
            continue
        mine, low, high = _ratios(accepted)
        ratio *= mine
        error = math.hypot(error, max(math.log(high / mine), math.log(mine / low)))
        from_start = (ratio, ratio * math.exp(-error), ratio * math.exp(error))
        found.append(_rung(accepted, step and step * ratio, from_start, accepted.peak_bytes))
    found += [_rung(accepted, dropped=why) for accepted, why, _ in state.dropped]
    return tuple(found)


def _ratios(accepted: Accepted) -> tuple[float, float, float]:
    """Whole step with the rung over that without it: middle, low, high; above zero, so that they can be multiplied."""
    saving = accepted.winner.saving
    assert saving is not None
    low, high = max(1 - saving.high, 1e-6), max(1 - saving.low, 1e-6)
    return accepted.ratio, low, high


def _rung(
    accepted: Accepted,
    seconds: float | None = None,
    from_start: tuple[float | None, float | None, float | None] = (None, None, None),
    peak_bytes: int | None = None,
    dropped: str = "",
) -> Rung:
    winner = accepted.winner
    assert winner.fix is not None and winner.location is not None and winner.saving is not None
    ratio, low, high = _ratios(accepted)
    return Rung(
        winner.knob,
        winner.settings,
        winner.words,
        winner.fix.changes,
        winner.location,
        winner.fix.diff,
        ratio,
        low,
        high,
        winner.saving.clock,
        seconds,
        peak_bytes,
        *from_start,
        verified=winner.verified,
        dropped=dropped,
    )


def _files(state: Climb) -> tuple[FilePatch, ...]:
    """The patch of all rungs, file by file, against what was measured."""
    patches = []
    for path, after in texts_of(state).items():
        before, encoding = state.originals[path]
        patches.append(file_patch(path, before, after, encoding))
    return tuple(patches)
