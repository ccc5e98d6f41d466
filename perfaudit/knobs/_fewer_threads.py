"""Fewer threads for a step on the CPU, where workers of the loader need the same cores."""

from __future__ import annotations

import os
from pathlib import Path

from perfaudit.findings import Edit
from perfaudit.knobs import Reply, Survey
from perfaudit.knobs._code import Code, inside_project
from perfaudit.static.process_settings import set_or_replace_call
from perfaudit.static.source import Source, Unreadable, read_text

THREADS = "threads"  # the setting, beside those of the loader
# Of the time that a batch takes to load. Chosen, not measured: workers that mostly wait leave their cores to the step.
COMPUTING = 0.5
_CALL = "set_num_threads"


def fewer_threads(survey: Survey, workers: int, seen: Reply) -> int | None:
    """Threads that leave a core to each worker, at least one; None where all can stay, or the step is not on the CPU.

    seen: see `_dataloader_look`. None as well where a step could be slower than now on cores that nobody else uses, which no
    race on a busy machine would show. Now, without workers, a step takes fetch + S + P / T: its serial part, and what T threads
    share. With t threads, and workers enough, it takes S + P / t. That is no more where fetch >= P * (1 / t - 1 / T). P is at
    most the processor seconds of the step. Of fetch those of the thread that loads count: the rest may be waiting for a core, or
    work that threads share. Means count, as long steps and loads do in an epoch. Where there are workers already this does not
    hold, and the knob `threads` tries fewer.
    """
    host, loader = survey.facts.host, survey.facts.loader
    if survey.facts.device.type != "cpu" or loader.num_workers or loader.prefix or float(seen["cpu_share"]) < COMPUTING:
        return None
    threads = max(1, host.cores - workers)
    is_safe = float(seen["fetch_own"]) >= float(seen["step_cpu"]) * (1 / threads - 1 / host.threads)
    return threads if threads < host.threads and is_safe else None


def edits_of_threads(code: Code, source: Source, threads: int) -> tuple[Edit, ...] | None:
    """Have the script set so many threads when it starts; None where another file builds the loader, or sets some itself.

    source: that of the loader's call. What others import would set the threads of their programs as well.
    """
    own = os.path.realpath(source.path)
    if own != os.path.realpath(code.file):
        return None
    for path in code.survey.facts.digests:
        if path == own or not inside_project(path):
            continue
        try:
            if _CALL in read_text(Path(path))[0]:
                return None
        except (OSError, Unreadable):
            return None
    return set_or_replace_call(source, f"torch.{_CALL}", str(threads))
