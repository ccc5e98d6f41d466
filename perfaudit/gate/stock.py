"""What a project does now, as its baseline file holds it: findings, and for each target counters, environment and time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from perfaudit.errors import NothingMeasured
from perfaudit.gate.baseline import Baseline, TargetState
from perfaudit.gate.comparable import fingerprint
from perfaudit.gate.counting import count
from perfaudit.gate.new_findings import scanned_here
from perfaudit.gate.request import Request, as_stored, inside_here, own_names, refuse_two_of_one_label
from perfaudit.gate.step_time import TooShort, step_time
from perfaudit.measure.child import ChildFailed
from perfaudit.measure.environment import host
from perfaudit.measure.watch import Watch
from perfaudit.static.baseline import Known, as_known, is_below
from perfaudit.static.discover import shown_path
from perfaudit.static.plan import ScanPlan
from perfaudit.static.registry import catalogue
from perfaudit.target.names import Target


def stock(request: Request, watch: Watch, rules: ScanPlan, before: Baseline | None = None) -> Baseline:
    """The state of all targets of a request. Raises NothingMeasured for one that does not run: a file must not lack it.

    A script that ends before a block of its steps is timed has no time.

    rules: how findings are looked for. before: what the file holds so far, None for no file. Its findings outside the paths
    of the request stay, and so do those of rules that are not run, and the factories of a target
    that is asked for without naming any. Raises UserError for two targets of one label.
    """
    refuse_two_of_one_label(request.targets)
    watch.stage("scanning")
    paths = request.settings.paths
    assert rules.options is not None
    report = scanned_here(paths, rules.options, rules.config)
    targets = {}
    for target in map(inside_here, request.targets):
        stored = before.targets.get(target.label) if before else None
        targets[target.label] = _state(request, as_stored(target, stored, request.config), watch)
    left = _not_looked_at(before.findings if before else (), paths, rules)
    return Baseline((*left, *as_known(report.findings)), targets)


def _not_looked_at(known: Sequence[Known], paths: Sequence[str], rules: ScanPlan) -> list[Known]:
    """The findings in files that a scan of these paths does not read, and those of rules that are not run now.

    Findings of no file are looked for by every scan.
    """
    places = tuple(shown_path(Path(path)) for path in paths)
    ids = catalogue(rules.own.folders).rules.keys()
    return [
        item
        for item in known
        if (item.path and not is_below(item.path, places)) or (rules.own.left_out and item.rule not in ids)
    ]


def _state(request: Request, target: Target, watch: Watch) -> TargetState:
    try:
        watch.stage(f"counting a step of {target.label}")
        counted = count(target, None, request.device, request.timeout)
    except ChildFailed as failure:
        raise NothingMeasured(f"{target.label} does not run: {failure}") from failure
    try:
        seconds, _ = step_time(target, request.device, request.timeout, watch)
    except TooShort:
        if not target.is_script:
            raise
        seconds = None  # which would be advice
    environment, names = fingerprint(counted.training_facts, host()), own_names(target, request.config)
    script = replace(target, name="", in_place=False) if target.is_script else None
    return TargetState(environment, counted.as_json(), seconds, names if script is None else {}, script)
