"""A scan as the project's configuration wants it: which rules, which files, which severities."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from perfaudit.config import Config, configured, selected
from perfaudit.report import Report
from perfaudit.static.registry import catalogue
from perfaudit.static.scan import Options


def options_of(config: Config, select: Iterable[str] = (), ignore: Iterable[str] = ()) -> Options:
    """How a scan is made with this configuration, and with the rules that the caller selects and ignores besides.

    Raises ConfigError for a name that matches no rule, and for a folder of rules that does not exist.
    """
    folders = config.own_rule_folders(Path.cwd())
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
