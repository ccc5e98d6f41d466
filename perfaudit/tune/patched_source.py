"""Patched source against the user's code, in fresh processes: its losses checked, its steps raced."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from perfaudit.errors import UserError
from perfaudit.measure.child import Child
from perfaudit.measure.clock import Deadline
from perfaudit.measure.facts import Facts
from perfaudit.measure.generations import ROUNDS, measure
from perfaudit.measure.judge import own_clock, settled_variants
from perfaudit.measure.ledger import Ledger, Variant
from perfaudit.measure.runner import TrialFailed
from perfaudit.measurements import ClockName
from perfaudit.tune.profile import Profile
from perfaudit.tune.questions import digest_of_texts
from perfaudit.tune.race_so_far import LEAST
from perfaudit.tune.session import Session
from perfaudit.tune.short_names import variant_name
from perfaudit.tune.verify import Verifier

SEED = 5


@dataclass(frozen=True, slots=True)
class SourceRace:
    """Patched texts, and the user's code that they are checked and raced against.

    changes: by key of a patch, what it changes besides speed. stage: under which the ledger keeps the race. What the checks
    say is in the ledger too, a refusal among its failures. why_not_built: of a patch by its key, why the training that was built
    from it is not what it is for; "" where it is. memory_budget: bytes that the peak of a step with a patch may have, None for
    the session's. of_average: keys of patches of an average of the weights. rival: of the patches, that against which the first
    one is raced too; None for none. may_count_own: the training does nothing but compute, see `Profile.only_computes`.
    """

    start: Variant
    patches: tuple[Variant, ...]
    changes: Mapping[str, tuple[str, ...]]
    stage: str = ""
    ledger: Ledger = field(default_factory=Ledger)
    why_not_built: Callable[[str, Facts], str] = lambda key, facts: ""
    memory_budget: int | None = None
    of_average: frozenset[str] = frozenset()
    rival: Variant | None = None
    may_count_own: bool = False

    @property
    def clock(self) -> ClockName:
        """By which the patches are compared."""
        return own_clock(self.ledger, (self.start, *self.patches)) if self.may_count_own else "wall"

    @property
    def top(self) -> Variant:
        """The one patch of a race that has one; the first of several."""
        return self.patches[0]

    def settled_keys(self, ledger: Ledger) -> set[str]:
        """Keys of the patches on which no more measuring is needed."""
        done = settled_variants(ledger, self.start, [*self.patches], LEAST, self.stage, self.clock)
        if self.rival is None:
            return done
        if self.top.key not in ledger.failures and not (
            self.top.key in done and settled_variants(ledger, self.rival, [self.top], LEAST, self.stage, self.clock)
        ):
            return set()
        return {patch.key for patch in self.patches}


def race_patched(
    session: Session, profile: Profile, race: SourceRace, deadline: Deadline, rounds: int = ROUNDS
) -> None:
    """Check and race the patches until each is decided or the time is over; the ledger has what is known at any moment.

    rounds: of each generation of processes. Where nodes that were asked for cannot be had, nothing is raced, and the session
    has the reason.
    """
    if session.refusals:
        return
    names = {variant.key: variant_name(variant.settings) for variant in (race.start, *race.patches)}
    race.ledger.on_block = lambda key, seconds: session.watch.block(names[key], seconds)

    with contextlib.ExitStack() as opened:
        try:
            nodes = opened.enter_context(session.nodes(None))
        except UserError as refusal:  # after all the screening, which a user is to have
            session.refusals.append(str(refusal))
            return
        verifier = opened.enter_context(_verifier(session, profile, race))
        lab = session.workshop.lab(_check(race, verifier), verifier.start_of)
        if session.own_ends:
            lab.own_ends |= session.own_ends
        try:
            measure(
                lab, [race.start, *race.patches], race.ledger, deadline, SEED, race.stage, rounds=rounds,
                settled=race.settled_keys, memo=session.record, nodes=nodes,
            )  # fmt: skip
        finally:
            session.sent.append((race.ledger.on_nodes, nodes.words if nodes is not None else ""))


def recall_race(session: Session, race: SourceRace) -> None:
    """Know the rounds of this race that earlier runs have finished, where nothing more is measured."""
    for piece, state in session.record.earlier_sets(race.stage):
        race.ledger.generations.append(piece)
        race.ledger.take(state)


def check_patched(session: Session, profile: Profile, race: SourceRace, deadline: Deadline | None = None) -> None:
    """Check the patches one by one without racing them; those that an earlier run found to agree are not checked again.

    deadline: behind which no further one is begun, nor where the longest so far would outlast it, as the ledger knows.
    """
    with _verifier(session, profile, race) as verifier:
        lab = session.workshop.lab(_check(race, verifier), verifier.start_of)
        is_start_known = False
        for variant in race.patches:
            note = f"{digest_of_texts(variant.overlay)} {','.join(race.changes[variant.key])}"
            if known := session.record.notes("check", note):
                race.ledger.checked[variant.key] = known[-1]["said"]
                continue
            waiting = (variant,) if is_start_known else (race.start, variant)
            if deadline is not None and deadline.seconds_left() <= len(waiting) * race.ledger.seconds_to_open:
                return
            for each in waiting:
                began = session.clock.now()
                if why := lab.examine(each):
                    race.ledger.failures[each.key] = why
                race.ledger.seconds_to_open = max(race.ledger.seconds_to_open, session.clock.now() - began)
            if race.start.key in race.ledger.failures:
                return
            is_start_known = True
            if variant.key in race.ledger.checked and variant.key not in race.ledger.failures:
                session.record.note("check", note, {"said": race.ledger.checked[variant.key]})


def _check(race: SourceRace, verifier: Verifier) -> Callable[[Child, Variant, Facts], None]:
    def check(child: Child, variant: Variant, facts: Facts) -> None:
        if variant.key != race.start.key and (why := race.why_not_built(variant.key, facts)):
            raise TrialFailed(why)
        verifier.check(child, variant, facts)

    return check


def _verifier(session: Session, profile: Profile, race: SourceRace) -> Verifier:
    reference = session.questions.reference(profile)
    most = session.memory_limit if race.memory_budget is None else race.memory_budget
    ledger, changes = race.ledger, {**race.changes}
    return Verifier(
        race.start.key, changes, reference, ledger.checked, most, of_average=race.of_average, losses=ledger.losses
    )  # fmt: skip
