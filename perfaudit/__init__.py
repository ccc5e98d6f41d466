"""perfaudit: why PyTorch training is slow, with proof and a patch."""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = ["__version__", "scan", "tune"]

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


def tune(target: str, knobs: list[str], budget: float = 300.0) -> Report:
    """What searching the knobs ("dataloader", "ema", …) on a target ("train.py") found; `budget` is seconds for all of them.

    The target runs in child processes. Raises `perfaudit.errors.UserError` for a target that does not load.
    """
    from perfaudit.target.names import parse
    from perfaudit.tune.report import tune as search

    return search(parse(target), knobs, budget)
