"""The budget of a climb, shared out: screening, the race of all together, the check, the final race. What gives way is named."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Container, Iterable, Mapping, Sequence

from perfaudit.knobs import knob
from perfaudit.measure.clock import Deadline
from perfaudit.measure.pace import (
    Pace,
    balance_paces,
    block_steps,
    pace_of,
    steps_of_base,
    steps_of_quad,
    steps_of_turns,
)
from perfaudit.measure.quads import FEWEST, USUAL_LOOK
from perfaudit.tune.candidates import Candidate
from perfaudit.tune.climb_state import Climb, looks_paying, ratio_of
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
RACING_BLOCKS = 12  # of a patch: three in each of four pairs of processes, before which what lies ready is used up
# Of a script, whose processes share nothing: two for the check, which are the first of the race; two of a race start at once.
CHECKING_STARTS, RACING_STARTS = 2, 3
BESIDE_SHARE = 0.3  # of what is left behind the screening, at least
TOGETHER_QUADS = FEWEST  # of all but each one; with less there is no interval
# Before the first quad of a race together: two steps, three for the length of a block, one without any patch; and one for each.
PREPARING_STEPS = 6
LONGER_SHARE = 0.1  # of the budget, by which a race together may be longer than planned, to come to an interval
EASY_QUADS = FEWEST + 2  # for which more than two patches are raced together
LARGE_SHARE = (
    0.5  # of the step; what works on more is worth a word, allowed or not, and is raced first where it is a loader
)
SMALL_SHARE = 0.1  # of the step; what can gain no more is asked last
MUCH = 0.25  # of the step; who saves so much is served better by a measured figure than by the next few percent
SOME = 0.05  # of the step; a patch that looks as if it saved this is worth a race before that figure is measured


class UntilSomeGoTogether(Deadline):
    """A deadline that is put off while there is nothing to race together, for which time was kept.

    planned: where there is. latest: where there is not. end: of the budget, where not even one pays that could be checked.
    pays: whether one does, now. goes_together: whether there is something to race together. for_final: the last time at which
    the final race can still have its own; None where it gives way in any case. gains_much: whether so much pays, now, that the
    final race keeps its time. Where that is true before for_final is over, the race ends with for_final.
    """

    def __init__(
        self,
        planned: Deadline,
        latest: Deadline,
        end: Deadline,
        pays: Callable[[], bool],
        goes_together: Callable[[], bool],
        for_final: Deadline | None = None,
        gains_much: Callable[[], bool] = lambda: False,
    ) -> None:
        self._planned, self._latest, self._last = planned, latest, end
        self._pays, self._goes_together = pays, goes_together
        self._for_final, self._gains_much = for_final, gains_much
        self._makes_way = False
        self._was_put_off = False
        self.is_past_check = False  # the time that was kept for it is raced in

    def seconds_left(self) -> float:
        if self.is_past_check:  # what pays is checked in the time that is left
            return 0.0 if self._pays() else self._left_of(self._last)
        is_waiting = not self._goes_together()
        if is_waiting and not self._left_of(self._planned):
            self._was_put_off = True
        left = self._left_of(self._latest if is_waiting else self._planned)
        if self._for_final is not None and self._left_of(self._for_final):
            self._makes_way = self._makes_way or self._gains_much()
        return min(left, self._left_of(self._for_final)) if self._for_final is not None and self._makes_way else left

    def _left_of(self, deadline: Deadline) -> float:
        return max(0.0, deadline.seconds_left() - self.kept)

    def share_of_end(self) -> float:
        """An equal part at each of these times; none in between, where data say that two patches are there."""
        part = 1 / len({self._planned, self._latest, self._last, self._for_final} - {None})
        if self.is_past_check and self._left_of(self._last) > SLICE:  # data say that one pays
            return 0.0
        is_at_final = self._for_final is not None and self._makes_way and self._left_of(self._for_final) <= SLICE
        is_put_off = self._was_put_off and self._latest is not self._planned and self._left_of(self._latest) > SLICE
        is_between = is_put_off and not is_at_final
        return 0.0 if is_between and not self.is_past_check else part

    def goes_on(self) -> bool:
        if self.is_past_check or self._pays() or self._goes_together():
            return False
        self.is_past_check = self._left_of(self._last) > SLICE
        return self.is_past_check


def has_time_to_race(profile: Profile, patches: Iterable[Candidate], deadline: Deadline) -> bool:
    """Whether the final race of these can come to its first look."""
    return deadline.seconds_left() >= seconds_to_check(profile) + seconds_to_race(profile, patches)


def seconds_to_check(profile: Profile) -> float:
    """What the check of a patch takes, about."""
    return CHECKING_SECONDS + CHECKING_STARTS * seconds_to_start(profile) + CHECKING_STEPS * profile.seconds_per_step


def seconds_to_race(profile: Profile, patches: Iterable[Candidate] = ()) -> float:
    """What the final race takes to its first look, about.

    patches: what may be in it. Before each block of another loader its batches that lie ready are used up.
    """
    ready = max((knob(each.knob).batches_ready(each.settings) for each in patches if each.way == "loader"), default=0)
    steps = RACING_STEPS + RACING_BLOCKS * ready
    return RACING_SECONDS + RACING_STARTS * seconds_to_start(profile) + steps * profile.seconds_per_step


def seconds_to_start(profile: Profile) -> float:
    """Of a script, up to its first steps; 0 for factories, the start of which is in the other figures."""
    return profile.seconds_to_open if profile.survey.facts.is_script else 0.0


def seconds_to_screen(profile: Profile, state: Climb, left: float) -> float:
    """Of what is left, the seconds for racing candidates: what the races and the check behind that leave of it."""
    candidates = [candidate for candidate in state.candidates.values() if not candidate.lacks]
    each = [next(c for c in candidates if c.knob == name) for name in dict.fromkeys(c.knob for c in candidates)]
    each, together = each[:MOST_TOGETHER], 0.0
    if any(candidate.way == "fresh" for candidate in each) or not in_halves(candidates):
        together = TOGETHER_SECONDS + USUAL_LOOK * seconds_of_quads(profile, parts_of(each), each)
    before_check = left - seconds_to_check(profile) - min(together, TOGETHER_SHARE * left)
    before_race = before_check - seconds_to_race(profile, candidates)
    wanted = WANTED_QUADS * left / quads_of_screening(profile, left, [*state.candidates.values()])
    return max(before_race if before_race >= wanted else before_check, SCREENING_SHARE * left)


def seconds_together(profile: Profile, state: Climb, left: float, gains_much: bool = False) -> float:
    """Of what is left, the seconds for racing together what pays: the final race gives way to it, the check does not.

    gains_much: what was shown to pay saves MUCH. Then this race gives way to the final one, which says what all of it saves: 0
    where both have no time, unless another patch looks as if it saved SOME.
    """
    sure = [candidate for candidate in state.candidates.values() if not candidate.lacks and state.is_sure(candidate)]
    sure = list({candidate.knob: candidate for candidate in sure}.values())
    before_check = left - seconds_to_check(profile)
    before_race = before_check - seconds_to_race(profile, sure)
    least = USUAL_LOOK * seconds_of_quads(profile, [sure], ())
    least = least * TOGETHER_QUADS / USUAL_LOOK if gains_much else least
    enough = before_race >= TOGETHER_SECONDS + least
    if gains_much and enough:
        return before_race
    if gains_much and before_race >= 0 and not _may_gain_more(state, {candidate.knob for candidate in sure}):
        return 0.0
    return max(before_race if enough else before_check, BESIDE_SHARE * left)


def _may_gain_more(state: Climb, knobs: Container[str]) -> bool:
    """Whether a patch of another knob than these looks as if it saved SOME of the step."""
    others = [each for each in state.allowed_candidates if each.knob not in knobs and looks_paying(state, each)]
    return any(ratio_of(state, each) <= 1 - SOME for each in others)


def seconds_beside(profile: Profile, state: Climb, left: float) -> float:
    """Of what is left, the seconds for racing together rungs that were raced in halves; 0 where the final race would miss them.

    Their sum is known, and that race only says of each what it gains beside all the others.
    """
    spare = left - seconds_to_check(profile) - seconds_to_race(profile, state.rungs) - TOGETHER_SECONDS
    ratios = {rung.key: seen[0] for rung in state.rungs if (seen := state.alone.interval(rung.key))}
    needed = USUAL_LOOK * seconds_of_quads(profile, parts_of(state.rungs), state.rungs, ratios)
    return TOGETHER_SECONDS + min(spare, 2 * needed) if spare >= needed else 0.0


def seconds_to_prepare(profile: Profile, patches: int) -> float:
    """What a race of so many patches together takes before its first quad, about."""
    return (PREPARING_STEPS + patches) * profile.seconds_per_step


class UntilTold(Deadline):
    """A deadline of a race together that is put off until all who are in it have an interval, at most to `latest`."""

    def __init__(self, planned: Deadline, latest: Deadline, state: Climb) -> None:
        self._planned, self._latest, self._state = planned, latest, state

    def seconds_left(self) -> float:
        entrants = self._state.beside.entrants.values()
        is_told = all(seen.left or seen.quads >= FEWEST for seen in entrants)
        left = (self._planned if entrants and is_told else self._latest).seconds_left()
        return max(0.0, left - self.kept)


def asking_words(profile: Profile, name: str, left: float) -> str:
    """Why a knob is not asked for candidates: that takes longer than there is for it, and it can gain little. "" where it is."""
    asks, start, share = knob(name).asks, seconds_to_start(profile), share_seen(profile, name)
    if asks * start <= left or share > SMALL_SHARE:
        return ""
    return (
        f"not measured, for want of time: its questions need {asks} more starts of the script ({start:.0f} s each), "
        f"and it works on about {100 * share:.0f} % of the step"
    )


def share_seen(profile: Profile, name: str) -> float:
    """The share of the step that a knob works on, by the first profile, where it names its parts; else what it could gain."""
    module, survey = knob(name), profile.survey
    if not module.gains_from or not survey.step_seconds:
        return module.share(survey)
    return sum(survey.profile.get(part, 0.0) for part in module.gains_from) / survey.step_seconds


def is_most_of_step(profile: Profile, name: str) -> bool:
    """Whether the profile names the part of the step that a knob works on, and that is most of it."""
    return bool(knob(name).gains_from) and share_seen(profile, name) > LARGE_SHARE


def goes_first(profile: Profile, candidate: Candidate) -> bool:
    """Whether pairs wait for a candidate's first quads: for those of another loader, where loading is most of the step."""
    return candidate.way == "loader" and is_most_of_step(profile, candidate.knob)


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


