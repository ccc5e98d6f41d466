"""Time that runs out, and the machine's own clock."""

from __future__ import annotations

import time

from fake_clock import FakeClock

from perfaudit.measure.clock import Deadline, WallClock


def test_what_is_left_of_a_deadline(clock: FakeClock) -> None:
    clock.sleep(5)
    deadline, seen = Deadline(3, clock), []
    for seconds in (0, 1, 2, 1):
        clock.sleep(seconds)
        seen.append(deadline.seconds_left())
    assert seen == [3, 2, 0, 0]


def test_the_clock_is_the_one_that_only_moves_forward() -> None:
    before = time.monotonic()
    assert before <= WallClock().now() <= time.monotonic()
