"""From the user's code to one patch of all that pays: screened in a training that runs, raced and verified as source.

All candidates are raced beside each other in one training (`tune.screening`). What pays, or looks as if it did, is put in place
together, and left out again one by one, to see whether it pays beside the others; what was shown to pay neither alone nor there
goes. The rest is `tune.final`: the patched source in fresh processes, against the user's code. What cannot stand in a training
that runs is raced behind it (`tune.climb_behind`).
"""

from __future__ import annotations

import math
from dataclasses import replace

from perfaudit.knobs import Refused, knob
from perfaudit.measure.child import ChildFailed
from perfaudit.measure.clock import Deadline
from perfaudit.measure.judge import QUEUED
from perfaudit.measurements import NotApplicable
from perfaudit.tune.candidates import (
    Candidate,
    TooLate,
    alone_in_place,
    candidates_behind,
    candidates_of,
    screened_comparisons,
)
from perfaudit.tune.climb_behind import NOT_REACHED, race_behind, seconds_kept
from perfaudit.tune.climb_choice import busy_words, choose, gains_much, some_go_together, tell_offers
from perfaudit.tune.climb_left_out import bring_back, leave_out
from perfaudit.tune.climb_state import Climb
from perfaudit.tune.climb_time import (
    LONGER_SHARE,
    UntilSomeGoTogether,
    UntilTold,
    asking_words,
    goes_first,
    has_time_to_race,
    is_enough,
    seconds_beside,
    seconds_to_check,
    seconds_to_race,
    seconds_to_screen,
    seconds_together,
)
from perfaudit.tune.climb_together import keep_what_is_known, leave_unchecked, leave_unsure, race_beside
from perfaudit.tune.final import final_race
from perfaudit.tune.loops import expect_candidates
from perfaudit.tune.profile import Profile
from perfaudit.tune.race_so_far import Lineup
from perfaudit.tune.screening import Screen
from perfaudit.tune.search import pointless
from perfaudit.tune.session import Session
from perfaudit.tune.shares import in_order
from perfaudit.tune.short_names import short_names
from perfaudit.tune.workshop import error_of_own_code

CHECKED_WITHIN = 0.5  # of the time that a check is expected to take: for less than that the budget is not outlasted
OUTLASTING_SHARE = (
    0.2  # of the budget, by which a check may outlast it: a patch that pays and is not checked is worth nothing
)
ASKING_SHARE = 0.15  # of the budget, for what knobs must know before they have candidates


def climb(session: Session, profile: Profile, state: Climb, knobs: list[str], deadline: Deadline) -> None:
    """Climb with these knobs until all is decided or the time is over; the result is in `state`.

    Raises NothingMeasured where the user's own code cannot be run.
    """

    def tell() -> None:  # for the history of a run that is killed
        session.record.keep_comparisons(screened_comparisons(state.candidates, state.alone))

    whole, budget = deadline, deadline.seconds_left()
    state.behind = _list_behind(session, profile, state, knobs, ASKING_SHARE * budget)
    deadline = session.deadline(deadline.seconds_left() - seconds_kept(profile, state.behind, deadline.seconds_left()))
    knobs = [name for name in knobs if name not in state.left]
    _list_candidates(session, profile, state, knobs, ASKING_SHARE * deadline.seconds_left())
    if not state.allowed_candidates:  # what may not be handed over has the time that those behind leave
        left = whole.seconds_left()
        deadline = session.deadline(left - seconds_kept(profile, state.behind, left, share=1.0))
    expect_candidates(session, profile, [*state.candidates.values()], deadline)
    with Screen(session, tell, profile.only_computes) as screen:
        is_past_check = _find_what_pays(session, profile, state, screen, deadline)
        profile = _with_rounds(profile, state)
        planned = seconds_together(profile, state, deadline.seconds_left(), gains_much(state))
        choose(profile, state, planned)
        tell_offers(state)
        if is_past_check and deadline.seconds_left() < _least_to_check(profile, budget):
            leave_unchecked(state)
        seconds = seconds_beside(profile, state, deadline.seconds_left()) if state.were_halves else planned
        if len(state.rungs) > 1 and seconds:
            latest = session.deadline(seconds + LONGER_SHARE * budget)
            race_beside(session, profile, state, screen, UntilTold(session.deadline(seconds), latest, state))
    _leave_what_is_not_shown(profile, state, deadline)
    final_race(session, profile, state, deadline)
    race_behind(session, profile, state, whole)


def _find_what_pays(session: Session, profile: Profile, state: Climb, screen: Screen, deadline: Deadline) -> bool:
    """Race the candidates beside each other, those of them first for which the time lasts.

    Whether they were raced in the time that is kept for the check, as none paid before it. deadline: of all races and the check.
    """
    share = session.deadline(seconds_to_screen(profile, state, deadline.seconds_left()))
    most = deadline.seconds_left() - seconds_to_check(profile)
    listed = dict(state.candidates)
    leave_out(profile, state, share.seconds_left(), most)
    longer = session.deadline(most) if most > share.seconds_left() else share

    def goes_together() -> bool:
        known = _with_rounds(profile, state)
        return some_go_together(
            known, state, seconds_together(known, state, deadline.seconds_left(), gains_much(state))
        )

    def pays() -> bool:
        return any(map(state.is_sure, state.allowed_candidates))

    before_final = most - seconds_to_race(profile, state.allowed_candidates)
    for_final = session.deadline(before_final) if share.seconds_left() < before_final < most else None
    until = UntilSomeGoTogether(share, longer, deadline, pays, goes_together, for_final, lambda: gains_much(state))
    _race_alone(session, profile, state, screen, until)
    if bring_back(_with_rounds(profile, state), state, listed, until.seconds_left()):
        _race_alone(session, profile, state, screen, until)
    return until.is_past_check


