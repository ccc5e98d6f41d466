"""How many trainings fit side by side."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from perfaudit.tune.shares import LARGEST_RACE, at_once


@pytest.mark.parametrize(
    ("free", "peak", "fit"),
    [
        (1000, 100, 8),  # of four fifths of what is free
        (1000, 900, 2),  # two are needed to compare anything
        (1000, None, LARGEST_RACE),
    ],
)
def test_how_many_fit(free: int, peak: int | None, fit: int) -> None:
    tuning: Any = SimpleNamespace(facts={"device_free": free})
    assert at_once(tuning, peak) == fit
