"""What pays, raced together in one training and without each patch: who is taken out, and who stays undecided."""

from __future__ import annotations

import math
from collections.abc import Callable

from perfaudit.measure.child import ChildFailed
from perfaudit.measure.clock import Deadline
from perfaudit.measure.entrants import BASE
from perfaudit.measure.quads import FEWEST, USUAL_LOOK
from perfaudit.measurements import UNCHECKED, Interval
from perfaudit.tune.candidates import Candidate, in_place, least_gain, pays
from perfaudit.tune.climb_choice import drop_unchecked
from perfaudit.tune.climb_state import (
    ALL,
    SURE,
    Climb,
    looks_paying,
    looks_paying_beside,
    ratios_of,
    same_rungs,
    without,
)
from perfaudit.tune.climb_time import parts_of, quads_in
from perfaudit.tune.profile import Profile
from perfaudit.tune.race_results import Raced, doubt_of
from perfaudit.tune.race_so_far import LEAST, Lineup
from perfaudit.tune.screening import Screen
from perfaudit.tune.session import Session

NOT_BELIEVED = "the race of what pays together is not to be believed"


def race_beside(session: Session, profile: Profile, state: Climb, screen: Screen, deadline: Deadline) -> None:
    """Race all rungs against the user's code and against all but each one; take out what does not pay, and race again.

    What for certain gains less than LEAST beside the others goes, one at a time. What was shown to pay neither alone nor there
    goes too; what is left then was raced as a part, or is raced again.
    """
    while len(state.rungs) > 1 and deadline.seconds_left() > 0:
        quads = quads_in(
            profile, deadline.seconds_left(), parts_of(state.rungs), state.rungs, ratios_of(state, state.rungs)
        )
        if state.together() is not None and quads < USUAL_LOOK:
            return
        session.watch.stage(
            "all that pays together, and without each one: figures are the time of all patches over that of what is named"
        )
        state.parts = _parts(state, with_each=quads >= FEWEST)
        words = {BASE: "your code", ALL: "all patches", SURE: "what pays alone"}
        words |= {without(rung): f"without {rung.knob}" for rung in state.rungs}
        entrants = [in_place(key, part) for key, part in state.parts.items()]
        unsure = {without(rung): least_gain(rung) for rung in state.rungs if not state.is_sure(rung)}
        entrants = [item | {"least": max(LEAST, unsure.get(item["key"], LEAST))} for item in entrants]
        if state.beside.entrants or state.beside.notes:
            state.beside_before.append(state.beside)
        state.beside = Raced()
        try:
            screen.race("beside", Lineup(entrants, words, base=ALL), deadline, state.beside)
        except ChildFailed as failure:
            state.beside.notes.append(f"what pays was not raced together in one training: {failure}")
            return
        doubted = _leave_doubted(state)
        believed = [rung for rung in state.rungs if rung.key not in doubted]
        if not believed:
            return
        useless = {
            rung.key: seen for rung in believed if (seen := state.beside_the_others(rung)) and seen[1] > 1 - LEAST
        }
        if useless:
            worst = max((rung for rung in state.rungs if rung.key in useless), key=lambda rung: useless[rung.key][1])
            state.rungs.remove(worst)
            state.dropped.append((worst, _beside_words(useless[worst.key])))
        elif _is_settled(state, deadline):
            return


def _leave_doubted(state: Climb) -> set[str]:
    """Keys of rungs of which this race is not to be believed, as a control of their way is off; only what pays alone stays."""
    doubts = {rung.key: why for rung in state.rungs if (why := _doubt_beside(state, rung))}
    if doubts:
        knobs = [rung.knob for rung in state.rungs if rung.key in doubts]
        whose = f" for {' and '.join(knobs)}" if len(knobs) < len(state.rungs) else ""
        state.beside.notes.append(f"{NOT_BELIEVED}{whose}: {next(iter(doubts.values()))}")
        leave_unsure(state, lambda rung: rung.key not in doubts or state.is_sure(rung))
    return {*doubts}


def _doubt_beside(state: Climb, rung: Candidate) -> str:
    """Why it is not to be believed what a rung was seen to gain beside the others, "" where nothing speaks against it."""
    return doubt_of(state.beside, keys=[without(rung)])


