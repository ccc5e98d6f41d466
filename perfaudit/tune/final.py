"""The last race of a climb: the patched source against the user's code, in fresh processes, its losses checked first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from perfaudit.knobs import knob
from perfaudit.measure.child import ChildFailed
from perfaudit.measure.clock import Deadline
from perfaudit.measure.facts import Facts
from perfaudit.measure.generations import ROUNDS, least_seconds
from perfaudit.measure.ledger import Ledger, Variant
from perfaudit.measure.quads import LARGE
from perfaudit.measure.runner import ENDS_EARLY
from perfaudit.measurements import Interval, Settings
from perfaudit.tune.candidates import PATCH, Candidate, texts_of
from perfaudit.tune.climb_state import Climb
from perfaudit.tune.climb_time import seconds_to_check
from perfaudit.tune.first_look import CLEARLY
from perfaudit.tune.patched_source import SourceRace, check_patched, race_patched, recall_race
from perfaudit.tune.profile import Profile
from perfaudit.tune.questions import digest_of_texts, is_told_beside
from perfaudit.tune.session import Session

KNOB = "climb"  # in the place of a knob's name: its variants are patches, and nothing is applied at run time
STAGE = "the patch against your code, in fresh processes"  # whole in a bar on 120 columns
LOADER = "dataloader"  # the knob whose rung may change how many batches lie ready
START = Variant("as it is", KNOB, {"patch": "none"})


def final_race(session: Session, profile: Profile, state: Climb, deadline: Deadline) -> None:
    """Check and race what was chosen; the race is in `state.final` from its beginning, so that an interruption keeps it.

    Where the check refuses all of it together, each rung is checked alone, those that are refused are taken out, and the rest is
    checked and raced.
    """
    is_told = is_told_beside(profile)
    most = session.memory_budget if is_told else None
    while state.rungs:
        ledger, own = Ledger(seconds_per_step=profile.seconds_per_step), user_code(profile, state.rungs)
        race = source_race(profile, {"all": [*state.rungs]}, "final", ledger, most, own)
        top = race.top
        if not is_told:
            state.start_bytes, state.top_bytes = _peak(session, START), _peak(session, top)
            if _takes_too_much(state, session.memory_budget):
                return
        state.final = race
        session.watch.stage(STAGE)
        if deadline.seconds_left() > seconds_to_check(profile) + 2 * least_seconds(ledger):
            race_patched(session, profile, race, deadline, _rounds(state.together()))
        if not ledger.generations:
            recall_race(session, race)
        if not ledger.generations and top.key not in ledger.failures and top.key not in ledger.checked:
            check_patched(session, profile, race)
        if is_told:  # by the processes that were checked, as each start takes seconds
            state.start_bytes, state.top_bytes = session.questions.known_peak(START), session.questions.known_peak(top)
            if not profile.survey.facts.is_script and top.key in ledger.checked:
                # Of compiled code no process that is checked tells it.
                state.start_bytes = state.start_bytes or _peak(session, START)
                state.top_bytes = state.top_bytes or _peak(session, top)
                if _takes_too_much(state, session.memory_budget):
                    return
        is_refused = not ledger.failures.get(top.key, ENDS_EARLY).startswith(ENDS_EARLY)
        if not is_refused or len(state.rungs) == 1 or not _drop_refused(session, profile, state):
            return


def _rounds(screened: Interval | None) -> int:
    """Of each generation of the final race: one where screening has shown so much that a wider interval shows it, too."""
    return 1 if screened is not None and 1 - screened[0] >= LARGE and screened[2] <= CLEARLY else ROUNDS


def source_race(
    profile: Profile,
    parts: Mapping[str, Sequence[Candidate]],
    label: str = "",
    ledger: Ledger | None = None,
    memory_budget: int | None = None,
    own: Variant = START,
    rival: str = "",
) -> SourceRace:
    """Sets of patches, by key, each as one text, against the user's code. label: before what tells their texts in the ledger.

    own: that code as a side of the race, see `user_code`. rival: the key of the set that the first one is raced against, too.
    """
    patches = {key: patched_variant(key, part) for key, part in parts.items()}
    top = next(iter(patches.values()))
    return SourceRace(
        own,
        tuple(patches.values()),
        {
            key: tuple(dict.fromkeys(change for rung in part for change in rung.fix.changes))
            for key, part in parts.items()
        },
        f"{label} {digest_of_texts(top.overlay)}" if label else "",
        ledger or Ledger(),
        partial(why_not_built, profile, parts),
        memory_budget,
        frozenset(key for key, part in parts.items() if any(rung.is_of_average for rung in part)),
        patches.get(rival),
        profile.only_computes,
    )


def user_code(profile: Profile, rungs: Sequence[Candidate]) -> Variant:
    """The user's code as a side of a race with these rungs: with the steps that its loader asks for, see `patched_variant`."""
    module = knob(LOADER)
    if not _loaders_in(rungs):
        return START
    current = module.current(profile.survey)
    return replace(START, untimed=1 + module.batches_ready(current), least_steps=module.least_steps(current))


