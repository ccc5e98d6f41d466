"""One gate: its layers in turn against a git reference or a file, and what they say together."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from perfaudit.config import Config
from perfaudit.errors import TargetError, UserError
from perfaudit.findings import Finding
from perfaudit.gate.accepted import (
    Accepted,
    acceptances_since,
    findings_with_acceptances,
    time_with_acceptances,
    with_acceptances,
)
from perfaudit.gate.baseline import Baseline, TargetState, gate_baseline_if_there, read_gate_baseline
from perfaudit.gate.comparable import Comparable, compared, fingerprint, stored_time
from perfaudit.gate.counted import Counted
from perfaudit.gate.counters_compared import compared as counters_compared
from perfaudit.gate.counting import count
from perfaudit.gate.decision import judged_together
from perfaudit.gate.gitref import NoCommitYet, Reference, checked_out
from perfaudit.gate.new_findings import against_known, against_ref
from perfaudit.gate.records import Side, TargetRecord
from perfaudit.gate.settings import BASELINE, GateSettings, baseline_in
from perfaudit.gate.step_time import step_time
from perfaudit.gate.timing import time_targets
from perfaudit.measure.child import ChildFailed
from perfaudit.measure.environment import host
from perfaudit.measure.facts import Facts
from perfaudit.measure.watch import Watch
from perfaudit.measurements import Environment
from perfaudit.report import Report
from perfaudit.target.names import Target, choose_target, factories
from perfaudit.verdicts import LAYERS, CountersVerdict, FindingsVerdict, Gate, GateVerdict, TimeVerdict


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be judged, and how. targets: their files relative to the working directory; timeout: seconds."""

    targets: tuple[Target, ...]
    settings: GateSettings
    config: Config
    device: str = "auto"
    timeout: float = 120.0

    @property
    def layers(self) -> tuple[str, ...]:
        return self.settings.layers or LAYERS


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


def gate(request: Request, watch: Watch) -> Report:
    """The report of a gate: new findings, and `Report.gate` with the verdicts. Ctrl-C ends it early with what is known.

    Raises UserError for a reference or a file that is not there, or that cannot be read.
    """
    started = time.monotonic()
    known = Known()
    interrupted = False
    _refuse_two_of_one_file(request.targets)
    try:
        if request.settings.against:
            _against_commit(request, known, watch)
        else:
            _against_file(request, known, watch)
    except NoCommitYet:
        if request.layers != ("findings",):
            raise
        known.findings = FindingsVerdict("pass", "no commit yet, so nothing can be worse than before")
    except KeyboardInterrupt:
        if not known.against:  # nothing was begun
            raise
        interrupted = True
    return _report(request, known, time.monotonic() - started, interrupted)


def _refuse_two_of_one_file(targets: Sequence[Target]) -> None:
    """Raise UserError for two targets in one file: reports and baselines tell targets by their files."""
    files = Counter(os.path.realpath(target.file) for target in targets)
    for target in targets:
        if files[os.path.realpath(target.file)] > 1:
            raise UserError(f"{target.file} is named twice; gate the factories of one file one after the other")


# ---- against a commit ------------------------------------------------------------------------------------------------


def _against_commit(request: Request, known: Known, watch: Watch) -> None:
    settings = request.settings
    targets = [inside_here(target) for target in request.targets]
    watch.stage(f"checking out {settings.against}")
    known.against = settings.against
    with checked_out(settings.against, Path.cwd(), settings.links) as reference:
        known.against, known.commit = f"{reference.name} ({reference.commit[:12]})", reference.commit
        known.notes += reference.notes
        _take_acceptances(request, known, reference)
        if "findings" in request.layers:
            watch.stage("scanning both versions")
            found = against_ref(reference, settings.paths, request.config)
            _take_findings(known, *found)
        _look_for_targets(request, known, reference)
        known.new_targets = {target.file for target in targets if _is_new(target, reference)}
        there = [target for target in targets if target.file not in known.new_targets]
        if "counters" in request.layers:
            for target in targets:
                judge = _counters if target in there else _new_counters
                known.counters[target.file] = judge(request, known, target, reference, watch)
        failed = {name for name, verdict in known.counters.items() if verdict.verdict == "failed"}
        timed = [target for target in there if target.file not in failed]
        if "time" in request.layers:
            for name in sorted(failed & {target.file for target in targets}):
                known.times[name] = TimeVerdict(name, "not_judged", "it does not run, as its counters say")
        if "time" in request.layers and timed:
            _time(request, known, timed, reference, watch)


def _take_acceptances(request: Request, known: Known, reference: Reference) -> None:
    """Read what this change accepts: in the baseline file as it is here, and not in the reference's."""
    file = request.settings.baseline or BASELINE
    known.baseline = gate_baseline_if_there(Path(file))
    known.accepted, note = acceptances_since(known.baseline, reference.folder / file, Path(file))
    known.notes += [note] if note else []


