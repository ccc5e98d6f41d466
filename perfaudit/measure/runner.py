"""Runs sets of fresh processes, series by series, until each has seen enough. Knows no torch and no process.

A series is one comparison: which variants a set opens and who runs when is its plan, when it is enough is its judge. What was
seen is a record that belongs to its caller. Settings of a knob are raced in `measure.generations`, two versions in `gate.timing`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from perfaudit.measure.journal import Json, Kept

BLOCK_SECONDS = 0.35  # long against a timer tick and a scheduler slice, short against drift of the machine

# How the end of a training is told that came before anything of it was measured.
ENDS_EARLY = "it has ended before a step of it was timed: "

B = TypeVar("B")
B_co = TypeVar("B_co", covariant=True)


class Opened(Protocol[B_co]):
    """A variant that is set up and warm, and stands still but for its blocks."""

    def block(self, steps: int, untimed: int = 1) -> B_co:
        """Run steps that are not timed and time so many; everything else stands still.

        Raises TrialFailed, of which TrialEnded says that the training has no further step.
        """

    def close(self) -> None: ...


class TrialFailed(Exception):
    """A variant that cannot be measured, and why: the message is a result."""


class TrialEnded(TrialFailed):
    """A variant whose training has come to its end, as a short script does: no fault of it, and no further step."""


class TooLarge(Exception):
    """Variants that do not fit into memory beside each other: one is measured after the other. The message says why."""


@dataclass(slots=True)
class Processes(Generic[B]):
    """Those of one set that are still there; use as a context manager.

    record: of the series, whose `failures` say by key why something is measured no more. made: steps by key. ended: whose
    training has come to its end.
    """

    record: Any  # a ledger, or what the gate has in its place
    why: Callable[[TrialFailed], str] = str
    subjects: dict[str, Opened[B]] = field(default_factory=dict)
    made: Counter[str] = field(default_factory=Counter)
    ended: dict[str, TrialEnded] = field(default_factory=dict)

    def __enter__(self) -> Processes[B]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, opened: Mapping[Any, Opened[B] | TrialFailed]) -> None:
        """Take what was opened; the record keeps why something was not."""
        for key, item in opened.items():
            if isinstance(item, TrialFailed):
                self.record.failures[key] = self.why(item)
            else:
                self.subjects[key] = item

    def block(self, key: str, steps: int, untimed: int = 1) -> B | None:
        """A block of a subject; None where it fails, which closes it, or has come to its end, after which no set goes on.

        How many steps there were before the end is kept, so that blocks of the next set can be as short as that asks for.
        """
        made, asked = self.made[key], steps + untimed
        try:
            block = self.subjects[key].block(steps, untimed)
        except TrialEnded as end:
            self.ended[key] = end
            known = self.record.steps_to_end
            is_shorter = known is not None and made + asked <= known  # a larger batch makes fewer steps of an epoch
            self.record.steps_to_end = made if known is None or is_shorter else max(known, made)
            return None
        except TrialFailed as failure:
            self.fail(key, self.why(failure))
            return None
        self.made[key] += asked
        return block

    def blocks(self, keys: Sequence[str], steps: int, untimed: int) -> list[B]:
        """One block of each in this order, as far as all go on."""
        found: list[B] = []
        for key in keys:
            block = self.block(key, steps, untimed)
            if block is None:
                break
            found.append(block)
        return found

    def fail(self, key: str, why: str) -> None:
        """Close a subject, and keep the reason."""
        self.record.failures[key] = why
        self.subjects.pop(key).close()

    def close(self) -> None:
        """End all that are there."""
        for key in list(self.subjects):
            self.subjects.pop(key).close()


class Series(Protocol):
    """One comparison in sets of fresh processes. stage: under which name a memo keeps them."""

    @property
    def stage(self) -> str: ...

    def is_open(self) -> bool:
        """Whether another set is wanted: the judge's word, asked after each."""

    def has_time(self) -> bool:
        """Whether another set would come to something before the deadline."""

    def measure(self) -> None:
        """Open the next set, have it run as planned, keep what was seen, and close it."""

    def recall(self, piece: Any, state: Json) -> None:
        """Know a set that an earlier run has measured."""

    def set_to_keep(self) -> tuple[Any, Json] | None:
        """The last set and the record's state after it, for a memo; None where there is nothing to keep."""


def run(every: Sequence[Series], memo: Kept | None = None) -> None:
    """Run sets of each series in turn, as long as it is open and has time. What earlier runs have measured is recalled instead.

    Whatever interrupts it, processes are closed, and records and memo keep what was measured.
    """
    waiting = deque((series, deque(memo.earlier_sets(series.stage) if memo is not None else ())) for series in every)
    while waiting:
        series, earlier = waiting.popleft()
        if not series.is_open() or not (earlier or series.has_time()):
            continue
        if earlier:
            series.recall(*earlier.popleft())
        else:
            try:
                series.measure()
            finally:
                if memo is not None and (kept := series.set_to_keep()) is not None:
                    memo.keep_set(series.stage, *kept)
        waiting.append((series, earlier))
