"""The report of a command and its JSON contract, `perfaudit.report/1`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

from perfaudit import __version__
from perfaudit.findings import Edit, Finding, Fix, Location, Saving
from perfaudit.records import record, replace

if TYPE_CHECKING:  # a plain scan has none of them
    from perfaudit.machine_facts import MachineFact
    from perfaudit.measurements import (
        Calibration,
        Comparison,
        Environment,
        Ladder,
        NotApplicable,
        OwnLoop,
        Trial,
        Winner,
    )
    from perfaudit.runs import Run
    from perfaudit.traces import Traces
    from perfaudit.verdicts import Gate

SCHEMA = "perfaudit.report/1"

Json = dict[str, Any]  # Any: nested JSON


@record(frozen=True, slots=True)
class Skipped:
    """A file that could not be audited, and why."""

    path: str
    reason: str


@record(frozen=True, slots=True)
class RulesLeftOut:
    """A folder of the project's own rules that were not run, and why."""

    folder: str
    reason: str


@record(frozen=True, slots=True)
class UnusedSuppression:
    """A comment that silences nothing: the names in it that do not, none for one without names.

    comment: as it is written. unknown: those of the names that no rule has.
    """

    path: str
    line: int
    rules: tuple[str, ...] = ()
    cell: int | None = None
    comment: str = ""
    unknown: tuple[str, ...] = ()


