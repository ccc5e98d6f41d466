"""What both sides of a pair are told to build: the same, but for where the code is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perfaudit.gate.pair_lab import PairLab
from perfaudit.gate.records import Side
from perfaudit.target.names import Target


def told(side: Side, relocated: tuple[str, str] | None) -> dict[str, Any]:
    return PairLab([], Path("base"), "cpu", relocated=relocated)._build(Target("train.py"), side, 7)


def test_both_sides_are_relocated_and_their_memory_scattered() -> None:
    base, head = told("base", ("/head", "/base")), told("head", ("/head", "/base"))
    assert (base.pop("relocated"), head.pop("relocated")) == (["/head", "/base"], ["/head", "/head"])
    assert base == head
    assert base["scattered"] is True
    assert base["seed"] == 7


@pytest.mark.parametrize("side", ["base", "head"])
def test_without_a_reference_elsewhere_nothing_is_relocated(side: Side) -> None:
    assert told(side, None)["relocated"] is None
