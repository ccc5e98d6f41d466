"""One gate: its layers in turn against a git reference or a file, and what they say together."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from perfaudit.gate.against_commit import against_commit
from perfaudit.gate.against_file import against_file
from perfaudit.gate.gitref import NoCommitYet
from perfaudit.gate.request import Known, Request, files_of_scripts, refuse_two_of_one_label
from perfaudit.measure.environment import host_of
from perfaudit.measure.nursery import refusal
from perfaudit.measure.watch import Watch
from perfaudit.measurements import Environment
from perfaudit.report import Report, to_json
from perfaudit.verdicts import CountersVerdict, FindingsVerdict, Gate, GateVerdict, TimeVerdict

_FAIL = ("regressed", "failed", "not_judged")  # of the whole; what was not looked at is no pass


def gate(request: Request, watch: Watch) -> Report:
    """The report of a gate: new findings, and `Report.gate` with the verdicts. Ctrl-C ends it early with what is known.

    Raises UserError for a reference or a file that is not there, or that cannot be read.
    """
    started = time.monotonic()
    known = Known()
    interrupted = False
    refuse_two_of_one_label(request.targets)
    try:
        if request.settings.against:
            against_commit(request, known, watch)
        else:
            against_file(request, known, watch)
    except NoCommitYet:
        if request.layers != ("findings",):
            raise
        known.findings = FindingsVerdict("pass", "no commit yet, so nothing can be worse than before")
    except KeyboardInterrupt:
        if not known.against:  # nothing was begun
            raise
        interrupted = True
    report = _report(request, known, time.monotonic() - started, interrupted)
    report = report.with_(kept_in=known.journal.place)
    is_cut = interrupted and report.gate is not None and report.gate.verdict != "regressed"  # that stands
    known.journal.append("end", status="interrupted" if is_cut else "finished", report=to_json(report))
    return report


def _report(request: Request, known: Known, seconds: float, interrupted: bool) -> Report:
    verdict = overall(known.findings, tuple(known.counters.values()), tuple(known.times.values()), known.new_targets)
    if interrupted and verdict != "regressed":
        verdict = "failed"
    judged = Gate(
        against=known.against,
        kind="ref" if request.settings.against else "baseline",
        verdict=verdict,
        commit=known.commit,
        fails=verdict in _FAIL or (verdict == "inconclusive" and request.settings.inconclusive == "fail"),
        findings=known.findings,
        counters=tuple(known.counters.values()),
        times=tuple(known.times.values()),
        notes=(
            *known.notes,
            *filter(None, [known.journal.trouble if interrupted else "", refusal()]),
            *_interruption_notes(request, known, interrupted),
        ),
        seconds=seconds,
        files=files_of_scripts(request.targets),
    )
    return known.scanned.with_(
        command="gate",
        target=", ".join(target.label for target in request.targets),
        environment=_environment(known),
        findings=known.new,
        gate=judged,
        interrupted=interrupted,
    )


def _interruption_notes(request: Request, known: Known, interrupted: bool) -> list[str]:
    """What an interruption cut, as a note."""
    done = {
        "findings": known.findings is not None,
        "counters": known.counters.keys() >= {target.label for target in request.targets},
        "time": known.times.keys() >= {target.label for target in request.targets},
    }
    cut = [layer for layer in request.layers if not done[layer]] if interrupted else []
    return [f"interrupted before {' and '.join(cut)} {'was' if len(cut) == 1 else 'were'} finished"] if cut else []


def _environment(known: Known) -> Environment:
    """This machine, with what the first training that was built says of torch and the device."""
    counted = (counted.facts for counted in known.counted.values())
    return host_of(next(filter(None, [*counted, *known.built.values()]), None))


def overall(
    findings: FindingsVerdict | None,
    counters: Sequence[CountersVerdict],
    times: Sequence[TimeVerdict],
    new_targets: Collection[str] = (),
) -> GateVerdict:
    """What all layers say together: the worst of them, as `verdicts.Gate` has it.

    new_targets: targets that the reference does not have; where nothing else was judged they pass, because they were
    looked for and found to be new. A time without a single quad leaves the whole inconclusive where something else was
    judged; by itself it judges nothing.
    """
    said = [part.verdict for part in (findings, *counters, *times) if part is not None]
    unmeasured = [timed.target for timed in times if timed.verdict == "inconclusive" and not timed.quads]
    if unmeasured and set(said) <= {"inconclusive", "not_judged"} and said.count("inconclusive") == len(unmeasured):
        return "not_judged"
    worst: GateVerdict
    for worst in ("regressed", "failed", "inconclusive"):
        if worst in said:
            return worst
    if "improved" in said:
        return "improved"
    return "pass" if {"pass", "accepted"} & set(said) or new_targets else "not_judged"
