"""From the user's code to one patch of all that pays: screened in a training that runs, raced and verified as source.

All candidates are raced beside each other in one training (`tune.screening`). What pays is put in place together, and left
out again one by one, to see whether it still pays beside the others. The rest is `tune.final`: the patched source in fresh
processes, against the user's code.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from perfaudit.errors import NothingMeasured
from perfaudit.knobs import Refused, knob
from perfaudit.measure.child import ChildFailed
from perfaudit.measure.clock import Deadline
from perfaudit.measure.judge import QUEUED
from perfaudit.measure.race import FUTILE
from perfaudit.measurements import Interval, NotApplicable
from perfaudit.static.source import Unreadable, read_text
from perfaudit.tune.candidates import (
    Candidate,
    TooLate,
    best_of,
    candidates_of,
    flag_for,
    in_place,
    least_gain,
    pays,
    screened_comparisons,
    texts_of,
)
from perfaudit.tune.patched import SourceRace
from perfaudit.tune.screening import AS_IT_IS, LEAST, Raced, Screen
from perfaudit.tune.search import pointless
from perfaudit.tune.shares import in_order
from perfaudit.tune.short_names import short_names
from perfaudit.tune.tuning import Tuning

ASKING_SHARE = 0.15  # of the budget, for what knobs must know before they have candidates
SCREENING_SHARE = 0.4  # of what is left then, at least
WANTED_QUADS = 10  # of each candidate; where the time is too short for these and a final race, the race gives way
# What comes behind the screening takes, in seconds and steps, estimated from a few runs of char_gpt and digits_cnn: what pays
# raced together to the first look, the check of the patch, and the final race to its first look. They share out time, and
# decide nothing. Losses are compared for a time, not for a number of steps.
TOGETHER_SECONDS, TOGETHER_STEPS = 3.0, 48
CHECKING_SECONDS, CHECKING_STEPS = 12.0, 20
RACING_SECONDS, RACING_STEPS = 4.0, 104
BESIDE_SHARE = 0.3  # of what is left behind the screening, at least
OFFERED_QUADS = 16  # that all must be able to have, before those that are not allowed take time from the others
BLOCKS = 3  # of a quad, which shares one with the next
SMALL_SHARE = 0.1  # of the step; what can gain no more is raced last
ALL = "all"  # the key of all that pays together


@dataclass(slots=True)
class Climb:
    """How far a climb has come; whoever starts it keeps it, so that an interruption loses nothing.

    allow: what besides speed a patch may change. candidates: that were raced, by key. alone: their race. beside: the
    race of the user's code, and of all that pays but one, each against all that pays. rungs: what stayed, the largest
    gain first. dropped: what was taken out again, with the reason. left: by knob, why it was not climbed. late: those
    of them that more time would have tried. originals: text and encoding of the files that are patched. start_bytes,
    top_bytes: peak memory of a step without and with the patch. trouble: why nothing can be handed over.
    """

    allow: frozenset[str]
    candidates: dict[str, Candidate] = field(default_factory=dict)
    alone: Raced = field(default_factory=Raced)
    beside: Raced = field(default_factory=Raced)
    rungs: list[Candidate] = field(default_factory=list)
    raced_together: list[Candidate] = field(default_factory=list)
    dropped: list[tuple[Candidate, str]] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    late: set[str] = field(default_factory=set)
    originals: dict[str, tuple[str, str]] = field(default_factory=dict)
    final: SourceRace | None = None
    start_bytes: int | None = None
    top_bytes: int | None = None
    trouble: str = ""

    @property
    def changes(self) -> tuple[str, ...]:
        """What besides speed the rungs change together, each thing once."""
        return tuple(dict.fromkeys(change for rung in self.rungs for change in rung.fix.changes))

    @property
    def texts(self) -> dict[str, str]:
        """By path, the text with all rungs."""
        return texts_of(self.rungs)

    @property
    def undecided(self) -> list[Candidate]:
        """What may be handed over and more time would decide: what it must gain lies in its interval, or it has none."""
        found = []
        for key, candidate in self.candidates.items():
            if key in self.alone.refused or candidate.lacks or candidate in self.rungs:
                continue
            interval = self.alone.interval(key)
            pays_from = 1 - least_gain(candidate)
            seen = self.alone.entrants.get(key)
            if seen is not None and seen.left and interval is None:  # it raised, or is far slower
                continue
            if interval is None or interval[1] < pays_from < interval[2]:
                found.append(candidate)
        return found

    def together(self) -> Interval | None:
        """Seconds per step of all rungs over those of the user's code, in one training; None where that was not raced."""
        if len(self.rungs) == 1:
            return self.alone.interval(self.rungs[0].key)
        return self.beside.interval(AS_IT_IS) if self.raced_together == self.rungs else None

    def beside_the_others(self, rung: Candidate) -> Interval | None:
        """Seconds per step of all rungs that were there over those of all but this one; None where that was not raced."""
        return self.beside.interval(_without(rung))


