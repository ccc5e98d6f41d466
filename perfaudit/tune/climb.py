"""From the user's code to one patch of all that pays: screened in a training that runs, raced and verified as source.

All candidates are raced beside each other in one training (`tune.screening`). What pays, or looks as if it did, is put in place
together, and left out again one by one, to see whether it pays beside the others; what was shown to pay neither alone nor there
goes. The rest is `tune.final`: the patched source in fresh processes, against the user's code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from perfaudit.errors import NothingMeasured
from perfaudit.knobs import Refused, knob
from perfaudit.measure.child import ChildFailed
from perfaudit.measure.clock import Deadline
from perfaudit.measure.judge import QUEUED
from perfaudit.measure.quads import LOOKS
from perfaudit.measure.race import BASE, FUTILE
from perfaudit.measurements import Interval, NotApplicable
from perfaudit.static.source import Unreadable, read_text
from perfaudit.tune.candidates import (
    Candidate,
    TooLate,
    alone_in_place,
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
from perfaudit.tune.raced import Raced, doubt_of
from perfaudit.tune.screening import LEAST, Screen
from perfaudit.tune.search import pointless
from perfaudit.tune.shares import in_order
from perfaudit.tune.short_names import short_names
from perfaudit.tune.tuning import Tuning

ASKING_SHARE = 0.15  # of the budget, for what knobs must know before they have candidates
SCREENING_SHARE = 0.4  # of what is left then, at least
BESIDE_QUADS = 6  # of all rungs but each one, so that there is an interval when time ends that race
WANTED_QUADS = 10  # of each candidate; where the time is too short for these and a final race, the race gives way
# What comes behind the screening takes, in seconds and steps, estimated from a few runs of char_gpt and digits_cnn: what pays
# raced together and without each of three to the first look, the check of the patch, and the final race to its first look.
# They share out time, and decide nothing. Losses are compared for a time, not for a number of steps.
TOGETHER_SECONDS, TOGETHER_STEPS = 3.0, 100
CHECKING_SECONDS, CHECKING_STEPS = 7.0, 16
RACING_SECONDS, RACING_STEPS = 4.0, 104
BESIDE_SHARE = 0.3  # of what is left behind the screening, at least
OFFERED_QUADS = 16  # that all must be able to have, before those that are not allowed take time from the others
BLOCKS = 3  # of a quad, which shares one with the next
SMALL_SHARE = 0.1  # of the step; what can gain no more is raced last
# Keys of what is raced together: all of it, and what alone was shown to pay.
ALL, SURE = "all", "sure"
NOT_BELIEVED = "the race of what pays together is not to be believed"


@dataclass(slots=True)
class Climb:
    """How far a climb has come; whoever starts it keeps it, so that an interruption loses nothing.

    allow: what besides speed a patch may change. candidates: that were raced, by key. alone: their race. beside: the
    race of the user's code, and of parts of what was put together, each against all of it; parts: these by their keys, all
    under ALL. beside_before: such races before it. rungs: what stayed, the largest gain first. dropped: what was taken out
    again, with the reason. left: by knob, why it was not climbed. late: those of them that more time would have tried.
    not_joined: those that pay alone, and that more time would have raced together with the others. originals: text and encoding
    of the files that are patched. start_bytes, top_bytes: peak memory of a step without and with the patch. trouble: why
    nothing can be handed over.
    """

    allow: frozenset[str]
    candidates: dict[str, Candidate] = field(default_factory=dict)
    alone: Raced = field(default_factory=Raced)
    beside: Raced = field(default_factory=Raced)
    beside_before: list[Raced] = field(default_factory=list)
    rungs: list[Candidate] = field(default_factory=list)
    parts: dict[str, list[Candidate]] = field(default_factory=dict)
    dropped: list[tuple[Candidate, str]] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    late: set[str] = field(default_factory=set)
    not_joined: set[str] = field(default_factory=set)
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
        """Seconds per step of all rungs over those of the user's code, in one training; None where that was not raced.

        Of rungs that were raced as a part of more, the ratio is that of two intervals: all of it over the user's code, and over
        the part. Its ends are those of the two that lie furthest apart: it misses at most as often as the two together, and less
        often than one of them where their errors are independent.
        """
        if len(self.rungs) == 1 and (alone := self.alone.interval(self.rungs[0].key)) is not None and alone[2] < 1:
            return alone
        whole = self.beside.interval(BASE)
        key = next((key for key, part in self.parts.items() if _same_rungs(part, self.rungs)), "")
        if whole is None or not key or key == ALL:
            return whole if key else None
        part = self.beside.interval(key)
        return (whole[0] / part[0], whole[1] / part[2], whole[2] / part[1]) if part is not None else None

    @property
    def doubt(self) -> str:
        """Why what was only screened is not to be believed, "" where no control says anything against it."""
        return doubt_of(self.alone, *self.beside_before, self.beside)

    @property
    def has_twin(self) -> bool:
        """Whether a second training, whose memory lies elsewhere, had a part in the races of what stayed."""
        ways = {self.alone.ways.get(rung.key) for rung in self.rungs}
        return "twin" in ways or (len(self.rungs) > 1 and "twin" in self.beside.ways.values())

    def is_sure(self, rung: Candidate) -> bool:
        """Whether a patch was shown to pay by itself."""
        return pays(rung, self.alone.interval(rung.key))

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
        most = deadline.left() - seconds_to_check(tuning)
        longer = tuning.deadline(most) if most > share.left() else share
        _race_alone(tuning, state, screen, _UntilSomeGoTogether(share, longer, state))
        seconds = _seconds_together(tuning, deadline.left())
        _choose(tuning, state, seconds)
        _tell_offers(state)
        if len(state.rungs) > 1:
            _race_beside(tuning, state, screen, tuning.deadline(seconds))
    if len(state.rungs) > 1 and state.together() is None:
        _leave_unsure(state, state.is_sure)
        if len(state.rungs) > 1 and not _has_time_to_race(tuning, deadline):
            _keep_the_first(state)
    final_race(tuning, state, deadline, memory_budget)


def _record(tuning: Tuning, state: Climb) -> None:
    """Keep how candidates stand, for the history of a run that is killed."""
    tuning.record.keep_comparisons(screened_comparisons(state.candidates, state.alone))


class _UntilSomeGoTogether(Deadline):
    """A deadline that is put off while there is nothing to race together, for which time was kept: two patches, one of which
    was shown to pay and the other at least looks so.
    """

    def __init__(self, planned: Deadline, latest: Deadline, state: Climb) -> None:
        self._planned, self._latest, self._state = planned, latest, state

    def left(self) -> float:
        allowed = [candidate for candidate in self._state.candidates.values() if not candidate.lacks]
        looks = {each.knob for each in allowed if self._state.is_sure(each) or _looks_paying(self._state, each)}
        is_waiting = len(looks) < 2 or not any(map(self._state.is_sure, allowed))
        return (self._latest if is_waiting else self._planned).left()

    def is_chosen(self) -> bool:
        """Whether it runs out although there is time: because two patches are there to be raced together."""
        return self.left() < self._latest.left()


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
        state.not_joined.add(rung.knob)
    state.rungs = [first]


def _list_candidates(tuning: Tuning, state: Climb, knobs: list[str], memory_budget: int, deadline: Deadline) -> None:
    for name in in_order(tuning, knobs):
        module = knob(name)
        if reason := module.not_applicable(tuning.survey) or pointless(module, tuning.survey):
            tuning.not_applicable.append(NotApplicable(name, reason))
            continue
        if tuning.queued >= QUEUED and not module.is_judged_on_a_busy_machine:
            state.left[name] = _busy_words(tuning.queued)
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
        return _quads(tuning, seconds, len(state.candidates) + 1)

    offers = [candidate for candidate in state.candidates.values() if candidate.lacks]
    if quads() < OFFERED_QUADS:
        for candidate in offers:
            del state.candidates[candidate.key]
            state.left[candidate.knob] = f"not measured, for want of time; {_how_to_allow(state, candidate)}"
            state.late.add(candidate.knob)
    shares = {name: knob(name).share(tuning.survey) for name in {c.knob for c in state.candidates.values()}}
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
    entrants = [alone_in_place(candidate) for candidate in state.candidates.values()]
    try:
        screen.race("alone", entrants, deadline, words, state.alone)
    except ChildFailed as failure:
        if not state.alone.entrants:
            raise NothingMeasured(f"{tuning.target}: the code as it is could not be measured: {failure}") from failure
        tuning.notes.append(f"the training in which patches are raced ended early: {failure}")
    for name in dict.fromkeys(candidate.knob for candidate in state.candidates.values()):
        mine = [candidate for candidate in state.candidates.values() if candidate.knob == name]
        if all(candidate.key in state.alone.refused for candidate in mine):
            state.left[name] = "; ".join(f"{each.words}: {state.alone.refused[each.key]}" for each in mine)


def _choose(tuning: Tuning, state: Climb, seconds: float) -> None:
    """Take as rungs what pays, the largest gain first: one setting of a knob, as far as the patches go together.

    seconds: for racing them together. Where that is time enough to race all without each one, what looks as if it paid is
    taken too, to be decided there.
    """
    allowed = [candidate for candidate in state.candidates.values() if not candidate.lacks]
    best: list[Candidate] = []
    queued = state.alone.base.get("queued", 0.0) / (state.alone.base.get("wall") or 1.0)
    for name in dict.fromkeys(candidate.knob for candidate in allowed):
        mine = [candidate for candidate in allowed if candidate.knob == name]
        taken = best_of(mine, state.alone) or _most_hopeful(state, mine)
        if taken is None:
            continue
        if queued >= QUEUED and not knob(name).is_judged_on_a_busy_machine:
            state.left[name] = _busy_words(queued)
            continue
        best.append(taken)
    best.sort(key=lambda candidate: _ratio(state, candidate))
    if not any(map(state.is_sure, best)) or _quads(tuning, seconds, len(best) + 2) < LOOKS[0].generations:
        best = [candidate for candidate in best if state.is_sure(candidate)]
    for candidate in sorted(best, key=lambda candidate: not state.is_sure(candidate)):
        try:
            texts_of([*state.rungs, candidate])
            _keep_original(state, candidate)
        except (ValueError, Unreadable) as why:
            if state.is_sure(candidate):
                state.left[candidate.knob] = f"{candidate.words}: it pays, and is not taken: {why}"
            continue
        state.rungs.append(candidate)
    state.rungs.sort(key=lambda candidate: _ratio(state, candidate))


def _busy_words(queued: float) -> str:
    return (
        f"not judged: a step waited {100 * queued:.0f} % of its time for cores that others held, and with them to itself "
        "another setting may be best"
    )


def _most_hopeful(state: Climb, candidates: list[Candidate]) -> Candidate | None:
    """Of candidates none of which was shown to pay, that which looks as if it gained most; None where none looks so."""
    hopeful = [candidate for candidate in candidates if _looks_paying(state, candidate)]
    return min(hopeful, key=lambda candidate: _ratio(state, candidate), default=None)


def _looks_paying(state: Climb, candidate: Candidate) -> bool:
    """Whether the middle of a candidate's interval lies where it pays."""
    seen = state.alone.entrants.get(candidate.key)
    if seen is None or seen.left == FUTILE or seen.interval is None:
        return False
    return seen.interval[0] <= 1 - least_gain(candidate)


