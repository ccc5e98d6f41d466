"""Which targets the reference has, by its text alone: what is new here, and what is no target here any more."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from perfaudit.config import Config, find_config
from perfaudit.errors import UserError
from perfaudit.gate.gitref import Reference, renamed_files
from perfaudit.gate.request import Request
from perfaudit.gate.targets import gate_target
from perfaudit.target.names import Target, defines, factories, parses

_NEEDED = {"model", "dataloader"}  # roles without which nothing can be trained


def is_new(target: Target, reference: Reference) -> bool:
    """Whether the reference does not have a target: no such file, or one without the factories that are meant here. A script is
    its file: it is run there with the arguments of here.

    A file that cannot be parsed is there, and so is what lies in a submodule that could not be filled: running it says why
    it does not run.
    """
    there = reference.folder / target.file
    if not _may_exist(there, reference):
        return True
    if target.is_script or not parses(str(there)):
        return False
    roles = _NEEDED - target.names.keys()
    if roles <= factories(target.file).keys() and not roles <= factories(str(there)).keys():
        return True
    return any(_lacks(reference, target, name) for name in target.names.values())


def former_files(targets: Sequence[Target], reference: Reference) -> dict[str, tuple[str, int]]:
    """By the label of a target that is new: what the reference calls its file, where it has that under another name, and how
    alike both are, in percent. A module is run by its dotted name, so one of another name is new.
    """
    new = [target for target in targets if not target.module and is_new(target, reference)]
    names = renamed_files(reference) if new else {}
    found = {}
    for target in new:
        place = reference.to_there(target.file)
        now = os.path.relpath(place, reference.folder) if place else ""
        before, alike = names.get(now, ("..", 0))
        if Path(before).parts[0] != ".." and not is_new(replace(target, file=before), reference):
            found[target.label] = before, alike
    return found


def _lacks(reference: Reference, target: Target, name: str) -> bool:
    """Whether the reference does not have a factory that the user names, as "name", "Class.name" or "other.py:name"."""
    file, _, name = name.rpartition(":")
    place = Path(file or target.file)
    if place.is_absolute() or ".." in place.parts:  # not of the project, or told only by running it
        return False
    there = reference.folder / place
    return not _may_exist(there, reference) or not defines(str(there), name.partition(".")[0])


def _may_exist(there: Path, reference: Reference) -> bool:
    return os.path.lexists(there) or any(there.is_relative_to(reference.root / path) for path in reference.missing)


def gone_targets(request: Request, reference: Reference) -> list[str]:
    """Labels of targets in the reference, as it configures them or else as they define factories, that are none here."""
    if not reference.folder.is_dir():
        return []
    configured, configured_there = (
        _configured_labels(request.config, reference.working),
        _configured_there(reference.folder),
    )
    here = {name for target in request.targets for name in (target.label, target.file)} | configured
    there = configured_there or {path.name for path in reference.folder.glob("*.py") if _offers_training(str(path))}
    if configured and configured_there:
        return sorted(there - here)
    return sorted(file for file in there - here if not _offers_training(file))  # else another command may name it


def _offers_training(file: str) -> bool:
    return factories(file).keys() >= _NEEDED


def _configured_there(folder: Path) -> set[str]:
    try:
        return _configured_labels(find_config(folder), folder)
    except UserError:  # it cannot be read, or this perfaudit does not know its keys
        return set()


def _configured_labels(config: Config, folder: Path) -> set[str]:
    """Labels of the targets that the project file of a folder names, relative to it; without those that do not exist."""
    if config.path is None or config.path.parent != folder:
        return set()
    named = config.gate.get("targets") or [*config.targets] or [config.target.get("file")]
    labels = set()
    for text in named if isinstance(named, list) else []:
        with contextlib.suppress(UserError):
            found = gate_target(str(text or ""), config, {}, folder)
            labels.add(found.label if found.is_script else os.path.normpath(found.file))
    return labels
