"""The gate against itself: identical code on both sides, to learn what it can and cannot see on this machine."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from perfaudit.errors import UserError
from perfaudit.gate.counters_compared import compared
from perfaudit.gate.counting import count
from perfaudit.gate.decision import judged
from perfaudit.gate.gate import Known, Request, inside_here
from perfaudit.gate.records import TargetRecord
from perfaudit.gate.timing import time_targets
from perfaudit.measure.child import ChildFailed
from perfaudit.measure.environment import host
from perfaudit.measure.watch import Watch
from perfaudit.report import Report
from perfaudit.target.names import Target
from perfaudit.verdicts import CountersVerdict, Gate, GateVerdict, SelfTest, TimeVerdict


def self_test(request: Request, runs: int, watch: Watch) -> Report:
    """The report of `runs` gates of each target against itself, each with fresh processes and the whole budget.

    Every call of a regression is a false alarm. Raises UserError where no target is named. Ctrl-C ends it early; runs that
    were finished count.
    """
    if not request.targets:
        raise UserError("--self-test needs a target: a file with factories, as for `perfaudit tune`")
    started = time.monotonic()
    known, tests = Known(against="itself"), dict[str, SelfTest]()
    interrupted = False
    try:
        for target in map(inside_here, request.targets):
            if "counters" in request.layers:
                known.counters[target.file] = _counters(request, target, watch)
            if "time" in request.layers:
                tests[target.file], known.times[target.file] = _times(request, target, runs, watch)
    except KeyboardInterrupt:
        interrupted = True
    said = [counters.verdict for counters in known.counters.values()] + [
        timed.verdict for timed in known.times.values()
    ]
    verdict: GateVerdict = "failed" if "failed" in said else "pass"
    told = Gate(
        against=known.against,
        kind="self_test",
        verdict=verdict,
        counters=tuple(known.counters.values()),
        times=tuple(known.times.values()),
        self_tests=tests,
        seconds=time.monotonic() - started,
    )
    names = ", ".join(target.file for target in request.targets)
    return Report("gate", target=names, environment=host(), gate=told, interrupted=interrupted)


def _counters(request: Request, target: Target, watch: Watch) -> CountersVerdict:
    """Which counters of this target are the same in every run, and which are not."""
    watch.stage(f"counting a step of {target.file}, in two processes")
    try:
        counted = count(target, None, request.device, request.timeout)
    except (ChildFailed, UserError) as failure:
        return CountersVerdict(target.file, "failed", f"your code does not run: {failure}")
    return compared(target.file, counted, counted, {})


def _times(request: Request, target: Target, runs: int, watch: Watch) -> tuple[SelfTest, TimeVerdict]:
    """What the gates of one target came to, and the last of them."""
    settings, verdicts, seconds = request.settings, list[TimeVerdict](), list[float]()
    for run in range(runs):
        watch.stage(f"gate {run + 1} of {runs} of {target.file} against itself")
        began = time.monotonic()
        record = TargetRecord(target.file, "itself")
        time_targets(
            [target],
            Path.cwd(),
            [record],
            settings.budget,
            settings.max_regression,
            settings.tolerate,
            request.device,
            request.timeout,
            seed=run * 1000,  # each pair of a gate adds one
            watch=watch,
        )
        verdicts.append(judged(record, settings.max_regression, settings.tolerate, ended=True))
        seconds.append(time.monotonic() - began)
        if verdicts[-1].verdict == "failed":
            break
    said = [verdict.verdict for verdict in verdicts]
    return (
        SelfTest(
            runs=len(verdicts),
            false_alarms=said.count("regressed"),
            undecided=said.count("inconclusive"),
            smallest=tuple(v.smallest for v in verdicts if v.smallest is not None),
            seconds=statistics.median(seconds),
        ),
        verdicts[-1],
    )
