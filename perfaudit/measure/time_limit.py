"""A moment behind which nobody waits for a child any longer, whatever that is doing. Deadlines end work between two questions;
this ends it inside one."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator


class TimeOver(BaseException):
    """All time for measuring is over. No Exception: whoever catches those of a child goes on to the next question."""


_ends = [math.inf]  # of this process, the innermost last


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[list[bool]]:
    """Inside, waiting for a child ends after so many seconds, and with it the block; [True] if that happened."""
    happened = [False]
    _ends.append(min(_ends[-1], time.monotonic() + seconds))
    try:
        yield happened
    except TimeOver:
        happened[0] = True
    finally:
        _ends.pop()


def seconds_left() -> float:
    """Until that moment; infinity where there is none. Raises TimeOver behind it."""
    left = _ends[-1] - time.monotonic()
    if left <= 0:
        raise TimeOver
    return left
