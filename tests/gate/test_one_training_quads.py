"""What quads of one training are worth: batches on paper, verdicts beside a control, and how often identical code is called."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from perfaudit.gate.decision import ALPHA, is_settled, judged_together, time_verdict
from perfaudit.gate.one_training_quads import BATCHES, LOOKS, UNITS, batches, control, differs_from_itself
from perfaudit.gate.records import OneTraining, Pair, TargetRecord


def record(log_ratios: list[float], same: list[float] | None = None, target: str = "t.py") -> TargetRecord:
    control = [0.01 * (-1) ** at for at in range(len(log_ratios))] if same is None else same
    return TargetRecord(target, one=OneTraining(log_ratios, [0.1] * len(log_ratios), control, 1.25), why="swapped")


def around(centre: float, quads: int, width: float = 0.01) -> list[float]:
    return [centre + width * (at % 5 - 2) / 2 for at in range(quads)]


@pytest.mark.parametrize(
    ("quads", "lengths"),
    [
        (0, []),
        (3, [1] * 3),
        (8, [1] * 8),
        (15, [1] * 8),
        (16, [2] * 8),
        (64, [8] * 8),
        (130, [8] * 8),
        (512, [8] * 8),
        (2047, [8] * 8),
    ],
)
def test_batches_are_consecutive_and_alike(quads: int, lengths: list[int]) -> None:
    found = batches([float(at) for at in range(quads)])
    assert [len(batch) for batch in found] == lengths
    flat = [value for batch in found for value in batch]
    assert flat == sorted(flat)
    assert len(flat) <= BATCHES * UNITS


def test_many_quads_count_as_the_medians_of_those_in_a_row() -> None:
    values = [float(at % 2) * 100 + at // 2 for at in range(256)]
    assert batches(values)[0][:2] == [50.5, 52.5]  # of 0, 100, 1, 101 and of 2, 102, 3, 103


def test_all_looks_together_spend_what_pairs_do() -> None:
    assert sum(look.alpha for look in LOOKS) == pytest.approx(ALPHA)
    assert all(look.generations % BATCHES == 0 for look in LOOKS)


@pytest.mark.parametrize(
    ("centre", "verdict"), [(0.08, "regressed"), (0.03, "regressed"), (0.0, "pass"), (-0.08, "improved")]
)
def test_a_ratio_that_is_known(centre: float, verdict: str) -> None:
    seen = record(around(centre, 16))
    found = time_verdict(seen)
    assert (found.verdict, found.ratio) == (verdict, pytest.approx(math.exp(centre), rel=0.005))
    assert found.low < math.exp(centre) < found.high
    assert (found.quads, found.pairs, found.way, found.why_so) == (16, 0, "one training", "swapped")
    assert (found.seconds_before, found.seconds_after) == (0.1, pytest.approx(0.1 * math.exp(centre), rel=0.01))
    assert found.wall_over_cpu == 1.25
    assert is_settled(seen, 0.05, 0.01, 1)


def test_between_looks_nothing_is_settled_that_was_not() -> None:
    assert not is_settled(record(around(0.08, 15)), 0.05, 0.01, 1)
    assert time_verdict(record(around(0.08, 15)), ended=True).verdict == "regressed"


@pytest.mark.parametrize(
    ("quads", "reason"),
    [
        (0, "nothing was measured within the budget, because the first steps in one training took it: raise --budget"),
        (1, "1 comparison in one training is too few for an interval: raise --budget"),
        (5, "5 comparisons in one training are too few for an interval: raise --budget"),
    ],
)
def test_too_little_is_inconclusive(quads: int, reason: str) -> None:
    seen = record(around(0.5, quads))
    seen.one.seconds = [0.05] * quads  # type: ignore[union-attr]  # it was made here
    found = time_verdict(seen, ended=True)
    assert (found.verdict, found.reason, found.way) == ("inconclusive", reason, "one training" if quads else "")
    assert found.why_so == ("swapped" if quads else "")  # of a race that told nothing, nobody asks why it was one
    interrupted = time_verdict(replace(seen, interrupted=True), ended=True)
    assert interrupted.reason.startswith("interrupted")


@pytest.mark.parametrize("centre", [0.0, 0.08, -0.08])
def test_where_identical_code_differs_from_itself_nothing_is_called(centre: float) -> None:
    found = time_verdict(record(around(centre, 32), same=around(0.02, 32)))
    assert found.verdict == "inconclusive"
    assert found.reason.startswith("in one training the same code differed from itself (ratio 1.02")
    assert found.control is not None and found.control[0] > 1


def test_what_the_data_have_settled_is_judged_at_looks_alone() -> None:
    """The quads behind the last look count where time has ended the race, and nowhere else."""
    seen = record(around(0.08, 16), [*around(0.0, 16, 0.001), *around(0.1, 14, 0.001)])
    found = time_verdict(replace(seen, settled=True), ended=True)
    assert (found.verdict, found.control) == ("regressed", time_verdict(seen).control)


def test_without_a_control_that_was_looked_at_nothing_is_called() -> None:
    found = time_verdict(replace(record(around(0.08, 16), around(0.0, 7, 0.001)), settled=True), ended=True)
    assert (found.verdict, found.control) == ("inconclusive", None)
    assert found.reason == "in one training identical code was timed too briefly for an interval"


def test_a_control_that_turns_late_is_seen() -> None:
    """As long as there are looks at the reference there are looks at it."""
    late = [0.02 if at >= 256 else 0.0 for at in range(1024)]
    same = [value + noise for value, noise in zip(late, around(0.0, 1024), strict=True)]
    assert differs_from_itself(OneTraining(control=same[:256]), False) == ""
    assert "differed from itself" in differs_from_itself(OneTraining(control=same), False)


def test_the_control_is_judged_at_its_looks_and_at_the_end() -> None:
    one = OneTraining(control=around(0.03, 7, 0.001))
    assert (control(one, False), differs_from_itself(one, False)) == (None, "")
    assert "differed from itself" in differs_from_itself(one, True)
    assert differs_from_itself(OneTraining(control=around(0.0, 40)), True) == ""


def test_targets_of_both_ways_are_corrected_together() -> None:
    """The first of two is tested at half of the error, whichever way the other is measured."""
    one = replace(record(around(0.02, 16, 0.004)), settled=True)
    pairs = TargetRecord("u.py", pairs=[Pair("base", 0)])
    alone, together = time_verdict(one), judged_together([one, pairs])
    assert alone.verdict == "regressed"
    assert together[0].low < alone.low
    assert [found.way for found in together] == ["one training", ""]


def test_why_pairs_were_measured_is_told_and_not_beside_a_failure() -> None:
    pairs = TargetRecord("t.py", why="data.csv differs, and is no Python")
    assert (time_verdict(pairs).why_so, time_verdict(pairs).way) == ("data.csv differs, and is no Python", "")
    assert time_verdict(replace(pairs, failures={"head": "no"})).why_so == ""


@pytest.mark.parametrize("alike", [0.0, 0.5])
def test_identical_code_is_hardly_ever_called_slower(alike: float) -> None:
    """Neighbours that resemble each other, and hiccups, at a slowdown of just what is tolerated: the hardest there is."""
    rng = random.Random(13)
    wrong = 0
    for _ in range(200):
        mood, values = 0.0, []
        for _ in range(128):
            mood = alike * mood + math.sqrt(1 - alike**2) * rng.gauss(0, 0.02)
            hiccup = rng.choice([-0.5, 0.5]) if rng.random() < 0.03 else 0.0
            values.append(math.log1p(0.01) + mood + rng.gauss(0, 0.03) + hiccup)
        wrong += time_verdict(record(values)).verdict == "regressed"
    assert wrong <= 8  # 2 are expected at most; more than 8 come once in 4000 times
