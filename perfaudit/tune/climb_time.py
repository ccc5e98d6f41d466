"""The budget of a climb, shared out: screening, the race of all together, the check, the final race. What gives way is named."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

from perfaudit.knobs import knob
from perfaudit.measure.clock import Deadline
from perfaudit.measure.pace import (
    Pace,
    balanced,
    block_steps,
    pace_of,
    steps_of_base,
    steps_of_quad,
    steps_of_turns,
)
from perfaudit.measure.quads import FEWEST, USUAL_LOOK
from perfaudit.measure.race import quads_in_round
from perfaudit.tune.candidates import Candidate, how_to_allow
from perfaudit.tune.climb_state import Climb
from perfaudit.tune.profile import Profile
from perfaudit.tune.screening import SLICE

SCREENING_SHARE = 0.3  # of what is left when the candidates are known, at least
WANTED_QUADS = 10  # of each candidate; where the time is too short for these and a final race, the race gives way
# What comes behind the screening takes, in seconds and steps, estimated from a few runs of char_gpt and digits_cnn: to begin
# the race of what pays together, the check of the patch, and the final race to its first look.
# They share out time, and decide nothing. Losses are compared for a time, not for a number of steps.
TOGETHER_SECONDS = 3.0
MOST_TOGETHER = 3  # patches, for which time is planned; more have fewer quads in it
TOGETHER_SHARE = 0.35  # of what is left, at most, that is kept for racing together what pays and without each of it
CHECKING_SECONDS, CHECKING_STEPS = 7.0, 16
RACING_SECONDS, RACING_STEPS = 4.0, 104
# Of a script, whose processes share nothing: two for the check, which are the first of the race; two of a race start at once.
CHECKING_STARTS, RACING_STARTS = 2, 3
BESIDE_SHARE = 0.3  # of what is left behind the screening, at least
OFFERED_QUADS = 12  # that all must be able to have, before those that are not allowed take time from the others
TELLING_QUADS = FEWEST + 1  # with fewer there is no interval; one is lost where a step raises
TOGETHER_QUADS = FEWEST  # of all but each one; with less there is no interval
# Before the first quad of a race together: two steps, three for the length of a block, one without any patch; and one for each.
PREPARING_STEPS = 6
LONGER_SHARE = 0.1  # of the budget, by which a race together may be longer than planned, to come to an interval
EASY_QUADS = FEWEST + 2  # for which more than two patches are raced together
SMALL_SHARE = 0.1  # of the step; what can gain no more is asked last
SMALL_GAIN = 0.03  # of the step; what usually gains no more is raced last
TINY_SHARE = 0.02  # of the step; what works on no more gives way even to what is not allowed
LARGE_SHARE = 0.5  # of the step; what works on more is worth a word, allowed or not


class UntilSomeGoTogether(Deadline):
    """A deadline that is put off while there is nothing to race together, for which time was kept.

    planned: where there is. latest: where there is not. end: of the budget, where not even one pays that could be checked.
    goes_together: whether there is, now.
    """

    def __init__(
        self, planned: Deadline, latest: Deadline, end: Deadline, state: Climb, goes_together: Callable[[], bool]
    ) -> None:
        self._planned, self._latest, self._last, self._state = planned, latest, end, state
        self._goes_together = goes_together
        self._was_put_off = False
        self.is_past_check = False  # the time that was kept for it is raced in

    def left(self) -> float:
        if self.is_past_check:  # what pays is checked in the time that is left
            return 0.0 if self._is_sure() else self._last.left()
        is_waiting = not self._goes_together()
        if is_waiting and not self._planned.left():
            self._was_put_off = True
        return (self._latest if is_waiting else self._planned).left()

    def share_of_end(self) -> float:
        """An equal part at each of these times; none in between, where data say that two patches are there."""
        part = 1 / 2 if self._latest is self._planned else 1 / 3
        if self.is_past_check and self._last.left() > SLICE:  # data say that one pays
            return 0.0
        is_between = self._was_put_off and self._latest is not self._planned and self._latest.left() > SLICE
        return 0.0 if is_between and not self.is_past_check else part

    def goes_on(self) -> bool:
        if self.is_past_check or self._is_sure() or self._goes_together():
            return False
        self.is_past_check = self._last.left() > SLICE
        return self.is_past_check

    def _is_sure(self) -> bool:
        return any(map(self._state.is_sure, self._state.allowed))


def has_time_to_race(profile: Profile, deadline: Deadline) -> bool:
    """Whether the final race can come to its first look."""
    return deadline.left() >= seconds_to_check(profile) + seconds_to_race(profile)


def seconds_to_check(profile: Profile) -> float:
    """What the check of a patch takes, about."""
    return CHECKING_SECONDS + CHECKING_STARTS * _seconds_to_start(profile) + CHECKING_STEPS * profile.seconds_per_step


def seconds_to_race(profile: Profile) -> float:
    """What the final race takes to its first look, about."""
    return RACING_SECONDS + RACING_STARTS * _seconds_to_start(profile) + RACING_STEPS * profile.seconds_per_step


def _seconds_to_start(profile: Profile) -> float:
    """Of a script, up to its first steps; 0 for factories, the start of which is in the other figures."""
    return profile.seconds_to_open if profile.survey.facts.is_script else 0.0


def seconds_to_screen(profile: Profile, state: Climb, left: float) -> float:
    """Of what is left, the seconds for racing candidates: what the races and the check behind that leave of it."""
    candidates = [candidate for candidate in state.candidates.values() if not candidate.lacks]
    each = [next(c for c in candidates if c.knob == name) for name in dict.fromkeys(c.knob for c in candidates)]
    each = each[:MOST_TOGETHER]
    together = TOGETHER_SECONDS + USUAL_LOOK * seconds_of_quads(profile, parts_of(each), each)
    before_check = left - seconds_to_check(profile) - min(together, TOGETHER_SHARE * left)
    before_race = before_check - seconds_to_race(profile)
    wanted = WANTED_QUADS * seconds_of_quads(profile, [[one] for one in state.candidates.values()])
    return max(before_race if before_race >= wanted else before_check, SCREENING_SHARE * left)


def seconds_together(profile: Profile, state: Climb, left: float) -> float:
    """Of what is left, the seconds for racing together what pays: the final race gives way to it, the check does not."""
    sure = [candidate for candidate in state.candidates.values() if not candidate.lacks and state.is_sure(candidate)]
    sure = list({candidate.knob: candidate for candidate in sure}.values())
    before_check = left - seconds_to_check(profile)
    before_race = before_check - seconds_to_race(profile)
    least = USUAL_LOOK * seconds_of_quads(profile, [sure], ())
    enough = before_race >= TOGETHER_SECONDS + least
    return max(before_race if enough else before_check, BESIDE_SHARE * left)


def seconds_to_prepare(profile: Profile, patches: int) -> float:
    """What a race of so many patches together takes before its first quad, about."""
    return (PREPARING_STEPS + patches) * profile.seconds_per_step


class UntilTold(Deadline):
    """A deadline of a race together that is put off until all who are in it have an interval, at most to `latest`."""

    def __init__(self, planned: Deadline, latest: Deadline, state: Climb) -> None:
        self._planned, self._latest, self._state = planned, latest, state

    def left(self) -> float:
        entrants = self._state.beside.entrants.values()
        is_told = all(seen.left or seen.quads >= FEWEST for seen in entrants)
        return (self._planned if entrants and is_told else self._latest).left()


def asking_words(profile: Profile, name: str, left: float) -> str:
    """Why a knob is not asked for candidates: that takes longer than there is for it, and it can gain little. "" where it is."""
    asks, start, share = knob(name).asks, _seconds_to_start(profile), _share_seen(profile, name)
    if asks * start <= left or share > SMALL_SHARE:
        return ""
    return (
        f"not measured, for want of time: its questions need {asks} more starts of the script ({start:.0f} s each), "
        f"and are about {100 * share:.0f} % of the step"
    )


def _share_seen(profile: Profile, name: str) -> float:
    """The share of the step that a knob works on, by the first profile, where it names its parts; else what it could gain."""
    module, survey = knob(name), profile.survey
    if not module.gains_from or not survey.step_seconds:
        return module.share(survey)
    return sum(survey.profile.get(part, 0.0) for part in module.gains_from) / survey.step_seconds


def leave_out(profile: Profile, state: Climb, seconds: float, most: float = math.inf) -> None:
    """Where the time is too short for all, drop what is not allowed, and then what could gain least, as far as that is known.

    Where several loaders could not be raced to their first look, that with most workers stays. What is not allowed is dropped for
    the others' sake. One setting of it stays where it works on most of the step, and what
    works on next to nothing is dropped before any of it. The last candidate stays: a race tells more than none.
    most: seconds that the race has where nothing is raced behind it. Where even then all would be raced too briefly to say
    anything, settings of knobs that have several are dropped, and then whole knobs.
    """

    def quads(within: float = seconds) -> float:
        return quads_in(profile, within, [[candidate] for candidate in state.candidates.values()])

    shares = {name: knob(name).share(profile.survey) for name in {c.knob for c in state.candidates.values()}}
    offers = _offers_by_need(state, shares)
    for name in _tiny_knobs(profile, state) if offers else ():
        if quads() < OFFERED_QUADS:
            _leave_out_knob(state, name, shares)
    for candidate in offers:
        if quads() >= OFFERED_QUADS or len(state.candidates) == 1:
            break
        if len(_of_knob(state, candidate.knob)) == 1 and _is_most_of_step(profile, candidate.knob):
            continue
        del state.candidates[candidate.key]
        if candidate.knob not in {c.knob for c in state.candidates.values()}:
            state.left[candidate.knob] = f"not measured, for want of time; {how_to_allow(candidate, state.allow)}"
            state.late.add(candidate.knob)
            state.lacking[candidate.knob] = candidate.lacks
    while _rounds_in(profile, seconds, state) < USUAL_LOOK and (fewest := _fewest_workers(state)) is not None:
        del state.candidates[fewest.key]
    gains = {name: knob(name).likely_gain(profile.survey) for name in shares}
    for name in sorted(dict.fromkeys(c.knob for c in state.candidates.values()), key=lambda name: gains[name]):
        others = {key: c for key, c in state.candidates.items() if c.knob != name}
        if quads() >= WANTED_QUADS or gains[name] > SMALL_GAIN or not others:
            break
        _leave_out_knob(state, name, shares)
    while quads(max(seconds, most)) < TELLING_QUADS and len(state.candidates) > 1:
        several = [each for each in state.candidates.values() if len(_of_knob(state, each.knob)) > 1]
        if several:
            del state.candidates[max(several, key=lambda each: _gives_way(profile, each)).key]
        else:
            names = [each.knob for each in state.candidates.values()]
            _leave_out_knob(state, min(names, key=lambda name: gains[name]), shares)


def bring_back(profile: Profile, state: Climb, listed: Mapping[str, Candidate], seconds: float) -> bool:
    """Whether candidates that were left out for want of time are to be raced after all, as each of the others is out of the race.

    A step raises with them, say, which ends a script within a few seconds. listed: all that there were. seconds: for racing.
    Candidates that are not allowed stay left out: what their race would cost is better spent on a longer budget.
    """
    out = {key: state.candidates[key] for key in state.candidates if key in state.alone.out}
    left_out = {key: each for key, each in listed.items() if key not in state.candidates and not each.lacks}
    if not left_out or len(out) < len(state.candidates):
        return False
    seconds -= _seconds_to_start(profile)  # of the training that they are raced in
    knobs = {each.knob for each in left_out.values()}
    said = {name: state.left.pop(name) for name in knobs if name in state.left}
    state.late -= {*said}
    state.candidates = left_out
    leave_out(profile, state, seconds, seconds)
    if quads_in(profile, seconds, [[each] for each in state.candidates.values()]) < TELLING_QUADS:
        state.candidates = {}
        state.left |= said
        state.late |= {*said}
    found = bool(state.candidates)
    state.candidates = {**out, **state.candidates}
    return found


def _fewest_workers(state: Climb) -> Candidate | None:
    """Of several loaders with workers that with fewest; None of one."""
    loaders = [each for each in state.candidates.values() if _number_of_workers(each)]
    return min(loaders, key=_number_of_workers) if len(loaders) > 1 else None


def _rounds_in(profile: Profile, seconds: float, state: Climb) -> float:
    """How many rounds of the race there are in these seconds: a loader has a quad in each, what is quicker up to two."""
    raced: list[list[Candidate]] = [[each] for each in state.candidates.values()]
    take_turns = any(each.way == "loader" for each in state.candidates.values())
    of_base, paces = _paces(profile, [*raced, []], [], take_turns)  # and the control
    steps = [steps_of_quad(pace, of_base) for pace in paces]
    in_round = sum(each * quads_in_round(each, max(steps)) for each in steps)
    return seconds / (in_round * profile.seconds_per_step or 1.0)


def _tiny_knobs(profile: Profile, state: Climb) -> list[str]:
    """Allowed knobs that work on next to nothing of the step, the smallest share first."""
    names = dict.fromkeys(candidate.knob for candidate in state.allowed)
    shares = {name: _share_seen(profile, name) for name in names}
    return sorted((name for name in names if shares[name] <= TINY_SHARE), key=lambda name: shares[name])


def _is_most_of_step(profile: Profile, name: str) -> bool:
    """Whether the profile names the part of the step that a knob works on, and that is most of it."""
    return bool(knob(name).gains_from) and _share_seen(profile, name) > LARGE_SHARE


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
    return _number(candidate.settings.get("num_workers")) if candidate.way == "loader" else 0


def is_enough(state: Climb) -> bool:
    """Whether racing patches by themselves would change nothing more: of each knob one was shown to pay, and none looks better.

    A knob with no open candidate has nothing more to tell. The intervals stay valid although data end the race here: what pays
    was decided at a planned look, and a median that is looked at in between judges nobody, it only ends the race.
    """
    by_knob: dict[str, list[Candidate]] = {}
    for candidate in state.candidates.values():
        if candidate.key not in state.alone.out:
            by_knob.setdefault(candidate.knob, []).append(candidate)
    return bool(by_knob) and all(_is_clear(state, mine) for mine in by_knob.values())


def _is_clear(state: Climb, candidates: Sequence[Candidate]) -> bool:
    sure = [known[0] for each in candidates if state.is_sure(each) and (known := state.alone.interval(each.key))]
    for candidate in candidates:
        seen = state.alone.entrants.get(candidate.key)
        if seen is None or not seen.left:
            looks = state.alone.log_ratios.get(candidate.key, [])
            if not sure or len(looks) < USUAL_LOOK or statistics.median(looks) < math.log(min(sure)):
                return False
    return True


def parts_of(rungs: Sequence[Candidate]) -> list[list[Candidate]]:
    """What all these patches are raced against: the user's code, and all but each one."""
    return [[], *([other for other in rungs if other is not rung] for rung in rungs)]


