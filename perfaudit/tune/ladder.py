"""A climb as a ladder for the report: rungs, the final race, one patch. Reads what was measured, measures nothing."""

from __future__ import annotations

import math
from dataclasses import replace

from perfaudit.findings import FilePatch, Saving
from perfaudit.measure.entrants import BASE
from perfaudit.measure.judge import comparison, typical_step
from perfaudit.measure.runner import ENDS_EARLY
from perfaudit.measure.stats import LOOKS
from perfaudit.measurements import UNCHECKED, Comparison, Interval, Ladder, NotApplicable, Rung, Winner
from perfaudit.static import unified_diff
from perfaudit.static.patching import file_patch
from perfaudit.tune.candidates import Candidate, texts_of
from perfaudit.tune.climb_state import Climb
from perfaudit.tune.climb_time import CHECKING_SECONDS, CHECKING_STARTS
from perfaudit.tune.losses import was_compared
from perfaudit.tune.patched_source import SourceRace
from perfaudit.tune.race_results import long_steps_words
from perfaudit.tune.race_so_far import LEAST

LAST = LOOKS[-1].generations  # of a final race
SLOW_START = 5.0  # seconds; starts that take longer cost a budget of minutes its final race
FAILED = "not handed over: "
CHANGED = f"{FAILED}source files changed while they were measured"
NOT_CONFIRMED = f"{FAILED}the final race did not show that all of it together is faster"
OF_A_TWIN = (
    "part of what is handed over was raced in a second training beside yours (a twin), and its time is only screened: where in "
    "memory a training lies changes its time too, and that is not in the interval"
)
NO_TIME_FOR_ALL = f"{FAILED}the time ended before all of it was raced together"


def ladder_of(state: Climb, withhold: bool = False, not_learning: str = "") -> Ladder:
    """What a climb has come to, complete or not.

    The patch is handed over only where its losses were compared with those of the user's code, and a race shows it to be faster:
    the final one or, where that has not decided, the one in the training that ran. withhold: hand over none, because the files
    are no longer what was measured. not_learning: the note that the losses of the user's code became no numbers, "" for none.
    """
    ladder = Ladder(
        rungs=_rungs(state),
        changes=state.changes,
        left=tuple(
            NotApplicable(name, reason, name in state.late)
            for name, reason in (
                *state.left.items(),
                *(each for each in (state.too_small | state.out).items() if each[0] not in state.left),
                *state.faster_undecided.items(),
            )
        ),
        offered=tuple(state.offered),
        offered_ratios={
            name: seen for name, each in state.offered.items() if (seen := state.alone.interval(each.key)) is not None
        },
        failed=tuple(state.failed_knobs),
        undecided=tuple(dict.fromkeys(candidate.knob for candidate in state.undecided_candidates)),
        seconds_per_step=state.alone.seconds_per_step,
        clock=state.alone.clock,
        peak_memory_bytes=state.start_bytes,
        patched_peak_memory_bytes=state.top_bytes if state.rungs else None,
        not_learning=not_learning,
    )
    if not state.rungs:
        return ladder
    raced = _with_ratio(state, ladder)
    trouble = CHANGED if withhold else _trouble(state, raced)
    files = () if trouble else _files(state)
    others = [] if state.were_halves or len(state.rungs) < 2 else state.rungs
    untested = tuple(each.knob for each in others if state.beside_the_rungs(each) is None)
    return raced.with_(files=files, untested=untested, trouble=trouble)


def start_words(state: Climb, seconds: float) -> list[str]:
    """What the starts of a script cost, in seconds each, and what was left out for want of that time; nothing of quick ones."""
    if seconds < SLOW_START:
        return []
    said = f"each start of the script takes {seconds:.0f} s"
    if any(why == UNCHECKED for _, why in state.dropped):
        more = math.ceil(CHECKING_SECONDS + CHECKING_STARTS * seconds)
        return [f"{said}, and the check of a patch has {CHECKING_STARTS} of them: give --budget some {more} s more"]
    if not state.rungs or state.final is None or state.trouble or state.final.top.key in state.final.ledger.failures:
        return [said]
    pairs = len(state.final.ledger.generations)
    if not pairs:
        return [f"{said}: there was no time left for a race of fresh processes"]
    if pairs < LOOKS[0].generations:
        return [f"{said}: of the race of fresh processes there was time for {pairs} of {LOOKS[0].generations} pairs"]
    starts = (1 + len(state.final.patches)) * pairs
    return [f"{said}, and the race of fresh processes made {starts} of them"]


def winners_of(state: Climb, ladder: Ladder) -> tuple[Winner, ...]:
    """The rungs as winners of their knobs; without their fixes where the ladder hands nothing over."""
    verified = _check_words(state, ladder.not_learning)
    found = []
    for rung in state.rungs:
        beside = state.beside_the_rungs(rung)
        saved = state.alone.saving(rung.key)
        if (measured := state.beside_measured.get(rung.key)) is not None:
            saved = Saving("measured", 1 - measured.high, 1 - measured.low, None, clock=measured.clock)
        elif not state.is_sure(rung) and beside is not None:  # shown there to pay
            saved = Saving("screened", 1 - beside[2], 1 - beside[1], None, clock=state.beside.clock)
        fix = None if ladder.trouble else rung.fix
        found.append(
            Winner(rung.knob, rung.settings, False, rung.words, saved, fix, rung.location, verified)
        )  # fmt: skip
    return tuple(found)


def _check_words(state: Climb, not_learning: str) -> str:
    """What the check of all of it said, and that the steps after those do not learn; "" before the check."""
    said = state.final.ledger.checked.get(state.final.top.key, "") if state.final is not None else ""
    return f"{said}; after these steps {not_learning}" if said and not_learning else said


