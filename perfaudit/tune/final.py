"""The last race of a climb: the patched source against the user's code, in fresh processes, its losses checked first."""

from __future__ import annotations

from collections.abc import Sequence

from perfaudit.measure.child import ChildFailed
from perfaudit.measure.clock import Deadline
from perfaudit.measure.ledger import Ledger, Variant
from perfaudit.measure.runner import least_seconds
from perfaudit.tune.candidates import Candidate, texts_of
from perfaudit.tune.climb_state import Climb
from perfaudit.tune.climb_time import seconds_to_check
from perfaudit.tune.patched import SourceRace, check_patched, race_patched
from perfaudit.tune.tuning import Tuning, digest_of_texts, taken_bytes

KNOB = "climb"  # in the place of a knob's name: its variants are patches, and nothing is applied at run time
START = Variant("as it is", KNOB, {"patch": "none"})


def final_race(tuning: Tuning, state: Climb, deadline: Deadline, memory_budget: int) -> None:
    """Check and race what was chosen; the race is in `state.final` from its beginning, so that an interruption keeps it.

    Where the check refuses all of it together, each rung is checked alone, those that are refused are taken out, and the rest is
    checked and raced. memory_budget: bytes that the peak of a step with the patch may have.
    """
    while state.rungs:
        top = _patched("all", state.rungs)
        _ask_peaks(tuning, state, top)
        if state.top_bytes is not None and state.top_bytes > memory_budget:
            sizes = " MiB, more than the budget of ".join(f"{n / 2**20:.0f}" for n in (state.top_bytes, memory_budget))
            state.trouble = f"the peak of a step with the patch is {sizes} MiB"
            return
        ledger = Ledger(seconds_to_open=tuning.seconds_to_open, seconds_per_step=tuning.seconds_per_step)
        stage = f"final {digest_of_texts(top.overlay)}"
        state.final = SourceRace(START, (top,), {top.key: state.changes}, stage, ledger)
        tuning.watch.stage("the patched source against your code, in fresh processes")
        if deadline.left() > seconds_to_check(tuning) + 2 * least_seconds(ledger):
            race_patched(tuning, state.final, deadline)
        if not ledger.generations and top.key not in ledger.failures and top.key not in ledger.checked:
            check_patched(tuning, state.final)
        if top.key not in ledger.failures or len(state.rungs) == 1 or not _drop_refused(tuning, state):
            return


def _patched(key: str, rungs: Sequence[Candidate]) -> Variant:
    return Variant(key, KNOB, {"patch": key}, texts_of(rungs))


def _ask_peaks(tuning: Tuning, state: Climb, top: Variant) -> None:
    """The peak memory of a step without and with the patch; None where it cannot be told."""
    state.start_bytes, state.top_bytes = (_peak(tuning, variant) for variant in (START, top))


def _peak(tuning: Tuning, variant: Variant) -> int | None:
    try:
        return taken_bytes(tuning.memory_of(variant))
    except ChildFailed:
        return None


def _drop_refused(tuning: Tuning, state: Climb) -> bool:
    """Check each rung alone and take out what is refused, the smallest where all pass alone; whether something is left."""
    tuning.watch.stage("which of the patches is refused")
    changes = {candidate.key: candidate.fix.changes for candidate in state.rungs}
    alone = SourceRace(START, tuple(_patched(candidate.key, [candidate]) for candidate in state.rungs), changes)
    check_patched(tuning, alone)
    refused = [candidate for candidate in state.rungs if candidate.key in alone.ledger.failures]
    for candidate in refused:
        state.rungs.remove(candidate)
        state.dropped.append((candidate, f"its patch is refused: {alone.ledger.failures[candidate.key]}"))
    if not refused and state.final is not None:
        why = state.final.ledger.failures.get(state.final.top.key, "")
        state.dropped.append((state.rungs.pop(), f"beside the others its patch is refused: {why}"))
    return bool(state.rungs)