def patched_variant(key: str, rungs: Sequence[Candidate]) -> Variant:
    """The patches of these rungs as one text.

    Where one of them changes the loader, the batches that its workers may have ready are used up before each block, and a block
    has a batch of each worker. Elsewhere both sides have the same ready.
    """
    variant, module = Variant(key, KNOB, {"patch": key}, texts_of(rungs)), knob(LOADER)
    for loader in _loaders_in(rungs):
        variant = replace(variant, untimed=1 + module.batches_ready(loader), least_steps=module.least_steps(loader))
    return variant


def _loaders_in(rungs: Sequence[Candidate]) -> list[Settings]:
    """The settings of the rung that changes the loader; [] for none."""
    return [rung.settings for rung in rungs if rung.knob == LOADER]


def why_not_built(profile: Profile, rungs: Mapping[str, Sequence[Candidate]], key: str, facts: Facts) -> str:
    """Which setting of these rungs a training that was built from their patches has not; "" where it has all of them.

    What was raced is the setting. An argument in a call whose values are set again afterwards is not.
    """
    survey = replace(profile.survey, facts=facts)
    for rung in rungs[key]:
        if rung.knob == PATCH:
            continue
        if not knob(rung.knob).holds(survey, rung.settings):
            return f"the patched source does not build what was raced: {rung.words}"
        if lost := knob(rung.knob).spoils(profile.survey, survey):
            return lost
    return ""


def _takes_too_much(state: Climb, memory_budget: int) -> bool:
    """Whether the peak of a step with the patch is known to be over the budget; then it is said in `state`."""
    if state.top_bytes is None or state.top_bytes <= memory_budget:
        return False
    sizes = " MiB, more than the budget of ".join(f"{n / 2**20:.0f}" for n in (state.top_bytes, memory_budget))
    state.trouble = f"the peak of a step with the patch is {sizes} MiB"
    return True


def _peak(session: Session, variant: Variant) -> int | None:
    """The peak memory of a step; None where it cannot be told."""
    try:
        return session.questions.peak_of(variant)
    except ChildFailed:
        return None


def _drop_refused(session: Session, profile: Profile, state: Climb) -> bool:
    """Check each rung alone and take out what is refused, the smallest where all pass alone; whether something is left."""
    session.watch.stage("which of the patches is refused")
    most = state.final.memory_budget if state.final is not None else None
    alone = source_race(profile, {candidate.key: [candidate] for candidate in state.rungs}, memory_budget=most)
    check_patched(session, profile, alone)
    refused = [candidate for candidate in state.rungs if candidate.key in alone.ledger.failures]
    for candidate in refused:
        state.rungs.remove(candidate)
        state.dropped.append((candidate, f"its patch is refused: {alone.ledger.failures[candidate.key]}"))
    if not refused and state.final is not None:
        why = state.final.ledger.failures.get(state.final.top.key, "")
        state.dropped.append((state.rungs.pop(), f"beside the others its patch is refused: {why}"))
    return bool(state.rungs)
