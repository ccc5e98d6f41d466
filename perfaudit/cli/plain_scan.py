"""The command line of a plain scan, read without typer: importing that takes longer than the scan of a file.

What is not plain is typer's, mistakes too. A test has both read the same.
"""

from __future__ import annotations

from typing import Any

from perfaudit.cli.one_scan import ScanOptions
from perfaudit.cli.output import ALIASES

_FLAGS = {"--exit-zero", "--force-exclude", "--isolated", "--no-cache", "--tests"}
_WITH_VALUE = {"--format", "--stdin-filename"}


def read_plain(words: list[str]) -> ScanOptions | None:
    """What the words behind `perfaudit scan` ask for; None where they are not paths and the plainest options alone."""
    given: dict[str, Any] = {}  # Any: one type for each option
    paths: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "-" or not word.startswith("-"):
            paths.append(word)
        elif word in _FLAGS:
            given[_parameter(word)] = True
        elif word in _WITH_VALUE and (value := next(rest, "")) and not value.startswith("-"):
            given[_parameter(word)] = value
        else:
            return None
    if "format" in given:
        from perfaudit.render import all_formats

        given["format"] = ALIASES.get(given["format"], given["format"])
        if given["format"] not in all_formats():
            return None
    return ScanOptions(paths or None, **given)


def _parameter(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")