@record(frozen=True, slots=True, repr=False)
class Report:
    """Everything one command found and measured; findings are in order of rank once `rank.sort_findings` has seen them."""

    command: str
    findings: tuple[Finding, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    files: int = 0
    target: str = ""
    own_loop: OwnLoop | None = None  # of the target's file, which is not what was measured
    environment: Environment | None = None
    calibration: Calibration | None = None
    trials: tuple[Trial, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    winners: tuple[Winner, ...] = ()
    ladder: Ladder | None = None
    not_applicable: tuple[NotApplicable, ...] = ()
    notes: tuple[str, ...] = ()
    interrupted: bool = False
    named_unread: int = 0  # files that the user named and that could not be audited; they are in `skipped`
    tests_left_out: int = 0  # test files below a folder, which are read only on request
    hints_left_out: int = 0  # findings that are hints, which are reported only on request
    rules_left_out: tuple[RulesLeftOut, ...] = ()
    known: int = 0  # findings of the baseline, which are not in `findings`
    gone: int = 0  # findings of the baseline that are no longer there
    unused_suppressions: tuple[UnusedSuppression, ...] = ()
    gate: Gate | None = None
    run: Run | None = None
    traces: Traces | None = None
    machine: tuple[MachineFact, ...] = ()
    kept_in: str = ""  # the file below the working directory in which `history` finds it again

    def with_(self, **changes: Any) -> Report:  # Any: one type per field
        """A copy with some fields replaced."""
        return replace(self, **changes)

    def __repr__(self) -> str:
        """What a session shows of it: the result in one line. `to_json` has all of it."""
        from perfaudit.render.html.notebook import verdict_of

        return f"<Report of perfaudit {self.command}: {verdict_of(self)}>"

    def _repr_html_(self) -> str:
        """What a notebook shows of it."""
        from perfaudit.render.html.notebook import fragment

        return fragment(self)


def to_json(report: Report) -> Json:
    """The report as plain data, keys as in the contract: paths relative with '/', lines and columns from 1."""
    return {
        "schema": SCHEMA,
        "tool": {"name": "perfaudit", "version": __version__},
        "command": report.command,
        "target": report.target or None,
        "own_loop": _as_dict(report.own_loop) if report.own_loop else None,
        "interrupted": report.interrupted,
        "environment": _as_dict(report.environment) if report.environment else None,
        "calibration": _plain(_as_dict(report.calibration)) if report.calibration else None,
        "files": report.files,
        "findings": [_finding(finding) for finding in report.findings],
        "trials": [_trial(trial) for trial in report.trials],
        "comparisons": [comparison_json(comparison) for comparison in report.comparisons],
        "winners": [_winner(winner) for winner in report.winners],
        "ladder": _ladder(report.ladder) if report.ladder else None,
        "not_applicable": [_as_dict(item) for item in report.not_applicable],
        "skipped": [_as_dict(item) for item in report.skipped],
        "notes": list(report.notes),
        "tests_left_out": report.tests_left_out,
        "hints_left_out": report.hints_left_out,
        "rules_left_out": [_as_dict(item) for item in report.rules_left_out],
        "baseline": {"known": report.known, "gone": report.gone},
        "unused_suppressions": [
            {"path": item.path, "cell": item.cell, "line": item.line, "rules": list(item.rules)}
            for item in report.unused_suppressions
        ],
        "gate": _gate(report.gate) if report.gate else None,
        "run": _plain(_as_dict(report.run)) if report.run else None,
        "trace": _trace(report.traces) if report.traces else None,
        "kept_in": report.kept_in or None,
        "doctor": [_as_dict(fact) for fact in report.machine] if report.command == "doctor" else None,
    }


def _finding(finding: Finding) -> Json:
    place = finding.location
    return {
        "rule": finding.rule,
        "name": finding.name,
        "severity": finding.severity,
        "path": place.path if place else None,
        **_range(place),
        "message": finding.message,
        "note": finding.note,
        "fingerprint": finding.fingerprint,
        "fingerprints": list(finding.merged or (finding.fingerprint,)),
        "saving": _saving(finding.saving),
        "fix": _fix(finding.fix),
        "also": list(finding.also),
        "parts": [_finding(part) for part in finding.parts],
        "places": [{"cell": p.cell, "line": p.line, "column": p.column} for p in finding.places],
    }


def _saving(saving: Saving | None) -> Json | None:
    return _as_dict(saving) if saving else None


def _fix(fix: Fix | None) -> Json | None:
    if fix is None:
        return None
    return {
        "safety": fix.safety,
        "changes": list(fix.changes),
        "title": fix.title,
        "diff": fix.diff,
        "before": fix.before or None,
        "after": fix.after or None,
        "encoding": fix.encoding,
        "edits": [_edit(edit) for edit in fix.edits],
    }


def _edit(edit: Edit) -> Json:
    """start, end: characters of the text, as `docs/formats.md` has it. The other numbers are for people and editors."""
    return {"start": edit.span.start, "end": edit.span.end, "text": edit.text, **_range(edit.place)}


def _range(place: Location | None) -> Json:
    return {key: getattr(place, key, None) for key in ("cell", "line", "column", "end_line", "end_column")}


def _trial(trial: Trial) -> Json:
    data = _as_dict(trial)
    data["samples"] = list(trial.samples)
    return data


def comparison_json(comparison: Comparison) -> Json:
    """A comparison as plain data; bounds that are not known are null, and so is a ratio that was not measured."""
    data = _as_dict(comparison)
    if not comparison.has_ratio:
        data["ratio"] = None
    if comparison.high == float("inf"):  # JSON has no infinity
        data["low"] = data["high"] = None
    return data


def _winner(winner: Winner) -> Json:
    place = winner.location
    return {
        "knob": winner.knob,
        "settings": winner.settings,
        "keeps_current": winner.keeps_current,
        "words": winner.words,
        "saving": _saving(winner.saving),
        "fix": _fix(winner.fix),
        "path": place.path if place else None,
        "line": place.line if place else None,
        "verified": winner.verified,
        "remarks": list(winner.remarks),
        "handed_over": winner.handed_over,
    }


def _ladder(ladder: Ladder) -> Json:
    data = _as_dict(ladder)
    for rung in data["rungs"]:  # keys of version 1 for which a climb has no figures any more
        rung |= dict.fromkeys(("seconds_per_step", "peak_memory_bytes", "from_start", "from_low", "from_high"))
    for entry in [data, *data["rungs"]]:
        if entry["high"] == float("inf"):
            entry["low"] = entry["high"] = None
    for entry, file in zip(data["files"], ladder.files, strict=True):
        entry["edits"] = [_edit(edit) for edit in file.edits]
    return cast(Json, _plain(data))


def _trace(traces: Traces) -> Json:
    """Traces as plain data; of a rank's timeline every stretch is a list of start, end and kind, since there are many."""
    data: Json = _plain(_as_dict(traces))
    for rank in data["ranks"]:
        rank["timeline"] = [[one["start"], one["end"], one["kind"]] for one in rank["timeline"]]
    return data


def _gate(gate: Gate) -> Json:
    """A gate as plain data: tuples are lists, and numbers that are not known are null."""
    data: Json = _plain(_as_dict(gate))
    for timed in data["times"]:
        if timed["high"] is None:
            timed["low"] = None
    return data


def _as_dict(value: Any) -> Json:  # Any: a dataclass
    import dataclasses  # only for what a scan without `--format json` lacks

    return dataclasses.asdict(value)


def _plain(value: Any) -> Any:  # Any: nested JSON
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
