"""From the user's code upwards: patches accepted one on top of the other, each measured on what stands below it.

The order is greedy: first a look at every patch on the user's code, then those first that gain most for certain per second
of measuring. Savings interact, so each is searched again where the others have been accepted, and what the last of them
stands on is in both sides of its race. At the end all of them are raced against the user's code, and each against the rest
without it: one that no longer pays is taken out again.
"""

from __future__ import annotations

import math
from dataclasses import replace

from perfaudit.knobs import Bench, Probe, Refused, Reply, Unanswered, knob
from perfaudit.measure.child import ChildFailed
from perfaudit.measure.clock import Deadline
from perfaudit.measure.ledger import Ledger, Variant, wall
from perfaudit.measure.runner import affordable, measure
from perfaudit.measurements import Winner
from perfaudit.tune.final import LEAST, START, final_race, seconds_for_final
from perfaudit.tune.learning import stand_on
from perfaudit.tune.outcome import UNDECIDED, comparisons_of, judged, winner_of
from perfaudit.tune.search import NO_TIME, not_allowed, patch_for, search
from perfaudit.tune.shares import at_once, in_order, seconds_for, seconds_to_decide, weight
from perfaudit.tune.tuning import Accepted, Bout, Climb, Tuning, bout_of, key_of, variant_of

LOOKING_SHARE = 0.15  # of the budget, for the first look at all patches
LOOKED_AT_ONCE = 4  # patches beside the user's code in one look: five processes that each hold the model
LOOKING_ROUNDS = 3
SEARCHES = 2  # of one knob: on what stood when its turn came, and once more on all that was accepted since


def climb(tuning: Tuning, state: Climb, knobs: list[str], deadline: Deadline, memory_budget: int) -> None:
    """Climb with these knobs until nothing clears the noise or the time is over; the result is in `state` and `tuning`."""
    state.start_bytes = _peak_bytes(tuning)
    possible = [name for name in knobs if _is_possible(tuning, state, name)]
    gains = _look(tuning, state, possible, tuning.deadline(LOOKING_SHARE * deadline.left()))
    waiting = sorted(in_order(tuning, possible), key=lambda name: -gains.get(name, 0.0))
    searched: dict[str, list[int]] = {name: [] for name in possible}  # the number of rungs on which each search stood
    while waiting:
        name = waiting.pop(0)
        # The race of a first rung is one against the user's code, so that it can do without another.
        left = deadline.left() - (seconds_for_final(tuning, len(state.rungs) + 1) if state.rungs else 0.0)
        if left < seconds_to_decide(tuning):
            if not searched[name]:
                state.left[name] = NO_TIME
            continue
        _search(tuning, state, name, tuning.deadline(seconds_for(tuning, name, waiting, left)), memory_budget, searched)
        if not waiting:
            waiting = _worth_another_search(tuning, state, searched)
    final_race(tuning, state, deadline)


def _peak_bytes(tuning: Tuning) -> int | None:
    """The peak memory of a step of the user's code, None where it cannot be told."""
    try:
        return tuning.ask("memory", replace(START, key="memory"), {"do": "memory"})[1].get("peak_bytes")
    except ChildFailed:
        return None


def _is_possible(tuning: Tuning, state: Climb, name: str) -> bool:
    """Whether a knob may be climbed at all; why not is kept."""
    module = knob(name)
    if weight(tuning, name) == 0.0:
        search(tuning, name, tuning.deadline(0.0), 0)  # which says why, and takes no time
        return False
    if set(module.changes_always) <= state.allow:
        return True
    state.left[name] = not_allowed(tuple(c for c in module.changes_always if c not in state.allow))
    return False


# ---- the first look ----------------------------------------------------------------------------------------------------


def _look(tuning: Tuning, state: Climb, knobs: list[str], deadline: Deadline) -> dict[str, float]:
    """By knob, the share of the step gained in the worst of its rounds, per second that deciding about it would take.

    It says who comes first and judges nothing. Knobs that must ask before they know their candidates, and those whose
    settings change how batches are loaded, are not looked at: they come behind those that gained in every round.
    """
    tuning.watch.stage("a first look at every patch")
    patched = [found[0] for name in knobs for found in _patches(tuning, state, name)]
    base = replace(START, key="look", fixed_batch=True)
    gains: dict[str, float] = {}
    many = min(LOOKED_AT_ONCE, at_once(tuning, state.start_bytes) - 1)
    for number in range(0, len(patched), many):
        group = patched[number : number + many]
        groups_left = math.ceil((len(patched) - number) / many)
        ledger = Ledger(seconds_to_open=tuning.seconds_to_open)
        settings = {variant.key: variant.settings for variant in [base, *group]}
        ledger.on_block = lambda key, seconds, settings=settings: tuning.watch.block(settings[key], seconds)  # type: ignore[misc]  # bound now
        share = tuning.deadline(deadline.left() / groups_left)
        if affordable(ledger, share.left(), 1) < len(group) + 1:
            break
        stage = f"look {number}"
        measure(
            tuning.workshop.lab(), [base, *group], ledger, share, 4, stage, generations=1, rounds=LOOKING_ROUNDS,
            memo=tuning.record,
        )  # fmt: skip
        for variant in group:
            rounds = [value for found in ledger.log_ratios(base.key, variant.key, stage, wall) for value in found]
            if rounds:
                gain = 1 - math.exp(max(rounds))
                seconds = ledger.seconds_to_open + ledger.seconds_per_step
                gains[variant.knob] = max(gains.get(variant.knob, -math.inf), gain / max(seconds, 1e-9))
    return gains


