"""A training that runs in a child, and variants that are put in place between two of its steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Variant(Protocol):
    """A change that is put in place at a step boundary and taken back at another."""

    def enter(self) -> None:
        """Put it in place."""

    def leave(self) -> None:
        """Put back what was there, also where it was entered only in part."""

    def parts_not_run(self, work: Callable[[], object]) -> list[str]:
        """Names of what `work`, a step that is not timed, does not run of it while it is in place."""
