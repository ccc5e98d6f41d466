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
from perfaudit.measurements import NO_TIME, Winner
from perfaudit.report import Report, to_json
from perfaudit.target.names import Target
from perfaudit.tune.climb import climb
from perfaudit.tune.ladder import ladder_of
from perfaudit.tune.learning import learn
from perfaudit.tune.outcome import UNDECIDED, comparisons_of, trials_of, winner_of
from perfaudit.tune.recording import start_line
from perfaudit.tune.search import search
from perfaudit.tune.shares import MEMORY_SHARE, in_order, seconds_for
from perfaudit.tune.tuning import Climb, Record, Tuning, bout_of, changed_files, interruptible
from perfaudit.tune.workshop import Children, Json, Workshop


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
    watch = watch or Watch()
    deadline = Deadline(budget, clock or WallClock())
    workshop = workshop or Children(target, device, watch, timeout)
    tuning = Tuning(target, workshop, watch, clock or WallClock(), timeout=timeout, skips_idle=skips_idle)
    tuning.memory_limit = memory_budget or None
    if allow is not None and not inside_project(target.file):
        raise TargetError(
            f"{target.file} lies outside this folder, and a climb patches only what is in it: start it there"
        )
    try:
        with interruptible(tuning.notes) as interrupted:
            tuning.survey()
            start = start_line(tuning, knobs, budget, memory_budget, allow)
            tuning.digests = start["files"]
            tuning.record = begin(start)
            free = tuning.facts.get("device_free") or free_memory()
            _search_all(tuning, knobs, deadline, budget, memory_budget or int(free * MEMORY_SHARE), allow)
    except UserError:
        tuning.record.ended("failed", None)
        raise
    if tuning.record.trouble():
        tuning.notes.append(tuning.record.trouble())
    changed = changed_files(tuning)
    if changed:
        tuning.notes.append(f"{', '.join(changed)} changed while it was measured: nothing of this can be applied")
    report = report_of(tuning, interrupted[0], withhold=bool(changed))
    late = bool(_late(tuning, list(report.winners)))
    tuning.record.ended("interrupted" if interrupted[0] else "out of time" if late else "finished", to_json(report))
    return report


def _search_all(
    tuning: Tuning, knobs: list[str], deadline: Deadline, budget: float, memory: int, allow: frozenset[str] | None
) -> None:
    learn(tuning, knobs)
    if any(not knob(name).not_applicable(tuning.facts) for name in knobs):
        tuning.needs_time(budget, deadline.left())
        tuning.calibrate(budget)
    if allow is not None:
        tuning.climb = Climb(allow)
        climb(tuning, tuning.climb, knobs, deadline, memory)
        return
    waiting = in_order(tuning, knobs)
    while waiting:
        name = waiting.pop(0)
        search(tuning, name, tuning.deadline(seconds_for(tuning, name, waiting, deadline.left())), memory)
        if (bout := bout_of(tuning, name)) is not None:
            tuning.record.results(tuning, bout)


def report_of(tuning: Tuning, interrupted: bool, withhold: bool = False) -> Report:
    """What a tuning has found, complete or not; winners in the order of what they save for certain.

    withhold: hand over no patch, because the files are no longer what was measured. Nor is one of a knob that was only
    offered.
    """
    bouts = tuning.bouts
    winners = [winner_of(tuning, bout, interrupted) for bout in bouts]
    notes = [
        *tuning.notes,
        *_apart(tuning),
        *filter(None, [refusal()]),
        *([] if interrupted else _late(tuning, winners)),
    ]
    offered = tuning.climb.offered if tuning.climb is not None else set()
    ranked = sorted(winners, key=lambda w: -w.saving.low if w.saving is not None and not w.keeps_current else 1.0)
    return Report(
        "tune",
        target=str(tuning.target),
        environment=tuning.environment,
        calibration=tuning.calibration,
        trials=tuple(entry for bout in bouts for entry in trials_of(bout)),
        comparisons=tuple(compared for bout in bouts for compared in comparisons_of(tuning, bout)),
        winners=tuple(replace(w, fix=None) if withhold or w.knob in offered else w for w in ranked),
        ladder=ladder_of(tuning, withhold) if tuning.climb is not None else None,
        not_applicable=tuple(tuning.not_applicable),
        notes=tuple(notes),
        interrupted=interrupted,
    )


def _apart(tuning: Tuning) -> list[str]:
    """What was measured one after the other because memory does not hold it side by side, a sentence each."""
    final = tuning.climb.final if tuning.climb is not None else None
    ledgers = [(bout.name, bout.ledger) for bout in tuning.bouts] + (
        [("the final race", final.ledger)] if final else []
    )
    return [f"{name}: {ledger.apart}" for name, ledger in ledgers if ledger.apart]


def _late(tuning: Tuning, winners: list[Winner]) -> list[str]:
    """One sentence on the knobs that more time would tell something about."""
    left = tuning.climb.left.items() if tuning.climb is not None else ()
    reasons = [*((n.knob, n.reason) for n in tuning.not_applicable), *left]
    offered = tuning.climb.offered if tuning.climb is not None else set()  # nothing of theirs would be handed over
    late = [w.knob for w in winners if w.words == UNDECIDED and w.knob not in offered] + [
        name for name, why in reasons if why == NO_TIME
    ]
    late += ["the final race"] if tuning.climb is not None and tuning.climb.rungs and tuning.climb.final is None else []
    return [f"the budget was too small for {', '.join(late)}: give it longer with --budget"] if late else []
