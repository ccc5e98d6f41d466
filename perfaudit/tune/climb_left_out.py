"""Candidates that a climb leaves out where its time is too short for all of them, and those that it brings back."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from perfaudit.knobs import knob
from perfaudit.measure.halves import fewest_pairs
from perfaudit.measure.pace import steps_of_quad
from perfaudit.measure.quads import FEWEST, PAIR_LOOKS, USUAL_LOOK
from perfaudit.measure.race import quads_in_round
from perfaudit.tune.candidates import Candidate, how_to_allow
from perfaudit.tune.climb_state import Climb
from perfaudit.tune.climb_time import (
    WANTED_QUADS,
    in_halves,
    is_in_halves,
    is_most_of_step,
    number,
    paces_of,
    pairs_in,
    quads_of_screening,
    seconds_of_quads,
    seconds_to_start,
    share_seen,
)
from perfaudit.tune.profile import Profile

OFFERED_QUADS = 12  # that all must be able to have, before those that are not allowed take time from the others
SMALL_GAIN = 0.03  # of the step; what usually gains no more is raced last
TINY_SHARE = 0.02  # of the step; what works on no more gives way even to what is not allowed
TELLING_QUADS = FEWEST + 1  # with fewer there is no interval; one is lost where a step raises


def leave_out(profile: Profile, state: Climb, seconds: float, most: float = math.inf) -> None:
    """Where the time is too short for all, drop what is not allowed, and then what could gain least, as far as that is known.

    What is raced together takes little time from the others, and stays, unless there is next to no time. Where several loaders
    could not be raced to their first look, that with most workers stays. The last candidate stays: a race tells more than none.
    most: seconds that the race has where nothing is raced behind it.
    """
    shares = {name: knob(name).share(profile.survey) for name in {c.knob for c in state.candidates.values()}}
    gains = {name: knob(name).likely_gain(profile.survey) for name in shares}
    _leave_out_offers(profile, state, seconds, shares)
    while _rounds_in(profile, seconds, state) < USUAL_LOOK and (fewest := _fewest_workers(state)) is not None:
        del state.candidates[fewest.key]
    of_halves = _knobs_in_halves(state)
    for name in sorted(dict.fromkeys(c.knob for c in state.candidates.values()), key=lambda name: gains[name]):
        is_last = len(_of_knob(state, name)) == len(state.candidates)
        if _quads_in(profile, seconds, state) >= WANTED_QUADS or gains[name] > SMALL_GAIN or is_last:
            break
        if name not in of_halves:
            _leave_out_knob(state, name, shares)
    longest = max(seconds, most)
    while not _is_told(profile, longest, state):
        if not _leave_one_out(profile, state, longest, shares, gains):
            break


def _leave_out_offers(profile: Profile, state: Climb, seconds: float, shares: Mapping[str, float]) -> None:
    """Drop what is not allowed for the others' sake, and before any of it what works on next to nothing of the step.

    One setting of it stays where it works on most of the step.
    """
    of_halves, offers = _knobs_in_halves(state), _offers_by_need(state, shares)
    for name in _tiny_knobs(profile, state) if offers else ():
        if _quads_in(profile, seconds, state) < OFFERED_QUADS and name not in of_halves:
            _leave_out_knob(state, name, shares)
    for candidate in offers:
        if _quads_in(profile, seconds, state) >= OFFERED_QUADS or len(state.candidates) == 1:
            break
        if len(_of_knob(state, candidate.knob)) == 1 and is_most_of_step(profile, candidate.knob):
            continue
        del state.candidates[candidate.key]
        if not _of_knob(state, candidate.knob):
            state.left[candidate.knob] = f"not measured, for want of time; {how_to_allow(candidate, state.allow)}"
            state.late.add(candidate.knob)
            state.lacking[candidate.knob] = candidate.lacks


def _leave_one_out(
    profile: Profile, state: Climb, seconds: float, shares: Mapping[str, float], gains: Mapping[str, float]
) -> bool:
    """Where all would be raced too briefly to say anything, drop a setting of a knob that has several, else a knob.

    Whether something was dropped: the last candidate stays, and so do those in halves where one alone would not be told either.
    """
    candidates = [*state.candidates.values()]
    slow = [each for each in candidates if not is_in_halves(each)]
    several = [each for each in slow or candidates if len(_of_knob(state, each.knob)) > 1]
    one_is_told = bool(slow or several) or pairs_in(profile, seconds) > _pairs_to_tell(candidates[:1])
    if len(candidates) <= 1 or not one_is_told:
        return False
    if several:
        del state.candidates[max(several, key=lambda each: _gives_way(profile, each)).key]
    else:
        _leave_out_knob(state, min((each.knob for each in slow or candidates), key=lambda name: gains[name]), shares)
    return True


def bring_back(profile: Profile, state: Climb, listed: Mapping[str, Candidate], seconds: float) -> bool:
    """Whether candidates that were left out for want of time are to be raced after all, as each of the others is out of the race.

    A step raises with them, say, which ends a script within a few seconds. listed: all that there were. seconds: for racing.
    Candidates that are not allowed stay left out: what their race would cost is better spent on a longer budget.
    """
    out = {key: state.candidates[key] for key in state.candidates if key in state.alone.out}
    left_out = {key: each for key, each in listed.items() if key not in state.candidates and not each.lacks}
    if not left_out or len(out) < len(state.candidates):
        return False
    seconds -= seconds_to_start(profile)  # of the training that they are raced in
    knobs = {each.knob for each in left_out.values()}
    said = {name: state.left.pop(name) for name in knobs if name in state.left}
    state.late -= {*said}
    state.candidates = left_out
    leave_out(profile, state, seconds, seconds)
    if not _is_told(profile, seconds, state):
        state.candidates = {}
        state.left |= said
        state.late |= {*said}
    found = bool(state.candidates)
    state.candidates = {**out, **state.candidates}
    return found


def _is_told(profile: Profile, seconds: float, state: Climb) -> bool:
    """Whether something is known of each candidate after so many seconds."""
    candidates = [*state.candidates.values()]
    if len(in_halves(candidates)) < len(candidates):
        return quads_of_screening(profile, seconds, candidates) >= TELLING_QUADS
    if not candidates:
        return True
    return pairs_in(profile, seconds) > _pairs_to_tell(candidates)


def _pairs_to_tell(candidates: Sequence[Candidate]) -> int:
    """Pairs to the first look of each: enough for their effects and the control's, and settings of one knob take turns."""
    settings = max(Counter(candidate.knob for candidate in candidates).values(), default=0)
    return max(fewest_pairs(len(candidates) + 1), settings * PAIR_LOOKS[0].generations)


