"""What cannot stand in a training that runs, or takes too long before the race, as a compiled model: raced as patched source,
behind the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from perfaudit.knobs import Bench, Refused, Reply, knob
from perfaudit.measure.clock import Deadline
from perfaudit.measure.judge import comparison
from perfaudit.measure.ledger import Ledger, Variant
from perfaudit.measure.stats import is_settled
from perfaudit.measurements import Comparison, Settings
from perfaudit.static.source import Unreadable
from perfaudit.tune.bout import variant_of
from perfaudit.tune.candidates import Candidate, alone_words, least_gain
from perfaudit.tune.climb_choice import keep_original
from perfaudit.tune.climb_state import Climb
from perfaudit.tune.climb_time import seconds_to_check, seconds_to_race
from perfaudit.tune.final import START, source_race, user_code
from perfaudit.tune.ladder import ladder_of
from perfaudit.tune.losses import was_compared
from perfaudit.tune.patched_source import SourceRace, race_patched, recall_race
from perfaudit.tune.profile import Profile
from perfaudit.tune.questions import digest_of_texts
from perfaudit.tune.race_so_far import LEAST
from perfaudit.tune.search import ask_knob
from perfaudit.tune.session import Session

KEPT_SHARE = 0.4  # of the budget, at most, that is kept for it; what costs more waits for what the others leave
THREE_FOR_TWO = 1.5  # processes of a generation: your code, the patch of the others, and that with this one
NOT_REACHED = "not reached: it is raced behind the others"
OTHERS = "the others"  # the key of all rungs without it
NO_NODES = "there were no nodes to race it on"
LAST = "so it is raced in fresh processes after the others"


def seconds_behind(profile: Profile, candidate: Candidate) -> float:
    """What racing it behind the others takes, about: until it is ready, the check, and the race to its first look."""
    race = THREE_FOR_TWO * seconds_to_race(profile)
    return knob(candidate.knob).seconds_needed + seconds_to_check(profile) + race


def seconds_kept(profile: Profile, behind: Sequence[Candidate], left: float, share: float = KEPT_SHARE) -> float:
    """Of what is left, the seconds that are kept for these: for those that need least, as far as this share of it lasts."""
    kept = 0.0
    for needed in sorted(seconds_behind(profile, candidate) for candidate in behind):
        if kept + needed <= share * left:
            kept += needed
    return kept


def race_behind(session: Session, profile: Profile, state: Climb, deadline: Deadline) -> None:
    """Race each of `state.behind` beside the rungs, in fresh processes; one that pays becomes a rung."""
    for candidate in sorted(state.behind, key=lambda each: seconds_behind(profile, each)):
        if state.rungs and (trouble := ladder_of(state).trouble):
            why = f"{_why_last(profile, candidate)}, and their patch is {trouble}; {alone_words(profile.survey, candidate.knob)}"
            is_late = False
        else:
            try:
                why, is_late = _race(session, profile, state, candidate, deadline)
            except (Refused, ValueError, Unreadable) as refusal:
                why, is_late = str(refusal), False
        state.left.pop(candidate.knob, None)
        state.late.discard(candidate.knob)
        if why:
            state.left[candidate.knob] = why
        if is_late:
            state.late.add(candidate.knob)


def _race(
    session: Session, profile: Profile, state: Climb, candidate: Candidate, deadline: Deadline
) -> tuple[str, bool]:
    """Why it is no rung, and whether more time may make it one; "" where it has become one.

    Where there is no time for it, rounds that an earlier run has finished are judged.
    """
    if session.refusals:
        return f"{candidate.words}: {NO_NODES}", True
    keep_original(state, candidate)
    race = _source_race(session, profile, state, candidate)
    needed, left = seconds_behind(profile, candidate), deadline.seconds_left()
    if left < needed:
        recall_race(session, race)
        if not race.ledger.generations:
            why = f"{_why_last(profile, candidate)}. That takes some {needed:.0f} s, and {left:.0f} s were left"
            return f"{why}; give it longer with --budget, or {alone_words(profile.survey, candidate.knob)}", True
        return _judge(session, state, candidate, race)
    session.watch.stage(f"{candidate.knob}: {knob(candidate.knob).title}, beside the others")
    try:
        _make_ready(session, profile, candidate, race.rival or START, deadline)
    except Refused:
        recall_race(session, race)
        if not race.ledger.generations:
            raise
    else:
        race_patched(session, profile, race, deadline)
    if session.refusals:
        return f"{candidate.words}: {NO_NODES}", True
    return _judge(session, state, candidate, race)


def _source_race(session: Session, profile: Profile, state: Climb, candidate: Candidate) -> SourceRace:
    """All patches with the candidate's, against the user's code and against the patch of the others, where there is one."""
    parts = {"all": [*state.rungs, candidate]} | ({OTHERS: [*state.rungs]} if state.rungs else {})
    ledger = Ledger(seconds_to_open=profile.seconds_to_open, seconds_per_step=profile.seconds_per_step)
    own = user_code(profile, state.rungs)
    return source_race(profile, parts, "behind", ledger, session.memory_budget, own, OTHERS)


def _judge(session: Session, state: Climb, candidate: Candidate, race: SourceRace) -> tuple[str, bool]:
    """What `_race` returns, by the rounds that there are."""
    ledger, top, rival, stage = race.ledger, race.top, race.rival, race.stage
    for key in (START.key, top.key):
        if key in ledger.failures:
            return f"{candidate.words}: {ledger.failures[key]}", False
    seen = comparison(ledger, rival or START, top, stage, clock=race.clock, least=LEAST)
    whole = comparison(ledger, START, top, stage, clock=race.clock, least=LEAST)
    if seen is None or whole is None or not was_compared(ledger.checked.get(top.key, "")):
        return f"{candidate.words}: {ledger.checked.get(top.key) or 'the time ended before it was raced'}", seen is None
    if seen.high >= 1 or 1 - seen.high < least_gain(candidate) or whole.high >= 1:
        return _words(candidate, seen, rival is not None), not is_settled(seen.low, seen.high, LEAST)
    state.rungs.append(candidate)
    state.candidates[candidate.key] = candidate
    state.beside_measured[candidate.key] = seen
    state.final = race
    state.start_bytes, state.top_bytes = session.questions.known_peak(START), session.questions.known_peak(top)
    return "", False


def _make_ready(session: Session, profile: Profile, candidate: Candidate, others: Variant, deadline: Deadline) -> None:
    """Have the knob prepare what is raced: code is compiled once. Raises Refused where no verdict can follow.

    others: the source without the candidate's patch. The setting is applied to it once it runs, so that compiling has the time
    of a question; as patched source, a start would have to do it.
    """
    module, survey = knob(candidate.knob), profile.survey

    def ask(settings: Settings, question: str, timeout: float = session.timeout, **arguments: Any) -> Reply:
        source = replace(variant_of(candidate.knob, settings), overlay=others.overlay)
        key = f"{question} {source.key} {digest_of_texts(source.overlay)} {arguments}"
        timeout = min(timeout, deadline.seconds_left())
        return ask_knob(session, module, key, source, question, arguments, timeout)

    left = deadline.seconds_left() - seconds_to_check(profile)
    bench = Bench(survey, session.cores, session.memory_budget, _no_probe, ask, {}, deadline.seconds_left, left)
    if not module.prepare(bench, candidate.settings):
        raise Refused("; ".join(map(str, bench.kept.get("why", []))))


def _no_probe(settings: Settings) -> Any:
    raise Refused("memory is not asked for here")


def _words(candidate: Candidate, seen: Comparison, has_others: bool) -> str:
    """What the race has shown of one that does not pay for certain."""
    against = "beside the others it takes" if has_others else "it takes"
    figure = f"{seen.ratio:.3f}" + (f" [{seen.low:.3f}, {seen.high:.3f}]" if seen.high < float("inf") else "")
    end = "of the time without it" if has_others else "of the time of your code"
    return f"{candidate.words}: {against} {figure} {end} ({seen.n} rounds of fresh processes)"


def _why_last(profile: Profile, candidate: Candidate) -> str:
    if knob(candidate.knob).is_of_process:
        return f"it holds for a whole process, {LAST}"
    if profile.survey.facts.is_script:
        return f"it cannot be switched on and off while a script runs, {LAST}"
    return (
        f"trying it takes some {knob(candidate.knob).seconds_needed:.0f} s, more than there are before the race, {LAST}"
    )
