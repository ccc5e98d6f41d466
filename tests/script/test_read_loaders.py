"""Which of a script's loaders its updates read, told by the call that builds each."""

from __future__ import annotations

import sys
import types
from typing import Any

from perfaudit.script.read_loaders import ReadLoaders


class Loader:
    def __init__(self, seen: ReadLoaders) -> None:
        self.batches = types.SimpleNamespace()
        self.seen = seen

    def begin(self) -> None:
        self.seen.begin(self, self.batches)

    def read(self) -> None:
        self.seen.last = id(self.batches)


def watched(seen: ReadLoaders) -> Any:
    return type("Watched", (Loader,), {"__init__": seen.watch_building(Loader.__init__)})


def test_a_loader_of_an_evaluation_is_named_and_one_that_is_trained_on_is_not() -> None:
    seen = ReadLoaders()
    build = watched(seen)
    first = build(seen)
    other, line = build(seen), sys._getframe().f_lineno
    first.begin()
    other.begin()  # before the first step, as many scripts do
    other.read()
    assert seen.never_read() == []  # nothing is known yet
    first.read()
    seen.end_update()
    assert seen.never_read() == [(__file__, line, line)]
    assert seen.last_read() is first
    other.read()
    assert seen.last_read() is other


def test_a_loader_without_a_hash_stops_no_script() -> None:
    seen = ReadLoaders()
    kind = watched(seen)
    kind.__hash__ = None
    loader = kind(seen)
    loader.begin()
    loader.read()
    seen.end_update()
    assert seen.never_read() == []
    assert seen.last_read() is None


def test_nothing_is_named_where_a_batch_came_from_somewhere_else() -> None:
    seen = ReadLoaders()
    watched(seen)(seen).begin()
    seen.last = 1
    seen.end_update()
    assert seen.never_read() == []
