"""A gate against a baseline file: findings and counters of now against those it holds; its times are advice."""

from __future__ import annotations

from pathlib import Path

from perfaudit.errors import UserError
from perfaudit.gate.baseline import TargetState, read_gate_baseline
from perfaudit.gate.comparable import Comparable, compared, fingerprint, stored_time
from perfaudit.gate.counted import Counted
from perfaudit.gate.counters_compared import compared as counters_compared
from perfaudit.gate.counting import count
from perfaudit.gate.new_findings import against_known
from perfaudit.gate.request import Known, Request, inside_here, new_counters, take_findings
from perfaudit.gate.settings import GateSettings, baseline_in
from perfaudit.gate.step_time import step_time
from perfaudit.measure.child import ChildFailed
from perfaudit.measure.environment import host
from perfaudit.measure.watch import Watch
from perfaudit.target.names import Target
from perfaudit.verdicts import CountersVerdict, TimeVerdict


def against_file(request: Request, known: Known, watch: Watch) -> None:
    """Judge findings and counters against the file that the settings name, into `known`. Raises UserError."""
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
        take_findings(known, *against_known(known.baseline.findings, settings.paths, request.config))
    for target in (inside_here(target) for target in request.targets):
        state = known.baseline.targets.get(target.file)
        if state is None and "counters" in request.layers:
            known.new_targets.add(target.file)
            known.counters[target.file] = new_counters(request, known, target, watch)
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
        try:
            seconds, _ = step_time(target, request.device, request.timeout)
        except UserError as failure:
            known.times[target.file] = TimeVerdict(target.file, "not_judged", f"not timed: {failure}", advice=True)
        else:
            known.times[target.file] = stored_time(target.file, state.seconds_per_step, seconds, comparable)


def _stored_counters(
    target: str, state: TargetState, now: Counted, comparable: Comparable, settings: GateSettings
) -> CountersVerdict:
    if comparable.level == "nothing":
        return CountersVerdict(target, "not_judged", f"not comparable: {comparable.reason}", dict(now.values))
    if not state.counters:
        return CountersVerdict(target, "not_judged", "the file holds no counters of it", dict(now.values))
    return counters_compared(target, Counted.from_json(state.counters), now, settings.tolerance)
