"""`[tool.perfaudit]` of the nearest pyproject.toml: which rules are on, where, and how severe they are."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from perfaudit.decoding import Damaged, Value
from perfaudit.errors import ConfigError, refusal
from perfaudit.expressions import regex
from perfaudit.findings import SEVERITIES, Finding, Severity, only
from perfaudit.ownership import folders_above, is_ours, not_ours
from perfaudit.reading import MAX_SETTINGS_BYTES, read_bytes
from perfaudit.records import field, record, replace
from perfaudit.rules import Rule, line_of

_LISTS = ("select", "ignore", "exclude", "rules")
_KEYS = {*_LISTS, "per-file-ignores", "severity", "tests", "target", "targets", "gate"}
TARGET_KEYS = ("file", "model", "dataloader", "optimizer", "step", "ema")
_NAME = regex(r"\w[\w.-]*(?<!\.py)")  # of a target: nothing that is typed for a file or an option


@record(frozen=True, slots=True)
class Config:
    """What the project file sets.

    per_file_ignores: names of rules by pattern of `.gitignore`, relative to the file's folder. severity: level by name of
    a rule or beginning of ids. rule_folders: of the user's own rules, relative to the file's folder. target: name by role
    ("model", "dataloader", …, or "file"). targets: by their own names, each as it is typed after `python`, or a file with
    factories. gate: the table of that name as it stands, which `gate.settings` reads.
    notes: what is to be said of where the settings come from.
    """

    path: Path | None = None
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    rule_folders: tuple[str, ...] = ()
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()
    severity: tuple[tuple[str, Severity], ...] = ()
    tests: bool = False
    target: dict[str, str] = field(default_factory=dict)
    targets: dict[str, str] = field(default_factory=dict)
    gate: dict[str, Any] = field(default_factory=dict)  # Any: raw TOML
    notes: tuple[str, ...] = ()

    def own_rule_folders(self) -> tuple[Path, ...]:
        """The folders of the project's own rules, whose Python files run where the user trusts them.

        Raises ConfigError for a folder that does not exist.
        """
        if self.path is None:
            return ()
        folders = tuple(dict.fromkeys(self.path.parent / name for name in self.rule_folders))
        for folder in folders:
            if not folder.is_dir():
                raise ConfigError(f"{self.path}: [tool.perfaudit] rules: no such folder: {folder}")
        return folders


def start_of(paths: Iterable[str]) -> Path:
    """The folder from which the configuration is looked for: the nearest one above all these paths."""
    try:
        real = [os.path.realpath(name) for name in paths]
        folders = [Path(path) if os.path.isdir(path) else Path(path).parent for path in real]  # noqa: PTH112  # any text
        return Path(os.path.commonpath(folders))
    except (OSError, ValueError):  # two drives; a path that is none, which the scan names
        return Path.cwd()


def find_config(start: Path) -> Config:
    """The configuration of the nearest pyproject.toml with `[tool.perfaudit]` at or above a folder; else an empty one.

    Not above the folder's repository, and no file that another user owns, which a note names, as it does ignore files of
    theirs (`static.discover` passes over them). Raises ConfigError that names file and key.
    """
    config, theirs = Config(), []
    folders = folders_above(start)
    for folder in folders:
        path = folder / "pyproject.toml"
        if not path.is_file() or not _has_table(path):
            continue
        if is_ours(path):
            config = read_config(path)
            break
        theirs.append(path)
    ignores = (folder / ".gitignore" for folder in folders[1:])
    theirs += [path for path in ignores if path.is_file() and not is_ours(path)]
    note = not_ours(theirs)
    return replace(config, notes=(note,)) if note else config


def _has_table(path: Path) -> bool:
    """Whether a project file speaks of perfaudit, or cannot be read, which `read_config` says in words.

    One that has no such word is not parsed, and may be wrong: most projects have no settings of ours, and what reads TOML
    takes longer to import than a file of code to scan. A backslash may spell the word otherwise.
    """
    try:
        text = _text_of(path)
        if "perfaudit" not in text and "\\" not in text:
            return False
        tool = _value_of(text).raw.get("tool", {})
    except (OSError, ValueError):
        return True
    return not isinstance(tool, dict) or "perfaudit" in tool


def _text_of(path: Path) -> str:
    """Raises OSError and ValueError."""
    return read_bytes(path, MAX_SETTINGS_BYTES).decode().replace("\r\n", "\n")


_value_of = functools.lru_cache(maxsize=1)(Value.of_toml)  # the file that is found is read next


def read_config(path: Path) -> Config:
    """`[tool.perfaudit]` of one file. Raises ConfigError that names file and key."""
    try:
        text = _text_of(path)
        return _config(path, _value_of(text))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {refusal(error)}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 (byte {error.start})") from error
    except Damaged as error:
        line = line_of(text, error.key, "tool.perfaudit") or line_of(text, error.key)
        raise ConfigError(f"{path}{line}: {error}") from error
    except ValueError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error


def _config(path: Path, file: Value) -> Config:
    """The settings in a project file. Raises Damaged."""
    tool = file.maybe("tool")
    table = tool.maybe("perfaudit") if tool is not None else None
    if table is None:
        return Config(path)
    table.keys((), _KEYS)
    lists = {key: value.texts() for key, value in table.fields() if key in _LISTS}
    ignores = _table(table, "per-file-ignores")
    for key, patterns in (("exclude", lists.get("exclude", ())), ("per-file-ignores", tuple(ignores))):
        _check_patterns(table.at(key), patterns)
    target, targets = _table(table, "target"), _table(table, "targets")
    if target:
        table.at("target").keys((), TARGET_KEYS)
    for name, text in targets.items():
        if why := _why_no_target(name, text.text()):
            raise text.damage_error(f"is no target: {why}")
    tests = table.maybe("tests")
    return Config(
        path,
        select=lists.get("select", ()),
        ignore=lists.get("ignore", ()),
        exclude=lists.get("exclude", ()),
        rule_folders=lists.get("rules", ()),
        per_file_ignores=tuple((pattern, names.texts()) for pattern, names in ignores.items()),
        severity=tuple((name, level.one_of(SEVERITIES)) for name, level in _table(table, "severity").items()),
        tests=tests is not None and tests.is_true(),
        target={role: name.text() for role, name in target.items()},
        targets={name: text.text() for name, text in targets.items()},
        gate={key: value.raw for key, value in _table(table, "gate").items()},
    )


def _check_patterns(value: Value, patterns: tuple[str, ...]) -> None:
    if not patterns:
        return
    from perfaudit.patterns import MAX_PATTERNS, is_pattern  # most projects have none

    if len(patterns) > MAX_PATTERNS:
        raise value.damage_error(f"has more than {MAX_PATTERNS:,} patterns")
    for pattern in patterns:
        if not is_pattern(pattern):
            raise value.damage_error(f"has {pattern!r}, which is no pattern of .gitignore")


def _why_no_target(name: str, text: str) -> str:
    """Why an entry of `[tool.perfaudit.targets]` names no target, "" where it may."""
    if not _NAME.fullmatch(name):
        return "a name has letters, digits, _, - and dots, and is not that of a Python file"
    import shlex

    try:
        words = shlex.split(text)
    except ValueError as error:  # a quote that is not closed
        return f"it cannot be read as the words of a command line: {error}".lower()
    if not (words[1:] if words[:1] == ["-m"] else words):
        return 'name a script and its arguments as after `python`: "train.py --epochs 1", "-m package.train"'
    return ""


def named_target(config: Config, name: str, folder: Path) -> str | None:
    """What `[tool.perfaudit.targets]` has under a name, None where it has none of it. folder: the working directory.

    Raises ConfigError where a file here has the same name, and in another folder than that of the project file.
    """
    if (text := config.targets.get(name)) is None or config.path is None:
        return None
    if (folder / name).exists():
        raise ConfigError(
            f"{name} is a target of {config.path} and lies here too: write ./{name} for what lies here, or rename the target"
        )
    if config.path.parent.resolve() != folder.resolve():
        raise ConfigError(
            f"{config.path}: [tool.perfaudit.targets] {name} = {text!r} is relative to its folder: run the command there"
        )
    return text


def _table(of: Value, key: str) -> dict[str, Value]:
    """The values of a table by key, none where it is missing."""
    table = of.maybe(key)
    return dict(table.fields()) if table is not None else {}


def selected_rules(
    rules: Mapping[str, Rule], select: Iterable[str] = (), ignore: Iterable[str] = (), config: Config | None = None
) -> frozenset[str]:
    """Ids of the rules that are on.

    Those that `select` names, else those that the configuration selects, else all; less what either of them ignores.
    A name is an id ("PA201"), the beginning of ids ("PA2") or a rule's name ("conv-bias-before-norm").
    Raises ConfigError for a name that matches nothing, and when no rule is left.
    """
    config = config or Config()
    where = f"{config.path}: [tool.perfaudit]"
    chosen = _matching(rules, select, "--select") or _matching(rules, config.select, f"{where} select")
    ignored = _matching(rules, ignore, "--ignore") | _matching(rules, config.ignore, f"{where} ignore")
    if not (left := (chosen or frozenset(rules)) - ignored):
        raise ConfigError(
            "no rule is left: everything that is selected is ignored too (see --select, --ignore, pyproject.toml)"
        )
    return left


def named_in_full(
    rules: Mapping[str, Rule], select: Iterable[str] = (), config: Config | None = None
) -> frozenset[str]:
    """Ids of the rules that a selection names one by one, by id or name: of these, hints are reported too."""
    names = {name.lower() for name in (*select, *(config.select if config else ()))}
    if not names:
        return frozenset()
    return frozenset(rule.id for rule in rules.values() if {rule.id.lower(), rule.name} & names)


def _matching(rules: Mapping[str, Rule], names: Iterable[str], where: str) -> frozenset[str]:
    found: set[str] = set()
    for name in names:
        hits = {rule.id for rule in rules.values() if rule.id.startswith(name.upper()) or rule.name == name.lower()}
        if not hits or not name:
            raise ConfigError(f"{where}: no rule is called {name!r}; `perfaudit rules` lists them")
        found |= hits
    return frozenset(found)


def apply_config(findings: Iterable[Finding], config: Config, rules: Mapping[str, Rule]) -> tuple[Finding, ...]:
    """The findings that the configuration does not ignore in their file, with the severity it gives them.

    The most precise name decides the severity: a rule's own id or name before the beginning of ids. A hint stays one.
    Raises ConfigError for a name that matches no rule.
    """
    if not config.per_file_ignores and not config.severity:
        return tuple(findings)
    from perfaudit.patterns import spec_of  # as above

    where = f"{config.path}: [tool.perfaudit"
    ignored = [
        (spec_of([pattern]), _matching(rules, names, f"{where}.per-file-ignores] {pattern}"))
        for pattern, names in config.per_file_ignores
    ]
    levels: dict[str, Severity] = {}
    for name, level in sorted(config.severity, key=lambda item: (item[0].upper() in rules, len(item[0]))):
        levels |= dict.fromkeys(_matching(rules, [name], f"{where}.severity]"), level)
    off: dict[str, frozenset[str]] = {}  # by path: a file can have 100,000 findings

    def is_off(finding: Finding) -> bool:
        if finding.location is None or config.path is None:
            return False
        path = finding.location.path
        if path not in off:
            relative = os.path.relpath(path, config.path.parent)
            hits = () if relative.startswith(os.pardir) else (ids for spec, ids in ignored if spec.match_file(relative))
            off[path] = frozenset().union(*hits)
        return finding.rule in off[path]

    def at_level(finding: Finding) -> Finding:
        given = levels.get(finding.rule)
        return finding.with_(severity=given) if given is not None and finding.severity != "hint" else finding

    def at_levels(finding: Finding) -> tuple[Finding, ...]:
        if not finding.parts:
            return (at_level(finding),)
        parts = tuple(map(at_level, finding.parts))
        if len({part.severity == "hint" for part in parts}) > 1:  # as findings are joined in the first place
            return parts
        return (finding.with_(parts=parts, severity=min((part.severity for part in parts), key=SEVERITIES.index)),)

    kept = only(findings, lambda finding: not is_off(finding))
    return tuple(part for finding in kept for part in at_levels(finding))
