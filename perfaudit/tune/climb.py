"""From the user's code upwards: patches accepted one on top of the other, each measured on what stands below it.

The order is greedy: first a look at every patch on the user's code, then those first that gain most for certain per second
of measuring. Savings interact, so each is searched on top of what was accepted before it, and what the last of them stands
on is in both sides of its race. At the end all of them are raced against the user's code, and each against the rest
without it: one that no longer pays is taken out again.
"""

from __future__ import annotations

from pathlib import Path

from perfaudit.knobs import knob
from perfaudit.measure.child import ChildFailed
from perfaudit.measure.clock import Deadline
from perfaudit.measurements import NO_TIME, Comparison, Winner
from perfaudit.static.source import Unreadable, read_text
from perfaudit.tune.final import LEAST, START, final_race, seconds_for_final
from perfaudit.tune.learning import stand_on
from perfaudit.tune.look import gains_per_second
from perfaudit.tune.outcome import UNDECIDED, comparisons_of, judged, winner_of
from perfaudit.tune.search import flag_for, not_allowed, search
from perfaudit.tune.shares import in_order, seconds_for, seconds_to_decide, weight
from perfaudit.tune.tuning import Accepted, Bout, Climb, Tuning, bout_of, key_of, taken_bytes
from perfaudit.tune.verify import was_compared

LOOKING_SHARE = 0.15  # of the budget, for the first look at all patches
OFFERED = frozenset({"precision"})  # changes that may gain most and are not taken unasked: told, not handed over
SEARCHES = 2  # of one knob: on what stood when its turn came, and once more on all that was accepted since


def climb(tuning: Tuning, state: Climb, knobs: list[str], deadline: Deadline, memory_budget: int) -> None:
    """Climb with these knobs until nothing clears the noise or the time is over; the result is in `state` and `tuning`.

    memory_budget: bytes, which the peak of a step with a patch may not exceed.
    """
    state.start_bytes = _peak_bytes(tuning)
    idle = [name for name in knobs if weight(tuning, name) == 0.0]
    for name in idle:
        search(tuning, name, tuning.deadline(0.0), 0)  # which says why it cannot matter, and takes no time
    possible = [name for name in knobs if name not in idle and _is_allowed(state, name)]
    gains = gains_per_second(tuning, state, possible, tuning.deadline(LOOKING_SHARE * deadline.left()))
    waiting = sorted(in_order(tuning, possible), key=lambda name: -gains.get(name, 0.0))
    searched: dict[str, list[int]] = {name: [] for name in knobs}  # the number of rungs on which each search stood
    while waiting:
        name = waiting.pop(0)
        # The race of a first rung is one against the user's code, so that it can do without another.
        left = deadline.left() - (seconds_for_final(tuning, state) if state.rungs else 0.0)
        if left < seconds_to_decide(tuning):
            if not searched[name]:
                state.left[name] = NO_TIME
            continue
        rungs = len(state.rungs)
        behind = [*waiting, *_to_offer(state)]
        _search(tuning, state, name, tuning.deadline(seconds_for(tuning, name, behind, left)), memory_budget, searched)
        if len(state.rungs) > rungs:
            waiting += [name for name in _no_longer_idle(tuning, idle) if _is_allowed(state, name)]
        if not waiting:
            waiting = _worth_another_search(tuning, state, searched)
    offers = _to_offer(state)
    while offers:
        name = offers.pop(0)
        left = deadline.left() - (seconds_for_final(tuning, state) if state.rungs else 0.0)
        _offer(tuning, state, name, tuning.deadline(seconds_for(tuning, name, offers, left)), memory_budget)
    final_race(tuning, state, deadline)


def _peak_bytes(tuning: Tuning) -> int | None:
    """The peak memory of a step of the user's code, None where it cannot be told."""
    try:
        peak: int | None = tuning.ask("memory", START, {"do": "memory"})[1].get("peak_bytes")
    except ChildFailed:
        return None
    return peak


def _is_allowed(state: Climb, name: str) -> bool:
    """Whether some patch of a knob may be allowed; why none is, is kept."""
    changes = [change for change in knob(name).changes_always if change not in state.allow]
    if changes:
        state.lacking[name] = tuple(changes)
        state.left[name] = not_allowed(tuple(changes), state.allow)
    return not changes


def _to_offer(state: Climb) -> list[str]:
    """Knobs whose patches change nothing but OFFERED besides what is allowed; none where nothing besides speed may change."""
    return [name for name, changes in state.lacking.items() if changes and set(changes) <= OFFERED and state.allow]


