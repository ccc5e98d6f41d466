"""What a long measurement tells while it runs. The command line draws it; tests and the API take the silent one."""

from __future__ import annotations

from perfaudit.measurements import Settings


class Watch:
    """Says nothing. A subclass shows stages, trials and blocks as they happen."""

    def stage(self, title: str) -> None:
        """A new part of the work begins."""

    def opening(self, settings: Settings) -> None:
        """A process with this variant is being started."""

    def block(self, settings: Settings, seconds_per_step: float) -> None:
        """One more block of this variant was timed."""

    def note(self, text: str) -> None:
        """Something worth a line."""
