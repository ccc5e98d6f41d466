"""What stays the same from the first measurement of a target to the last, and how Ctrl-C ends that."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from perfaudit.machine.limits import usable_cores
from perfaudit.measure.clock import Clock, Deadline, WallClock
from perfaudit.measure.elsewhere import OpenNodes, no_nodes
from perfaudit.measure.watch import Watch
from perfaudit.target.names import Target
from perfaudit.tune.questions import Questions
from perfaudit.tune.recording import Record
from perfaudit.tune.workshop import Children

INTERRUPTED = "interrupted; what was measured until then is in this report"


@dataclass(frozen=True)
class Session:
    """One session of a run, which has several where it was resumed: what builds and keeps and watches, and what limits hold.

    timeout: seconds that loading or one step may take. memory_limit: bytes that the peak of a step with a patch may have; None
    where nobody said. memory_budget: the same, a share of what is free where nobody said; 0 where no patch is held to it.
    skips_idle: leave out knobs whose part of the step is too small to gain anything; those asked for are searched. digests:
    SHA-256 of the project's files by path, when it began. nodes: opens those that measure generations of the patched source;
    sent: how many they have measured, and who they are, race by race; refusals: why there were none. own_ends: errors by which
    the script ends, whatever is in place (see `tune.own_end`).
    """

    target: Target
    workshop: Children
    watch: Watch
    clock: Clock = field(default_factory=WallClock)
    record: Record = field(default_factory=Record)
    timeout: float = 120.0
    memory_limit: int | None = None
    memory_budget: int = 0
    skips_idle: bool = False
    cores: int = field(default_factory=usable_cores)
    digests: Mapping[str, str] = field(default_factory=dict)
    nodes: OpenNodes = no_nodes
    sent: list[tuple[int, str]] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    own_ends: set[str] = field(default_factory=set)

    @cached_property
    def questions(self) -> Questions:
        """Those to processes of their own; all stages share one, because it keeps answers."""
        return Questions(self.workshop, self.record, self.timeout)

    def deadline(self, seconds: float) -> Deadline:
        """A deadline on this session's clock."""
        return Deadline(seconds, self.clock)


@contextlib.contextmanager
def interruptible() -> Iterator[list[bool]]:
    """Ctrl-C, TERM and HUP inside end the block early and are remembered in the list it gives: [True] if it happened."""
    happened, numbers = [False], (signal.SIGTERM, signal.SIGHUP)
    previous = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
    try:
        yield happened
    except KeyboardInterrupt:
        happened[0] = True
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
