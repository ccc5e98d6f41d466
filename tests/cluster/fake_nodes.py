"""Nodes that do their work in this process, when they are asked what has come; what goes there and back is pickled."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from perfaudit.measure.elsewhere import Lost, Work


class FakeNodes:
    """lose: numbers of the works whose node is lost. newest: the work that was sent last comes back first."""

    def __init__(self, width: int, lose: tuple[int, ...] = (), newest: bool = False) -> None:
        self.width, self.lose, self.newest = width, lose, newest
        self.most_out = 0
        self.shared: list[str] = []
        self.on_work: Callable[[int], object] = lambda number: None
        self.kind_as_json: dict[str, Any] = {"cores": 2}
        self.words = "fake nodes"
        self._sent = 0
        self._out: dict[int, bytes] = {}

    @property
    def free(self) -> int:
        return self.width - len(self._out)

    def send(self, work: Work) -> int:
        assert self.free
        self._sent += 1
        self._out[self._sent] = pickle.dumps(work)
        self.most_out = max(self.most_out, len(self._out))
        return self._sent

    def next(self) -> tuple[int, Any]:
        number = (max if self.newest else min)(self._out)
        work = pickle.loads(self._out.pop(number))
        self.on_work(number)
        if number in self.lose:
            self.width -= 1
            return number, Lost(f"node {number} was lost")
        return number, pickle.loads(pickle.dumps(work()))

    def share(self, folder: str) -> None:
        self.shared.append(folder)

    def close(self) -> None:
        self._out.clear()