def _keep_original(state: Climb, candidate: Candidate) -> None:
    """Raises ValueError where the file has changed since the patch was made, Unreadable where it is gone."""
    if candidate.path not in state.originals:
        state.originals[candidate.path] = read_text(Path(candidate.path))
    if state.originals[candidate.path][0] != candidate.before:
        raise ValueError(f"{candidate.path} changed while it was measured")


def _race_beside(tuning: Tuning, state: Climb, screen: Screen, deadline: Deadline) -> None:
    """Race all rungs against the user's code and against all but each one; take out what does not pay, and race again.

    What for certain gains less than LEAST beside the others goes, one at a time. What was shown to pay neither alone nor there
    goes too; what is left then was raced as a part, or is raced again.
    """
    while len(state.rungs) > 1 and deadline.left() > 0:
        quads = _quads(tuning, deadline.left(), len(state.rungs) + 2)
        if state.together() is not None and quads < LOOKS[0].generations:
            return
        tuning.watch.stage("all that pays together, and without each one")
        state.parts = _parts(state, with_each=quads >= BESIDE_QUADS)
        words = {BASE: "your code", ALL: "all patches", SURE: "what pays alone"}
        words |= {_without(rung): f"without {rung.knob}" for rung in state.rungs}
        entrants = [in_place(key, part) for key, part in state.parts.items()]
        unsure = {_without(rung): least_gain(rung) for rung in state.rungs if not state.is_sure(rung)}
        entrants = [item | {"least": max(LEAST, unsure.get(item["key"], LEAST))} for item in entrants]
        if state.beside.entrants:
            state.beside_before.append(state.beside)
        state.beside = Raced()
        try:
            screen.race("beside", entrants, deadline, words, state.beside, base=ALL)
        except ChildFailed as failure:
            tuning.notes.append(f"what pays was not raced together in one training: {failure}")
            return
        if doubt_of(state.beside):
            tuning.notes.append(f"{NOT_BELIEVED}: {doubt_of(state.beside)}")
            _leave_unsure(state, state.is_sure)
            return
        useless = {
            rung.key: seen for rung in state.rungs if (seen := state.beside_the_others(rung)) and seen[1] > 1 - LEAST
        }
        if useless:
            worst = max((rung for rung in state.rungs if rung.key in useless), key=lambda rung: useless[rung.key][1])
            state.rungs.remove(worst)
            state.dropped.append((worst, _beside_words(useless[worst.key])))
        elif not _leave_unsure(
            state, lambda rung: state.is_sure(rung) or pays(rung, state.beside_the_others(rung))
        ) or state.together() is not None:  # fmt: skip
            return


