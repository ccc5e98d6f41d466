"""The gate against itself: identical code on both sides, to learn what it can and cannot see on this machine."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perfaudit.errors import UserError
from perfaudit.gate.against_commit import hint
from perfaudit.gate.counters_compared import compare_counters
from perfaudit.gate.counting import count
from perfaudit.gate.decision import time_verdict
from perfaudit.gate.git import NoRepository
from perfaudit.gate.gitref import NoCommitYet, Reference, copy_of_code
from perfaudit.gate.records import Side, TargetRecord
from perfaudit.gate.request import Request, files_of_scripts, inside_here
from perfaudit.gate.timing import time_targets
from perfaudit.measure.child import ChildFailed
from perfaudit.measure.environment import host_of
from perfaudit.measure.facts import Facts
from perfaudit.measure.nursery import refusal
from perfaudit.measure.watch import Watch
from perfaudit.report import Report
from perfaudit.target.names import Target
from perfaudit.verdicts import CountersVerdict, Gate, GateVerdict, SelfTest, TimeVerdict


def self_test(request: Request, runs: int, watch: Watch) -> Report:
    """The report of `runs` gates of each target against itself, each with fresh processes and the whole budget.

    As in a gate against a commit one side is loaded from a worktree, where git holds the code: see `gitref.copy_of_code`.

    Every call of a regression is a false alarm, and then the verdict is "inconclusive": nothing regressed, and what such a
    gate says here is not to be relied on. Raises UserError where no target is named. "failed": the code does not run, no gate
    came to a single measurement within the budget, or Ctrl-C ended it early, when gates that were finished are told.
    """
    if request.layers == ("findings",):
        raise UserError("--self-test is about counters and time; findings are the same in identical code")
    if not request.targets:
        raise UserError("--self-test needs a target: a file with factories, as for `perfaudit tune`")
    started = time.monotonic()
    targets = [inside_here(target) for target in request.targets]
    counters: list[CountersVerdict] = []
    ran: dict[str, list[_Ran]] = {}
    built: dict[tuple[int, Side], Facts] = {}
    notes: list[str] = []
    interrupted = False
    try:
        with _beside(request, notes, watch) as copy:
            for target in targets:
                if "counters" in request.layers:
                    counters.append(_counters(request, target, watch))
                if "time" in request.layers:
                    _gates(request, target, runs, ran.setdefault(target.label, []), watch, built, copy)
    except KeyboardInterrupt:
        interrupted = True
    ran = {target: gates for target, gates in ran.items() if gates}
    verdict: GateVerdict = "failed" if interrupted else _verdict(counters, ran)
    told = Gate(
        against="itself",
        kind="self_test",
        verdict=verdict,
        fails=verdict == "failed",
        counters=tuple(counters),
        times=tuple(gates[-1].verdict for gates in ran.values()),
        self_tests={target: _summary(gates) for target, gates in ran.items()},
        notes=(*notes, *filter(None, [refusal()])),
        seconds=time.monotonic() - started,
        files=files_of_scripts(targets),
    )
    names = ", ".join(target.label for target in targets)
    where = host_of(next(iter(built.values()), None))
    return Report("gate", target=names, environment=where, gate=told, interrupted=interrupted)


@contextlib.contextmanager
def _beside(request: Request, notes: list[str], watch: Watch) -> Iterator[Reference | None]:
    """The code a second time, for the side of the reference; None where no times are asked for, or git does not hold it."""
    with contextlib.ExitStack() as at_end:
        copy = None
        if "time" in request.layers:
            watch.stage("copying the code into a worktree")
            try:
                copy = at_end.enter_context(copy_of_code(Path.cwd(), request.settings.links))
                notes += copy.notes
            except (NoRepository, NoCommitYet) as error:
                why = str(error).partition(";")[0]
                notes.append(
                    f"both sides were loaded from this folder, because there is no commit ({why}): what loading a reference "
                    "from a worktree may do to times was not seen"
                )
        yield copy


@dataclass(frozen=True, slots=True)
class _Ran:
    """One gate of a target against itself, and the seconds it took."""

    verdict: TimeVerdict
    seconds: float


def _verdict(counters: Sequence[CountersVerdict], ran: Mapping[str, Sequence[_Ran]]) -> GateVerdict:
    times = [gate.verdict for gates in ran.values() for gate in gates]
    said = {counted.verdict for counted in counters} | {timed.verdict for timed in times}
    if "failed" in said or not said or (times and not any(timed.quads for timed in times)):
        return "failed"
    return "inconclusive" if "regressed" in said else "pass"


def _counters(request: Request, target: Target, watch: Watch) -> CountersVerdict:
    """Which counters of this target are the same in every run, and which are not."""
    watch.stage(f"counting a step of {target.label}, in two processes")
    try:
        counted = count(target, None, request.device, request.timeout, enough=request.enough_seconds)
    except (ChildFailed, UserError) as failure:
        return CountersVerdict(target.label, "failed", f"your code does not run: {failure}")
    return compare_counters(target.label, counted, counted, {})


def _gates(
    request: Request,
    target: Target,
    runs: int,
    ran: list[_Ran],
    watch: Watch,
    built: dict[tuple[int, Side], Facts],
    copy: Reference | None,
) -> None:
    """Gate a target against itself so often, each gate into `ran` as soon as it is finished."""
    settings = request.settings
    for run in range(runs):
        watch.stage(f"gate {run + 1} of {runs} of {target.label} against itself")
        began = time.monotonic()
        record = TargetRecord(target.label, "itself")
        time_targets(
            [target],
            copy,
            [record],
            settings.budget,
            settings.max_regression,
            settings.tolerate,
            request.device,
            request.timeout,
            watch=watch,
            facts=built,
            in_one=False,  # which way a change allows depends on the change; pairs see less, and are there for every one
        )
        verdict = time_verdict(record, settings.max_regression, settings.tolerate, ended=True)
        if copy and "base" in record.failures:
            verdict = replace(verdict, reason=verdict.reason + hint("the reference", verdict.reason))
        ran.append(_Ran(verdict, time.monotonic() - began))
        if verdict.verdict == "failed":
            return


def _summary(gates: Sequence[_Ran]) -> SelfTest:
    said = [gate.verdict.verdict for gate in gates]
    return SelfTest(
        runs=len(gates),
        false_alarms=said.count("regressed"),
        undecided=said.count("inconclusive"),
        smallest=tuple(gate.verdict.smallest for gate in gates if gate.verdict.smallest is not None),
        seconds=statistics.median(gate.seconds for gate in gates),
    )
