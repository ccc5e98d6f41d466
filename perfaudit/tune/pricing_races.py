"""The races in which findings are priced: in one training that runs, and as patched source in fresh processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perfaudit.measure.child import ChildFailed
from perfaudit.measure.clock import Deadline
from perfaudit.measure.ledger import Ledger, Variant
from perfaudit.tune.candidates import PATCH, Candidate, alone_in_place, in_place, texts_of
from perfaudit.tune.climb_time import UntilSomeGoTogether, seconds_to_check, seconds_to_race
from perfaudit.tune.patched_source import SourceRace, check_patched, race_patched
from perfaudit.tune.priced_findings import BASE, TOGETHER, Priced, evidence_of, rules_of
from perfaudit.tune.profile import Profile
from perfaudit.tune.race_so_far import Lineup
from perfaudit.tune.screening import Screen
from perfaudit.tune.session import Session
from perfaudit.tune.short_names import short_names
from perfaudit.tune.workshop import error_of_own_code

AT_ONCE = 4  # patches in one race of fresh processes beside the unpatched code: five that each hold the model
STAGE = "patches"
SCREENING_SHARE = 0.5  # of what is left when the race begins; more of it while no two patches pay
# Of a patch that stays undecided: they show an effect of 2 % in sample_models/digits_cnn.py, which took 60 s more for 1 %.
MOST_QUADS = 32
SURE = 2.0  # times what checks and the last race take; where less is left, all that pays is raced in the same training first
TOGETHER_SHARE = 0.3  # of what is left then, for that
FEWEST_SECONDS = 1.0  # for which a race of fresh processes is begun


@dataclass(frozen=True, slots=True)
class PricingRaces:
    """The races of one pricing; what each shows is in `priced`. deadline: of all of them."""

    session: Session
    profile: Profile
    priced: Priced
    deadline: Deadline

    def screen(self) -> None:
        """Race all that is tried in one training, and there all that pays together.

        Raises NothingMeasured where the code as it is cannot be raced.
        """
        session, profile, priced, deadline = self.session, self.profile, self.priced, self.deadline
        tried = priced.candidates_by_key
        if not tried:
            return
        session.watch.stage("racing every patch in one training, in turn with your code")
        entrants = [alone_in_place(candidate) for candidate in tried.values()]
        until = self._until(session.deadline(SCREENING_SHARE * deadline.seconds_left()))
        with Screen(session, self._tell, profile.only_computes) as screen:
            try:
                screen.race(STAGE, Lineup(entrants, short_names(tried), most_quads=MOST_QUADS), until, priced.raced)
                checks = len(priced.without_doubt) + 1  # each alone, and all together, which is then raced
                behind = checks * seconds_to_check(profile) + seconds_to_race(profile)
                if len(priced.without_doubt) > 1 and deadline.seconds_left() < SURE * behind:
                    self._screen_together(screen, session.deadline(TOGETHER_SHARE * deadline.seconds_left()))
            except ChildFailed as failure:
                if not priced.raced.entrants:
                    raise error_of_own_code(session.target, failure) from failure
                priced.raced.notes.append(f"the training in which patches are raced ended early: {failure}")

    def _tell(self) -> None:  # for the history of a run that is killed
        self.session.record.keep_comparisons(evidence_of(self.priced)[1])

    def _until(self, planned: Deadline) -> UntilSomeGoTogether:
        """When that race ends: as planned where two pay or one waits for fresh processes, and before the check where one pays.

        While none does, there is nothing to keep time for.
        """
        priced = self.priced
        to_check = self.deadline.seconds_left() - seconds_to_check(self.profile)
        latest = self.session.deadline(to_check) if to_check > planned.seconds_left() else planned

        def is_needed() -> bool:
            return len(priced.paying) > 1 or priced.has_refused

        return UntilSomeGoTogether(planned, latest, self.deadline, lambda: bool(priced.paying), is_needed)

    def _screen_together(self, screen: Screen, deadline: Deadline) -> None:
        priced = self.priced
        self.session.watch.stage(f"{len(priced.without_doubt)} patches together")
        try:
            entrant = in_place(TOGETHER, priced.without_doubt)
        except ValueError as clash:
            priced.clash = str(clash)
            return
        priced.all_of = priced.without_doubt
        lineup = Lineup([entrant], {TOGETHER: "all that pay"}, most_quads=MOST_QUADS)
        screen.race(TOGETHER, lineup, deadline, priced.beside)

    def check(self) -> None:
        """Check each patch that pays against the unpatched code, alone; those that fresh processes race are checked there."""
        if paying := self.priced.without_doubt:
            self.session.watch.stage(f"checking {', '.join(rules_of([candidate]) for candidate in paying)}")
            self.priced.checks.seconds_to_open = self.profile.seconds_to_open
            check_patched(
                self.session, self.profile, as_sources(self.profile, paying, self.priced.checks), self.deadline
            )

    def race_as_source(self) -> None:
        """Race as patched source, a few at a time, what the training that ran cannot tell."""
        priced, deadline = self.priced, self.deadline
        refused = [raced for waiting in priced.waiting.values() if (raced := priced.as_source(waiting)) is not None]
        groups = [refused[i : i + AT_ONCE] for i in range(0, len(refused), AT_ONCE)]
        for number, group in enumerate(groups):
            if deadline.seconds_left() < FEWEST_SECONDS:
                return
            names = ", ".join(rules_of([candidate]) for candidate in group)
            self.session.watch.stage(f"measuring {names} in fresh processes")
            # Half a share is kept for all patches together.
            share = deadline.seconds_left() / (len(groups) - number + 0.5)
            priced.races.append(as_sources(self.profile, group, self._first_ledger()))
            race_patched(self.session, self.profile, priced.races[-1], self.session.deadline(share))

    def race_together(self) -> None:
        """Race all patches that pay, applied at once, against the unpatched code: savings do not add up."""
        priced, paying = self.priced, self.priced.handed_over
        if len(paying) < 2 or self.deadline.seconds_left() < FEWEST_SECONDS:
            return
        try:
            texts = texts_of(paying)
        except ValueError as clash:
            priced.clash = str(clash)
            return
        self.session.watch.stage(f"measuring {len(paying)} patches together")
        variant = Variant(TOGETHER, PATCH, {"patch": rules_of(paying)}, texts)
        changes = tuple(sorted({change for candidate in paying for change in candidate.fix.changes}))
        # Each was checked alone; beside one that trains otherwise, an average cannot be compared again.
        is_checked_again = not {"algorithm", "order"} & set(changes)
        averages = frozenset({TOGETHER} if is_checked_again and any(each.is_of_average for each in paying) else ())
        priced.together = SourceRace(
            BASE, (variant,), {TOGETHER: changes}, f"{STAGE} {TOGETHER}", self._first_ledger(), of_average=averages,
            may_count_own=self.profile.only_computes,
        )  # fmt: skip
        race_patched(self.session, self.profile, priced.together, self.deadline)

    def _first_ledger(self) -> Ledger:
        """One that knows how long a process takes to be checked: a race that would not come to its first round is not begun."""
        return Ledger(seconds_to_open=self.priced.checks.seconds_to_open)


def as_sources(profile: Profile, candidates: Sequence[Candidate], ledger: Ledger) -> SourceRace:
    """Each of these as patched source."""
    variants = tuple(Variant(c.key, PATCH, c.settings, texts_of([c])) for c in candidates)
    averages = frozenset(c.key for c in candidates if c.is_of_average)
    changes = {c.key: c.fix.changes for c in candidates}
    return SourceRace(BASE, variants, changes, STAGE, ledger, of_average=averages, may_count_own=profile.only_computes)
