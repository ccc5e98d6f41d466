"""Candidates in two halves: who is in place when, and what pairs of blocks tell of each of them."""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter
from collections.abc import Sequence
from itertools import combinations

import pytest

from perfaudit.measure.halves import SPARE_PAIRS, Halves

EFFECTS = {"a": -0.2, "b": -0.1, "c": 0.0, "d": 0.05, "e": 0.0}


def halves_of(*slots: Sequence[str]) -> Halves:
    return Halves(slots, random.Random(5))


def run(halves: Halves, pairs: int, noise: float = 0.0, both: float = 0.0) -> None:
    """Add pairs of steps with EFFECTS; both: what a and b do to each other where they are in place together."""
    rng = random.Random(7)

    def seconds(half: frozenset[str]) -> float:
        return sum(EFFECTS[key] for key in half) + both * ({"a", "b"} <= half) + rng.gauss(0.0, noise)

    for _ in range(pairs):
        first, second = halves.next_pair(halves.keys)
        halves.add(first, second, seconds(first) - seconds(second))


@pytest.mark.parametrize(("number", "rows"), [(2, 4), (3, 4), (4, 4), (5, 8)])
def test_each_two_are_as_often_in_the_same_block_as_not(number: int, rows: int) -> None:
    keys = "abcde"[:number]
    halves = halves_of(*([key] for key in keys))
    assert halves.rows_of_design(keys) == rows + 1
    pairs = [halves.next_pair(keys) for _ in range(rows + 1)]
    assert all(first | second == {*keys} and not first & second for first, second in pairs)
    pairs.remove(next(pair for pair in pairs if not min(pair, key=len)))  # nothing and everything
    for one, other in combinations(keys, 2):
        assert sum(({one, other} <= first) or ({one, other} <= second) for first, second in pairs) == rows / 2


def test_values_have_the_effects_as_their_means_and_scatter_as_much_as_these() -> None:
    found: dict[str, list[float]] = {key: [] for key in EFFECTS}
    errors = []
    for seed in range(60):
        halves = halves_of(*([key] for key in EFFECTS))
        halves.order = random.Random(seed)
        rng = random.Random(1000 + seed)
        for _ in range(24):
            pair = halves.next_pair(halves.keys)
            first, second = (sum(EFFECTS[key] for key in half) + rng.gauss(0.0, 0.05) for half in pair)
            halves.add(*pair, first - second)
        for key, values in halves.values().items():
            assert len(values) == 24
            found[key].append(statistics.fmean(values))
            errors.append(statistics.stdev(values) / math.sqrt(24))
    for key, effect in EFFECTS.items():
        assert statistics.fmean(found[key]) == pytest.approx(effect, abs=0.006)
        # A pair has two blocks: the variance of an effect is 2 x 0.05² / 24.
        assert statistics.stdev(found[key]) == pytest.approx(0.05 * math.sqrt(2 / 24), rel=0.3)
    assert statistics.fmean(errors) == pytest.approx(0.05 * math.sqrt(2 / 24), rel=0.1)


def test_what_two_do_to_each_other_is_shared_between_them_and_touches_no_other() -> None:
    """Where both gain the same fifth, each gains half of it with half of the others in place, and the sum is that of both."""
    halves = halves_of(*([key] for key in EFFECTS))
    run(halves, 18, both=0.1)
    means = {key: statistics.fmean(values) for key, values in halves.values().items()}
    assert means == pytest.approx({**EFFECTS, "a": -0.15, "b": -0.05})


def test_of_settings_of_one_thing_one_at_a_time_is_in_place_and_all_have_their_turn() -> None:
    halves = halves_of(["a", "b", "d"], ["c"])
    for _ in range(15):
        first, second = halves.next_pair(halves.keys)
        assert len((first | second) & {"a", "b", "d"}) == 1
        halves.add(first, second, sum(EFFECTS[key] for key in first) - sum(EFFECTS[key] for key in second))
    values = halves.values()
    assert Counter({key: len(each) for key, each in values.items()}) == {"a": 5, "b": 5, "d": 5, "c": 15}
    assert {key: statistics.fmean(each) for key, each in values.items()} == pytest.approx(
        {key: EFFECTS[key] for key in values}
    )