def _take_findings(known: Known, verdict: FindingsVerdict, new: tuple[Finding, ...], scanned: Report) -> None:
    known.scanned = scanned
    known.findings, known.new = findings_with_acceptances(verdict, new, known.accepted)


def inside_here(target: Target) -> Target:
    """The target with its file relative to the working directory. Raises TargetError for one outside, which no commit has."""
    relative = os.path.relpath(target.file)
    if relative.startswith(".."):
        raise TargetError(f"{target.file}: lies outside the working directory, so the reference has no such file")
    return replace(target, file=Path(relative).as_posix())


def _look_for_targets(request: Request, known: Known, reference: Reference) -> None:
    """Without a target, say that two layers judge nothing; a target that the reference alone has is a failure."""
    if request.targets or request.layers == ("findings",):
        return
    known.notes.append("no target: no file here defines factories, so counters and time are not judged")
    if not reference.folder.is_dir():
        return
    with contextlib.chdir(reference.folder), contextlib.suppress(TargetError):
        gone = choose_target([], reference.folder).file
        why = f"{known.against} defines factories there, and no file here does"
        known.counters[gone] = CountersVerdict(gone, "failed", why)


def _is_new(target: Target, reference: Reference) -> bool:
    """Whether the reference does not have a target: no such file, or one without the factories that are in it here."""
    there = reference.folder / target.file
    if not there.is_file():
        return True
    roles = {"model", "dataloader"} - target.names.keys()
    return roles <= factories(target.file).keys() and not roles <= factories(str(there)).keys()


def _new_counters(
    request: Request, known: Known, target: Target, reference: Reference | None, watch: Watch
) -> CountersVerdict:
    """A new target has nothing to be compared with, but it must run."""
    watch.stage(f"counting a step of {target.file}, which is new")
    try:
        now = known.counted[target.file] = count(target, None, request.device, request.timeout)
    except (ChildFailed, UserError) as failure:
        return CountersVerdict(target.file, "failed", f"your code does not run: {failure}")
    return CountersVerdict(target.file, "not_judged", f"new: {known.against} does not have it", dict(now.values))


def _counters(request: Request, known: Known, target: Target, reference: Reference, watch: Watch) -> CountersVerdict:
    """The reference is counted once, and again only where it differs: what it does not repeat is no difference."""
    try:
        watch.stage(f"counting a step of {target.file}: your code")
        side = "your code"
        after = known.counted[target.file] = count(target, None, request.device, request.timeout)
        side = "the reference"
        for twice in (False, True):
            watch.stage(f"counting a step of {target.file}: the reference{', again' if twice else ''}")
            before = _counted_there(request, target, reference, twice)
            verdict = counters_compared(target.file, before, after, request.settings.tolerance)
            if verdict.verdict == "pass" and verdict.set_aside.keys() <= after.set_aside.keys() | after.absent.keys():
                break
    except (ChildFailed, UserError) as failure:
        return CountersVerdict(target.file, "failed", f"{side} does not run: {failure}{_hint(side, str(failure))}")
    return with_acceptances(verdict, known.baseline, known.accepted)


def _hint(side: str, failure: str) -> str:
    """What to do where the reference lacks a file that may be here, "" else."""
    lacks = side == "the reference" and ("FileNotFoundError" in failure or "No such file" in failure)
    return "; what git ignores, such as data, is not in the reference: --link FOLDER puts it there" if lacks else ""


def _counted_there(request: Request, target: Target, reference: Reference, twice: bool) -> Counted:
    moved = [str(reference.head_root), str(reference.root)]
    return count(target, reference.folder, request.device, request.timeout, moved, twice=twice)


def _time(request: Request, known: Known, targets: Sequence[Target], reference: Reference, watch: Watch) -> None:
    settings = request.settings
    watch.stage("timing both versions, interleaved")
    known.records = [TargetRecord(target.file, known.against) for target in targets]
    try:
        time_targets(
            targets,
            reference.folder,
            known.records,
            settings.budget,
            settings.max_regression,
            settings.tolerate,
            request.device,
            request.timeout,
            (str(reference.head_root), str(reference.root)),
            known.against,
            watch=watch,
            facts=known.built,
        )
    finally:  # an interruption leaves pairs that say something
        for verdict in judged_together(known.records, settings.max_regression, settings.tolerate):
            known.times[verdict.target] = time_with_acceptances(verdict, known.accepted)


# ---- against a file --------------------------------------------------------------------------------------------------


