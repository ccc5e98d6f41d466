"""A scan as the project's configuration wants it: which rules, which files, which severities."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from perfaudit.config import Config, configured, selected
from perfaudit.report import Report
from perfaudit.rules import Rule, read_folder, rule_heads
from perfaudit.static.registry import catalogue
from perfaudit.static.scan import Options


def options_of(
    config: Config, select: Iterable[str] = (), ignore: Iterable[str] = (), folders: tuple[Path, ...] | None = None
) -> Options:
    """How a scan is made with this configuration, and with the rules that the caller selects and ignores besides.

    folders: of the user's own rules, whose Python files are run; None for those that the configuration names.
    Raises ConfigError for a name that matches no rule, and for a folder of rules that does not exist.
    """
    folders = config.own_rule_folders(Path.cwd()) if folders is None else folders
    return Options(
        selected(catalogue(folders).rules, select, ignore, config),
        config.exclude,
        base=config.path.parent if config.path else None,
        tests=config.tests,
        rule_folders=folders,
    )


def as_configured(report: Report, options: Options, config: Config) -> Report:
    """The report without what the configuration ignores; paths are those of the working directory."""
    return report.with_(findings=configured(report.findings, config, catalogue(options.rule_folders).rules))


def without_rules_of(config: Config, left_out: Iterable[Path], kept: Iterable[Path] = ()) -> Config | None:
    """The configuration as it is where the user's own rules in some folders are not known; None where no rule is left.

    kept: folders whose rules are known. Names that match none of the rules anywhere stay, to be complained of.
    Only the rules' TOML is read. Raises RuleFileError for one that is wrong.
    """
    known = dict(rule_heads())
    for folder in kept:
        known |= read_folder(folder, examples=False)
    unknown = {id: rule for folder in left_out for id, rule in read_folder(folder, examples=False).items()}

    def stays(name: str) -> bool:
        return _any_called(name, known) or not _any_called(name, unknown)

    select = tuple(filter(stays, config.select))
    ignore = tuple(filter(stays, config.ignore))
    if (config.select and not select) or not _left(known, select, ignore):
        return None
    in_files = ((pattern, tuple(filter(stays, names))) for pattern, names in config.per_file_ignores)
    return replace(
        config,
        select=select,
        ignore=ignore,
        per_file_ignores=tuple((pattern, names) for pattern, names in in_files if names),
        severity=tuple((name, level) for name, level in config.severity if stays(name)),
    )


def _left(known: dict[str, Rule], select: Iterable[str], ignore: Iterable[str]) -> bool:
    """Whether a rule is selected and not ignored; also where a name is wrong, which is said elsewhere."""
    chosen = tuple(select)
    wrong = any(not _any_called(name, known) for name in chosen)
    on = (rule for rule in known.values() if not chosen or any(_is_called(name, rule) for name in chosen))
    return wrong or any(not any(_is_called(name, rule) for name in ignore) for rule in on)


def _any_called(name: str, rules: dict[str, Rule]) -> bool:
    return any(_is_called(name, rule) for rule in rules.values())


def _is_called(name: str, rule: Rule) -> bool:
    """As `config.selected` takes a name: an id, the beginning of ids, or a rule's name."""
    return rule.id.startswith(name.upper()) or rule.name == name.lower()
