"""How far a climb has come: what was raced, what stayed, what was left and why. Whoever starts a climb keeps it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field

from perfaudit.measure.entrants import BASE, BEATEN, FUTILE, UNDECIDED
from perfaudit.measure.quads import is_hopeful
from perfaudit.measurements import (
    PAY_ALL_THE_SAME,
    UNCHECKED,
    Comparison,
    Interval,
    NotApplicable,
    settings_text,
)
from perfaudit.tune.candidates import Candidate, least_gain, pays, texts_of
from perfaudit.tune.first_look import AS_GOOD
from perfaudit.tune.patched_source import SourceRace
from perfaudit.tune.race_results import Raced, doubt_of

# Keys of what is raced together: all of it, and what alone was shown to pay.
ALL, SURE = "all", "sure"
# Standard errors by which a patch must look faster beside the others: one error is passed by one of several useless patches.
ERRORS_BESIDE = 1.5
HOPEFUL_QUADS = 3  # of a candidate, before its middle says anything


@dataclass(slots=True)
class Climb:
    """How far a climb has come; whoever starts it keeps it, so that an interruption loses nothing.

    allow: what besides speed a patch may change. candidates: that were raced, by key. alone: their race. beside: the race of
    the user's code, and of parts of what was put together, each against all of it; parts: these by their keys, all under ALL.
    beside_before: such races before it. rungs: what stayed, the largest gain first. dropped: what was taken out again, with
    the reason. not_applicable: knobs that cannot matter here. left: by knob, why it was not climbed. late: those of them that
    more time would have tried. lacking: those that time was kept from because what they change is not allowed, with what that is.
    offered: by knob, the patch that would pay with more allowed. not_joined: those that pay alone, and that
    more time would have raced together with the others. originals: text and encoding of the files that are patched.
    behind: what is raced behind the others; beside_measured: by key, a rung of these against all the others, in fresh processes.
    start_bytes, top_bytes: peak memory of a step without and with the patch. trouble: why nothing can be handed over.
    """

    allow: frozenset[str]
    candidates: dict[str, Candidate] = field(default_factory=dict)
    alone: Raced = field(default_factory=Raced)
    beside: Raced = field(default_factory=Raced)
    beside_before: list[Raced] = field(default_factory=list)
    rungs: list[Candidate] = field(default_factory=list)
    parts: dict[str, list[Candidate]] = field(default_factory=dict)
    dropped: list[tuple[Candidate, str]] = field(default_factory=list)
    not_applicable: list[NotApplicable] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    offered: dict[str, Candidate] = field(default_factory=dict)
    late: set[str] = field(default_factory=set)
    lacking: dict[str, tuple[str, ...]] = field(default_factory=dict)
    not_joined: set[str] = field(default_factory=set)
    originals: dict[str, tuple[str, str]] = field(default_factory=dict)
    behind: list[Candidate] = field(default_factory=list)
    beside_measured: dict[str, Comparison] = field(default_factory=dict)
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
    def allowed_candidates(self) -> list[Candidate]:
        """Candidates that may be handed over."""
        return [candidate for candidate in self.candidates.values() if not candidate.lacks]

    @property
    def undecided_candidates(self) -> list[Candidate]:
        """What may be handed over and more time would decide: what it must gain lies in its interval, or it has none.

        A knob of which one setting is a rung is decided, or pays all the same. So is a setting that had its last look, unless a
        race beside others may still tell.
        """
        pays_all_the_same = {rung.knob for rung, why in self.dropped if why in PAY_ALL_THE_SAME}
        found, taken = [], {rung.knob for rung in self.rungs} | pays_all_the_same
        for key, candidate in self.candidates.items():
            if key in self.alone.out or candidate.lacks or candidate.knob in taken:
                continue
            interval = self.alone.interval(key)
            pays_from = 1 - least_gain(candidate)
            seen = self.alone.entrants.get(key)
            if seen is not None and (
                seen.left in (FUTILE, BEATEN) or (seen.left and interval is None)
            ):  # or it is far slower
                continue
            if seen is not None and seen.left == UNDECIDED and not self._may_go_beside(candidate):
                continue
            if interval is None or interval[1] < pays_from < interval[2]:
                found.append(candidate)
        return found

    def undecided_rivals(self, taken: Candidate) -> list[Candidate]:
        """Other settings of its knob that look clearly faster than this one, and were not shown to pay."""
        if not self.alone.log_ratios.get(taken.key):  # it was raced behind the others
            return []
        most = ratio_of(self, taken) / AS_GOOD
        return [
            each
            for each in self.allowed_candidates
            if each.knob == taken.knob
            and not self.is_sure(each)
            and looks_paying(self, each)
            and ratio_of(self, each) <= most
        ]

    def is_open(self, candidate: Candidate) -> bool:
        """Whether more time would race it on by itself."""
        seen = self.alone.entrants.get(candidate.key)
        return seen is not None and not seen.left

    @property
    def faster_undecided(self) -> dict[str, str]:
        """By knob of a rung, which of its other settings look clearly faster and were not decided."""
        found = {}
        for rung in self.rungs:
            if rivals := self.undecided_rivals(rung):
                found[rung.knob] = "; ".join(_rival_words(self, each) for each in rivals)
        return found

    def _may_go_beside(self, candidate: Candidate) -> bool:
        """Whether more time would race it together with others although it was not shown to pay by itself, see `choose`."""
        if candidate.key in self.alone.in_halves or not looks_paying(self, candidate):
            return False
        others = (each for each in self.allowed_candidates if each.knob != candidate.knob)
        return any(self.is_sure(each) or looks_paying(self, each) for each in others)

    @property
    def too_small(self) -> dict[str, str]:
        """By knob of which nothing is open or was kept, what its best setting took that is undecided after the last look."""
        told = {c.knob for c in (*self.rungs, *(rung for rung, _ in self.dropped), *self.undecided_candidates)}
        found: dict[str, tuple[Interval, Candidate]] = {}
        for candidate in self.allowed_candidates:
            seen = self.alone.entrants.get(candidate.key)
            if seen is None or seen.left != UNDECIDED or seen.interval is None or candidate.knob in told:
                continue
            if candidate.knob not in found or seen.interval < found[candidate.knob][0]:
                found[candidate.knob] = (seen.interval, candidate)
        return {name: _too_small_words(*each) for name, each in found.items()}

    @property
    def out(self) -> dict[str, str]:
        """By knob, why it has no candidate left to race, or which of them failed where none of the others is taken or open."""
        known = {
            candidate.knob
            for candidate in (*self.rungs, *(rung for rung, _ in self.dropped), *self.undecided_candidates)
        }
        found = {}
        for name, mine in self._by_knob.items():
            gone = [candidate for candidate in mine if candidate.key in self.alone.out]
            if len(gone) < len(mine):
                gone = [each for each in gone if each.key in self.alone.failures and name not in known]
            if gone:
                found[name] = "; ".join(f"{each.words}: {self.alone.out[each.key]}" for each in gone)
        return found

    @property
    def failed_knobs(self) -> list[str]:
        """Knobs all candidates of which are out of the race, one at least because it failed."""
        out, failures = self.alone.out.keys(), self.alone.failures.keys()
        keys = {name: {candidate.key for candidate in mine} for name, mine in self._by_knob.items()}
        return [name for name, mine in keys.items() if mine <= out and mine & failures]

    @property
    def _by_knob(self) -> dict[str, list[Candidate]]:
        found: dict[str, list[Candidate]] = {}
        for candidate in self.candidates.values():
            found.setdefault(candidate.knob, []).append(candidate)
        return found

    @property
    def races(self) -> list[Raced]:
        """All races in one training, in their order."""
        return [self.alone, *self.beside_before, self.beside]

    def together(self) -> Interval | None:
        """Seconds per step of all rungs over those of the user's code, in one training; None where that was not raced.

        Of rungs that were raced in halves it is the product of their ratios. Of rungs that were raced as a part of more, the
        ratio is that of two intervals: all of it over the user's code, and over the part. Its ends are those of the two that lie
        furthest apart: it misses at most as often as the two together, and less often than one of them where their errors are
        independent.
        """
        if self.race_together is self.alone:
            return self._product()
        whole = self.beside.interval(BASE)
        key = next((key for key, part in self.parts.items() if same_rungs(part, self.rungs)), "")
        if whole is None or not key or key == ALL:
            return whole if key else None
        part = self.beside.interval(key)
        return (whole[0] / part[0], whole[1] / part[2], whole[2] / part[1]) if part is not None else None

    @property
    def race_together(self) -> Raced:
        """The race that `together` is of."""
        if self.were_halves and self.beside.interval(BASE) is None:
            return self.alone
        only = self.alone.interval(self.rungs[0].key) if len(self.rungs) == 1 else None
        return self.alone if only is not None and only[2] < 1 else self.beside

    @property
    def seconds_together(self) -> float | None:
        """Seconds per step of the user's code in that race; None where it had no timed step by itself."""
        if self.race_together is self.alone:
            return self.alone.seconds_per_step
        seconds = self.beside.entrants[BASE].seconds  # the base is all patches there
        return statistics.fmean(seconds) if seconds else None

    @property
    def were_halves(self) -> bool:
        """Whether all rungs were raced with half of the others in place, so that what they do to each other is in their
        ratios."""
        return bool(self.rungs) and all(rung.key in self.alone.in_halves for rung in self.rungs)

    def _product(self) -> Interval | None:
        """The product of the ratios of all rungs, None where one has no interval.

        Its ends are the products of theirs: it holds where each of them does. These very ratios chose the rungs, so its middle is
        likely to promise too much, which the report says (`Ladder.is_chosen_by_it`).
        """
        known = [self.alone.interval(rung.key) for rung in self.rungs]
        found = [each for each in known if each is not None]
        if len(found) < len(self.rungs):
            return None
        ratio, low, high = (math.prod(ends) for ends in zip(*found, strict=True))
        return ratio, low, high

    @property
    def doubt(self) -> str:
        """Why what was only screened is not to be believed, "" where no control says anything against it.

        Both must stand: what all rungs save together, in the race that shows it, and what each rung saves, in a race that shows
        it. A race whose control is off tells nothing, and nothing against what another one has shown beside its own controls.
        """
        for rung in self.rungs:
            alone = doubt_of(self.alone, figure=self.alone.interval(rung.key), keys=[rung.key])
            beside = self.beside_the_rungs(rung)
            if alone and (beside is None or doubt_of(self.beside, figure=beside)):
                return alone
        return doubt_of(self.race_together, figure=self.together(), keys=[rung.key for rung in self.rungs])

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
        return self.beside.interval(without(rung))

    def beside_the_rungs(self, rung: Candidate) -> Interval | None:
        """The same where the rungs that were there are those that stayed; None where others were raced, or none."""
        if (seen := self.beside_measured.get(rung.key)) is not None:
            return (seen.ratio, seen.low, seen.high)
        if self.beside_measured:  # it was raced beside fewer
            return None
        return self.beside_the_others(rung) if same_rungs(self.parts.get(ALL, []), self.rungs) else None


