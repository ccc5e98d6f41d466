"""A scan as the project's configuration wants it: which rules, which files, which severities."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path

from perfaudit.config import Config, apply_config, selected_rules
from perfaudit.errors import RuleFileError
from perfaudit.records import field, record, replace
from perfaudit.report import Report, RulesLeftOut
from perfaudit.rules import Rule, read_folder, rule_heads
from perfaudit.static.discover import shown_path
from perfaudit.static.registry import catalogue
from perfaudit.static.rule_folder import RuleFolder, read_rule_folder
from perfaudit.static.scan import Options


@record(frozen=True, slots=True)
class OwnRules:
    """Folders of somebody's own rules: those that are run, as they were read, and those that are not, each with the reason."""

    folders: tuple[RuleFolder, ...] = ()
    left_out: Mapping[Path, str] = field(default_factory=dict)

    @property
    def note(self) -> str:
        """Which rules are not run, and why; "" for none."""
        reasons = sorted((reason, f"{shown_path(folder)}/") for folder, reason in self.left_out.items())
        parts = [
            (reason, ", ".join(name for _, name in group)) for reason, group in groupby(reasons, lambda pair: pair[0])
        ]
        return "; ".join(f"rules of {names} are not run: {reason}" for reason, names in parts)

    def as_items(self) -> tuple[RulesLeftOut, ...]:
        """For the report: those that are left out."""
        return tuple(RulesLeftOut(shown_path(folder), reason) for folder, reason in self.left_out.items())


@record(frozen=True, slots=True)
class ScanPlan:
    """How a scan is made. config: without names of rules that are not run. options: None where no rule is left."""

    config: Config
    options: Options | None
    own: OwnRules = OwnRules()


def own_rules(config: Config, named: Iterable[Path] = ()) -> OwnRules:
    """The rules that a user names for this call, and those of the project that they trust as they are.

    Of a folder that nobody trusts nothing is read. Raises RuleFileError for a named folder that cannot be read, ConfigError
    for one of the project that does not exist.
    """
    folders = [read_rule_folder(folder) for folder in named]
    places = {os.path.realpath(folder.path) for folder in folders}
    left: dict[Path, str] = {}
    of_project = config.own_rule_folders()
    if not of_project:
        return OwnRules(tuple(folders))
    from perfaudit.static.trusted_rules import NOT_TRUSTED, trust

    known = trust()
    for path in of_project:
        if os.path.realpath(path) in places:
            continue
        try:
            folder = read_rule_folder(path) if known.may_know(path) else None
        except RuleFileError as error:
            left[path] = str(error)
            continue
        if reason := known.why_not(folder) if folder else known.trouble or NOT_TRUSTED:
            left[path] = reason
        elif folder is not None:
            folders.append(folder)
    return OwnRules(tuple(folders), left)


def how_to_trust(config: Config) -> str:
    """The command that trusts the project's rules, to be typed in the working directory."""
    import shlex

    folder = shown_path(config.path.parent) if config.path else "."
    return f"perfaudit rules trust {shlex.quote(folder)}"


def plan_of(config: Config, own: OwnRules, select: Iterable[str] = (), ignore: Iterable[str] = ()) -> ScanPlan:
    """How a scan is made with this configuration, and with the rules that the caller selects and ignores besides.

    Raises ConfigError for a name that matches no rule, RuleFileError for a rule that is wrong.
    """
    select, ignore = tuple(select), tuple(ignore)
    rest: Config | None = config
    if own.left_out:
        rest = without_rules_of(replace(config, select=()) if select else config, own.left_out, own.folders)
    if rest is None:
        return ScanPlan(config, None, own)
    return ScanPlan(rest, options_of(rest, select, ignore, own.folders), own)


def options_of(
    config: Config, select: Iterable[str] = (), ignore: Iterable[str] = (), folders: tuple[RuleFolder, ...] = ()
) -> Options:
    """The options of a scan with this configuration; folders: of own rules, whose Python files are run."""
    return Options(
        selected_rules(catalogue(folders).rules, select, ignore, config),
        config.exclude,
        base=config.path.parent if config.path else None,
        tests=config.tests,
        rule_folders=folders,
    )


def as_configured(report: Report, options: Options, config: Config) -> Report:
    """The report without what the configuration ignores; paths are those of the working directory."""
    return report.with_(findings=apply_config(report.findings, config, catalogue(options.rule_folders).rules))


def without_rules_of(config: Config, left_out: Iterable[Path], kept: Iterable[RuleFolder] = ()) -> Config | None:
    """The configuration as it is where the rules in some folders are not known; None where no rule is left.

    kept: folders whose rules are known. Names that match none of the rules anywhere stay, to be complained of.
    """
    known = dict(rule_heads())
    for folder in kept:
        known |= read_folder(folder.path, examples=False, files=folder.files)
    unknown = [names for folder in left_out for names in _names_in(folder)]

    def stays(name: str) -> bool:
        return _any_called(name, known) or not any(_is_called(name, *names) for names in unknown)

    select = tuple(filter(stays, config.select))
    ignore = tuple(filter(stays, config.ignore))
    if (config.select and not select) or not _has_rules_left(known, select, ignore):
        return None
    in_files = ((pattern, tuple(filter(stays, names))) for pattern, names in config.per_file_ignores)
    return replace(
        config,
        select=select,
        ignore=ignore,
        per_file_ignores=tuple((pattern, names) for pattern, names in in_files if names),
        severity=tuple((name, level) for name, level in config.severity if stays(name)),
    )


def _names_in(folder: Path) -> list[tuple[str, str]]:
    """Id and name of each rule in a folder, as its file is called. Nothing is opened; what cannot be listed has no rules."""
    try:
        stems = [path.stem for path in folder.iterdir() if path.suffix == ".toml"]
    except OSError:
        return []
    return [(stem[:at], stem[at + 1 :]) for stem in stems for at, sign in enumerate(stem) if sign == "-"]


def _has_rules_left(known: Mapping[str, Rule], select: Iterable[str], ignore: Iterable[str]) -> bool:
    """Whether a rule is selected and not ignored; also where a name is wrong, which is said elsewhere."""
    chosen = tuple(select)
    wrong = any(not _any_called(name, known) for name in chosen)
    on = (rule for rule in known.values() if not chosen or any(_is_called(name, rule.id, rule.name) for name in chosen))
    return wrong or any(not any(_is_called(name, rule.id, rule.name) for name in ignore) for rule in on)


def _any_called(name: str, rules: Mapping[str, Rule]) -> bool:
    return any(_is_called(name, rule.id, rule.name) for rule in rules.values())


def _is_called(name: str, id: str, called: str) -> bool:
    """As `config.selected_rules` takes a name: an id, the beginning of ids, or a rule's name."""
    return id.startswith(name.upper()) or called == name.lower()