def _patches(tuning: Tuning, state: Climb, name: str) -> list[tuple[Variant, tuple[str, ...]]]:
    """A knob's settings as patched source and what they change, those that are allowed and known without asking."""
    module = knob(name)
    if not module.fixed_batch or module.seconds_needed:
        return []

    def silent(*_: object, **__: object) -> Reply:
        raise Unanswered("nothing is asked in a first look")

    bench = Bench(tuning.facts, tuning.cores, 0, lambda s: Probe(s, failure="not tried"), silent)
    try:
        candidates = module.candidates(bench)
    except (Unanswered, Refused):
        return []
    variants = [variant_of(name, settings) for settings in candidates]
    found = [patch for variant in variants if (patch := patch_for(tuning, name, tuning.facts, variant)) is not None]
    return [(variant, fix.changes) for variant, fix, _ in found if set(fix.changes) <= state.allow]


# ---- rungs -------------------------------------------------------------------------------------------------------------


def _search(
    tuning: Tuning,
    state: Climb,
    name: str,
    deadline: Deadline,
    memory_budget: int,
    searched: dict[str, list[int]],
) -> None:
    """Search a knob on top of what was accepted, and accept its winner."""
    stood_on = searched[name]
    label = f"{name} on {len(state.rungs)}" if stood_on or state.rungs else name
    stood_on.append(len(state.rungs))
    before, reasons = bout_of(tuning, name), list(tuning.not_applicable)
    if before is not None:
        tuning.bouts.remove(before)
    search(tuning, name, deadline, memory_budget, state.allow, label)
    bout = bout_of(tuning, name)
    if bout is None and before is not None:  # what the first search found stays
        tuning.bouts.append(before)
        tuning.not_applicable = reasons
    if bout is None:
        return
    tuning.record.results(tuning, bout)
    winner = winner_of(tuning, bout)
    if winner.keeps_current or winner.fix is None or winner.location is None:
        return
    _accept(tuning, state, bout, winner, list(searched))


def _accept(tuning: Tuning, state: Climb, bout: Bout, winner: Winner, knobs: list[str]) -> None:
    assert winner.fix is not None and winner.location is not None
    rounds = judged(bout, comparisons_of(tuning, bout))[key_of(bout.name, winner.settings)].n
    below = tuning.overlay, tuning.facts, tuning.findings
    variant = bout.variants[key_of(bout.name, winner.settings)]
    try:
        peak = stand_on(tuning, variant.overlay, f"rung {len(state.rungs) + 1}, {bout.name}", knobs)
    except ChildFailed as failure:  # it was built and measured a moment ago; whatever it is, nothing stands on it
        tuning.overlay, tuning.facts, tuning.findings = below
        state.left[bout.name] = f"it won its race and then could not be built again: {failure}"
        return
    state.rungs.append(Accepted(winner, winner.location.path, winner.fix.edits, peak, rounds))
    state.left.pop(bout.name, None)
    tuning.watch.stage(f"rung {len(state.rungs)}: {winner.words}")


def _worth_another_search(tuning: Tuning, state: Climb, searched: dict[str, list[int]]) -> list[str]:
    """Knobs that looked faster and were not shown to be, where other rungs or time may decide it, most promising first."""
    taken = {rung.winner.knob for rung in state.rungs}
    looked: dict[str, float] = {}
    for bout in tuning.bouts:
        if bout.name in taken or len(searched.get(bout.name, ())) >= SEARCHES:
            continue
        seen = judged(bout, comparisons_of(tuning, bout)).values()
        ratio = min((c.ratio for c in seen if not c.given_up), default=1.0)
        stands_lower = searched[bout.name][-1] < len(state.rungs)
        undecided = winner_of(tuning, bout).words == UNDECIDED
        if ratio < 1 - LEAST and (stands_lower or undecided):
            looked[bout.name] = ratio
    return sorted(looked, key=lambda name: looked[name])
