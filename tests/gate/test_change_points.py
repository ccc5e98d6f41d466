"""E-divisive means: cases known on paper, its level on noise, steps, drifts, outliers, and what it costs."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from perfaudit.gate.change_points import (
    MINIMUM,
    ChangePoint,
    _best_split,
    _rows,
    change_points,
    exact_changes,
)

STEP = [41.0, 41.3, 41.1, 40.9, 41.2, 41.1, 41.0, 41.2, 43.9, 44.1, 43.8, 44.0, 43.9, 44.2, 43.7, 44.0]


def noise(count: int, seed: int, spread: float = 0.01) -> list[float]:
    chance = random.Random(seed)
    return [chance.gauss(1.0, spread) for _ in range(count)]


@pytest.mark.parametrize(
    ("values", "statistic", "split"),
    [
        ([0.0, 0.0, 1.0, 1.0], 2.0, 2),  # 2·2/4 · (2·1 − 0 − 0)
        ([0.0, 0.0, 0.0, 1.0, 1.0, 1.0], 3.0, 3),  # 3·3/6 · 2
        ([0.0, 0.0, 0.0, 0.0, 3.0, 3.0], 8.0, 4),  # 4·2/6 · 2·3
        ([0.0, 2.0, 5.0, 7.0], 6.0, 2),  # across 5, 7, 3, 5; within 2 and 2: 1 · (2·5 − 2 − 2)
        ([5.0, 5.0, 5.0, 5.0], 0.0, 2),
    ],
)
def test_the_statistic_on_paper(values: list[float], statistic: float, split: int) -> None:
    found, at = _best_split(_rows(values), 2)
    assert found == pytest.approx(statistic)
    assert at == split


def slow_statistic(values: list[float], m: int) -> float:
    """The statistic from its definition: mean distances over all pairs."""
    left, right = values[:m], values[m:]

    def mean(pairs: list[tuple[float, float]]) -> float:
        return sum(abs(x - y) for x, y in pairs) / len(pairs)

    across = mean([(x, y) for x in left for y in right])
    within = [mean([(x, y) for i, x in enumerate(part) for y in part[:i]]) for part in (left, right)]
    return len(left) * len(right) / len(values) * (2 * across - sum(within))


@pytest.mark.parametrize("seed", range(5))
def test_the_quick_scan_is_the_definition(seed: int) -> None:
    values = [round(value, 2) for value in noise(23, seed)]  # rounded: there are equal values among them
    statistic, split = _best_split(_rows(values), 3)
    by_definition = {m: slow_statistic(values, m) for m in range(3, 21)}
    assert statistic == pytest.approx(max(by_definition.values()))
    assert by_definition[split] == pytest.approx(statistic)


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 9.0], [1.0, 1.0, 9.0], [1.0, 1.0, 1.0, 9.0, 9.0, 9.0, 9.0]])
def test_too_few_points(values: list[float]) -> None:
    assert change_points(values) == []


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, -3.7, 1e300])
def test_equal_values(value: float) -> None:
    assert change_points([value] * 50) == []


def test_a_step() -> None:
    (change,) = change_points(STEP)
    assert (change.index, change.p) == (8, 1 / 500)
    assert (change.before, change.after) == pytest.approx((41.1, 43.95))
    assert change.change == pytest.approx(43.95 / 41.1 - 1)
    assert change_points(STEP) == [change]  # the same series, the same answer


def test_up_and_down_again() -> None:
    values = noise(20, 1) + [value * 1.1 for value in noise(20, 2)] + noise(20, 3)
    assert [change.index for change in change_points(values)] == [20, 40]


def test_a_slow_drift() -> None:
    values = [value * 1.003**commit for commit, value in enumerate(noise(40, 4))]
    changes = change_points(values)
    assert changes
    assert all(change.after > change.before for change in changes)


@pytest.mark.parametrize("at", [0, 7, 20, 39])
def test_one_outlier_is_no_change(at: int) -> None:
    values = noise(40, 5)
    values[at] = 3.0
    assert change_points(values) == []


def test_changes_are_found_beside_outliers() -> None:
    values = noise(20, 6) + [value * 1.05 for value in noise(20, 7)]
    values[5] = values[30] = 1.2
    assert [change.index for change in change_points(values)] == [20]


def test_each_side_has_so_many_points_at_least() -> None:
    values = [1.0] * 20 + [2.0] * (MINIMUM - 1)
    assert all(change.index <= len(values) - MINIMUM for change in change_points(values))
    assert [change.index for change in change_points([*values, 2.0])] == [20]


@pytest.mark.parametrize("draw", ["normal", "heavy", "few values"])
def test_the_level_on_noise(draw: str) -> None:
    """At a level of 5 %, 300 series without any change: 15 expected, and more than 26 in 2 of 1000 such tests only."""
    chance = random.Random(17)
    kinds: dict[str, Callable[[], float]] = {
        "normal": lambda: chance.gauss(1.0, 0.01),
        "heavy": lambda: 1 / max(chance.random(), 1e-6),
        "few values": lambda: float(chance.randrange(3)),
    }
    called = sum(
        bool(change_points([kinds[draw]() for _ in range(24)], level=0.05, permutations=99)) for _ in range(300)
    )
    assert called <= 26
    if draw == "normal":
        assert called >= 4  # fewer in 1 of 1000: a test that never calls would be of another level


def test_a_scan_costs_lines_in_proportion_to_its_points() -> None:
    lines: list[int] = []
    for count in (200, 400, 800):
        rows = _rows(noise(count, 8))
        executed = 0

        def trace(frame: FrameType, event: str, argument: Any) -> Any:  # Any: as sys.settrace has it
            nonlocal executed
            executed += event == "line"
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            _best_split(rows, MINIMUM)
        finally:
            sys.settrace(before)
        lines.append(executed)
    assert lines[2] < 2.1 * lines[1] < 4.5 * lines[0]


def test_noise_is_given_up_early(monkeypatch: pytest.MonkeyPatch) -> None:
    from perfaudit.gate import change_points as module

    scans = 0

    def counted(rows: Any, minimum: int) -> tuple[float, int]:
        nonlocal scans
        scans += 1
        return _best_split(rows, minimum)

    monkeypatch.setattr(module, "_best_split", counted)
    assert change_points(noise(100, 9)) == []
    assert 1 < scans < 200


@pytest.mark.parametrize(
    ("values", "changes"),
    [
        ([], []),
        ([3], []),
        ([3, 3, 3], []),
        ([3, 3, 4], [ChangePoint(2, 3, 4)]),
        ([3, 4, 4, 3], [ChangePoint(1, 3, 4), ChangePoint(3, 4, 3)]),
        ([0, 2], [ChangePoint(1, 0, 2)]),
    ],
)
def test_exact_values_need_no_test(values: list[float], changes: list[ChangePoint]) -> None:
    assert exact_changes(values) == changes


def test_no_share_of_nothing() -> None:
    assert ChangePoint(1, 0, 2).change is None
    assert ChangePoint(1, 4, 5).change == 0.25