def _too_small_words(seen: Interval, candidate: Candidate) -> str:
    ratio, low, high = seen
    figure = f"{settings_text(candidate.settings)} took {ratio:.3f} [{low:.3f}, {high:.3f}] of your step"
    least, calmer = least_gain(candidate), "run it again on a calmer machine"
    looks_larger = 1 - ratio >= 2 * least  # the noise was too large, and not the effect too small
    if high < 1:
        saved = (
            f"between {math.floor(1000 * (1 - high)) / 10:.1f} and {100 * (1 - low):.0f} %"  # never as much as it must
        )
        must = f"for a patch it must save {100 * least:.0f} % for certain, which the whole race did not show"
        return f"it is faster, and saves {saved}; {must}: {figure}{f'; {calmer}' if looks_larger else ''}"
    if looks_larger:
        shown = f"the whole race did not show that it gains {100 * least:.0f} %"
        return f"it looked faster, but {shown}: {figure}; {calmer}"
    return f"its effect is smaller than this race can show, however long it is: {figure}"


def _rival_words(state: Climb, rival: Candidate) -> str:
    seen = state.alone.interval(rival.key)
    taken = (
        f"{seen[0]:.3f} [{seen[1]:.3f}, {seen[2]:.3f}]" if seen is not None else f"about {ratio_of(state, rival):.2f}"
    )
    return (
        f"{settings_text(rival.settings)} looks faster than what is in the patch, and is undecided: it took {taken} of your step "
        "(screened)"
    )


