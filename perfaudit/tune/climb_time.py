"""The budget of a climb, shared out: screening, the race of all together, the check, the final race. What gives way is named."""

from __future__ import annotations

from perfaudit.knobs import knob
from perfaudit.measure.clock import Deadline
from perfaudit.tune.candidates import how_to_allow
from perfaudit.tune.climb_state import Climb, looks_paying
from perfaudit.tune.profile import Profile
from perfaudit.tune.screening import SLICE

SCREENING_SHARE = 0.4  # of what is left when the candidates are known, at least
WANTED_QUADS = 10  # of each candidate; where the time is too short for these and a final race, the race gives way
# What comes behind the screening takes, in seconds and steps, estimated from a few runs of char_gpt and digits_cnn: what pays
# raced together and without each of three to the first look, the check of the patch, and the final race to its first look.
# They share out time, and decide nothing. Losses are compared for a time, not for a number of steps.
TOGETHER_SECONDS, TOGETHER_STEPS = 3.0, 100
CHECKING_SECONDS, CHECKING_STEPS = 7.0, 16
RACING_SECONDS, RACING_STEPS = 4.0, 104
CHECKING_STARTS, RACING_STARTS = (
    2,
    4,
)  # of a script, whose processes share nothing; two of a race start at the same time
BESIDE_SHARE = 0.3  # of what is left behind the screening, at least
OFFERED_QUADS = 16  # that all must be able to have, before those that are not allowed take time from the others
BLOCKS = 3  # of a quad, which shares one with the next
HALF = 0.5  # of the unspent error, for each of two times at which a race may end
SMALL_SHARE = 0.1  # of the step; what can gain no more is raced last


class UntilSomeGoTogether(Deadline):
    """A deadline that is put off while there is nothing to race together, for which time was kept: two patches, one of which
    was shown to pay and the other at least looks so.
    """

    def __init__(self, planned: Deadline, latest: Deadline, state: Climb) -> None:
        self._planned, self._latest, self._state = planned, latest, state
        self._was_put_off = False

    def left(self) -> float:
        is_waiting = self._is_waiting()
        if is_waiting and not self._planned.left():
            self._was_put_off = True
        return (self._latest if is_waiting else self._planned).left()

    def share_of_end(self) -> float:
        """Half at the planned end and half at the latest one; none in between, where data say that two patches are there."""
        if self._latest is self._planned:
            return 1.0
        is_between = self._was_put_off and self._latest.left() > SLICE
        return 0.0 if is_between else HALF

    def _is_waiting(self) -> bool:
        allowed = [candidate for candidate in self._state.candidates.values() if not candidate.lacks]
        looks = {each.knob for each in allowed if self._state.is_sure(each) or looks_paying(self._state, each)}
        return len(looks) < 2 or not any(map(self._state.is_sure, allowed))


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
    step = profile.seconds_per_step
    before_check = left - seconds_to_check(profile) - TOGETHER_SECONDS - TOGETHER_STEPS * step
    before_race = before_check - seconds_to_race(profile)
    wanted = WANTED_QUADS * BLOCKS * step * (1 + len(state.candidates))
    return max(before_race if before_race >= wanted else before_check, SCREENING_SHARE * left)


def seconds_together(profile: Profile, left: float) -> float:
    """Of what is left, the seconds for racing together what pays: the final race gives way to it, the check does not."""
    step = profile.seconds_per_step
    before_check = left - seconds_to_check(profile)
    before_race = before_check - seconds_to_race(profile)
    enough = before_race >= TOGETHER_SECONDS + TOGETHER_STEPS * step
    return max(before_race if enough else before_check, BESIDE_SHARE * left)


def leave_out(profile: Profile, state: Climb, seconds: float) -> None:
    """Where the time is too short for all, drop what is not allowed, and then what could gain least, as far as that is known."""

    def quads() -> float:
        return quads_in(profile, seconds, len(state.candidates) + 1)

    offers = [candidate for candidate in state.candidates.values() if candidate.lacks]
    if quads() < OFFERED_QUADS:
        for candidate in offers:
            del state.candidates[candidate.key]
            state.left[candidate.knob] = f"not measured, for want of time; {how_to_allow(candidate, state.allow)}"
            state.late.add(candidate.knob)
    shares = {name: knob(name).share(profile.survey) for name in {c.knob for c in state.candidates.values()}}
    for name in sorted(shares, key=lambda name: shares[name]):
        if quads() >= WANTED_QUADS or shares[name] > SMALL_SHARE:
            return
        state.candidates = {key: c for key, c in state.candidates.items() if c.knob != name}
        state.left[name] = (
            f"not measured, for want of time; it could gain {100 * shares[name]:.0f} % of the step at most"
        )
        state.late.add(name)


def quads_in(profile: Profile, seconds: float, entrants: int) -> float:
    """How many quads each of so many entrants, a control with them, has in these seconds."""
    return seconds / (BLOCKS * profile.seconds_per_step * entrants or 1.0)
