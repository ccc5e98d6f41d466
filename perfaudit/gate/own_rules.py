"""Which of the project's own rules a gate runs: those that the user trusts and the reference has as they are.

The user's trust says that this Python may run at all: a reference may be as hostile as what is compared with it. That the
reference holds it says that it is not what this change brings, which a team's trust by digest in CI would not tell by itself.
"""

from __future__ import annotations

import os
from pathlib import Path

from perfaudit.config import Config, read_config
from perfaudit.errors import ConfigError, RuleFileError
from perfaudit.gate.gitref import Reference
from perfaudit.static.plan import OwnRules, ScanPlan, how_to_trust, own_rules, plan_of
from perfaudit.static.rule_folder import RuleFolder, read_rule_folder

EDITED = "this change adds or edits them"
UNTOLD = "a file does not tell whether this change edits them; --against a commit does"


def rules_of_gate(config: Config, reference: Reference | None) -> ScanPlan:
    """The rules of a gate. Of the project's own, none where there is no reference.

    Python files of a folder are run where the user trusts them, where the reference's configuration names the folder too, and
    where both hold the same files; then from the reference, beside which a rule finds nothing that the change brings.
    Raises ConfigError and RuleFileError as a scan does.
    """
    own = own_rules(config)
    trusted = {folder.path: folder for folder in own.folders}
    run: list[RuleFolder] = []
    left: dict[Path, str] = {}
    for path in config.own_rule_folders():
        there = _in_reference(path, config, reference) if reference else None
        if there is None:
            left[path] = EDITED if reference else UNTOLD
        elif path not in trusted or trusted[path].digest != there.digest:
            left[path] = f"{own.left_out.get(path, EDITED)}; read them, then: {how_to_trust(config)}"
        else:
            run.append(there)
    return plan_of(config, OwnRules(tuple(run), left))


def _in_reference(folder: Path, config: Config, reference: Reference) -> RuleFolder | None:
    """The counterpart of a folder of rules that the reference names as well and holds alike; None without one.

    A folder outside the repository is its own counterpart: no change of the repository edits it.
    """
    if config.path is None:
        return None
    pyproject = reference.to_there(config.path)
    if pyproject is None or not pyproject.is_file():
        return None
    try:
        before = {_normal(pyproject.parent / name) for name in read_config(pyproject).rule_folders}
    except ConfigError:
        return None
    there = reference.to_there(folder)
    if there is None:
        there = _normal(folder)
    elif not Path(os.path.realpath(there)).is_relative_to(os.path.realpath(reference.root)):
        return None  # a link that leads back to the working files
    try:
        found = read_rule_folder(there) if there in before else None
        return found if found and found.digest == read_rule_folder(folder).digest else None
    except RuleFileError:  # what cannot be read cannot be compared
        return None


def _normal(path: Path) -> Path:
    return Path(os.path.normpath(path))
