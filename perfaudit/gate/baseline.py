"""`perfaudit-gate.json`: what a project's training is known to do, in a file that is committed and reviewed.

Every finding and every counter has a line of its own, in order, so that a diff shows what came and went and two branches
merge. No absolute path and nothing that changes by itself is in it.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from perfaudit.decoding import Value
from perfaudit.errors import ConfigError, UserError, refusal
from perfaudit.files import reason, replace_file
from perfaudit.gate.baseline_versions import SCHEMA, in_this_version
from perfaudit.gate.committed_json import json_text, parse_json
from perfaudit.gate.comparable import Fingerprint, Seconds
from perfaudit.gate.settings import BASELINE
from perfaudit.gate.target_counters import Counted
from perfaudit.reading import MAX_RECORD_BYTES, read_bytes
from perfaudit.static.baseline import Known, known_finding
from perfaudit.static.discover import shown_path
from perfaudit.target.names import ROLES, Target

Json = dict[str, Any]  # Any: nested JSON


@dataclass(frozen=True, slots=True)
class Acceptance:
    """A change for the worse that the project has taken, and why.

    at: the day, as "2026-11-22". targets: whose counters it is about, as shown in reports. changes: what changed, in words.
    slower: targets whose step it lets be slower, in their order, and by which share of the step at most.
    """

    at: str
    reason: str
    targets: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    slower: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class TargetState:
    """What is known of one target. counters: JSON of `counted.Counted`; {} where they were never counted.

    names: of its factories by role, as in `target.names.Target`, without those that the project's configuration gives.
    script: as it was counted, None for factories.
    """

    environment: Fingerprint
    counters: Json = field(default_factory=dict)
    seconds_per_step: Seconds | None = None
    names: dict[str, str] = field(default_factory=dict)
    script: Target | None = None


@dataclass(frozen=True, slots=True)
class Baseline:
    """The content of the file. Paths are as reports show them; in the file they are relative to the file's folder.

    targets: by their labels, see `target.names.Target`.
    """

    findings: tuple[Known, ...] = ()
    targets: dict[str, TargetState] = field(default_factory=dict)
    accepted: tuple[Acceptance, ...] = ()  # in the order in which they were made


def read_gate_baseline(path: Path, stands_for: Path | None = None) -> Baseline:
    """The content of a baseline file. Raises ConfigError for one that is missing, damaged, or of a newer version.

    stands_for: where the file lies in the user's project, for one in the worktree of a reference.
    """
    try:
        data = read_bytes(path, MAX_RECORD_BYTES)
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such baseline; write it with `{_init(path)}`") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {refusal(error)}") from error
    return parse_baseline(data, stands_for or path)


def gate_baseline_if_there(path: Path, stands_for: Path | None = None) -> Baseline | None:
    """As `read_gate_baseline`; None where there is no such file."""
    return read_gate_baseline(path, stands_for) if path.exists() or path.is_symlink() else None


def parse_baseline(data: bytes, path: Path) -> Baseline:
    """The content of a baseline file from its bytes; path: where it lies. Raises ConfigError that says what and where."""
    try:
        return _content(Value(in_this_version(parse_json(data), path)), path)
    except (ValueError, RecursionError) as error:
        cure = f"take a version of it from git, or write it again with `{_init(path)} --force`"
        raise ConfigError(f"{path}: a damaged baseline: {error}; {cure}") from error


def _init(path: Path) -> str:
    """The command that writes a baseline there."""
    return "perfaudit gate init" + ("" if str(path) == BASELINE else f" --baseline {shlex.quote(str(path))}")


def _content(data: Value, path: Path) -> Baseline:
    data.keys({"schema", "accepted", "findings", "targets"})
    findings = [_finding_of_entry(entry, path) for entry in data.at("findings").items()]
    targets: dict[str, TargetState] = {}
    labels: dict[str, str] = {}  # by what stands in the file
    for name, entry in data.at("targets").fields():
        state = _state(entry, path)
        labels[name] = label = _label(name, state.script, path) if state.script else _path_in_reports(name, entry, path)
        if label in targets:
            raise entry.damage_error(f"is the second target called {label!r}")
        targets[label] = state
    accepted = [_acceptance(entry, path, labels) for entry in data.at("accepted").items()]
    return Baseline(tuple(findings), targets, tuple(accepted))


def _label(name: str, script: Target, path: Path) -> str:
    """What reports call a script that the file calls this: its own name, or what it is typed as from here."""
    return str(script) if name == str(_beside(path, script)) else name


def _beside(path: Path, script: Target) -> Target:
    """A script as the file has it: its path relative to the file's folder."""
    return replace(script, file=_relative(path, script.file))


def _relative(path: Path, name: str) -> str:
    """A path as the file has it; "" stays."""
    return Path(os.path.relpath(name, path.absolute().parent)).as_posix() if name else ""


def _finding_of_entry(entry: Value, path: Path) -> Known:
    known = known_finding(entry.keys({"path", "rule", "digest", "message"}))
    return replace(known, path=_path_in_reports(known.path, entry.at("path"), path))