def _with_rounds(profile: Profile, state: Climb) -> Profile:
    """The profile with what the race has seen of steps that take turns: blocks of whole rounds take longer."""
    return replace(profile, period=state.alone.period)


def _leave_what_is_not_shown(profile: Profile, state: Climb, deadline: Deadline) -> None:
    """Of several rungs, keep those that pay for sure where no race has shown what they save together."""
    if state.were_halves and not state.beside.entrants:
        leave_unsure(state, state.is_sure)
    if len(state.rungs) > 1 and state.together() is None:
        leave_unsure(state, state.is_sure)
        if len(state.rungs) > 1 and not has_time_to_race(profile, state.rungs, deadline):
            keep_what_is_known(state)


def _least_to_check(profile: Profile, budget: float) -> float:
    """Seconds that must be left to begin a check: the rest of it outlasts the budget."""
    needed = seconds_to_check(profile)
    return min(CHECKED_WITHIN * needed, max(0.0, needed - OUTLASTING_SHARE * budget))


def _list_behind(
    session: Session, profile: Profile, state: Climb, knobs: list[str], for_asking: float
) -> list[Candidate]:
    """What is raced behind the others, as far as it can matter here.

    for_asking: seconds before the race. With factories, a knob that needs no more is raced beside the others.
    """
    found, survey = list[Candidate](), profile.survey
    for name in knobs:
        if knob(name).why_not(survey) or pointless(knob(name), survey):
            continue  # `_list_candidates` says why
        module = knob(name)
        if survey.facts.is_script or module.is_of_process or module.seconds_needed > for_asking:
            found += _behind(session, profile, state, name)
    return found


def _behind(session: Session, profile: Profile, state: Climb, name: str) -> list[Candidate]:
    """What of a knob is raced behind the others; until then it is left, as not reached or with the reason why none is."""
    try:
        found = candidates_behind(session, profile.survey, name, state.allow)
    except Refused as refusal:
        state.left[name] = str(refusal)
        return []
    if found:
        state.left[name] = NOT_REACHED
        state.late.add(name)
    return found


def _list_candidates(session: Session, profile: Profile, state: Climb, knobs: list[str], for_asking: float) -> None:
    """Ask knobs for their candidates. for_asking: the seconds of all questions together."""
    survey, deadline = profile.survey, session.deadline(for_asking)
    for name in in_order(survey, knobs, session.skips_idle):
        module = knob(name)
        if reason := module.why_not(survey) or pointless(module, survey):
            state.not_applicable.append(NotApplicable(name, reason))
            continue
        if profile.queued >= QUEUED and not module.is_judged_on_a_busy_machine:
            state.left[name] = busy_words(profile.queued)
            continue
        if late := asking_words(profile, name, deadline.seconds_left()):
            state.left[name] = late
            state.late.add(name)
            continue
        try:
            found = candidates_of(session, survey, name, state.allow, deadline)
        except Refused as refusal:
            state.left[name] = str(refusal)
            if isinstance(refusal, TooLate):
                spent = for_asking - deadline.seconds_left()
                state.left[name] = _too_late_words(name, spent, for_asking)
                state.late.add(name)
                state.behind += _behind(session, profile, state, name)
            continue
        state.candidates |= {candidate.key: candidate for candidate in found}
    if session.skips_idle:  # else the user has named the knobs
        _leave_to_others(state)


def _too_late_words(name: str, spent: float, for_asking: float) -> str:
    """Why a knob is not asked that needs long, and how much longer a budget must be. spent: by the questions of others."""
    needed = knob(name).seconds_needed
    more = math.ceil((spent + needed - for_asking) / ASKING_SHARE)
    return (
        f"it takes some {needed:.0f} s before the race, for which all patches together have {100 * ASKING_SHARE:.0f} % of the "
        f"budget: give --budget some {more} s more, or search it alone with --{name.replace('_', '-')}"
    )


def _leave_to_others(state: Climb) -> None:
    """Drop the settings of knobs that another knob sets as well: two patches of one line cannot both be handed over."""
    allowed = state.allowed_candidates
    covered = {name: each.knob for each in allowed for name in knob(each.knob).covers(each.settings)}
    for name, other in covered.items():
        if mine := [key for key, each in state.candidates.items() if each.knob == name]:
            state.candidates = {key: each for key, each in state.candidates.items() if key not in mine}
            state.left[name] = f"not raced by itself, but as a part of {other}; --{name.replace('_', '-')} races it"


def _race_alone(session: Session, profile: Profile, state: Climb, screen: Screen, deadline: Deadline) -> None:
    if not state.candidates:
        return
    session.watch.stage("racing all patches in one training, half of them in place at a time")
    words = short_names(state.candidates)
    entrants = [alone_in_place(each, goes_first(profile, each)) for each in state.candidates.values()]
    try:
        screen.race("alone", Lineup(entrants, words), deadline, state.alone, enough=lambda: is_enough(state))
    except ChildFailed as failure:
        if not state.alone.entrants:
            raise error_of_own_code(session.target, failure) from failure
        state.alone.notes.append(f"the training in which patches are raced ended early: {failure}")
