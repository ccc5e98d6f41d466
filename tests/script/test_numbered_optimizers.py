"""The optimizers of a training, by number, and the calls that built them. No torch."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from perfaudit.script.numbered_optimizers import NO_NUMBER, NumberedOptimizers


class Adam:
    """Anything that can be referred to weakly."""


def test_each_optimizer_keeps_its_number() -> None:
    numbered, first, second = NumberedOptimizers(), Adam(), Adam()
    assert [numbered.number(each) for each in (first, second, first, None)] == [0, 1, 0, NO_NUMBER]
    assert numbered.kinds == ["Adam", "Adam"]
    assert numbered.optimizer(1) is second


def test_one_that_is_built_where_another_was_has_a_number_of_its_own() -> None:
    numbered, found = NumberedOptimizers(), []
    for _ in range(3):
        optimizer = Adam()  # the one before is gone, and may leave its place in memory
        found.append(numbered.number(optimizer))
        del optimizer
    assert found == [0, 1, 2]
    assert numbered.optimizer(0) is None


def watched(numbered: NumberedOptimizers) -> Any:
    return type("Watched", (Adam,), {"__init__": numbered.watch_building(Adam.__init__)})


def test_the_calls_are_those_whose_optimizers_update() -> None:
    numbered = NumberedOptimizers()
    build = watched(numbered)
    first, line = build(), sys._getframe().f_lineno
    second, other = build(), sys._getframe().f_lineno
    assert numbered.calls() == []  # none has updated anything
    numbered.number(first)
    assert numbered.calls() == [(__file__, line, line)]
    numbered.number(second)
    assert sorted(numbered.calls()) == [(__file__, line, line), (__file__, other, other)]


@pytest.mark.parametrize("has_hash", [True, False])
def test_no_call_is_told_where_that_of_one_is_not_known(has_hash: bool, tmp_path: Path) -> None:
    """One that a library builds may be built of what any call in the script says; one without a hash stops no script."""
    numbered = NumberedOptimizers()
    build = watched(numbered)
    numbered.number(build())
    if has_hash:
        code = compile("other = build()", sysconfig.get_path("purelib") + "/library.py", "exec")
        names = {"build": build}
        exec(code, names)
        other: Any = names["other"]
    else:
        build.__hash__ = None
        other = build()
    numbered.number(other)
    assert numbered.calls() == []
