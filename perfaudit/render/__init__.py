"""The formats: one file or folder for each, with `render(report) -> str`, found by its name; adding one is adding a file."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from perfaudit.report import Report

# What formats share, and pages that are no report; every other file or folder is a format.
SHARED = {
    "catalogue",
    "complaints",
    "counter_words",
    "counts",
    "gate",
    "gate_sarif",
    "gate_tables",
    "gate_words",
    "ladder",
    "ladder_details",
    "machine",
    "page",
    "paint",
    "run",
    "run_ranks",
    "sparkline",
    "tables",
    "time_words",
    "trace",
    "trace_markdown",
    "words",
}


# Formats whose annotations stand beside their lines: of a change only those of its own lines are seen, so each place has its own.
BY_PLACE = {"github", "gitlab"}


def all_formats() -> tuple[str, ...]:
    """Names of all formats; none of them is imported."""
    import pkgutil

    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name not in SHARED))


def renderer(name: str) -> Callable[[Report], str]:
    """What renders a report in this format. Raises ModuleNotFoundError for a name that is none."""
    return cast("Callable[[Report], str]", importlib.import_module(f"{__name__}.{name}").render)