def same_rungs(some: list[Candidate], others: list[Candidate]) -> bool:
    """Whether these are the same patches, in whatever order."""
    return {candidate.key for candidate in some} == {candidate.key for candidate in others}


def without(rung: Candidate) -> str:
    """The key of all rungs but this one."""
    return f"without {rung.key}"


def looks_paying(state: Climb, candidate: Candidate) -> bool:
    """Whether a candidate looks as if it gained what it must, see `quads.is_hopeful`.

    It says which patches are worth a race together; that race, of other steps, tells whether they pay.
    """
    return _looks_paying(state.alone, candidate.key, candidate)


def looks_paying_beside(state: Climb, rung: Candidate) -> bool:
    """The same beside the others, where all of it was raced without this one, and by more."""
    return _looks_paying(state.beside, without(rung), rung, ERRORS_BESIDE)


def _looks_paying(raced: Raced, key: str, candidate: Candidate, errors: float = 1.0) -> bool:
    seen, logs = raced.entrants.get(key), raced.log_ratios.get(key, [])
    if (
        seen is None
        or (seen.left and seen.interval is None)
        or seen.left in (FUTILE, BEATEN)
        or len(logs) < HOPEFUL_QUADS
    ):
        return False
    others = [other for name, other in raced.log_ratios.items() if name != key]
    return is_hopeful(logs, others, least_gain(candidate), errors)


def ratio_of(state: Climb, candidate: Candidate) -> float:
    """What it takes of the step, by its interval or, before there is one, by the middle of its quads."""
    seen = state.alone.interval(candidate.key)
    return seen[0] if seen is not None else math.exp(statistics.median(state.alone.log_ratios[candidate.key]))


def ratios_of(state: Climb, candidates: Iterable[Candidate]) -> dict[str, float]:
    """The same of several, by key."""
    return {candidate.key: ratio_of(state, candidate) for candidate in candidates}


def late(state: Climb) -> list[str]:
    """Knobs that more time would tell something about; what is not allowed needs to be allowed first."""
    left = (name for name in state.left if name in (state.late - state.lacking.keys()) | state.not_joined)
    unchecked = (candidate.knob for candidate, why in state.dropped if why == UNCHECKED)
    rivals = (rung.knob for rung in state.rungs if any(map(state.is_open, state.undecided_rivals(rung))))
    return list(dict.fromkeys([*(c.knob for c in state.undecided_candidates), *left, *unchecked, *rivals]))