def quads_in(
    profile: Profile,
    seconds: float,
    parts: Iterable[Sequence[Candidate]],
    base: Sequence[Candidate] = (),
    ratios: Mapping[str, float] | None = None,
) -> float:
    """How many quads each of these sets of patches, a control with them, has in these seconds against the base's."""
    return seconds / (seconds_of_quads(profile, parts, base, ratios) or 1.0)


def seconds_of_quads(
    profile: Profile,
    parts: Iterable[Sequence[Candidate]],
    base: Sequence[Candidate] = (),
    ratios: Mapping[str, float] | None = None,
) -> float:
    """Seconds that a quad of each of these sets of patches takes, and one of a control, against the base's.

    ratios: of a step with a patch, by its key, to one of the user's code; 1 for those that it lacks. Turns of another loader have
    more steps: see `pace.pace_of`.
    """
    raced = [*parts, base]
    take_turns = any(patch.way == "loader" for part in raced for patch in part)
    (of_base, paces), known = _paces(profile, raced, base, take_turns), ratios or {}
    lengths = [math.prod(known.get(patch.key, 1.0) for patch in part) for part in raced]
    own = (steps_of_turns(pace) * length for pace, length in zip(paces, lengths, strict=True))
    return (sum(own) + len(raced) * steps_of_base(of_base) * lengths[-1]) * profile.seconds_per_step


def _paces(
    profile: Profile, parts: Sequence[Sequence[Candidate]], base: Sequence[Candidate], take_turns: bool
) -> tuple[Pace, list[Pace]]:
    """How the base is timed, and each of these sets of patches beside it."""
    found = {f"{at}": _pace(profile, part, take_turns) for at, part in enumerate(parts)}
    found = balanced({"base": _pace(profile, base, take_turns), **found}, "base")
    return found.pop("base"), [*found.values()]


def _pace(profile: Profile, patches: Sequence[Candidate], take_turns: bool) -> Pace:
    facts = profile.survey.facts
    other = next((candidate.settings for candidate in patches if candidate.way == "loader"), None)
    workers, prefetch = facts.loader.num_workers, facts.loader.prefetch_factor or 0
    if other is not None and "num_workers" in other:
        workers, prefetch = _number(other["num_workers"]), _number(other.get("prefetch_factor"))
    block = block_steps(max(profile.seconds_per_step, 1e-6), facts.device.type != "cpu")
    return pace_of(block, workers, prefetch, other is not None, take_turns)


def _number(setting: object) -> int:
    return int(str(setting)) if setting is not None else 0
