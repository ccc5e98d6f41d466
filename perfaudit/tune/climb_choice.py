"""Which patches of a climb are put together, from how they stood alone, and what those would gain that are not allowed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from perfaudit.knobs import knob
from perfaudit.measure.entrants import FUTILE
from perfaudit.measure.judge import QUEUED
from perfaudit.measurements import FILE_CHANGED, NOT_REACHED_YET
from perfaudit.static.source import Unreadable, read_text
from perfaudit.tune.candidates import Candidate, best_of, how_to_allow, pays, texts_of
from perfaudit.tune.climb_state import HOPEFUL_QUADS, Climb, looks_paying, ratio_of, ratios_of
from perfaudit.tune.climb_time import EASY_QUADS, MUCH, TOGETHER_QUADS, parts_of, quads_in, seconds_to_prepare
from perfaudit.tune.profile import Profile
from perfaudit.tune.race_results import doubt_of


def choose(profile: Profile, state: Climb, seconds: float) -> None:
    """Take as rungs what pays, the largest gain first: one setting of a knob, as far as the patches go together.

    seconds: for racing them together, where they were not raced in halves. Where that is time enough to race all without each
    one, what looks as if it paid is taken too, to be decided there.
    """
    best = _best_to_judge(state)
    sure = [each for each in best if state.is_sure(each)]
    best = sure if are_halves(state, best) else _together(profile, state, best, seconds) or sure
    for candidate in sorted(best, key=lambda candidate: not state.is_sure(candidate)):
        try:
            texts_of([*state.rungs, candidate])
        except ValueError as why:
            if state.is_sure(candidate):
                state.left[candidate.knob] = f"{candidate.words}: it pays, and is not taken: {why}"
            continue
        try:
            keep_original(state, candidate)
        except (ValueError, Unreadable):
            if state.is_sure(candidate):
                drop_unchecked(state, candidate, FILE_CHANGED)
            continue
        state.rungs.append(candidate)
    state.rungs.sort(key=lambda candidate: ratio_of(state, candidate))


def _best_to_judge(state: Climb) -> list[Candidate]:
    """Of each knob that is judged on this machine, the setting that pays, or looks most as if it did; the others are left."""
    best = _best_of_each(state)
    queued = state.alone.base.get("queued", 0.0) / (state.alone.base.get("wall") or 1.0)
    if queued >= QUEUED:
        unjudged = {each.knob for each in best if not knob(each.knob).is_judged_on_a_busy_machine}
        state.left |= dict.fromkeys(unjudged, busy_words(queued))
        best = [candidate for candidate in best if candidate.knob not in unjudged]
    return best


def drop_unchecked(state: Climb, candidate: Candidate, why: str) -> None:
    """Name a patch that was shown to pay and is not handed over, with this reason, or that it is not to be believed."""
    doubt = doubt_of(state.alone, figure=state.alone.interval(candidate.key), keys=[candidate.key])
    state.dropped.append((candidate, f"not believed: {doubt}" if doubt else why))


def name_what_pays(state: Climb) -> None:
    """After an interruption, name what was shown to pay or would with more allowed, where nothing had been chosen yet."""
    known = {each.knob for each in (*state.rungs, *(rung for rung, _ in state.dropped))} | state.left.keys()
    for candidate in _best_to_judge(state):
        if state.is_sure(candidate) and candidate.knob not in known:
            drop_unchecked(state, candidate, NOT_REACHED_YET)
    tell_offers(state)


def some_go_together(profile: Profile, state: Climb, seconds: float) -> bool:
    """Whether patches of two knobs look as if they paid, and so many seconds tell of each whether it pays beside the others.

    Of patches that are raced in halves, whether one was shown to pay: nothing more is to be raced in this training. Not while
    another setting of a knob is open that looks clearly faster than the one that would be taken.
    """
    seen = [state.alone.entrants.get(candidate.key) for candidate in state.allowed_candidates]
    if any(each is not None and not each.left and each.quads < HOPEFUL_QUADS - 1 for each in seen):
        return False  # who has had fewer may look better still
    best = _best_of_each(state)
    if any(
        map(state.is_open, (rival for each in best if state.is_sure(each) for rival in state.undecided_rivals(each)))
    ):
        return False
    if are_halves(state, best):
        return any(map(state.is_sure, best))
    return bool(_together(profile, state, best, seconds))


def are_halves(state: Climb, candidates: Sequence[Candidate]) -> bool:
    """Whether all of these were raced with half of the others in place, or there are none and that is how they would be."""
    in_halves = state.alone.in_halves
    return bool(in_halves) and all(each.key in in_halves for each in candidates)


def _together(profile: Profile, state: Climb, best: list[Candidate], seconds: float) -> list[Candidate]:
    """Those that can be raced together in these seconds, and without each; [] for none. What gains least gives way."""

    def quads(taken: list[Candidate]) -> float:
        racing = seconds - seconds_to_prepare(profile, len(taken))
        return quads_in(profile, racing, parts_of(taken), taken, ratios_of(state, taken))

    taken = list(best)
    while len(taken) > 2 and quads(taken) < EASY_QUADS and (unsure := [e for e in taken if not state.is_sure(e)]):
        taken.remove(unsure[-1])
    return taken if len(taken) > 1 and quads(taken) >= TOGETHER_QUADS else []


def _best_of_each(state: Climb) -> list[Candidate]:
    """Of each knob the setting that pays, or looks most as if it did; the largest gain first."""
    found = []
    for name in dict.fromkeys(candidate.knob for candidate in state.allowed_candidates):
        mine = [candidate for candidate in state.allowed_candidates if candidate.knob == name]
        taken = best_of(mine, state.alone) or _most_hopeful(state, mine)
        if taken is not None:
            found.append(taken)
    return sorted(found, key=lambda candidate: ratio_of(state, candidate))


def gains_much(state: Climb) -> bool:
    """Whether the best setting of each knob that was shown to pay saves MUCH, as if patches did not touch each other.

    Not before their controls have an interval: without, a figure that is only screened is not handed over.
    """
    best = [each for each in _best_of_each(state) if state.is_sure(each)]
    controls = [seen for each in best for seen in state.alone.controls_of(each.key)]
    is_much = math.prod(ratio_of(state, each) for each in best) <= 1 - MUCH
    return is_much and all(seen.interval is not None for seen in controls)


def tell_offers(state: Climb) -> None:
    """Say what patches that are not allowed would gain: of each knob the best of them, before all else that is left."""
    offers = [each for key, each in state.candidates.items() if each.lacks and key not in state.alone.out]
    offers.sort(key=lambda candidate: _rank(state, candidate))
    best = {candidate.knob: candidate for candidate in reversed(offers)}
    told = sorted(best.values(), key=lambda candidate: _rank(state, candidate))
    state.left = {**{candidate.knob: _offer_words(state, candidate) for candidate in told}, **state.left}
    seen = [(each, state.alone.interval(each.key)) for each in told]
    state.offered = {
        each.knob: each
        for each, ratio in seen
        if pays(each, ratio) and not doubt_of(state.alone, figure=ratio, keys=[each.key])
    }


def _rank(state: Climb, offer: Candidate) -> tuple[bool, float, bool]:
    """The order of offers: those with an interval by their ratio, then those that more time would tell something of."""
    seen, entrant = state.alone.interval(offer.key), state.alone.entrants.get(offer.key)
    return seen is None, seen[0] if seen is not None else 0.0, entrant is not None and entrant.left == FUTILE


def _offer_words(state: Climb, offer: Candidate) -> str:
    """What a patch that is not allowed would gain, as far as it was seen, and how to allow one that may gain something."""
    seen, entrant = state.alone.interval(offer.key), state.alone.entrants.get(offer.key)
    allowing = how_to_allow(offer, state.allow)
    if entrant is not None and entrant.left and (entrant.left == FUTILE or seen is None):  # or it is far slower
        return f"{offer.words}: {entrant.left}"
    if seen is None:
        return f"measured too briefly to say what it would gain; {allowing}"
    if seen[2] >= 1:
        return f"{offer.words}: was not shown to gain anything"
    return f"{offer.words}: would take {seen[0]:.2f} [{seen[1]:.2f}, {seen[2]:.2f}] of the step (screened); {allowing}"


def busy_words(queued: float) -> str:
    """Why a knob is not judged on a machine where threads waited for this share of a step."""
    return (
        "not judged: other programs use the cores, and where they do not, another setting may be best "
        f"(threads waited for cores: {100 * queued:.0f} % of the time of a step, all threads together)"
    )


def _most_hopeful(state: Climb, candidates: list[Candidate]) -> Candidate | None:
    """Of candidates none of which was shown to pay, that which looks as if it gained most; None where none looks so."""
    hopeful = [candidate for candidate in candidates if looks_paying(state, candidate)]
    return min(hopeful, key=lambda candidate: ratio_of(state, candidate), default=None)


def keep_original(state: Climb, candidate: Candidate) -> None:
    """Raises ValueError where the file has changed since the patch was made, Unreadable where it is gone."""
    if candidate.path not in state.originals:
        state.originals[candidate.path] = read_text(Path(candidate.path))
    if state.originals[candidate.path][0] != candidate.before:
        raise ValueError(f"{candidate.path} changed while it was measured")
