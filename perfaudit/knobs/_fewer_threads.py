"""Fewer threads for a step on the CPU, where workers of the loader need the same cores."""

from __future__ import annotations

import os
from pathlib import Path

from perfaudit.findings import Edit
from perfaudit.knobs import Reply, Survey
from perfaudit.knobs._code import Code, inside_project
from perfaudit.static.rewrite import set_or_replace_call
from perfaudit.static.source import Source, Unreadable, read_text

THREADS = "threads"  # the setting, beside those of the loader
COMPUTING = 0.5  # of the time that a batch takes to load; workers that mostly wait leave their cores to the step
_CALL = "set_num_threads"


def fewer_threads(survey: Survey, workers: int, seen: Reply) -> int | None:
    """Threads that leave a core to each worker, at least one; None where all can stay, or the step is not on the CPU.

    seen: see `_dataloader_look`. None as well where a step could be slower than now on cores that nobody else uses, which no
    race on a busy machine would show. With perfect scaling a step on t of T threads takes T / t as long, and with enough workers
    nothing but the step: that is no more than loading and the step take together where fetch >= step * (T / t - 1).
    """
    host = survey.facts.host
    if survey.facts.device.type != "cpu" or survey.facts.loader.prefix or float(seen["cpu_share"]) < COMPUTING:
        return None
    threads = max(1, host.cores - workers)
    longer = float(seen["step"]) * (host.threads / threads - 1)
    return threads if threads < host.threads and float(seen["fetch"]) >= longer else None


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