def _offer(tuning: Tuning, state: Climb, name: str, deadline: Deadline, memory_budget: int) -> None:
    """Race a knob whose patches are not allowed, on top of what was accepted, and say what it would gain; nothing is taken."""
    changes = state.lacking[name]
    how = f"it changes {' and '.join(changes)}: {flag_for(changes, state.allow)}"
    told = len(tuning.not_applicable)
    if deadline.left() < seconds_to_decide(tuning):
        state.left[name] = f"not measured, for want of time; {how}"
        return
    search(tuning, name, deadline, memory_budget, state.allow | OFFERED)
    refused, tuning.not_applicable[told:] = tuning.not_applicable[told:], []
    bout = bout_of(tuning, name)
    if bout is None:
        state.left[name] = f"not measured: {refused[0].reason if refused else NO_TIME}; {how}"
        return
    state.offered.add(name)
    tuning.record.results(tuning, bout)
    winner = winner_of(tuning, bout)
    undecided = winner.words == UNDECIDED
    state.left[name] = f"{'measured too briefly to say what it would gain' if undecided else winner.words}; {how}"
    if not winner.keeps_current and winner.saving is not None:
        ratio = 1 - bout.share * (1 - _decisive(tuning, bout, winner).ratio)
        of = "step with the rungs above" if state.rungs else "step"
        interval = f"[{1 - winner.saving.high:.2f}, {1 - winner.saving.low:.2f}]"
        state.left[name] = f"{winner.words}: would take {ratio:.2f} {interval} of the {of}; {how}"


def _no_longer_idle(tuning: Tuning, idle: list[str]) -> list[str]:
    """Knobs whose part of the step was too small, and is no longer, now that the rest of the step got faster."""
    back = [name for name in idle if weight(tuning, name) > 0.0]
    idle[:] = [name for name in idle if name not in back]
    tuning.not_applicable = [item for item in tuning.not_applicable if item.knob not in back]
    return back


def _search(
    tuning: Tuning,
    state: Climb,
    name: str,
    deadline: Deadline,
    memory_budget: int,
    searched: dict[str, list[int]],
) -> None:
    """Search a knob on top of what was accepted, and accept its winner."""
    searched[name].append(len(state.rungs))
    before, told = bout_of(tuning, name), len(tuning.not_applicable)
    if before is not None:
        tuning.bouts.remove(before)
    search(tuning, name, deadline, memory_budget, state.allow)
    refused, tuning.not_applicable[told:] = tuning.not_applicable[told:], []
    bout = bout_of(tuning, name)
    if bout is None and before is not None:
        tuning.bouts.append(before)  # what the first search found stays
    if bout is None:
        state.left |= {item.knob: item.reason for item in refused if before is None}
        return
    tuning.record.results(tuning, bout)
    winner = winner_of(tuning, bout)
    if not winner.keeps_current and winner.fix is not None and winner.location is not None:
        _accept(tuning, state, bout, winner, memory_budget, list(searched))


def _accept(tuning: Tuning, state: Climb, bout: Bout, winner: Winner, memory_budget: int, knobs: list[str]) -> None:
    """Stand on the winner's source from here on, or say why not."""
    assert winner.fix is not None and winner.location is not None
    path = winner.location.path
    if not was_compared(winner.verified):
        state.left[bout.name] = f"it won its race, and {winner.verified or 'its losses were not compared'}"
        return
    below = tuning.overlay, tuning.facts, tuning.findings
    try:
        if path not in state.originals:
            state.originals[path] = read_text(Path(path))
        memory = stand_on(tuning, bout.variants[key_of(bout.name, winner.settings)].overlay, knobs)
    except (ChildFailed, Unreadable) as failure:  # it was there and was measured a moment ago; nothing stands on it now
        tuning.overlay, tuning.facts, tuning.findings = below
        state.left[bout.name] = f"it won its race and then could not be built again: {failure}"
        return
    peak = memory.get("peak_bytes")
    if peak is not None and taken_bytes(memory) > memory_budget:
        tuning.overlay, tuning.facts, tuning.findings = below
        sizes = f"{taken_bytes(memory) / 2**20:.0f} MiB, more than the budget of {memory_budget / 2**20:.0f} MiB"
        state.left[bout.name] = f"it won its race, but the peak of a step is {sizes}"
        return
    compared = _decisive(tuning, bout, winner)
    ratio = 1 - bout.share * (1 - compared.ratio)
    opening = bout.ledger.seconds_to_open
    state.rungs.append(Accepted(winner, path, winner.fix.edits, ratio, compared.n, peak, opening))
    state.left.pop(bout.name, None)
    tuning.watch.stage(f"rung {len(state.rungs)}: {winner.words}")


def _decisive(tuning: Tuning, bout: Bout, winner: Winner) -> Comparison:
    return judged(bout, comparisons_of(tuning, bout))[key_of(bout.name, winner.settings)]


def _worth_another_search(tuning: Tuning, state: Climb, searched: dict[str, list[int]]) -> list[str]:
    """Knobs that looked faster and were not shown to be, where other rungs or time may decide it, most promising first."""
    taken = {rung.winner.knob for rung in state.rungs}
    looked: dict[str, float] = {}
    for bout in tuning.bouts:
        if bout.name in taken or len(searched[bout.name]) >= SEARCHES:
            continue
        seen = judged(bout, comparisons_of(tuning, bout)).values()
        ratio = min((c.ratio for c in seen if not c.given_up), default=1.0)
        stands_lower = searched[bout.name][-1] < len(state.rungs)
        undecided = winner_of(tuning, bout).words == UNDECIDED
        if ratio < 1 - LEAST and (stands_lower or undecided):
            looked[bout.name] = ratio
    return sorted(looked, key=lambda name: looked[name])