def _with_ratio(state: Climb, ladder: Ladder) -> Ladder:
    """The ladder with what the final race said; with the screening's figure where that has not decided."""
    screened = state.together()
    ladder = ladder.with_(screened=screened)
    if state.final is None:
        return ladder
    ledger, start, top = state.final.ledger, state.final.start, state.final.top
    ladder = ladder.with_(
        verified=_check_words(state, ladder.not_learning), losses=ledger.losses.get(top.key),
        phases=ledger.phases(start.key, state.final.clock), patched_phases=ledger.phases(top.key, state.final.clock),
    )  # fmt: skip
    clock = state.final.clock
    seen = comparison(ledger, start, top, state.final.stage, clock=clock, least=LEAST)
    if screened is not None and _leaves_open(state.final, seen, screened):
        ratio, low, high = screened
        step = state.seconds_together
        return ladder.with_(
            ratio=ratio,
            low=low,
            high=high,
            basis="screened",
            clock=state.race_together.clock,
            has_twin=state.has_twin,
            is_chosen_by_it=state.were_halves and state.beside.interval(BASE) is None,
            rounds=seen.n if seen is not None else 0,
            final_so_far=(seen.ratio, seen.low, seen.high) if seen is not None and seen.has_ratio else None,
            seconds_per_step=step,
            patched_seconds_per_step=step and step * ratio,
        )
    if seen is None:
        return ladder
    before = typical_step(ledger, start.key, clock)
    return ladder.with_(
        ratio=seen.ratio,
        low=seen.low,
        high=seen.high,
        basis="measured",
        clock=seen.clock,
        rounds=seen.n,
        seconds_per_step=before,
        patched_seconds_per_step=before and before * seen.ratio,
    )


def _leaves_open(final: SourceRace, seen: Comparison | None, screened: Interval) -> bool:
    """Whether the final race has not decided, and says nothing against the screening's figure.

    It decides at its last look, whatever it shows there. Before, its middle must not lie above the screening's interval; one
    below it only shows that the figure is no exaggeration. Without an interval it tells nothing.
    """
    if seen is None:
        return True
    if (
        seen.verdict != "undecided"
        or final.ledger.generations_with(final.start.key, final.top.key, final.stage) >= LAST
    ):
        return False
    return not math.isfinite(seen.high) or seen.ratio <= screened[2]


def _trouble(state: Climb, raced: Ladder) -> str:
    """Why nothing is handed over, "" where it is."""
    if state.trouble:
        return f"{FAILED}{state.trouble}"
    failed = state.final.ledger.failures if state.final is not None else {}
    for variant in (state.final.top, state.final.start) if state.final is not None else ():
        if variant.key in failed and not (failed[variant.key].startswith(ENDS_EARLY) and was_compared(raced.verified)):
            return f"{FAILED}{failed[variant.key]}"
    if not was_compared(raced.verified):
        return f"{FAILED}{raced.verified or 'the losses with all patches were not compared'}"
    if raced.ratio is None:
        return NO_TIME_FOR_ALL
    if raced.basis == "screened" and (doubt := state.doubt or long_steps_words(*state.races)):
        return f"{FAILED}{doubt}"
    return "" if raced.high < 1 else NOT_CONFIRMED


def _rungs(state: Climb) -> tuple[Rung, ...]:
    """The rungs that stayed, and behind them those that were taken out again."""
    found, below = [], list[Candidate]()
    for rung in state.rungs:
        found.append(_rung(state, rung, _diff(state, below, rung)))
        below.append(rung)
    return (*found, *(_rung(state, rung, rung.fix.diff, why) for rung, why in state.dropped))


def _rung(state: Climb, rung: Candidate, diff: str, dropped: str = "") -> Rung:
    if (measured := state.beside_measured.get(rung.key)) is not None:
        figure = (measured.ratio, measured.low, measured.high)
        words, place = rung.words, rung.location
        if len(state.rungs) == 1:
            return Rung(rung.knob, rung.settings, words, rung.fix.changes, place, diff, *figure, basis="measured")
        of = Rung(rung.knob, rung.settings, words, rung.fix.changes, place, diff, None, 0.0, math.inf, basis="measured")
        return replace(of, beside=figure)
    ratio, low, high = state.alone.interval(rung.key) or (None, 0.0, math.inf)
    quads, way = state.alone.entrants[rung.key].quads, state.alone.ways.get(rung.key, "")
    return Rung(
        rung.knob,
        rung.settings,
        rung.words,
        rung.fix.changes,
        rung.location,
        diff,
        ratio,
        low,
        high,
        quads,
        way,
        state.beside_the_others(rung) if dropped else state.beside_the_rungs(rung),
        dropped=dropped,
        in_halves=rung.key in state.alone.in_halves,
    )


def _diff(state: Climb, below: list[Candidate], rung: Candidate) -> str:
    """What a rung changes of its file, as the rungs before it have left that."""
    before = texts_of(below).get(rung.path, rung.before)
    return unified_diff.diff_of_file(
        rung.path, before, texts_of([*below, rung])[rung.path], state.originals[rung.path][1]
    )


def _files(state: Climb) -> tuple[FilePatch, ...]:
    """The patch of all rungs, file by file, against what was measured."""
    patches = []
    for path in state.texts:
        before, encoding = state.originals[path]
        edits = [item for rung in state.rungs if rung.path == path for item in rung.edits]
        patches.append(file_patch(path, before, edits, encoding))
    return tuple(patches)
