"""All knobs asked for, searched one after the other within a budget, as one report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from perfaudit.errors import TargetError, UserError
from perfaudit.knobs import knob
from perfaudit.knobs._code import inside_project
from perfaudit.measure.clock import Clock, Deadline, WallClock
from perfaudit.measure.environment import free_memory
from perfaudit.measure.nursery import refusal
from perfaudit.measure.watch import Watch
from perfaudit.measurements import Winner
from perfaudit.report import Report, to_json
from perfaudit.target.names import Target
from perfaudit.tune import ladder as climbing
from perfaudit.tune.candidates import screened_comparisons
from perfaudit.tune.climb import climb
from perfaudit.tune.climb_state import Climb, late
from perfaudit.tune.first_look import is_raced_in_place
from perfaudit.tune.learning import learn
from perfaudit.tune.outcome import UNDECIDED, comparisons_of, trials_of, winner_of
from perfaudit.tune.recording import Record, changed_files, start_line
from perfaudit.tune.screening import calibrate, calibration_of
from perfaudit.tune.search import search
from perfaudit.tune.shares import MEMORY_SHARE, in_order, seconds_for
from perfaudit.tune.tuning import Tuning, bout_of, interruptible
from perfaudit.tune.workshop import Children, Json, Workshop

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
    workshop: Workshop | None = None,
    clock: Clock | None = None,
    allow: frozenset[str] | None = None,
) -> Report:
    """Search the knobs on the target, those first that a first profile says can matter most. Ends early on Ctrl-C.

    budget: seconds for all knobs; memory_budget: bytes, 0 for MEMORY_SHARE of what is free, on the device if it has
    memory of its own; timeout: seconds that loading or one step may take; skips_idle: leave out knobs whose part of the
    step is too small; allow: climb, with patches that change no more than this besides speed, None to search each knob
    on the user's code by itself; begin: opens the record of the run (see `tune.recording`). Raises TargetError when the
    target does not load, NothingMeasured when it cannot make a step.
    """
    if allow is not None and not inside_project(target.file):
        raise TargetError(
            f"{target.file} lies outside this folder, and a climb patches only what is in it: start it there"
        )
    watch, clock = watch or Watch(), clock or WallClock()
    deadline = Deadline(budget, clock)
    workshop = workshop or Children(target, device, watch, timeout)
    state = Climb(allow) if allow is not None else None
    tuning = Tuning(target, workshop, watch, clock, timeout=timeout, skips_idle=skips_idle)
    tuning.memory_limit = memory_budget or None
    try:
        with interruptible(tuning.notes) as interrupted:
            tuning.build()
            start = start_line(tuning, knobs, budget, memory_budget, allow)
            tuning.digests = start["files"]
            tuning.record = begin(start)
            free = tuning.survey.facts.device.room or free_memory()
            _search_all(tuning, state, knobs, deadline, budget, memory_budget or int(free * MEMORY_SHARE))
    except UserError:
        tuning.record.ended("failed", None)
        raise
    return _ended(tuning, state, interrupted[0])


def _ended(tuning: Tuning, state: Climb | None, interrupted: bool) -> Report:
    """The report of a tuning that is over, which its record gets too. Nothing is handed over where files have changed since."""
    if tuning.record.trouble():
        tuning.notes.append(tuning.record.trouble())
    changed = changed_files(tuning.digests)
    if changed:
        tuning.notes.append(f"{', '.join(changed)} changed while it was measured: nothing of this can be applied")
    report = report_of(tuning, state, interrupted, withhold=bool(changed))
    is_late = bool(_late(tuning, state, list(report.winners)))
    tuning.record.ended("interrupted" if interrupted else "out of time" if is_late else "finished", to_json(report))
    return report


def _search_all(
    tuning: Tuning, state: Climb | None, knobs: list[str], deadline: Deadline, budget: float, memory: int
) -> None:
    learn(tuning, knobs)
    asked = [knob(name) for name in knobs if not knob(name).not_applicable(tuning.survey)]
    if asked:
        tuning.needs_time(budget, deadline.left())
        before = deadline.left()
        tuning.profile(budget)
        if state is None:
            tuning.seconds_to_open = before - deadline.left()
            if not all(map(is_raced_in_place, asked)):  # those have a control of their own
                calibrate(tuning, CALIBRATING_SHARE * budget)
    if state is not None:
        climb(tuning, state, knobs, deadline, memory)
        return
    waiting = in_order(tuning, knobs)
    while waiting:
        name = waiting.pop(0)
        search(tuning, name, tuning.deadline(seconds_for(tuning, name, waiting, deadline.left())), memory)
        if (bout := bout_of(tuning, name)) is not None:
            tuning.record.keep_results(trials_of(bout), comparisons_of(bout), winner_of(bout))


def report_of(tuning: Tuning, state: Climb | None, interrupted: bool, withhold: bool = False) -> Report:
    """What a tuning has found, complete or not; winners in the order of what they save for certain.

    state: of a climb, None where each knob was searched by itself. withhold: hand over no patch, because the files are no longer
    what was measured.
    """
    bouts = tuning.bouts
    winners = [winner_of(bout, interrupted) for bout in bouts]
    ranked = sorted(winners, key=lambda w: -w.saving.low if w.saving is not None and not w.keeps_current else 1.0)
    compared = [compared for bout in bouts for compared in comparisons_of(bout)]
    ladder = None
    if state is not None:
        ladder = climbing.ladder_of(state, withhold, tuning.not_learning)
        ranked, compared = (
            [*climbing.winners_of(state, ladder)],
            [*screened_comparisons(state.candidates, state.alone)],
        )
    notes = [
        *tuning.notes,
        *_apart(tuning, state),
        *([climbing.OF_A_TWIN] if ladder is not None and ladder.files and ladder.has_twin else []),
        *filter(None, [refusal()]),
        *([] if interrupted else _late(tuning, state, winners)),
    ]
    return Report(
        "tune",
        target=str(tuning.target),
        environment=tuning.environment,
        calibration=tuning.calibration if state is None else calibration_of(state.alone, tuning),
        trials=tuple(entry for bout in bouts for entry in trials_of(bout)),
        comparisons=tuple(compared),
        winners=tuple(replace(w, fix=None) if withhold else w for w in ranked),
        ladder=ladder,
        not_applicable=tuple(tuning.not_applicable),
        notes=tuple(notes),
        interrupted=interrupted,
    )


def _apart(tuning: Tuning, state: Climb | None) -> list[str]:
    """What was measured one after the other because memory does not hold it side by side, a sentence each."""
    ledgers = [(bout.name, bout.ledger) for bout in tuning.bouts]
    if state is not None and state.final is not None:
        ledgers.append(("the final race", state.final.ledger))
    return [f"{name}: {ledger.apart}" for name, ledger in ledgers if ledger.apart]


def _late(tuning: Tuning, state: Climb | None, winners: list[Winner]) -> list[str]:
    """One sentence on the knobs that more time would tell something about."""
    names = [w.knob for w in winners if w.words == UNDECIDED]
    names += [item.knob for item in tuning.not_applicable if item.late]
    if state is not None:
        names += late(state)
        names += ["the final race"] if state.rungs and state.final is None else []
    return [f"the budget was too small for {', '.join(names)}: give it longer with --budget"] if names else []
