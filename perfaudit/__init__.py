"""perfaudit: why PyTorch training is slow, with proof and a patch."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["__version__", "doctor", "scan", "trace", "tune"]

if TYPE_CHECKING:
    from perfaudit.findings import Severity
    from perfaudit.report import Report


def scan(paths: list[str], severity: Severity = "info") -> Report:
    """The findings of files and folders of this severity or a worse one, ranked; nothing of them is imported or run."""
    from perfaudit.findings import SEVERITIES
    from perfaudit.rank import ranked
    from perfaudit.static.scan import scan as scan_paths

    report = scan_paths(paths)
    levels = SEVERITIES[: SEVERITIES.index(severity) + 1]
    return report.with_(findings=ranked([finding for finding in report.findings if finding.severity in levels]))


def trace(paths: list[str], window: tuple[int, int] | None = None, rank: int | None = None) -> Report:
    """What traces of one job say, of files and folders: shares by cause, and findings with upper bounds. Nothing is run.

    window: numbers of the first and the last step to look at. rank: the only one to look at. Files that cannot be read are in
    `skipped`. Raises `perfaudit.errors.UserError` for a path that does not exist.
    """
    from pathlib import Path

    from perfaudit.rules import rule_heads
    from perfaudit.trace.report import read_all, report_of
    from perfaudit.trace.trace_files import find_traces

    files = find_traces([Path(path) for path in paths])
    return report_of(read_all(files, window, processes=1), rule_heads(), rank)


def tune(target: str, knobs: list[str], budget: float = 300.0) -> Report:
    """What searching the knobs ("dataloader", "ema", …) on a target ("train.py") found; `budget` is seconds for all of them.

    The target runs in child processes. Raises `perfaudit.errors.UserError` for a target that does not load.
    """
    from perfaudit.target.names import parse
    from perfaudit.tune.report import tune as search

    return search(parse(target), knobs, budget)


def doctor(bandwidth: bool = True) -> Report:
    """What this machine gives a training, in `machine` of the report. bandwidth: reads and copies may be timed, for seconds."""
    from perfaudit.machine.checks import look_at
    from perfaudit.machine.place import Place
    from perfaudit.report import Report

    return Report("doctor", machine=tuple(look_at(Place(has_bandwidth=bandwidth))))


FUNCTIONS: dict[str, Callable[..., Report]] = {"trace": trace, "tune": tune}


class CallablePackage(ModuleType):
    """A package named as a function above: once it is imported, Python has it in the function's place, so it can be called."""

    def __call__(self, *args: Any, **kwargs: Any) -> Report:  # Any: as the function has them
        """What the function of that name returns."""
        return FUNCTIONS[self.__name__.rpartition(".")[2]](*args, **kwargs)