def _parts(state: Climb, with_each: bool) -> dict[str, list[Candidate]]:
    """What is raced together: all rungs and, if there is time for each, all but each one, and those that pay alone."""
    parts = {ALL: list(state.rungs)}
    if with_each:
        parts |= {_without(rung): [other for other in state.rungs if other is not rung] for rung in state.rungs}
        sure = [rung for rung in state.rungs if state.is_sure(rung)]
        if sure and not any(_same_rungs(part, sure) for part in parts.values()):
            parts[SURE] = sure
    return parts


def _leave_unsure(state: Climb, is_sure: Callable[[Candidate], bool]) -> bool:
    """Take out the rungs that were not shown to pay; whether there were any. They stay undecided."""
    unsure = [rung for rung in state.rungs if not is_sure(rung)]
    for rung in unsure:
        state.rungs.remove(rung)
        seen = state.beside_the_others(rung)
        why = _beside_words(seen) if seen else "there was no time to race it beside the others"
        why = NOT_BELIEVED if doubt_of(state.beside) else why
        state.dropped.append((rung, f"undecided: {why}"))
    return bool(unsure)


def _beside_words(seen: Interval) -> str:
    ratio, low, high = seen
    return f"beside the others it takes {ratio:.3f} [{low:.3f}, {high:.3f}] of the time without it"