def is_in_halves(candidate: Candidate) -> bool:
    """Whether it is raced together with others, with half of them in place at a time, see `measure.halves`."""
    return candidate.way in ("code", "setting") and not candidate.lacks


def in_halves(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Those that are raced so."""
    return [*filter(is_in_halves, candidates)]


def pairs_in(profile: Profile, seconds: float) -> float:
    """How many pairs of blocks with halves in place there are in these seconds."""
    return seconds / (2 * _steps_of_half(profile) * profile.seconds_per_step or 1.0)


def _steps_of_half(profile: Profile) -> int:
    return pace_of(_steps_of_block(profile), workers=0, prefetch=0, is_long=False, period=profile.period).block


def _steps_of_block(profile: Profile) -> int:
    return block_steps(max(profile.seconds_per_step, 1e-6), profile.survey.facts.device.type != "cpu")


def quads_of_screening(profile: Profile, seconds: float, candidates: Sequence[Candidate]) -> float:
    """How many quads each of these has in these seconds, beside those that are raced together.

    Where all are, half the number of their pairs: the ratio of a pair has twice the variance of a quad's. Beside others, these
    have a round of pairs for each of theirs, unless they wait for one that goes first.
    """
    halves = in_halves(candidates)
    others = [[each] for each in candidates if each not in halves]
    if not others:
        return pairs_in(profile, seconds) / 2
    if not halves:
        return quads_in(profile, seconds, others)
    of_base, paces = paces_of(profile, [*others, []], [], any(each[0].way == "loader" for each in others))
    has_twins = any(each[0].way == "fresh" for each in others)  # which have a control of their own, in quads
    steps = sum(steps_of_quad(pace, of_base) for pace in (paces if has_twins else paces[:-1]))
    slots = len({each.knob for each in halves}) + 1
    if not any(goes_first(profile, each) for each in candidates):
        steps += 2 * _steps_of_half(profile) * (slots + 1)  # pairs of each round
    return seconds / (steps * profile.seconds_per_step or 1.0)


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
    (of_base, paces), known = paces_of(profile, raced, base, take_turns), ratios or {}
    lengths = [math.prod(known.get(patch.key, 1.0) for patch in part) for part in raced]
    own = (steps_of_turns(pace) * length for pace, length in zip(paces, lengths, strict=True))
    return (sum(own) + len(raced) * steps_of_base(of_base) * lengths[-1]) * profile.seconds_per_step


def paces_of(
    profile: Profile, parts: Sequence[Sequence[Candidate]], base: Sequence[Candidate], take_turns: bool
) -> tuple[Pace, list[Pace]]:
    """How the base is timed, and each of these sets of patches beside it."""
    found = {f"{at}": _pace(profile, part, take_turns) for at, part in enumerate(parts)}
    found = balance_paces({"base": _pace(profile, base, take_turns), **found}, "base")
    return found.pop("base"), [*found.values()]


def _pace(profile: Profile, patches: Sequence[Candidate], take_turns: bool) -> Pace:
    facts = profile.survey.facts
    other = next((candidate.settings for candidate in patches if candidate.way == "loader"), None)
    workers, prefetch = facts.loader.num_workers, facts.loader.prefetch_factor or 0
    if other is not None and "num_workers" in other:
        workers, prefetch = number(other["num_workers"]), number(other.get("prefetch_factor"))
    return pace_of(_steps_of_block(profile), workers, prefetch, other is not None, take_turns, profile.period)


def number(setting: object) -> int:
    return int(str(setting)) if setting is not None else 0
