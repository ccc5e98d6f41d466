"""What a long measurement tells while it runs. The command line draws it; tests and the API take the silent one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Standing:
    """How a candidate of a race stands: its seconds per step over those of the code as it is, so far.

    name: short ("num_workers=2"). ratio: None before there is one; low, high: None before there is an interval. left: why it is
    no longer raced, "" while it is. is_control: it is identical code.
    """

    name: str
    quads: int
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    left: str = ""
    is_control: bool = False


class Watch:
    """Says nothing. A subclass shows stages, trials and blocks as they happen."""

    def stage(self, title: str) -> None:
        """A new part of the work begins."""

    def opening(self, name: str) -> None:
        """A process with the variant of this name is being started."""

    def block(self, name: str, seconds_per_step: float) -> None:
        """One more block of the variant of this name was timed."""

    def note(self, text: str) -> None:
        """Something worth a line."""

    def standings(self, rows: Sequence[Standing]) -> None:
        """The race goes on, and stands like this; told every second or so."""