def test_who_has_left_is_in_no_further_pair_and_keeps_what_was_seen() -> None:
    halves = halves_of(*([key] for key in EFFECTS))
    run(halves, 16)
    rest = {"a", "c"}
    for _ in range(6):
        first, second = halves.next_pair(rest)
        assert first | second == rest
        halves.add(first, second, sum(EFFECTS[key] for key in first) - sum(EFFECTS[key] for key in second))
    values = halves.values()
    assert (len(values["a"]), len(values["b"])) == (22, 16)
    assert statistics.fmean(values["b"]) == pytest.approx(EFFECTS["b"])


def test_nothing_is_told_from_hardly_more_pairs_than_effects() -> None:
    halves = halves_of(*([key] for key in EFFECTS))
    run(halves, 2 * len(EFFECTS) + SPARE_PAIRS - 1, noise=0.05)
    assert set(map(len, halves.values().values())) == {0}
    run(halves, 1, noise=0.05)
    assert set(map(len, halves.values().values())) == {2 * len(EFFECTS) + SPARE_PAIRS}


def test_a_disturbed_step_is_in_the_effect_of_no_candidate() -> None:
    """Each ninth pair has a step that took four times as long; trimming its value afterwards would leave it in all effects."""
    halves = halves_of(*([key] for key in EFFECTS))
    rng = random.Random(3)
    for number in range(36):
        first, second = halves.next_pair(halves.keys)
        log_ratio = sum(EFFECTS[key] for key in first) - sum(EFFECTS[key] for key in second) + rng.gauss(0.0, 0.002)
        halves.add(first, second, log_ratio + math.log(4) * (number % 9 == 4))
    values = halves.values()
    assert {len(each) for each in values.values()} == {36}  # the disturbed ones keep theirs, far out
    assert {key: statistics.median(each) for key, each in values.items()} == pytest.approx(EFFECTS, abs=0.003)
    assert halves.freedom == 32 - len(EFFECTS)


def test_nothing_is_told_while_too_few_pairs_are_undisturbed() -> None:
    halves = halves_of(["a"], ["b"], ["c"])
    run(halves, 2 * 3 + SPARE_PAIRS, noise=0.001)
    assert all(halves.values().values())
    first, second, log_ratio = halves.pairs[-1]
    halves.pairs[-1] = (first, second, log_ratio + 2.0)
    fresh = Halves(halves.slots, random.Random(5), [*halves.pairs])
    assert not any(fresh.values().values())


def test_what_was_told_stays_where_later_pairs_leave_too_few_undisturbed_ones() -> None:
    """Twelve pairs are just enough for four candidates; with the next one, which is disturbed, two of thirteen lie far out."""
    halves = halves_of(*([key] for key in "abcd"))
    rng = random.Random(1)

    def add(disturbance: float = 0.0) -> None:
        first, second = halves.next_pair(halves.keys)
        effect = sum(EFFECTS[key] for key in first) - sum(EFFECTS[key] for key in second)
        halves.add(first, second, effect + rng.gauss(0.0, 0.01) + disturbance)

    for _ in range(12):
        add()
    before = halves.values()
    assert {len(each) for each in before.values()} == {12}
    add(1.0)
    assert (halves.values(), halves.freedom, halves.pairs_left_out) == (before, 12 - 4, 1)
    for _ in range(7):
        add()
    assert {len(each) for each in halves.values().values()} == {20}
    assert (halves.freedom, halves.pairs_left_out) == (19 - 4, 0)


def test_the_last_few_of_many_pairs_wait_for_others_or_for_the_end() -> None:
    """Each fit takes longer the more pairs there are, and no step runs meanwhile."""
    halves = halves_of(["a"], ["b"])
    run(halves, 512, noise=0.05)
    before = halves.values()
    run(halves, 4, noise=0.05)
    assert (halves.values(), halves.pairs_left_out) == (before, 0)
    halves.fit_to_all()
    assert {len(each) for each in halves.values().values()} == {516}


def test_a_row_that_was_lost_leaves_the_effects_as_they_are() -> None:
    """A step raised in one of the blocks, so that the rows are no whole design."""
    halves = halves_of(*([key] for key in EFFECTS))
    halves.next_pair(halves.keys)
    run(halves, 15)
    means = {key: statistics.fmean(values) for key, values in halves.values().items()}
    assert means == pytest.approx(EFFECTS)
