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

from perfaudit.errors import ConfigError, UserError, refusal
from perfaudit.files import reason, replace_file
from perfaudit.gate.baseline_versions import SCHEMA, in_this_version
from perfaudit.gate.committed_json import dumped, loaded
from perfaudit.gate.comparable import Fingerprint, Seconds, damaged_unless, text_of, texts_of
from perfaudit.gate.counted import Counted
from perfaudit.gate.settings import BASELINE
from perfaudit.reading import MAX_RECORD_BYTES, read_bytes
from perfaudit.static.baseline import Known
from perfaudit.static.discover import shown
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
    return parsed(data, stands_for or path)


def gate_baseline_if_there(path: Path, stands_for: Path | None = None) -> Baseline | None:
    """As `read_gate_baseline`; None where there is no such file."""
    return read_gate_baseline(path, stands_for) if path.exists() or path.is_symlink() else None


def parsed(data: bytes, path: Path) -> Baseline:
    """The content of a baseline file from its bytes; path: where it lies. Raises ConfigError that says what and where."""
    try:
        content = in_this_version(loaded(data), path)
        return _content(content, path)
    except (ValueError, RecursionError) as error:
        cure = f"take a version of it from git, or write it again with `{_init(path)} --force`"
        raise ConfigError(f"{path}: a damaged baseline: {error}; {cure}") from error


def _init(path: Path) -> str:
    """The command that writes a baseline there."""
    return "perfaudit gate init" + ("" if str(path) == BASELINE else f" --baseline {shlex.quote(str(path))}")


def _content(data: Json, path: Path) -> Baseline:
    _has_keys(data, {"schema", "accepted", "findings", "targets"}, "the file")
    findings = [_known(entry, f"findings[{i}]", path) for i, entry in enumerate(_list(data["findings"], "findings"))]
    damaged_unless(isinstance(data["targets"], dict), "targets must be an object")
    targets: dict[str, TargetState] = {}
    labels: dict[str, str] = {}  # by what stands in the file
    for name, entry in data["targets"].items():
        state = _state(entry, f"targets[{name!r}]", path)
        labels[name] = label = _label(name, state.script, path) if state.script else _placed(name, "a target", path)
        damaged_unless(label not in targets, f"targets: {label!r} stands there twice, as {name!r} too")
        targets[label] = state
    accepted = [
        _acceptance(entry, f"accepted[{i}]", path, labels)
        for i, entry in enumerate(_list(data["accepted"], "accepted"))
    ]
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


def _has_keys(data: Any, keys: set[str], where: str, *optional: str) -> None:
    """Raises ValueError for an object with other keys: a misspelt one must not mean that nothing is known."""
    damaged_unless(isinstance(data, dict), f"{where} must be an object")
    for key in sorted(data.keys() - keys - set(optional)):
        raise ValueError(f"{where} has no key {key!r} (it has: {', '.join(sorted(keys))})")
    for key in sorted(keys - data.keys()):
        raise ValueError(f"{where} lacks {key!r}")


def _list(value: Any, where: str) -> list[Any]:
    damaged_unless(isinstance(value, list), f"{where} must be a list")
    return list(value)


def _known(entry: Any, where: str, path: Path) -> Known:
    _has_keys(entry, {"path", "rule", "digest", "message"}, where)
    texts = {key: text_of(value, f"{where}.{key}") for key, value in entry.items()}
    return Known(_placed(texts["path"], where, path), texts["rule"], texts["digest"], texts["message"])