def _against_file(request: Request, known: Known, watch: Watch) -> None:
    settings = request.settings
    name = settings.baseline or baseline_in(Path.cwd())
    if not name:
        raise UserError(
            "nothing to compare with: name a commit (--against origin/main), or write a baseline (perfaudit gate init)"
        )
    known.against = name
    known.baseline = read_gate_baseline(Path(name))
    if "time" in settings.layers:
        raise UserError(f"{name} holds times as advice only; the time layer measures against a commit: --against REF")
    if not request.targets and request.layers != ("findings",):
        known.notes.append("no target: no file here defines factories, so counters are not judged")
        for gone in known.baseline.targets:
            known.counters[gone] = CountersVerdict(
                gone, "failed", f"{name} has counters of it, and it is no target here"
            )
    if "findings" in request.layers:
        watch.stage("scanning")
        _take_findings(known, *against_known(known.baseline.findings, settings.paths, request.config))
    for target in (inside_here(target) for target in request.targets):
        state = known.baseline.targets.get(target.file)
        if state is None and "counters" in request.layers:
            known.new_targets.add(target.file)
            known.counters[target.file] = _new_counters(request, known, target, None, watch)
        elif state is not None and "counters" in request.layers:
            _against_state(request, known, target, state, watch)


def _against_state(request: Request, known: Known, target: Target, state: TargetState, watch: Watch) -> None:
    """Judge one target by what the file says of it: its counters, and its time as advice."""
    watch.stage(f"counting a step of {target.file}")
    try:
        now = known.counted[target.file] = count(target, None, request.device, request.timeout)
    except (ChildFailed, UserError) as failure:
        known.counters[target.file] = CountersVerdict(target.file, "failed", f"your code does not run: {failure}")
        return
    comparable = compared(state.environment, fingerprint(now.facts, host()))
    known.counters[target.file] = _stored_counters(target.file, state, now, comparable, request.settings)
    if "time" in request.layers and state.seconds_per_step is not None and comparable.level == "all":
        watch.stage(f"timing {target.file}")
        seconds, _ = step_time(target, request.device, request.timeout)
        known.times[target.file] = stored_time(target.file, state.seconds_per_step, seconds, comparable)


def _stored_counters(
    target: str, state: TargetState, now: Counted, comparable: Comparable, settings: GateSettings
) -> CountersVerdict:
    if comparable.level == "nothing":
        return CountersVerdict(target, "not_judged", f"not comparable: {comparable.reason}", dict(now.values))
    if not state.counters:
        return CountersVerdict(target, "not_judged", "the file holds no counters of it", dict(now.values))
    return counters_compared(target, Counted.from_json(state.counters), now, settings.tolerance)


# ---- what it says ----------------------------------------------------------------------------------------------------


def _report(request: Request, known: Known, seconds: float, interrupted: bool) -> Report:
    if "time" in request.layers and request.settings.against:
        for name in sorted(known.new_targets):
            known.times[name] = TimeVerdict(name, "not_judged", f"new: {known.against} does not have it")
    verdict = overall(known.findings, tuple(known.counters.values()), tuple(known.times.values()), known.new_targets)
    if interrupted and verdict != "regressed":
        verdict = "failed"  # what was not looked at is no pass
    judged = Gate(
        against=known.against,
        kind="ref" if request.settings.against else "baseline",
        verdict=verdict,
        commit=known.commit,
        fails=verdict == "regressed" or (verdict == "inconclusive" and request.settings.inconclusive == "fail"),
        findings=known.findings,
        counters=tuple(known.counters.values()),
        times=tuple(known.times.values()),
        notes=tuple(known.notes),
        seconds=seconds,
    )
    return known.scanned.with_(
        command="gate",
        target=", ".join(target.file for target in request.targets),
        environment=_environment(known),
        findings=known.new,
        gate=judged,
        interrupted=interrupted,
    )


def _environment(known: Known) -> Environment:
    """This machine, with what the first training that was built says of torch and the device."""
    facts = next(filter(None, [*(counted.facts for counted in known.counted.values()), *known.built.values()]), None)
    if facts is None:
        return host()
    return host(facts["device_name"], facts["torch"], facts["driver"], facts["threads"])


def overall(
    findings: FindingsVerdict | None,
    counters: Sequence[CountersVerdict],
    times: Sequence[TimeVerdict],
    new_targets: Collection[str] = (),
) -> GateVerdict:
    """What all layers say together: the worst of them, as `verdicts.Gate` has it.

    new_targets: targets that the reference does not have; where nothing else was judged they pass, because they were
    looked for and found to be new.
    """
    said = [part.verdict for part in (findings, *counters, *times) if part is not None]
    worst: GateVerdict
    for worst in ("regressed", "failed", "inconclusive"):
        if worst in said:
            return worst
    if "improved" in said:
        return "improved"
    return "pass" if {"pass", "accepted"} & set(said) or new_targets else "not_judged"