def _quads(tuning: Tuning, seconds: float, entrants: int) -> float:
    """How many quads each of so many entrants, a control with them, has in these seconds."""
    return seconds / (BLOCKS * tuning.seconds_per_step * entrants or 1.0)


def _same_rungs(some: list[Candidate], others: list[Candidate]) -> bool:
    """Whether these are the same patches, in whatever order."""
    return {candidate.key for candidate in some} == {candidate.key for candidate in others}


def _tell_offers(state: Climb) -> None:
    """Say what patches that are not allowed would gain: of each knob the best of them."""
    offers = [each for key, each in state.candidates.items() if each.lacks and key not in state.alone.refused]
    for name in dict.fromkeys(candidate.knob for candidate in offers):
        best = min((candidate for candidate in offers if candidate.knob == name), key=lambda each: _rank(state, each))
        state.left[name] = f"{_offer_words(state, best)}; {_how_to_allow(state, best)}"


def _rank(state: Climb, offer: Candidate) -> tuple[bool, float, bool]:
    """The order of offers: those with an interval by their ratio, then those that more time would tell something of."""
    seen, entrant = state.alone.interval(offer.key), state.alone.entrants.get(offer.key)
    return seen is None, seen[0] if seen is not None else 0.0, entrant is not None and entrant.left == FUTILE


def _offer_words(state: Climb, offer: Candidate) -> str:
    """What a patch that is not allowed would gain, as far as it was seen."""
    seen, entrant = state.alone.interval(offer.key), state.alone.entrants.get(offer.key)
    if entrant is not None and entrant.left == FUTILE:
        return f"{offer.words}: {FUTILE}"
    if seen is None:
        return "measured too briefly to say what it would gain"
    if seen[2] >= 1:
        return f"{offer.words}: was not shown to gain anything"
    return f"{offer.words}: would take {seen[0]:.2f} [{seen[1]:.2f}, {seen[2]:.2f}] of the step (screened)"


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
    left = (name for name in state.left if name in state.late | state.not_joined)
    return list(dict.fromkeys([*(c.knob for c in state.undecided), *left]))
