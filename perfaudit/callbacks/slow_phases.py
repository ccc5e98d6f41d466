"""What to warn of: phases of a step that take more than a limit, each with the rule that says why. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from perfaudit.runs import PHASE_WORDS

DATA_WAIT = 0.2  # of a step; in `perfaudit run` a step of which a third is waiting is limited by data
HOST_READS = 0.1  # of a step; a read of what is there takes some microseconds
FEWEST = 20  # steps that were timed, before anything is said: workers start in the first ones
DEVICE_BEHIND = (
    0.5  # of the updates, at whose end the device has not done the one before: then the host may wait for free
)

NO_WORKERS, SLOW_WORKERS, READS = "PA101", "PA901", "PA601"


class PerfauditWarning(UserWarning):
    """A phase of the training takes more of a step than it should."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Shares of a step above which there is a warning. Raises ValueError for what is no share."""

    data_wait: float = DATA_WAIT
    host_reads: float = HOST_READS

    def __post_init__(self) -> None:
        for name in ("data_wait", "host_reads"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name}={getattr(self, name)}: a share of a step lies between 0 and 1")


def exceeds(phases: Mapping[str, float], limits: Limits) -> bool:
    """Whether a phase takes more than its limit."""
    waits, reads = phases.get("data_wait", 0.0), phases.get("host_reads", 0.0)
    return waits > limits.data_wait or reads > limits.host_reads


def slow_phases(
    phases: Mapping[str, float], steps: int, limits: Limits, workers: int | None, behind: float = 0.0
) -> Iterator[tuple[str, str]]:
    """The rule of each phase that takes more than its limit, and what to say of it.

    phases: share of a step by name. steps: of how many. workers: of the loader, None where that is not known. behind: share of
    the updates that the device was behind.
    """
    if steps < FEWEST:
        return
    if phases.get("data_wait", 0.0) > limits.data_wait and behind < DEVICE_BEHIND:
        rule = NO_WORKERS if workers == 0 else SLOW_WORKERS
        loader = {None: "", 0: "; the loader has no workers"}.get(workers, f"; the loader has {workers} workers")
        yield rule, _words(rule, "data_wait", phases, limits.data_wait, steps, loader)
    if phases.get("host_reads", 0.0) > limits.host_reads:
        yield READS, _words(READS, "host_reads", phases, limits.host_reads, steps, "")


def _words(rule: str, phase: str, phases: Mapping[str, float], limit: float, steps: int, more: str) -> str:
    return (
        f"{rule}: {PHASE_WORDS[phase]} takes {100 * phases[phase]:.0f} % of a step (limit {100 * limit:.0f} %, "
        f"{steps} steps timed){more}. `perfaudit explain {rule}` says why it costs and what helps."
    )