def _fewest_workers(state: Climb) -> Candidate | None:
    """Of several loaders with workers that with fewest; None of one."""
    loaders = [each for each in state.candidates.values() if _number_of_workers(each)]
    return min(loaders, key=_number_of_workers) if len(loaders) > 1 else None


def _rounds_in(profile: Profile, seconds: float, state: Climb) -> float:
    """How many rounds of the race there are in these seconds: a loader has a quad in each, what is quicker up to two."""
    raced: list[list[Candidate]] = [[each] for each in state.candidates.values() if not is_in_halves(each)]
    take_turns = any(each.way == "loader" for each in state.candidates.values())
    of_base, paces = paces_of(profile, [*raced, []], [], take_turns)  # and the control
    steps = [steps_of_quad(pace, of_base) for pace in paces]
    in_round = sum(each * quads_in_round(each, max(steps)) for each in steps)
    return seconds / (in_round * profile.seconds_per_step or 1.0)


def _quads_in(profile: Profile, seconds: float, state: Climb) -> float:
    return quads_of_screening(profile, seconds, [*state.candidates.values()])


def _knobs_in_halves(state: Climb) -> set[str]:
    return {candidate.knob for candidate in in_halves([*state.candidates.values()])}


def _tiny_knobs(profile: Profile, state: Climb) -> list[str]:
    """Allowed knobs that work on next to nothing of the step, the smallest share first."""
    names = dict.fromkeys(candidate.knob for candidate in state.allowed_candidates)
    shares = {name: share_seen(profile, name) for name in names}
    return sorted((name for name in names if shares[name] <= TINY_SHARE), key=lambda name: shares[name])


def _of_knob(state: Climb, name: str) -> list[Candidate]:
    return [candidate for candidate in state.candidates.values() if candidate.knob == name]


def _gives_way(profile: Profile, candidate: Candidate) -> tuple[bool, float]:
    """How far a setting gives way to others of its knob: loading in the step itself, then what takes longer to race."""
    loads_itself = candidate.way == "loader" and not candidate.settings.get("num_workers")
    return loads_itself, seconds_of_quads(profile, [[candidate]])


def _leave_out_knob(state: Climb, name: str, shares: Mapping[str, float]) -> None:
    for candidate in _of_knob(state, name):
        del state.candidates[candidate.key]
    share = shares[name]
    told = f"; it could gain {100 * share:.0f} % of the step at most" if share < 1 else ""
    state.left[name] = f"not measured, for want of time{told}"
    state.late.add(name)


def _offers_by_need(state: Climb, shares: Mapping[str, float]) -> list[Candidate]:
    """What is not allowed, that which is missed least first: all but one setting of a knob, then what could gain less.

    Of loaders that with most workers stays: one more than are needed gains as well, one less may not gain at all.
    """
    offers = [candidate for candidate in state.candidates.values() if candidate.lacks]
    last = {
        name: max((each for each in offers if each.knob == name), key=_number_of_workers).key
        for name in {each.knob for each in offers}
    }
    return sorted(offers, key=lambda candidate: (candidate.key == last[candidate.knob], shares[candidate.knob]))


def _number_of_workers(candidate: Candidate) -> int:
    return number(candidate.settings.get("num_workers")) if candidate.way == "loader" else 0