def _acceptance(entry: Value, path: Path, labels: Mapping[str, str]) -> Acceptance:
    """labels: of the targets of the file, by what they are called there."""
    entry.keys({"at", "reason", "targets", "changes", "slower"})
    at, reason = entry.at("at").text(), entry.at("reason").text()
    try:
        date.fromisoformat(at)
    except ValueError:
        entry.at("at").must(False, "a date such as 2026-11-22")
    entry.at("reason").must(bool(reason.strip()), "a string that is not empty")

    def label(name: str, value: Value) -> str:
        return labels[name] if name in labels else _path_in_reports(name, value, path)

    targets = tuple(label(name.text(), name) for name in entry.at("targets").items())
    shares = [(label(name, share), share.number(least=0)) for name, share in entry.at("slower").fields()]
    return Acceptance(at, reason, targets, entry.at("changes").texts(), tuple(sorted(shares)))


def _state(entry: Value, path: Path) -> TargetState:
    entry.keys({"environment", "counters", "seconds_per_step"}, {"factories", "script"})
    environment, counted = Fingerprint.from_json(entry.at("environment")), entry.at("counters")
    counted.must(isinstance(counted.raw, dict), "an object")
    counters: Json = counted.raw
    if counters:
        _refuse_two_environments(Counted.from_json(counted), environment, counted)
        counters = _with_places(counters, lambda name: _path_in_reports(name, counted.at("places"), path))
    seconds = entry.maybe("seconds_per_step")
    return TargetState(
        environment,
        counters,
        Seconds.from_json(seconds) if seconds is not None else None,
        _names(entry.at("factories"), path) if "factories" in entry.raw else {},
        _script(entry.at("script"), path) if "script" in entry.raw else None,
    )


def _script(entry: Value, path: Path) -> Target:
    entry.keys({"file", "arguments", "module"})
    file = entry.at("file").text()
    entry.at("file").must(bool(file), "a string that is not empty")
    return Target(
        _path_in_reports(file, entry.at("file"), path), {}, entry.at("arguments").texts(), entry.at("module").text()
    )


def _refuse_two_environments(counted: Counted, environment: Fingerprint, counters: Value) -> None:
    """Raises Damaged for counters of another torch or device than the environment beside them says.

    Types may differ: those of the environment are of the training as it was built, and a first step may change them.
    """
    for name in ("torch", "device"):
        beside = getattr(environment, name)
        is_same = getattr(counted, name) == beside
        counters.at(name).must(is_same, f"{beside!r} as in the environment of the same target")


def _names(entry: Value, path: Path) -> dict[str, str]:
    names = {}
    for role, name in entry.keys((), ROLES).fields():
        name.must(bool(name.text()), "a string that is not empty")
        names[role] = _with_file(name.text(), partial(_path_in_reports, value=name, path=path))
    return names


def _script_json(script: Target) -> Json:
    return {"arguments": list(script.arguments or ()), "file": script.file, "module": script.module}


def _with_file(name: str, placed: Callable[[str], str]) -> str:
    """The name of a factory with the path replaced that it may begin with, as in "other.py:name"."""
    file, colon, function = name.rpartition(":")
    return f"{placed(file)}{colon}{function}"


def _with_places(counters: Json, placed: Callable[[str], str]) -> Json:
    """The counters with the paths of their lines replaced."""
    places = {
        name: [{**spot, "path": placed(spot["path"])} for spot in spots] for name, spots in counters["places"].items()
    }
    return {**counters, "places": places}


def counter_values(state: TargetState) -> dict[str, int]:
    """The counters of one step of a target by name, {} where it was never counted."""
    return dict(state.counters.get("values", {}))


def _path_in_reports(name: str, value: Value, path: Path) -> str:
    """A path of the file as reports show it; "" stays, for findings without a place. Raises Damaged of the value it is in."""
    if Path(name).is_absolute():
        raise value.damage_error(f"holds {name!r}, an absolute path, which holds on one machine only")
    if "\0" in name:
        raise value.damage_error(f"holds {name!r}, which is no path")
    return shown_path(path.parent / name) if name else ""


def write_gate_baseline(path: Path, baseline: Baseline) -> None:
    """Replace the file, all or nothing; the same content gives the same bytes. Raises UserError where it cannot."""
    try:
        replace_file(path, text(path, baseline).encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise UserError(f"{path}: not written: {reason(error)}") from error


def text(path: Path, baseline: Baseline) -> str:
    """What the file holds; path: where it will lie."""
    placed = partial(_relative, path)

    def key(label: str) -> str:
        script = baseline.targets[label].script if label in baseline.targets else None
        if script is None:
            return placed(label)
        return str(_beside(path, script)) if label == str(script) else label

    findings = [Known(placed(k.path), k.rule, k.digest, k.message) for k in baseline.findings]
    content = {
        "schema": SCHEMA,
        "accepted": [
            {
                "at": entry.at,
                "changes": list(entry.changes),
                "reason": entry.reason,
                "slower": {key(name): share for name, share in entry.slower},
                "targets": [key(name) for name in entry.targets],
            }
            for entry in baseline.accepted
        ],
        "findings": [
            {"digest": k.digest, "message": k.message, "path": k.path, "rule": k.rule} for k in sorted(findings)
        ],
        "targets": {
            key(name): {
                "counters": _with_places(state.counters, placed) if state.counters else {},
                "environment": state.environment.as_json(),
                "seconds_per_step": state.seconds_per_step.as_json() if state.seconds_per_step else None,
                **({"script": _script_json(_beside(path, state.script))} if state.script is not None else {}),
                **(
                    {"factories": {role: _with_file(factory, placed) for role, factory in state.names.items()}}
                    if state.names
                    else {}
                ),
            }
            for name, state in baseline.targets.items()
        },
    }
    return json_text(content)
