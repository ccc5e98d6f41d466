"""All knobs asked for, searched one after the other within a budget, as one report."""

from __future__ import annotations

from perfaudit.errors import UserError
from perfaudit.findings import Finding
from perfaudit.knobs import knob
from perfaudit.measure.environment import free_memory
from perfaudit.report import Report
from perfaudit.target.names import Target
from perfaudit.tune.search import Tuning, comparisons_of, interruptible, new_deadline, search, trials_of, winner_of
from perfaudit.tune.watch import Watch

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
) -> Report:
    """Search the knobs on the target. Ends early on Ctrl-C with what there is.

    budget: seconds for all knobs; memory_budget: bytes, 0 for MEMORY_SHARE of what is free; timeout: seconds that loading
    or one step may take. Raises TargetError when the target does not load or cannot make a step.
    """
    tuning = Tuning(target, device, watch or Watch(), timeout=timeout)
    deadline = new_deadline(budget)
    with interruptible(tuning.notes) as interrupted:
        tuning.survey()
        findings = _findings(target)
        memory = memory_budget or int(free_memory() * MEMORY_SHARE)
        for number, name in enumerate(sorted(knobs, key=lambda name: not knob(name).not_applicable(tuning.facts))):
            share = deadline.left() / (len(knobs) - number)
            search(tuning, name, new_deadline(share), memory, findings)
    trials, comparisons, winners = [], [], []
    for bout in tuning.bouts:
        trials += trials_of(bout)
        comparisons += comparisons_of(bout)
        winners.append(winner_of(bout, interrupted[0]))
    return Report(
        "tune",
        target=str(target),
        environment=tuning.environment,
        trials=tuple(trials),
        comparisons=tuple(comparisons),
        winners=tuple(winners),
        not_applicable=tuple(tuning.not_applicable),
        notes=tuple(tuning.notes),
        interrupted=interrupted[0],
    )


def _findings(target: Target) -> list[Finding]:
    from perfaudit.static.scan import scan

    try:
        return list(scan([target.file]).findings)
    except UserError:
        return []
