"""All knobs asked for, searched one after the other within a budget, as one report."""

from __future__ import annotations

from collections.abc import Callable

from perfaudit.errors import UserError
from perfaudit.findings import Finding
from perfaudit.knobs import knob
from perfaudit.measure.clock import Clock, Deadline, WallClock
from perfaudit.measure.environment import free_memory
from perfaudit.measure.ledger import Ledger
from perfaudit.measure.runner import least_seconds
from perfaudit.measure.stats import LOOKS
from perfaudit.measurements import NotApplicable, Winner
from perfaudit.report import Report, to_json
from perfaudit.target.names import Target
from perfaudit.tune.outcome import UNDECIDED, comparisons_of, trials_of, winner_of
from perfaudit.tune.recording import start_line
from perfaudit.tune.search import NO_TIME, search
from perfaudit.tune.tuning import Bout, Record, Tuning, interruptible
from perfaudit.tune.watch import Watch
from perfaudit.tune.workshop import Children, Json, Workshop

MEMORY_SHARE = (
    0.8  # of what is free; libraries' scratch memory, which is not counted, took up to 33 % more on small models
)


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
) -> Report:
    """Search the knobs on the target, those first that a first profile says can matter most. Ends early on Ctrl-C.

    budget: seconds for all knobs; memory_budget: bytes, 0 for MEMORY_SHARE of what is free, on the device if it has
    memory of its own; timeout: seconds that loading or one step may take; skips_idle: leave out knobs whose part of the
    step is too small; begin: opens the record of the run (see `tune.recording`). Raises TargetError when the target does
    not load, NothingMeasured when it cannot make a step.
    """
    watch = watch or Watch()
    deadline = Deadline(budget, clock or WallClock())
    workshop = workshop or Children(target, device, watch, timeout)
    tuning = Tuning(target, workshop, watch, clock or WallClock(), timeout=timeout, skips_idle=skips_idle)
    try:
        with interruptible(tuning.notes) as interrupted:
            tuning.survey()
            tuning.record = begin(start_line(tuning, knobs, budget, memory_budget))
            free = tuning.facts.get("device_free") or free_memory()
            _search_all(tuning, knobs, deadline, budget, memory_budget or int(free * MEMORY_SHARE))
    except UserError:
        tuning.record.ended("failed", None)
        raise
    if tuning.record.trouble():
        tuning.notes.append(tuning.record.trouble())
    report = report_of(tuning, interrupted[0])
    late = bool(_late(list(report.winners), tuning.not_applicable))
    tuning.record.ended("interrupted" if interrupted[0] else "out of time" if late else "finished", to_json(report))
    return report


def _search_all(tuning: Tuning, knobs: list[str], deadline: Deadline, budget: float, memory: int) -> None:
    tuning.learn(findings_of(tuning))
    if any(not knob(name).not_applicable(tuning.facts) for name in knobs):
        tuning.needs_time(budget, deadline.left())
        tuning.calibrate(budget)
    waiting = _in_order(tuning, knobs)
    while waiting:
        name = waiting.pop(0)
        together = sum(_weight(tuning, n) for n in [name, *waiting]) or 1.0
        fair = deadline.left() * _weight(tuning, name) / together
        # A short time decides the first few knobs rather than none of many.
        enough = min(deadline.left(), _seconds_to_decide(tuning)) if fair else 0.0
        search(tuning, name, tuning.deadline(max(fair, enough)), memory)
        if (bout := bout_of(tuning, name)) is not None:
            tuning.record.results(tuning, bout)


def _seconds_to_decide(tuning: Tuning) -> float:
    """What one candidate takes to the first look at the data in rounds of the shortest blocks, with as much for asking."""
    step = tuning.calibration.seconds_per_step if tuning.calibration is not None else 0.0
    ledger = Ledger(seconds_to_open=tuning.seconds_to_open, seconds_per_step=step)
    return 2 * LOOKS[0].generations * 2 * least_seconds(ledger)


def report_of(tuning: Tuning, interrupted: bool) -> Report:
    """What a tuning has found, complete or not; winners in the order of what they save for certain."""
    bouts = tuning.bouts
    winners = [winner_of(tuning, bout, interrupted) for bout in bouts]
    notes = [*tuning.notes, *([] if interrupted else _late(winners, tuning.not_applicable))]
    ranked = sorted(winners, key=lambda w: -w.saving.low if w.saving is not None and not w.keeps_current else 1.0)
    return Report(
        "tune",
        target=str(tuning.target),
        environment=tuning.environment,
        calibration=tuning.calibration,
        trials=tuple(entry for bout in bouts for entry in trials_of(bout)),
        comparisons=tuple(compared for bout in bouts for compared in comparisons_of(tuning, bout)),
        winners=tuple(ranked),
        not_applicable=tuple(tuning.not_applicable),
        notes=tuple(notes),
        interrupted=interrupted,
    )


def _late(winners: list[Winner], not_applicable: list[NotApplicable]) -> list[str]:
    """One sentence on the knobs that more time would tell something about."""
    late = [w.knob for w in winners if w.words == UNDECIDED] + [n.knob for n in not_applicable if n.reason == NO_TIME]
    return [f"the budget was too small for {', '.join(late)}: give it longer with --budget"] if late else []


def _in_order(tuning: Tuning, knobs: list[str]) -> list[str]:
    """Knobs by what they could gain at most; those that cannot matter here first, for they take no time."""
    return sorted(knobs, key=lambda name: (_weight(tuning, name) > 0, -_weight(tuning, name)))


def _weight(tuning: Tuning, name: str) -> float:
    """How much of the time a knob should get: what it could gain, at least a tenth, and nothing where it cannot matter."""
    module = knob(name)
    if module.not_applicable(tuning.facts):
        return 0.0
    share = module.share(tuning.facts)
    return 0.0 if tuning.skips_idle and share < module.min_gain else max(0.1, min(1.0, share))


def findings_of(tuning: Tuning) -> list[Finding]:
    """Findings of a scan of the target and of the project's modules that it imported."""
    from perfaudit.static.scan import scan

    try:
        return list(scan(tuning.facts.get("project_files") or [tuning.target.file]).findings)
    except UserError:
        return []


def bout_of(tuning: Tuning, name: str) -> Bout | None:
    """The search of a knob, None where there was none."""
    return next((bout for bout in tuning.bouts if bout.name == name), None)
