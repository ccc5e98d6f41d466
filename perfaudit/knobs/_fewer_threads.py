"""Fewer threads for a step on the CPU, where workers of the loader need the same cores."""

from __future__ import annotations

import os
from pathlib import Path

from perfaudit.findings import Edit
from perfaudit.knobs import Survey
from perfaudit.knobs._code import Code, inside_project
from perfaudit.static.rewrite import set_or_replace_call
from perfaudit.static.source import Source, Unreadable, read_text

THREADS = "threads"  # the setting, beside those of the loader
COMPUTING = 0.5  # of the time that a batch takes to load; workers that mostly wait leave their cores to the step
_CALL = "set_num_threads"


def fewer_threads(survey: Survey, workers: int, cpu_share: float) -> int | None:
    """Threads that leave a core to each worker, at least one; None where all can stay, or the step is not on the CPU.

    cpu_share: of loading a batch, the share of computing.
    """
    host = survey.facts.host
    if survey.facts.device.type != "cpu" or survey.facts.loader.prefix or not workers or cpu_share < COMPUTING:
        return None
    threads = max(1, host.cores - workers)
    return threads if threads < host.threads else None


def edits_of_threads(code: Code, source: Source, threads: int) -> tuple[Edit, ...] | None:
    """Have the loader's file set so many threads when it is imported; None where another file of the program sets some."""
    own = os.path.realpath(source.path)
    for path in code.survey.facts.digests:
        if path == own or not inside_project(path):
            continue
        try:
            if _CALL in read_text(Path(path))[0]:
                return None
        except (OSError, Unreadable):
            return None
    return set_or_replace_call(source, f"torch.{_CALL}", str(threads))