def _acceptance(entry: Any, where: str, path: Path, labels: Mapping[str, str]) -> Acceptance:
    """labels: of the targets of the file, by what they are called there."""
    _has_keys(entry, {"at", "reason", "targets", "changes", "slower"}, where)
    at, reason = text_of(entry["at"], f"{where}.at"), text_of(entry["reason"], f"{where}.reason")
    try:
        date.fromisoformat(at)
    except ValueError:
        raise ValueError(f"{where}.at: {at!r} is no date such as 2026-11-22") from None
    damaged_unless(bool(reason.strip()), f"{where}.reason is empty")

    def label(name: str) -> str:
        return labels[name] if name in labels else _placed(name, where, path)

    targets = tuple(map(label, texts_of(entry["targets"], f"{where}.targets")))
    changes = texts_of(entry["changes"], f"{where}.changes")
    return Acceptance(at, reason, targets, changes, _slower(entry["slower"], f"{where}.slower", label))


def _slower(entry: Any, where: str, label: Callable[[str], str]) -> tuple[tuple[str, float], ...]:
    damaged_unless(isinstance(entry, dict), f"{where} must be an object of targets and shares")
    for name, share in entry.items():
        is_share = isinstance(share, (int, float)) and not isinstance(share, bool) and share >= 0
        damaged_unless(is_share, f"{where}: {name!r} must have a share of a step such as 0.15, it has {share!r}")
    return tuple(sorted((label(name), float(share)) for name, share in entry.items()))


def _state(entry: Any, where: str, path: Path) -> TargetState:
    _has_keys(entry, {"environment", "counters", "seconds_per_step"}, where, "factories", "script")
    environment = Fingerprint.from_json(entry["environment"], f"{where}.environment")
    counters, seconds = entry["counters"], entry["seconds_per_step"]
    damaged_unless(isinstance(counters, dict), f"{where}.counters must be an object")
    if counters:
        try:
            _refuse_two_environments(Counted.from_json(counters), environment)
        except ValueError as error:
            raise ValueError(f"{where}.counters: {error}") from error
        counters = _with_places(counters, lambda name: _placed(name, f"{where}.counters.places", path))
    stored = None if seconds is None else Seconds.from_json(seconds, f"{where}.seconds_per_step")
    names = _names(entry.get("factories", {}), f"{where}.factories", path)
    script = _script(entry["script"], f"{where}.script", path) if "script" in entry else None
    return TargetState(environment, counters, stored, names, script)


def _script(entry: Any, where: str, path: Path) -> Target:
    _has_keys(entry, {"file", "arguments", "module"}, where)
    file, module = text_of(entry["file"], f"{where}.file"), text_of(entry["module"], f"{where}.module")
    damaged_unless(bool(file), f"{where}.file is empty")
    return Target(_placed(file, where, path), {}, texts_of(entry["arguments"], f"{where}.arguments"), module)


def _refuse_two_environments(counted: Counted, environment: Fingerprint) -> None:
    """Raises ValueError for counters of another torch or device than the environment beside them says.

    Types may differ: those of the environment are of the training as it was built, and a first step may change them.
    """
    for name, here, beside in (
        ("torch", counted.torch, environment.torch),
        ("device", counted.device, environment.device),
    ):
        damaged_unless(here == beside, f"{name} is {here!r}, and {beside!r} in the environment of the same target")


def _names(entry: Any, where: str, path: Path) -> dict[str, str]:
    damaged_unless(isinstance(entry, dict), f"{where} must be an object of roles and names")
    for role, name in entry.items():
        damaged_unless(role in ROLES, f"{where} has no role {role!r} (there are {', '.join(ROLES)})")
        damaged_unless(bool(text_of(name, f"{where}.{role}")), f"{where}.{role} is empty")
    return {role: _with_file(name, lambda file: _placed(file, where, path)) for role, name in entry.items()}


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


def _placed(name: str, where: str, path: Path) -> str:
    """A path of the file as reports show it; "" stays, for findings without a place. Raises ValueError."""
    damaged_unless(
        not Path(name).is_absolute(), f"{where}: {name!r} is an absolute path, which holds on one machine only"
    )
    damaged_unless("\0" not in name, f"{where}: {name!r} is no path")
    return shown(path.parent / name) if name else ""


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
    return dumped(content)
