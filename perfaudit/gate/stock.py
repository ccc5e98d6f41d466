"""What a project does now, as its baseline file holds it: findings, and for each target counters, environment and time."""

from __future__ import annotations

from perfaudit.errors import NothingMeasured
from perfaudit.gate.baseline import Baseline, TargetState
from perfaudit.gate.comparable import fingerprint
from perfaudit.gate.counting import count
from perfaudit.gate.new_findings import scanned_here
from perfaudit.gate.request import Request, inside_here
from perfaudit.gate.step_time import step_time
from perfaudit.measure.child import ChildFailed
from perfaudit.measure.environment import host
from perfaudit.measure.watch import Watch
from perfaudit.static.baseline import as_known
from perfaudit.static.plan import options_of
from perfaudit.target.names import Target


def stock(request: Request, watch: Watch) -> Baseline:
    """The state of all targets of a request. Raises NothingMeasured for one that does not run: a file must not lack it."""
    watch.stage("scanning")
    report = scanned_here(request.settings.paths, options_of(request.config), request.config)
    targets = {}
    for target in map(inside_here, request.targets):
        targets[target.file] = _state(request, target, watch)
    return Baseline(tuple(as_known(report.findings)), targets)


def _state(request: Request, target: Target, watch: Watch) -> TargetState:
    try:
        watch.stage(f"counting a step of {target.file}")
        counted = count(target, None, request.device, request.timeout)
    except ChildFailed as failure:
        raise NothingMeasured(f"{target.file} does not run: {failure}") from failure
    watch.stage(f"timing {target.file}")
    seconds, _ = step_time(target, request.device, request.timeout)
    return TargetState(fingerprint(counted.facts, host()), counted.as_json(), seconds)
