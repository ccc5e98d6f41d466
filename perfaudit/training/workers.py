"""Loader workers of several trainings in one process: those of the training that is measured run, all others stand still.

A stopped worker keeps its queue as it was, so a training goes on where it stopped, and takes no time from another.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class Workers:
    """The processes that `multiprocessing` has started here, by the training in whose turn they appeared.

    may_stop: of those that are there, which may be stopped; all where it says None.
    """

    turn: str
    may_stop: Callable[[], Container[int] | None] = lambda: None
    _owner: dict[int, str] = field(default_factory=dict)

    def give_turn_to(self, key: str) -> None:
        """Stop the workers of the training that had the turn, and let those of this one go on."""
        if key == self.turn:
            return
        self._look(self.turn)
        self._signal(self.turn, signal.SIGSTOP)
        self.turn = key
        self._signal(key, signal.SIGCONT)

    @contextlib.contextmanager
    def going_on(self, key: str) -> Iterator[None]:
        """Let a training's workers go on without the turn, as while it begins an epoch; those that appear are its own."""
        if key == self.turn:
            yield
            return
        self._look(self.turn)
        self._signal(key, signal.SIGCONT)
        try:
            yield
        finally:
            self._look(key)
            self._signal(key, signal.SIGSTOP)

    def _look(self, key: str) -> None:
        """Know the processes that are there by now; new ones are those of this training."""
        children = [child for child in multiprocessing.active_children() if not _serves_others(child.name)]
        alive = {child.pid for child in children if child.pid is not None}
        if (may := self.may_stop()) is not None:
            alive = {pid for pid in alive if pid in may}
        self._owner = {pid: self._owner.get(pid, key) for pid in alive}

    def close(self) -> None:
        """Let all of them go on: a stopped process does not end when it is asked to."""
        for key in set(self._owner.values()):
            self._signal(key, signal.SIGCONT)

    def _signal(self, key: str, number: signal.Signals) -> None:
        for pid, owner in self._owner.items():
            if owner == key:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)


def _serves_others(name: str) -> bool:
    """Whether a process is a manager's or a pool's, by the names that `multiprocessing` gives: all trainings may need it."""
    return "Manager-" in name or "PoolWorker-" in name
