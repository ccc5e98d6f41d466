"""Memory that a step frees, kept for the next step: by glibc's own settings, on the CPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from perfaudit.knobs import Bench, Knob, Setup, Survey, Told
from perfaudit.knobs._code import Code, Patch
from perfaudit.measurements import Settings

RETURNED, KEPT = "returned", "kept"  # memory that is free at the end of a step
# Of a page fault, at most: what programs saved for each that their steps no longer had, in benchmarks/kept_memory.md.
SECONDS_PER_FAULT = 2.5e-6
LINES = (
    'if {}()[0] == "glibc":  # what a step frees is kept for the next one: see `man mallopt`',
    "    {}(None).mallopt(-4, 0)  # M_MMAP_MAX: no block of memory is mapped by itself",
    "    {}(None).mallopt(-1, -1)  # M_TRIM_THRESHOLD: none is given back",
)
NAMES = ("platform.libc_ver", "ctypes.CDLL", "ctypes.CDLL")


class Allocator(Knob):
    """By itself glibc gives memory back at the end of a step, and asks for it again in the next (`target.freed_memory`)."""

    name = "allocator"
    title = "memory that a step frees, kept for the next one"
    tries = "Try keeping the memory that a step frees (glibc's mallopt)."
    usual_gain = 0.5  # of the page faults' time
    is_of_process = True
    min_gain = 0.03  # its race takes fresh processes, and time from the others; memory lies elsewhere in each of them
    fixed_batch = False  # loading takes and frees memory, too

    def not_applicable(self, survey: Survey) -> str:
        host = survey.facts.host
        if survey.facts.device.type != "cpu":
            return f"it is about training on the CPU, and this training runs on {survey.facts.device.type}"
        if not host.glibc:
            return "memory does not come from glibc here"
        if host.memory_variable:
            return f"{host.memory_variable} says how glibc keeps memory"
        return "glibc keeps what is freed already" if host.keeps_memory else ""

    def share(self, survey: Survey) -> float:
        """What its page faults take of a step, at most."""
        if survey.page_faults is None or not survey.step_seconds:
            return 1.0
        return min(1.0, SECONDS_PER_FAULT * survey.page_faults / survey.step_seconds)

    def idle_words(self, survey: Survey) -> str:
        return (
            f"a step asks the system for {survey.page_faults or 0:.0f} pages of memory, at most "
            f"{100 * self.share(survey):.1f} % of it, so there is next to nothing to gain"
        )

    def current(self, survey: Survey) -> Settings:
        return {"memory": KEPT if survey.facts.host.keeps_memory else RETURNED}

    def candidates(self, bench: Bench) -> list[Settings]:
        return [{"memory": KEPT}]

    def raced_behind(self, survey: Survey) -> list[Settings]:
        return [{"memory": KEPT}]

    def setup(self, settings: Settings) -> Setup:
        return Setup(applied=lambda training: _keep(settings), fixed_batch=False)

    def patch(self, code: Code, settings: Settings) -> Patch | None:
        from perfaudit.static.process_settings import run_at_start

        source = code.entry()
        if source is None or settings["memory"] != KEPT or "mallopt" in source.text:
            return None
        return code.patch(source, None, run_at_start(source, LINES, *NAMES))

    def words(self, settings: Settings, survey: Survey) -> str:
        if settings["memory"] == RETURNED:
            return "have glibc give memory back to the system"
        return "have glibc keep the memory that a step frees for the next step"

    def remarks(self, told: Told) -> list[str]:
        if told.winner is None:
            return []
        return [
            "the process then holds as much memory until it ends as it ever used at once, its loader workers too",
            "jemalloc or tcmalloc, loaded by LD_PRELOAD, keep memory too, without a line in the source; they are not tried",
        ]


@contextlib.contextmanager
def _keep(settings: Settings) -> Iterator[None]:
    """Where that is the setting, have this process keep memory, also behind this context (`freed_memory.keep_memory`)."""
    from perfaudit.target import freed_memory

    if settings["memory"] == KEPT:
        freed_memory.keep_memory()
    yield


KNOB = Allocator()
