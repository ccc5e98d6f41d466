"""What a gate is asked for, and what it knows so far."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from perfaudit.config import Config
from perfaudit.errors import TargetError, UserError
from perfaudit.findings import Finding
from perfaudit.gate.acceptance import Accepted, findings_with_acceptances
from perfaudit.gate.baseline import Baseline, TargetState
from perfaudit.gate.counting import count
from perfaudit.gate.records import Side, TargetRecord
from perfaudit.gate.settings import GateSettings
from perfaudit.gate.target_counters import Counted
from perfaudit.measure.child import ChildFailed
from perfaudit.measure.counted_script import ENOUGH_SECONDS
from perfaudit.measure.elsewhere import OpenNodes, no_nodes
from perfaudit.measure.facts import Facts
from perfaudit.measure.journal import Begin, Journal, nothing_kept
from perfaudit.measure.watch import Watch
from perfaudit.report import Report
from perfaudit.target.names import Target
from perfaudit.verdicts import LAYERS, CountersVerdict, FindingsVerdict, TimeVerdict

# Share of --budget that each process counts before few steps of a script will do; the default budget gives ENOUGH_SECONDS.
COUNTING_SHARE = 1 / 6


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be judged, and how. targets: their files relative to the working directory; timeout: seconds.

    begin: opens the journal of its times, see `measure.journal`. on: the name of what `nodes` opens, "" for this machine.
    """

    targets: tuple[Target, ...]
    settings: GateSettings
    config: Config
    device: str = "auto"
    timeout: float = 120.0
    begin: Begin = nothing_kept
    on: str = ""
    nodes: OpenNodes = no_nodes

    @property
    def layers(self) -> tuple[str, ...]:
        return self.settings.layers or LAYERS

    @property
    def enough_seconds(self) -> float:
        """Seconds of counting after which few steps of a script will do."""
        return min(ENOUGH_SECONDS, COUNTING_SHARE * self.settings.budget)


@dataclass(slots=True)
class Known:
    """What a gate knows so far. It outlives the measuring, so that an interruption loses nothing.

    counted: counters of this code, by target. records: what was timed. new_targets: those that the reference does not have.
    """

    against: str = ""
    commit: str = ""
    findings: FindingsVerdict | None = None
    new: tuple[Finding, ...] = ()
    scanned: Report = field(default_factory=lambda: Report("gate"))
    counters: dict[str, CountersVerdict] = field(default_factory=dict)
    counted: dict[str, Counted] = field(default_factory=dict)
    records: list[TargetRecord] = field(default_factory=list)
    times: dict[str, TimeVerdict] = field(default_factory=dict)
    built: dict[tuple[int, Side], Facts] = field(default_factory=dict)  # what was timed: see `timing.time_targets`
    new_targets: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    baseline: Baseline | None = None  # of this code, as far as there is one
    accepted: Accepted = field(default_factory=Accepted)  # since the reference
    journal: Journal = field(default_factory=Journal.none)  # of what was timed


def inside_here(target: Target) -> Target:
    """The target with its file relative to the working directory. Raises TargetError for one outside, which no commit has."""
    relative = os.path.relpath(target.file)
    if relative.startswith(".."):
        raise TargetError(
            f"{target.file}: lies outside the working directory, and so outside of what is compared; run the gate above it"
        )
    return replace(target, file=Path(relative).as_posix())


def refuse_two_of_one_label(targets: Sequence[Target]) -> None:
    """Raise UserError for two targets in one file, or for one script twice: reports and baselines tell them by their labels."""
    labels = Counter(_essence(target) for target in targets)
    for target in targets:
        if labels[_essence(target)] > 1:
            cure = "name it once" if target.is_script else "gate the factories of one file one after the other"
            raise UserError(f"{target.label} is named twice; {cure}")


def _essence(target: Target) -> str:
    return target.label if target.is_script else os.path.realpath(target.file)


def files_of_scripts(targets: Sequence[Target]) -> dict[str, str]:
    """Files of the scripts among targets, by their labels, which are no paths."""
    return {target.label: target.file for target in targets if target.is_script}


def own_names(target: Target, config: Config) -> dict[str, str]:
    """The names of a target's factories by role, without those that the project's configuration gives."""
    return {role: name for role, name in target.names.items() if config.target.get(role) != name}


def as_stored(target: Target, stored: TargetState | None, config: Config) -> Target:
    """The target with the factories that a baseline holds of it, where it is asked for without naming any."""
    if stored is None or target.is_script or own_names(target, config):
        return target
    return replace(target, names={**target.names, **stored.names})


def take_findings(known: Known, verdict: FindingsVerdict, new: tuple[Finding, ...], scanned: Report) -> None:
    """Keep what layer 1 says, less what this change accepts."""
    known.scanned = scanned
    known.findings, known.new = findings_with_acceptances(verdict, new, known.accepted)


def new_counters(request: Request, known: Known, target: Target, watch: Watch) -> CountersVerdict:
    """A new target has nothing to be compared with, but it must run."""
    watch.stage(f"counting a step of {target.label}, which is new")
    try:
        now = count(target, None, request.device, request.timeout, enough=request.enough_seconds)
    except (ChildFailed, UserError) as failure:
        return CountersVerdict(target.label, "failed", f"your code does not run: {failure}")
    known.counted[target.label] = now
    return CountersVerdict(target.label, "not_judged", f"new: {known.against} does not have it", dict(now.values))
