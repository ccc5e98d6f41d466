"""Whoever waits for a child is let go when all time is over, and not before."""

from __future__ import annotations

import math

import pytest

from perfaudit.measure import time_limit as limits
from perfaudit.measure.child import Child
from perfaudit.measure.time_limit import TimeOver, seconds_left, time_limit


def test_a_limit_ends_its_block_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(limits.time, "monotonic", lambda: now[0])
    assert seconds_left() == math.inf
    with time_limit(5.0) as outer:
        with time_limit(50.0) as inner:  # no later than what is around it
            assert seconds_left() == 5.0
            now[0] = 105.0
            seconds_left()
        assert inner == [True]
        with pytest.raises(TimeOver):
            seconds_left()
        now[0] = 104.0
    assert outer == [False]
    assert seconds_left() == math.inf


def test_nobody_waits_for_a_child_behind_it() -> None:
    with time_limit(0.0) as is_over, Child(fresh=True) as child:
        child.ask({"do": "process"}, 60.0)
        raise AssertionError("it did not end")
    assert is_over == [True]
