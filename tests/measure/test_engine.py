"""How long a race in a child is waited for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from perfaudit.measure.child_subject import HANGING
from perfaudit.measure.engine import STEPS_OF_ONE, ChildEngine


class Child:
    """One that answers at once. waited: how long it was given for each answer."""

    def __init__(self) -> None:
        self.waited: list[float] = []

    def ask(self, command: dict[str, Any], timeout: float, progress: Callable[[], object] = lambda: None) -> Any:
        self.waited.append(timeout)
        return {}

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("longest", "screening", "racing"),
    [
        (None, STEPS_OF_ONE * 240.0, 240.0 + HANGING),  # the limit of a step is all there is
        (1000.0, STEPS_OF_ONE * 240.0, 240.0 + HANGING),
        (75.0, 75.0, 75.0 + HANGING),  # whoever asks has less time than that
    ],
)
def test_a_race_is_waited_for_no_longer_than_who_asks_has_time(
    longest: float | None, screening: float, racing: float
) -> None:
    child = Child()
    engine = ChildEngine(child, timeout=240.0)
    if longest is not None:
        engine.longest = longest
    engine.screen([], None, 7)
    engine.race(1.0, 0.0)
    engine.close()
    assert child.waited == [screening, racing]
