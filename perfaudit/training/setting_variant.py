"""A setting put into a running training and taken back: switches of torch, and what the training itself can be told."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class SettingVariant:
    """What holds inside a context; `make` gives a new one each time, which takes back all it has done when it is left.

    trying: what the first step with it is made in, see `Knob.tried_within`.
    """

    make: Callable[[], contextlib.AbstractContextManager[None]]
    trying: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
    _inside: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def enter(self) -> None:
        """Enter the context."""
        self._inside.enter_context(self.make())

    def leave(self) -> None:
        """Leave it; nothing where it was not entered."""
        self._inside.close()

    def parts_not_run(self, work: Callable[[], object]) -> list[str]:
        """Nothing: a setting holds wherever it is read. `work` runs all the same, so that a step that it breaks shows."""
        with self.trying():
            work()
        return []
