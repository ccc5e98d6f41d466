"""What SIGTERM and SIGINT do to a gate: they end the measuring, and wait for what tidies up and tells."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from dataclasses import dataclass

ENDING = (signal.SIGTERM, signal.SIGINT)


@dataclass(slots=True)
class _Ending:
    """What has come so far. held: whether the first signal waits; waiting: whether one does."""

    came: int = 0
    held: bool = False
    waiting: bool = False

    def end(self, number: int, frame: object) -> None:
        self.came += 1
        if self.came == 1 and self.held:
            self.waiting = True
        elif self.came != 2:
            raise KeyboardInterrupt


_ending: _Ending | None = None  # inside `ended_by_signals`


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM ends what runs inside as Ctrl-C does; from `hold_back` on it waits until all inside has ended.

    The second signal does not count, so that tidying up is not cut: CI sends SIGINT and, seconds later, SIGTERM. The third
    one does, for somebody who waits at a terminal.
    """
    global _ending
    _ending = ending = _Ending()
    before = {number: signal.signal(number, ending.end) for number in ENDING}
    try:
        yield
        if ending.waiting:
            raise KeyboardInterrupt
    finally:
        _ending = None
        for number, handler in before.items():
            signal.signal(number, handler)


def hold_back() -> None:
    """From here on nothing is left but removing and telling: signals wait for the end of `ended_by_signals`, if inside it."""
    if _ending is not None:
        _ending.held = True