def _is_settled(state: Climb, deadline: Deadline) -> bool:
    """Take out what was not shown to pay; whether the rest needs no race of its own, or can have none.

    Where time is over and the rest has no figure of its own, all of it stays if it was shown to be faster and each patch looks
    faster beside the others: that is what was measured.
    """
    rungs, dropped, whole = list(state.rungs), list(state.dropped), state.beside.interval(BASE)
    if not leave_unsure(state, lambda rung: _is_shown(state, rung)):
        return True
    rest = state.together()
    if rest is None and deadline.seconds_left():
        return False
    looks_faster = all((seen := state.beside_the_others(rung)) and seen[0] <= 1 - least_gain(rung) for rung in rungs)
    if (rest is None or rest[2] >= 1) and whole is not None and whole[2] < 1 and looks_faster:
        state.rungs, state.dropped = rungs, dropped
    return True


def _is_shown(state: Climb, rung: Candidate) -> bool:
    """Whether a patch was shown to pay, alone or beside the others; or looked so in both races where all of it was shown to pay.

    Each race is of other steps. A useless patch passes the first by chance in one case of six, and both in one of a hundred.
    """
    if state.is_sure(rung) or pays(rung, state.beside_the_others(rung)):
        return True
    whole = state.beside.interval(BASE)
    return whole is not None and whole[2] < 1 and looks_paying(state, rung) and looks_paying_beside(state, rung)


def _parts(state: Climb, with_each: bool) -> dict[str, list[Candidate]]:
    """What is raced together: all rungs and, if there is time for each, all but each one, and those that pay alone."""
    parts = {ALL: list(state.rungs)}
    if with_each:
        parts |= {without(rung): [other for other in state.rungs if other is not rung] for rung in state.rungs}
        sure = [rung for rung in state.rungs if state.is_sure(rung)]
        if sure and not any(same_rungs(part, sure) for part in parts.values()):
            parts[SURE] = sure
    return parts


def leave_unsure(state: Climb, is_sure: Callable[[Candidate], bool]) -> bool:
    """Take out the rungs that were not shown to pay; whether there were any. They stay undecided."""
    unsure = [rung for rung in state.rungs if not is_sure(rung)]
    for rung in unsure:
        state.rungs.remove(rung)
        seen = state.beside_the_others(rung)
        why = _beside_words(seen) if seen else "there was no time to race it beside the others"
        why = NOT_BELIEVED if _doubt_beside(state, rung) else why
        state.dropped.append((rung, f"undecided: {why}"))
    return bool(unsure)


def leave_unchecked(state: Climb) -> None:
    """Take out all rungs: no time is left to check a patch. Those that were shown to pay are named with that reason."""
    for rung in state.rungs:
        if state.is_sure(rung):
            drop_unchecked(state, rung, UNCHECKED)
    state.rungs = []


def keep_what_is_known(state: Climb) -> None:
    """Nothing will say what all of it gains together: hand over the patch that gains most, or those that were raced in halves.

    Of these it is known. The others are named.
    """
    halves = [rung for rung in state.rungs if rung.key in state.alone.in_halves]
    first = state.rungs[0]
    together = math.prod(seen[0] for rung in halves if (seen := state.alone.interval(rung.key)))
    own = state.alone.interval(first.key)
    kept = halves if halves and own is not None and together <= own[0] else [first]
    beside = " and ".join(dict.fromkeys(rung.knob for rung in kept))
    for rung in state.rungs:
        if rung in kept:
            continue
        seen = state.alone.interval(rung.key)
        assert seen is not None
        state.left[rung.knob] = (
            f"{rung.words}: takes {seen[0]:.3f} [{seen[1]:.3f}, {seen[2]:.3f}] of the step by itself (screened); there was "
            f"no time to race it together with {beside}"
        )
        state.not_joined.add(rung.knob)
    state.rungs = kept


def _beside_words(seen: Interval) -> str:
    ratio, low, high = seen
    return f"beside the others it takes {ratio:.3f} [{low:.3f}, {high:.3f}] of the time without it"
