"""Which of a script's loaders its updates read, told by the call that builds each."""

from __future__ import annotations

import sys
import sysconfig
import types
from pathlib import Path
from typing import Any

import pytest

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


def built_by_a_library(kind: Any, *given: Any) -> Any:
    """A loader that a library builds, as `Accelerator.prepare` does: no call of the script's has its arguments."""
    library = str(Path(sysconfig.get_path("purelib"), "library", "loaders.py"))
    made: dict[str, Any] = {}
    exec(compile("def make(kind, *given):\n    return kind(*given)", library, "exec"), made)
    return made["make"](kind, *given)


@pytest.mark.parametrize(("shares", "is_known"), [("sampler", True), ("data set", False), ("nothing", False)])
def test_a_loader_that_a_library_has_built_of_the_scripts(shares: str, is_known: bool) -> None:
    seen = ReadLoaders()
    kind = watched(seen)
    rows, batches = [1, 2], object()

    def with_parts(loader: Any, dataset: object, sampler: object) -> Any:
        loader.dataset, loader.batch_sampler = dataset, sampler
        return loader

    class Parts(kind):  # type: ignore[misc]  # built above
        dataset: object = rows
        batch_sampler: object = batches if shares == "sampler" else None
        batch_size = 4

    train = with_parts(kind(seen), rows if shares != "nothing" else [3], batches)
    evaluation, line = with_parts(kind(seen), [3], object()), sys._getframe().f_lineno
    prepared = built_by_a_library(Parts, seen)
    prepared.begin()
    prepared.read()
    seen.end_update()
    assert (seen.never_read() == [(__file__, line, line)]) is is_known
    assert train and evaluation
