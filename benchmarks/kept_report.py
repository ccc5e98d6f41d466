"""`python -m perfaudit`, which also keeps the report that it prints: `KEPT_REPORT=FILE python benchmarks/kept_report.py ...`.

The report is kept with all its fields, so that a test can print it anew (`report_of`) and compare that with what was printed.
"""

from __future__ import annotations

import dataclasses
import json
import os
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfaudit import findings, machine_facts, measurements, report, runs, traces, verdicts
from perfaudit.report import Report

VARIABLE = "KEPT_REPORT"
_MODULES = (findings, machine_facts, measurements, report, runs, traces, verdicts)
_NAMES = {name: value for module in _MODULES for name, value in vars(module).items()}


def report_of(data: dict[str, Any]) -> Report:
    """The report that was kept as `dataclasses.asdict` has it."""
    built: Report = _built(Report, data)
    return built


def _built(hint: Any, data: Any) -> Any:  # Any: a type, and nested JSON
    """The value of this type that JSON holds: tuples are lists there, and dataclasses are objects."""
    if data is None:
        return None
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint, _NAMES)
        return typing.cast(Any, hint)(**{name: _built(hints[name], value) for name, value in data.items()})
    origin, of = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        kinds = [each for each in of if each is not type(None)]
        return _built(kinds[0], data) if len(kinds) == 1 else data  # of several, they are numbers and texts
    if origin is tuple:
        kinds = [of[0]] * len(data) if of[1:] == (Ellipsis,) else [*of]
        return tuple(_built(kind, each) for kind, each in zip(kinds, data, strict=True))
    if origin is list:
        return [_built(of[0], each) for each in data]
    if origin in (dict, Mapping):
        return {name: _built(of[1], value) for name, value in data.items()}
    return data


def keep_reports() -> None:
    """Have every report that a command prints kept in the file that the variable names."""
    from perfaudit.cli import output

    emit = output.emit

    def emit_and_keep(shown: Report, *arguments: Any, **named: Any) -> None:
        Path(os.environ[VARIABLE]).write_text(json.dumps(dataclasses.asdict(shown)), encoding="utf-8")
        emit(shown, *arguments, **named)

    output.emit = emit_and_keep


if __name__ == "__main__":
    from perfaudit.cli import main

    keep_reports()
    main()