def climb(tuning: Tuning, state: Climb, knobs: list[str], deadline: Deadline, memory_budget: int) -> None:
    """Climb with these knobs until all is decided or the time is over; the result is in `state`.

    memory_budget: bytes, which the peak of a step with the patch may not exceed. Raises NothingMeasured where the user's own
    code cannot be run.
    """
    from perfaudit.tune.final import final_race

    _list_candidates(tuning, state, knobs, memory_budget, tuning.deadline(ASKING_SHARE * deadline.left()))
    with Screen(tuning, lambda: _record(tuning, state)) as screen:
        share = tuning.deadline(_seconds_to_screen(tuning, state, deadline.left()))
        _leave_out(tuning, state, share.left())
        longer = tuning.deadline(max(share.left(), deadline.left() - seconds_to_check(tuning)))
        _race_alone(tuning, state, screen, _UntilSecondPays(share, longer, state))
        _choose(tuning, state)
        _tell_offers(state)
        if len(state.rungs) > 1:
            _race_beside(tuning, state, screen, tuning.deadline(_seconds_together(tuning, deadline.left())))
    if len(state.rungs) > 1 and state.together() is None and not _has_time_to_race(tuning, deadline):
        _keep_the_first(state)
    final_race(tuning, state, deadline, memory_budget)


def _record(tuning: Tuning, state: Climb) -> None:
    """Keep how candidates stand, for the history of a run that is killed."""
    tuning.record.compared(screened_comparisons(state.candidates, state.alone))


class _UntilSecondPays(Deadline):
    """A deadline that is put off while no two knobs pay: then there is nothing to race together, for which time was kept."""

    def __init__(self, planned: Deadline, latest: Deadline, state: Climb) -> None:
        self._planned, self._latest, self._state = planned, latest, state

    def left(self) -> float:
        alone = self._state.alone
        paying = {c.knob for key, c in self._state.candidates.items() if not c.lacks and pays(c, alone.interval(key))}
        return (self._latest if len(paying) < 2 else self._planned).left()


def _has_time_to_race(tuning: Tuning, deadline: Deadline) -> bool:
    """Whether the final race can come to its first look."""
    return deadline.left() >= seconds_to_check(tuning) + RACING_SECONDS + RACING_STEPS * tuning.seconds_per_step


def _keep_the_first(state: Climb) -> None:
    """Nothing will say what all of it gains together: hand over the patch that gains most, and name the others."""
    first, *others = state.rungs
    for rung in others:
        seen = state.alone.interval(rung.key)
        assert seen is not None
        state.left[rung.knob] = (
            f"{rung.words}: takes {seen[0]:.3f} [{seen[1]:.3f}, {seen[2]:.3f}] of the step by itself (screened); there was "
            f"no time to race it together with {first.knob}"
        )
        state.late.add(rung.knob)
    state.rungs = [first]


def _list_candidates(tuning: Tuning, state: Climb, knobs: list[str], memory_budget: int, deadline: Deadline) -> None:
    for name in in_order(tuning, knobs):
        module = knob(name)
        if reason := module.not_applicable(tuning.facts) or pointless(module, tuning.facts):
            tuning.not_applicable.append(NotApplicable(name, reason))
            continue
        try:
            found = candidates_of(tuning, name, memory_budget, state.allow, deadline)
        except Refused as refusal:
            state.left[name] = str(refusal)
            if isinstance(refusal, TooLate):
                state.late.add(name)
            continue
        state.candidates |= {candidate.key: candidate for candidate in found}


