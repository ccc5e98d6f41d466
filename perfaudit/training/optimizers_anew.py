"""Optimizers that the calls behind a step's optimizers build once more, for the next epoch, fold or task. Child only."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from typing import Any

from perfaudit.target.provenance import Site

MOST_KEPT = 8  # the last ones: a script that builds one for each task has done with those before

Put = Callable[[Any], object]  # does something to an optimizer


class OptimizersAnew:
    """Those that were built since the first step, the last one last. The script trains on with them."""

    def __init__(self) -> None:
        self._built: list[Any] = []
        self._put: Put | None = None

    def note(self, optimizer: Any, site: Site | None, of_a_step: Collection[Site | None]) -> None:
        """Take an optimizer that was just built. site: of the call; of_a_step: of the calls that built those of a step."""
        if site is None or site not in of_a_step:
            return
        self._built = [*self._built[1 - MOST_KEPT :], optimizer]
        if self._put is not None:
            self._put(optimizer)

    @contextlib.contextmanager
    def each_put(self, put: Put) -> Iterator[None]:
        """Do something to each of them, and inside to each that is built."""
        for optimizer in self._built:
            put(optimizer)
        before, self._put = self._put, put
        try:
            yield
        finally:
            self._put = before
