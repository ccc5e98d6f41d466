"""Drifts, changes of level, stored times and counters of other work, where the answer is known on paper."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from perfaudit.decoding import Damaged, Value
from perfaudit.gate.change_points import _best_split, _rows, change_points
from perfaudit.gate.comparable import Seconds, cpu_model
from perfaudit.gate.counters_compared import compare_counters
from perfaudit.gate.drift import drift_direction, drifts, largest
from perfaudit.gate.series import Point, Series
from perfaudit.gate.target_counters import Counted

A, B, C, D = (letter * 40 for letter in "abcd")


def link(run: int, before: str, after: str, value: float, low: float | None, high: float | None) -> Point:
    return Point(run, "", after, before, value, low, high)


@pytest.mark.parametrize(
    ("low", "high"),
    [(0.0, 1.1), (-0.1, 1.1), (None, 1.1), (0.9, None)],
    ids=["zero", "below zero", "no low", "no high"],
)
def test_a_gate_without_an_interval_is_left_out_and_ends_nothing(low: float | None, high: float | None) -> None:
    points = (link(1, A, B, 2.0, 2.0, 2.0), link(2, A, C, 9.0, low, high), link(3, B, D, 2.0, 2.0, 2.0))
    (drift,) = drifts([Series("ratio", "time", "t.py", points=points)])
    assert (drift.metric, drift.layer, drift.target) == ("drift", "time", "t.py")
    assert [(p.run, p.n) for p in drift.points] == [(1, 1), (3, 2)]
    assert [p.value for p in drift.points] == pytest.approx([2.0, 4.0])
    assert [p.low for p in drift.points] == pytest.approx([2.0, 4.0])
    assert [p.high for p in drift.points] == pytest.approx([2.0, 4.0])


def test_errors_add_up_by_their_squares() -> None:
    """Halves of a factor of e ** 0.3 and e ** 0.4 make one of e ** 0.5; upwards 0.05 and 0.12 make 0.13."""
    first = link(1, A, B, 1.0, math.exp(-0.3), math.exp(0.05))
    second = link(2, B, C, 2.0, 2 * math.exp(-0.4), 2 * math.exp(0.12))
    (drift,) = drifts([Series("ratio", "time", "t.py", points=(first, second))])
    last = drift.points[-1]
    assert [last.value, last.low, last.high] == pytest.approx([2.0, 2 * math.exp(-0.5), 2 * math.exp(0.13)])


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [(1.01, 2.0, ""), (1.0101, 2.0, "slower"), (0.5, 0.99, ""), (0.5, 0.9899, "faster"), (None, None, "")],
)
def test_a_drift_is_called_beyond_what_is_tolerated(low: float | None, high: float | None, said: str) -> None:
    assert drift_direction(Series("drift", "time", "t.py", points=(link(1, A, B, 1.0, low, high),))) == said


def test_what_did_most_is_of_the_same_target_and_chain() -> None:
    mine = Series("ratio", "time", "t.py", points=(link(1, A, B, 1.1, 1.09, 1.11), link(2, B, C, 1.2, 1.19, 1.21)))
    other = Series("ratio", "time", "u.py", points=(link(1, A, B, 5.0, 4.9, 5.1),))
    elsewhere = Series("ratio", "time", "t.py", points=(link(3, D, A, 7.0, 6.9, 7.1),))
    (drift,) = drifts([mine])
    assert largest(drift, [other, elsewhere, mine]).value == 1.2


def test_how_rarely_chance_does_as_well() -> None:
    """Two and two of a kind lie apart in 2 of 6 orders; one of two such parts in 5 of 9; four and four in 2 of 70."""
    values = [0.0, 0.0, 1.0, 1.0, 10.0, 10.0, 11.0, 11.0]
    found = change_points(values, level=1.0, minimum=2, permutations=999)
    assert [(change.index, change.before, change.after) for change in found] == [(2, 0, 1), (4, 1, 10), (6, 10, 11)]
    assert [change.p for change in found] == pytest.approx([1 / 3, 2 / 70, 5 / 9], abs=0.05)


def test_four_levels() -> None:
    """The part that is split gives way to its two parts, and the one beside it stays."""
    values = [level + 0.001 * (i % 3) for level in (1.0, 1.2, 2.0, 2.1) for i in range(12)]
    assert [change.index for change in change_points(values, permutations=99)] == [12, 24, 36]


def test_a_change_as_rare_as_the_level_stands() -> None:
    values = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 9.0, 9.1, 9.2, 9.3, 9.4, 9.5, 9.6, 9.7]
    assert [change.p for change in change_points(values, level=1 / 500)] == [1 / 500]


def test_of_equal_splits_the_first_counts() -> None:
    assert _best_split(_rows([5.0] * 6), 2) == (0.0, 2)


@pytest.mark.parametrize(
    ("low", "median", "high"), [(0.1, 0.2, math.inf), (0.0, 0.2, 0.3), (0.2, 0.1, 0.3), (0.1, 0.3, 0.2), (True, 1, 1)]
)
def test_what_are_no_times(low: float, median: float, high: float) -> None:
    with pytest.raises(Damaged, match=r"low|high"):
        Seconds.from_json(Value({"low": low, "median": median, "high": high, "n": 4}))


def test_the_processor_is_that_of_this_machine() -> None:
    assert cpu_model() == cpu_model(Path("/proc/cpuinfo"))


@pytest.mark.parametrize("name", ["flops", "bytes_allocated", "peak_live_bytes", "bytes_to_device"])
@pytest.mark.parametrize(
    ("samples", "value", "verdict"),
    [
        (64, 2000, "not of the same work"),  # twice as much for twice as many
        (64, 1000, "pass"),
        (64, 999, "improved"),  # less for more
        (16, 1001, "regressed"),  # more for fewer
        (16, 1000, "not of the same work"),
        (32, 1001, "regressed"),
        (32, 999, "improved"),
    ],
)
def test_what_grows_with_the_samples(name: str, samples: int, value: int, verdict: str) -> None:
    def state(**values: int) -> Counted:
        return Counted(values=values, by_name={}, places={}, device="cpu", torch="2.13.0", dtype="float32")

    found = compare_counters("t.py", state(samples=32, **{name: 1000}), state(samples=samples, **{name: value}), {})
    if verdict == "not of the same work":
        words = f"32 samples a step before and {samples} now: 1,000 and {value:,} are not of the same work"
        assert (found.verdict, found.set_aside[name]) == ("not_judged", words)
    else:
        assert (found.verdict, name in found.set_aside) == (verdict, False)
        assert [(c.counter, c.before, c.after) for c in found.changes] == (
            [(name, 1000, value)] if value != 1000 else []
        )