def seconds_to_check(tuning: Tuning) -> float:
    """What the check of a patch takes, about."""
    return CHECKING_SECONDS + CHECKING_STEPS * tuning.seconds_per_step


def _seconds_to_screen(tuning: Tuning, state: Climb, left: float) -> float:
    """Of what is left, the seconds for racing candidates: what the races and the check behind that leave of it."""
    step = tuning.seconds_per_step
    before_check = left - seconds_to_check(tuning) - TOGETHER_SECONDS - TOGETHER_STEPS * step
    before_race = before_check - RACING_SECONDS - RACING_STEPS * step
    wanted = WANTED_QUADS * BLOCKS * step * (1 + len(state.candidates))
    return max(before_race if before_race >= wanted else before_check, SCREENING_SHARE * left)


def _seconds_together(tuning: Tuning, left: float) -> float:
    """Of what is left, the seconds for racing together what pays: the final race gives way to it, the check does not."""
    step = tuning.seconds_per_step
    before_check = left - seconds_to_check(tuning)
    before_race = before_check - RACING_SECONDS - RACING_STEPS * step
    enough = before_race >= TOGETHER_SECONDS + TOGETHER_STEPS * step
    return max(before_race if enough else before_check, BESIDE_SHARE * left)


def _leave_out(tuning: Tuning, state: Climb, seconds: float) -> None:
    """Where the time is too short for all, drop what is not allowed, and then what could gain least, as far as that is known."""

    def quads() -> float:
        return seconds / (BLOCKS * tuning.seconds_per_step * (len(state.candidates) + 1) or 1.0)

    offers = [candidate for candidate in state.candidates.values() if candidate.lacks]
    if quads() < OFFERED_QUADS:
        for candidate in offers:
            del state.candidates[candidate.key]
            state.left[candidate.knob] = f"not measured, for want of time; {_how_to_allow(state, candidate)}"
            state.late.add(candidate.knob)
    shares = {name: knob(name).share(tuning.facts) for name in {c.knob for c in state.candidates.values()}}
    for name in sorted(shares, key=lambda name: shares[name]):
        if quads() >= WANTED_QUADS or shares[name] > SMALL_SHARE:
            return
        state.candidates = {key: c for key, c in state.candidates.items() if c.knob != name}
        state.left[name] = (
            f"not measured, for want of time; it could gain {100 * shares[name]:.0f} % of the step at most"
        )
        state.late.add(name)


def _race_alone(tuning: Tuning, state: Climb, screen: Screen, deadline: Deadline) -> None:
    if not state.candidates:
        return
    tuning.watch.stage("racing every patch in one training, in turn with your code")
    words = short_names(state.candidates)
    entrants = [in_place(key, [candidate]) for key, candidate in state.candidates.items()]
    try:
        screen.race("alone", entrants, deadline, words, state.alone)
    except ChildFailed as failure:
        if not state.alone.entrants:
            raise NothingMeasured(f"{tuning.target}: the code as it is could not be measured: {failure}") from failure
        tuning.notes.append(f"the training in which patches are raced ended early: {failure}")
    for key, reason in state.alone.refused.items():
        state.left[state.candidates[key].knob] = f"{state.candidates[key].words}: {reason}"


def _choose(tuning: Tuning, state: Climb) -> None:
    """Take what pays as rungs: one setting of a knob, the largest gain first, as far as the patches go together."""
    paying = [c for key, c in state.candidates.items() if not c.lacks and pays(c, state.alone.interval(key))]
    best: list[Candidate] = []
    queued = state.alone.base.get("queued", 0.0) / (state.alone.base.get("wall") or 1.0)
    for name in dict.fromkeys(candidate.knob for candidate in paying):
        if queued >= QUEUED and not knob(name).is_judged_on_a_busy_machine:
            state.left[name] = (
                f"not judged: a step waited {100 * queued:.0f} % of its time for cores that others held, and with them to "
                "itself another setting may be best"
            )
            continue
        taken = best_of([candidate for candidate in paying if candidate.knob == name], state.alone)
        assert taken is not None
        best.append(taken)
    for candidate in sorted(best, key=lambda candidate: _ratio(state, candidate)):
        try:
            texts_of([*state.rungs, candidate])
            _keep_original(state, candidate)
        except (ValueError, Unreadable) as why:
            state.left[candidate.knob] = f"{candidate.words}: it pays, and is not taken: {why}"
            continue
        state.rungs.append(candidate)


