"""All knobs asked for, searched one after the other within a budget, as one report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from perfaudit.errors import TargetError, UserError
from perfaudit.knobs import knob
from perfaudit.knobs._code import inside_project
from perfaudit.machine.limits import free_memory
from perfaudit.measure.clock import Clock, Deadline, WallClock
from perfaudit.measure.elsewhere import OpenNodes, no_nodes
from perfaudit.measure.nursery import refusal
from perfaudit.measure.watch import Watch
from perfaudit.measurements import DOES_NOT_LEARN, NotApplicable, Winner
from perfaudit.report import Report, to_json
from perfaudit.target.names import Target
from perfaudit.tune import ladder as climbing
from perfaudit.tune.allow_command import allow_command
from perfaudit.tune.bout import Bout
from perfaudit.tune.candidates import flag_for, screened_comparisons, why_never_allowed
from perfaudit.tune.climb import climb
from perfaudit.tune.climb_choice import name_what_pays
from perfaudit.tune.climb_state import Climb, late
from perfaudit.tune.first_look import is_raced_in_place
from perfaudit.tune.first_steps import build, needs_time, time_phases
from perfaudit.tune.learning import findings_in, learn
from perfaudit.tune.loops import expect_findings
from perfaudit.tune.outcome import TOO_SHORT, UNDECIDED, comparisons_of, trials_of, winner_of
from perfaudit.tune.own_loop import own_loop
from perfaudit.tune.profile import Profile
from perfaudit.tune.race_results import Raced, notes_of
from perfaudit.tune.recording import Record, changed_files, start_line
from perfaudit.tune.screening import calibrate, calibration_of
from perfaudit.tune.search import search
from perfaudit.tune.session import INTERRUPTED, Session, interruptible
from perfaudit.tune.shares import MEMORY_SHARE, in_order, seconds_for
from perfaudit.tune.too_short import ended_words, is_too_short, too_short_words
from perfaudit.tune.workshop import Children, Json, workshop_for

CALIBRATING_SHARE = 0.06  # of the budget, for the user's code against itself


def tune(
    target: Target,
    knobs: list[str],
    budget: float,
    memory_budget: int = 0,
    device: str = "auto",
    timeout: float = 120.0,
    watch: Watch | None = None,
    skips_idle: bool = False,
    begin: Callable[[Json], Record] = lambda start: Record(),
    workshop: Children | None = None,
    clock: Clock | None = None,
    allow: frozenset[str] | None = None,
    in_place: bool = False,
    on: str = "",
    nodes: OpenNodes = no_nodes,
) -> Report:
    """Search the knobs on the target, those first that a first profile says can matter most. Ends early on Ctrl-C.

    budget: seconds for all knobs; memory_budget: bytes, 0 for MEMORY_SHARE of what is free, on the device if it has
    memory of its own; timeout: seconds that loading or one step may take; skips_idle: leave out knobs whose part of the
    step is too small; allow: climb, with patches that change no more than this besides speed, None to search each knob
    on the user's code by itself; in_place: a script writes its own files; begin: opens the record of the run (see
    `tune.recording`); nodes: opens those that measure generations of the patched source; on: what they are called. Raises
    TargetError when the target does not load, NothingMeasured when it cannot make a step.
    """
    if allow is not None and not inside_project(target.file):
        raise TargetError(
            f"{target.file} lies outside this folder, and only files in this folder are patched: start perfaudit in that one"
        )
    watch, clock = watch or Watch(), clock or WallClock()
    deadline = Deadline(budget, clock)
    at_work = workshop_for(workshop, replace(target, in_place=in_place), device, watch, timeout)
    progress, record, files = Progress(Climb(allow) if allow is not None else None), Record(), dict[str, str]()
    sent, refusals = list[tuple[int, str]](), list[str]()
    try:
        with interruptible() as interrupted, at_work as workshop:
            if target.is_script:
                rules = {rule for name in knobs for rule in knob(name).rules}
                expect_findings(target, workshop, [f for f in findings_in([target.file]) if f.rule in rules])
            progress.profile = profile = build(target, workshop, watch, timeout, deadline)
            start = start_line(target, profile, knobs, budget, memory_budget, allow, on=on)
            files, record = start["files"], begin(start)
            memory = memory_budget or int((profile.survey.facts.device.room or free_memory()) * MEMORY_SHARE)
            session = Session(
                target,
                workshop,
                watch,
                clock,
                record,
                timeout,
                memory_budget or None,
                memory,
                skips_idle,
                digests=files,
                nodes=nodes,
                sent=sent,
                refusals=refusals,
            )
            _search_all(session, progress, profile, knobs, deadline, budget)
    except UserError:
        record.end("failed")
        raise
    if interrupted[0] and progress.climb is not None:
        name_what_pays(progress.climb)
    changed, ended = changed_files(files), [INTERRUPTED] if interrupted[0] else []
    ended += filter(None, [record.journal.trouble, words_of_nodes(on, allow is not None, sent, refusals) if on else ""])
    if changed:
        ended.append(f"{', '.join(changed)} changed while it was measured: nothing of this can be applied")
    report = report_of(target, progress, interrupted[0], ended, withhold=bool(changed)).with_(
        kept_in=record.journal.place
    )
    if progress.climb is not None and progress.climb.offered and report.ladder is not None:
        named = [] if skips_idle else knobs
        again = allow_command(
            replace(target, in_place=in_place), progress.climb, named, budget, memory_budget, device, on
        )
        report = report.with_(ladder=report.ladder.with_(allow_command=again))
    is_short = bool(refusals or _late(target, progress, [*report.winners]))
    status = "interrupted" if interrupted[0] else "out of time" if is_short else "finished"
    record.end(status, to_json(report))
    return report


def words_of_nodes(on: str, climbs: bool, sent: Sequence[tuple[int, str]], refusals: Sequence[str] = ()) -> str:
    """What nodes have measured, or why nothing. sent: generations, and the nodes that have measured them, race by race.

    refusals: why there were no nodes.
    """
    if number := sum(each for each, _ in sent):
        nodes = ", ".join(dict.fromkeys(words for each, words in sent if each))
        generations = f"{number} generation{'s' if number > 1 else ''}"
        return f"{generations} of the race in fresh processes measured on {nodes}; the rest on this machine"
    if refusals:
        return f"--on {on}: no node measured, and the race in fresh processes was not made: {refusals[0]}"
    if not climbs:
        why = "nodes measure the final race of all knobs together (--all), and named knobs are searched on this machine"
    elif sent:
        why = "the race of the patched source ended with its first generation, which is measured on this machine"
    else:
        why = "no patch came to the race in fresh processes, which is what nodes measure"
    return f"--on {on}: no work was sent to nodes, because {why}"


@dataclass(slots=True)
class Progress:
    """What the stages of a tuning have returned or begun, kept by whoever starts it so that Ctrl-C loses nothing; none reads it.

    climb: None where each knob is searched by itself. profile: the last, None before the training was built. control: the race of
    the user's code against itself, for knobs whose race has none.
    """

    climb: Climb | None = None
    profile: Profile | None = None
    control: Raced = field(default_factory=Raced)
    bouts: list[Bout] = field(default_factory=list)
    not_applicable: list[NotApplicable] = field(default_factory=list)


def _search_all(
    session: Session, progress: Progress, profile: Profile, knobs: list[str], deadline: Deadline, budget: float
) -> None:
    """Run stage after stage: survey, profile, and a climb or one search a knob. What each returns, the next one takes."""
    judged = [
        name
        for name in knobs
        if progress.climb is None or not why_never_allowed(profile.survey, name, progress.climb.allow)
    ]
    progress.profile = profile = learn(session, profile, judged)
    asked = [knob(name) for name in knobs if not knob(name).why_not(profile.survey)]
    has_own_control = all(map(is_raced_in_place, asked))  # in races in which no waiting is left out
    if asked:
        needs_time(session.target, profile, budget, deadline.seconds_left())
        is_asked = progress.climb is not None or not has_own_control
        progress.profile = profile = time_phases(session, profile, budget, is_asked)
    if progress.climb is not None:
        climb(session, profile, progress.climb, knobs, deadline)
        return
    if not has_own_control:
        seconds = CALIBRATING_SHARE * budget
        profile = profile.with_calibration(calibrate(session, profile, seconds, progress.control))
    waiting = in_order(profile.survey, knobs, session.skips_idle)
    while waiting:
        name = waiting.pop(0)
        seconds = seconds_for(profile, name, waiting, deadline.seconds_left(), session.skips_idle)
        found = search(session, profile, name, session.deadline(seconds), progress.bouts)
        if isinstance(found, NotApplicable):
            progress.not_applicable.append(found)
            continue
        profile = profile.with_calibration(found.calibration)
        session.record.keep_results(trials_of(found), comparisons_of(found), winner_of(found))


def report_of(
    target: Target, progress: Progress, interrupted: bool, ended: list[str], withhold: bool = False
) -> Report:
    """What a tuning has found, complete or not; winners in the order of what they save for certain.

    ended: what there is to say of its end. withhold: hand over no patch, because the files are no longer what was measured.
    """
    bouts, state, profile = progress.bouts, progress.climb, progress.profile
    looks = [bout.look for bout in bouts if bout.look is not None]
    said = [*(profile.notes if profile is not None else ())]
    said += notes_of(*(state.races if state is not None else (progress.control, *looks)))
    control = state.alone if state is not None else progress.control
    calibration = calibration_of(control, profile) if profile is not None else None
    winners = [winner_of(bout, interrupted) for bout in bouts]
    ranked = sorted(winners, key=lambda w: -w.saving.low if w.saving is not None and not w.keeps_current else 1.0)
    compared = [compared for bout in bouts for compared in comparisons_of(bout)]
    ladder = None
    if state is not None:
        not_learning = next((note for note in said if note.endswith(DOES_NOT_LEARN)), "")
        ladder = climbing.ladder_of(state, withhold, not_learning)
        ranked, compared = [*climbing.winners_of(state, ladder)], [*screened_comparisons(state.candidates, state.alone)]
    notes = [
        *said,
        *ended,
        *_apart(progress),
        *(climbing.start_words(state, profile.seconds_to_open) if target.is_script and state and profile else []),
        *([climbing.OF_A_TWIN] if ladder is not None and ladder.files and ladder.has_twin else []),
        *filter(None, [refusal()]),
        *([] if interrupted else _late(target, progress, winners)),
    ]
    return Report(
        "tune",
        target=str(target),
        own_loop=own_loop(target),
        environment=profile.environment if profile is not None else None,
        calibration=calibration or next((bout.calibration for bout in bouts if bout.calibration is not None), None),
        trials=tuple(entry for bout in bouts for entry in trials_of(bout)),
        comparisons=tuple(compared),
        winners=tuple(replace(w, fix=None) if withhold else w for w in ranked),
        ladder=ladder,
        not_applicable=(*progress.not_applicable, *(state.not_applicable if state is not None else ())),
        notes=tuple(notes),
        interrupted=interrupted,
    )


def _apart(progress: Progress) -> list[str]:
    """What was measured one after the other because memory does not hold it side by side, a sentence each."""
    ledgers = [(bout.name, bout.ledger) for bout in progress.bouts]
    if progress.climb is not None and progress.climb.final is not None:
        ledgers.append(("the final race", progress.climb.final.ledger))
    return [f"{name}: {ledger.apart}" for name, ledger in ledgers if ledger.apart]


def _late(target: Target, progress: Progress, winners: list[Winner]) -> list[str]:
    """A sentence on the knobs that more time would tell something about, one on those for which the training is too short, and
    one on those that must be allowed first."""
    state = progress.climb
    names = [w.knob for w in winners if w.words == UNDECIDED]
    names += [item.knob for item in progress.not_applicable if item.late]
    looks = [bout.look for bout in progress.bouts if bout.look is not None]
    short = [w.knob for w in winners if w.words == TOO_SHORT]
    if state is not None:
        looks, names = state.races, names + late(state)
        names += ["the final race"] if state.rungs and state.final is None else []
        if any(is_too_short(each) for each in looks):  # the budget is not what is wanting to decide these
            short = [candidate.knob for candidate in state.undecided_candidates]
            short, names = list(dict.fromkeys(short)), [name for name in names if name not in short]
    said = [f"the budget was too small for {', '.join(names)}: give it longer with --budget"] if names else []
    said += filter(None, [too_short_words(target, short, looks)])
    failed = [bout.ledger.failures.get(bout.base.key, "") for bout in progress.bouts]  # of the code as it is
    said += dict.fromkeys(filter(None, (ended_words(target, each) for each in failed)))
    if state is not None and state.lacking:
        flag = flag_for(tuple(change for changes in state.lacking.values() for change in changes), state.allow)
        said.append(f"not allowed, and so not raced in this time: {', '.join(state.lacking)}; {flag} races it")
    return said
