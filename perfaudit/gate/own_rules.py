"""Which of the project's own rules a gate runs: those that the reference has as they are. What a change brings is read only."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from perfaudit.config import Config, read_config
from perfaudit.errors import ConfigError
from perfaudit.gate.gitref import Reference
from perfaudit.reading import MAX_SETTINGS_BYTES, read_bytes
from perfaudit.static.discover import shown
from perfaudit.static.plan import options_of, without_rules_of
from perfaudit.static.scan import Options

EDITED = "this change adds or edits them"
UNTOLD = "a file does not tell whether this change edits them; --against a commit does"


@dataclass(frozen=True, slots=True)
class RulesOfGate:
    """How the gate scans. config: without names of rules that are not run. options: None where no rule is left."""

    config: Config
    options: Options | None
    notes: tuple[str, ...] = ()


def rules_of_gate(config: Config, reference: Reference | None) -> RulesOfGate:
    """The rules of a gate. Of the project's own, none where there is no reference.

    Python files of a folder are run where the reference's configuration names the folder too, and where both hold the same
    files; from the reference, which has no byte code that somebody committed beside them for this change.
    Raises ConfigError and RuleFileError as a scan does.
    """
    folders = config.own_rule_folders(Path.cwd())
    trusted = {folder: there for folder in folders if reference and (there := _in_reference(folder, config, reference))}
    left = [folder for folder in folders if folder not in trusted]
    if not left:
        return RulesOfGate(config, options_of(config, folders=tuple(trusted.values())))
    names = ", ".join(f"{shown(folder)}/" for folder in left)
    notes = (f"rules of {names} are not run: {EDITED if reference else UNTOLD}",)
    rest = without_rules_of(config, left, trusted.values())
    if rest is None:
        return RulesOfGate(config, None, notes)
    return RulesOfGate(rest, options_of(rest, folders=tuple(trusted.values())), notes)


def _in_reference(folder: Path, config: Config, reference: Reference) -> Path | None:
    """The counterpart of a folder of rules that the reference names as well and holds alike; None without one.

    A folder outside the repository is its own counterpart: no change of the repository edits it.
    """
    if config.path is None:
        return None
    pyproject = reference.counterpart(config.path)
    if pyproject is None or not pyproject.is_file():
        return None
    try:
        before = {_normal(pyproject.parent / name) for name in read_config(pyproject).rule_folders}
    except ConfigError:
        return None
    there = reference.counterpart(folder)
    if there is None:
        there = _normal(folder)
    try:
        return there if there in before and _files(folder) == _files(there) else None
    except OSError:  # what cannot be read cannot be compared
        return None


def _normal(path: Path) -> Path:
    return Path(os.path.normpath(path))


def _files(folder: Path) -> dict[str, bytes]:
    """The bytes of all files in a folder, by path; without byte code, which is made here. Raises OSError."""
    found = {}
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for path in (Path(place, name) for name in names):
            found[path.relative_to(folder).as_posix()] = read_bytes(path, MAX_SETTINGS_BYTES)
    return found