def _keep_original(state: Climb, candidate: Candidate) -> None:
    """Raises ValueError where the file has changed since the patch was made, Unreadable where it is gone."""
    if candidate.path not in state.originals:
        state.originals[candidate.path] = read_text(Path(candidate.path))
    if state.originals[candidate.path][0] != candidate.before:
        raise ValueError(f"{candidate.path} changed while it was measured")


def _race_beside(tuning: Tuning, state: Climb, screen: Screen, deadline: Deadline) -> None:
    """Race all rungs against all but each one; while one for certain gains less than LEAST, take it out and race again."""
    while len(state.rungs) > 1 and deadline.left() > 0:
        tuning.watch.stage("all that pays together, and without each one")
        entrants = [in_place(ALL, state.rungs)]
        words = {AS_IT_IS: "your code", ALL: "all patches"}
        quads = deadline.left() / (BLOCKS * tuning.seconds_per_step * (len(state.rungs) + 2) or 1.0)
        for rung in state.rungs if quads >= WANTED_QUADS else ():  # else all of it against the user's code alone
            entrants.append(in_place(_without(rung), [other for other in state.rungs if other is not rung]))
            words[_without(rung)] = f"without {rung.knob}"
        state.beside, state.raced_together = Raced(), list(state.rungs)
        try:
            screen.race("beside", entrants, deadline, words, state.beside, base=ALL)
        except ChildFailed as failure:
            tuning.notes.append(f"what pays was not raced together in one training: {failure}")
            return
        useless = {
            rung.key: seen for rung in state.rungs if (seen := state.beside_the_others(rung)) and seen[1] > 1 - LEAST
        }
        if not useless:
            return
        worst = max((rung for rung in state.rungs if rung.key in useless), key=lambda rung: useless[rung.key][1])
        ratio, low, high = useless[worst.key]
        state.rungs.remove(worst)
        state.dropped.append(
            (worst, f"beside the others it takes {ratio:.3f} [{low:.3f}, {high:.3f}] of the time without it")
        )


def _tell_offers(state: Climb) -> None:
    """Say what patches that are not allowed would gain."""
    for key, candidate in state.candidates.items():
        if not candidate.lacks or key in state.alone.refused:
            continue
        seen, how = state.alone.interval(key), _how_to_allow(state, candidate)
        state.left[candidate.knob] = f"measured too briefly to say what it would gain; {how}"
        entrant = state.alone.entrants.get(key)
        if entrant is not None and entrant.left == FUTILE:
            state.left[candidate.knob] = f"{candidate.words}: {FUTILE}; {how}"
        elif seen is not None and seen[2] < 1:
            ratio = f"{seen[0]:.2f} [{seen[1]:.2f}, {seen[2]:.2f}]"
            state.left[candidate.knob] = f"{candidate.words}: would take {ratio} of the step (screened); {how}"
        elif seen is not None:
            state.left[candidate.knob] = f"{candidate.words}: was not shown to gain anything; {how}"


def _how_to_allow(state: Climb, candidate: Candidate) -> str:
    return f"it changes {' and '.join(candidate.lacks)}: {flag_for(candidate.lacks, state.allow)}"


def _ratio(state: Climb, candidate: Candidate) -> float:
    seen = state.alone.interval(candidate.key)
    assert seen is not None
    return seen[0]


def _without(rung: Candidate) -> str:
    return f"without {rung.key}"


def late(state: Climb) -> list[str]:
    """Knobs that more time would tell something about."""
    return list(dict.fromkeys([*(c.knob for c in state.undecided), *(n for n in state.left if n in state.late)]))
