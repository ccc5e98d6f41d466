"""Ranks of one training told apart by their own time: made-up steps whose cause is known."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from perfaudit.distributed.compare import FEWEST, WARM_UP, Comparison, RankSteps, compare, spread_of_batches

STEP, EXCHANGE = 0.040, 0.004  # seconds


def made(
    own: list[list[float]],
    elements: list[list[float]] | None = None,
    first: tuple[int, ...] = (),
    exchange: float = EXCHANGE,
    computed: list[list[float]] | None = None,
) -> list[RankSteps]:
    """Ranks with these own times, which end each step together; they are in the exchange for as long as the last one.

    computed: of their own times, that in which they compute; none of it.
    """
    busy = computed or [[0.0] * len(row) for row in own]
    ends = [max(column) + exchange for column in zip(*own, strict=True)]
    waited = [[end - mine for end, mine in zip(ends, row, strict=True)] for row in own]
    sizes = elements or [[0.0] * len(ends) for _ in own]
    return [
        RankSteps(
            rank,
            begin,
            ends[begin:],
            waited[rank][begin:],
            [0.0] * (len(ends) - begin),
            sizes[rank][begin:],
            [0.0] * (len(ends) - begin),
            busy[rank][begin:],
        )
        for rank, begin in enumerate(first or (0,) * len(own))
    ]


def noisy(seed: int, ranks: int = 2, steps: int = 60, spread: float = 0.1) -> list[list[float]]:
    """Own times as a shared machine gives them: alike, each a bit longer now and then, some far longer."""
    chance = random.Random(seed)
    return [
        [STEP * (1 + abs(chance.gauss(0, spread)) + (chance.random() < 0.05) * 2) for _ in range(steps)]
        for _ in range(ranks)
    ]


def test_nothing_is_said_of_ranks_that_are_alike() -> None:
    for seed in range(200):
        found = compare(made(noisy(seed, ranks=2 + seed % 3)))
        assert found.stragglers == ()
        assert found.imbalance is not None


def test_a_rank_that_is_late_in_each_step_is_named_with_its_excess() -> None:
    for seed in range(50):
        own = noisy(seed)
        own[1] = [seconds + 0.010 for seconds in own[1]]
        (late,) = compare(made(own)).stragglers
        assert late.rank == 1
        assert late.low < 0.010 < late.high
        assert late.last > 0.75


def test_a_rank_whose_core_may_be_a_slow_one_is_not_named_for_what_it_computes() -> None:
    for seed in range(50):
        own = noisy(seed)
        own[1] = [1.18 * seconds for seconds in own[1]]  # for a whole run, as seen between equal ranks
        assert compare(made(own, computed=own)).stragglers == ()
        own[1] = [1.3 * seconds for seconds in own[1]]  # more than cores differ by: it has more to do
        (late,) = compare(made(own, computed=own)).stragglers
        assert late.rank == 1


def test_a_rank_that_waits_for_something_of_its_own_is_named_however_fast_its_core_is() -> None:
    for seed in range(50):
        computed = noisy(seed)
        computed[1] = [0.95 * seconds for seconds in computed[1]]
        own = [computed[0], [seconds + 0.008 for seconds in computed[1]]]
        (late,) = compare(made(own, computed=computed)).stragglers
        assert (late.rank, late.low < late.seconds < 0.0081) == (1, True)


def test_a_rank_that_sleeps_is_named_however_long_steps_are_for_other_programs() -> None:
    computed = noisy(5)
    ranks = made([computed[0], [seconds + 0.005 for seconds in computed[1]]], computed=computed)
    waits = 0.2  # for a core, in each step of each rank
    busy = [
        replace(each, seconds=[seconds + waits for seconds in each.seconds], queued=[waits] * len(each.seconds))
        for each in ranks
    ]
    assert [late.rank for late in compare(busy).stragglers] == [1]


@pytest.mark.parametrize(("sleep", "named"), [(0.005, 1), (0.0, 0), (0.001, 0)])
def test_a_rank_that_sleeps_is_named_where_the_work_takes_other_times_in_each_step(sleep: float, named: int) -> None:
    """Others use the cores: the same work scatters by more than the sleep, so that the rank is last in few more steps."""
    found, shares = [], []
    for seed in range(100):
        work = noisy(seed, spread=0.2)
        own = [work[0], [seconds + sleep for seconds in work[1]]]
        found.append(compare(made(own, computed=work)).stragglers)
        shares += [late.last for each in found[-1:] for late in each]
    assert sum(len(each) == named for each in found) >= (95 if named else 100)
    assert all(late.rank == 1 and late.low > 0.001 for each in found for late in each)
    assert not named or min(shares) < 0.75


@pytest.mark.parametrize(("faster", "named"), [(0.11, True), (0.3, False)])
def test_a_rank_that_sleeps_is_named_where_its_core_makes_up_for_it_and_not_where_it_has_less_to_do(
    faster: float, named: bool
) -> None:
    """A slower core does not excuse it, as it does not accuse one; a rank that has less to compute has time to sleep."""
    found = []
    for seed in range(50):
        work = noisy(seed, spread=0.02)
        work[1] = [(1 - faster) * seconds for seconds in work[1]]
        found.append(compare(made([work[0], [seconds + 0.004 for seconds in work[1]]], computed=work)).stragglers)
    sleepers = [late for each in found for late in each if late.rank == 1]
    assert len(sleepers) >= 48 if named else not sleepers
    assert all(late.only_idles and late.last < 0.75 and late.low <= 0.0041 for late in sleepers)


def test_a_rank_that_idles_beside_one_with_more_to_do_is_not_named() -> None:
    """Of eight ranks one computes 30 % longer; another one sleeps for 3 ms meanwhile, which costs nobody anything."""
    named = 0
    for seed in range(50):
        chance = random.Random(seed)
        work = [[STEP * (1 + abs(chance.gauss(0, 0.02))) for _ in range(60)] for _ in range(8)]
        work[7] = [1.3 * seconds for seconds in work[7]]
        found = compare(
            made([[seconds + 0.003 * (rank == 0) for seconds in row] for rank, row in enumerate(work)], computed=work)
        )
        assert all(late.rank == 7 for late in found.stragglers)
        named += len(found.stragglers)
    assert named >= 45


def test_nothing_is_said_of_ranks_that_idle_alike() -> None:
    """Each waits for a disk or a print now and then, for other times in each step."""
    for seed in range(200):
        ranks = 2 + seed % 3
        chance, work = random.Random(seed), noisy(seed, ranks=ranks, spread=0.05)
        own = [[seconds + chance.expovariate(1 / 0.004) for seconds in row] for row in work]
        assert compare(made(own, computed=work)).stragglers == ()


def test_a_rank_that_waits_for_threads_of_its_own_may_have_a_slow_core() -> None:
    """The thread that is timed computes for 80 % of a step and waits for others in the rest, both longer on a slow core."""
    for seed in range(50):
        own = noisy(seed, spread=0.02)
        own[1] = [1.14 * seconds for seconds in own[1]]
        ranks = made(own, computed=[[0.8 * seconds for seconds in row] for row in own])
        assert compare([replace(each, has_threads=True) for each in ranks]).stragglers == ()
        own[1] = [1.2 * seconds for seconds in own[1]]  # 37 % more in all: it has more to do
        ranks = made(own, computed=[[0.8 * seconds for seconds in row] for row in own])
        (late,) = compare([replace(each, has_threads=True) for each in ranks]).stragglers
        assert (late.rank, late.only_idles) == (1, False)


def test_a_rank_that_is_late_by_little_hides_no_large_imbalance() -> None:
    found = []
    for seed in range(50):
        chance = random.Random(seed)
        own = [[STEP * chance.choice((1.0, 2.5)) for _ in range(60)] for _ in range(2)]
        computed = [[*row] for row in own]
        own[0] = [seconds + 0.004 for seconds in own[0]]  # it logs
        found.append(compare(made(own, computed=computed)))
    assert sum(each.is_imbalanced for each in found) >= 48
    named = [each for each in found if each.stragglers]  # in the others, which of the two is late is not shown
    assert len(named) >= 25
    assert {late.rank for each in named for late in each.stragglers} == {0}
    assert sum(each.is_imbalanced for each in named) >= len(named) - 1


def slowed(own: list[list[float]], late: dict[int, float]) -> list[list[float]]:
    return [[seconds * late.get(rank, 1.0) for seconds in row] for rank, row in enumerate(own)]


@pytest.mark.parametrize(("ranks", "late"), [(4, (2, 3)), (4, (0, 3)), (8, (4, 5, 6, 7)), (5, (1, 4))])
def test_ranks_that_are_late_together_are_each_named(ranks: int, late: tuple[int, ...]) -> None:
    """As on a slow node. They take turns in coming last, which is no imbalance."""
    for seed in range(20):
        found = compare(made(slowed(noisy(seed, ranks, spread=0.03), dict.fromkeys(late, 1.6))))
        assert tuple(each.rank for each in found.stragglers) == late
        for each in found.stragglers:
            assert 0 < each.low < 0.6 * STEP * 1.2 and each.low < each.high


def test_most_of_the_ranks_are_not_late_beside_the_rest() -> None:
    for seed in range(20):
        own = noisy(seed, 4, spread=0.03)
        assert compare(made(slowed(own, dict.fromkeys((0, 1, 2), 1.6)))).stragglers == ()


@pytest.mark.parametrize("period", [2, 3])
def test_a_rank_that_is_late_now_and_then_is_no_imbalance(period: int) -> None:
    """The others never come last by more than noise, however far its delays are from their mean."""
    for seed in range(50):
        chance = random.Random(seed)
        own = [[STEP * (1 + abs(chance.gauss(0, 0.02))) for _ in range(60)] for _ in range(2)]
        own[1] = [seconds + 0.03 * (step % period == 0) for step, seconds in enumerate(own[1])]
        assert not compare(made(own)).is_imbalanced


def test_a_rank_that_is_hardly_late_is_not_named() -> None:
    own = noisy(1, spread=0.001)
    own[1] = [seconds + 0.02 * STEP for seconds in own[1]]
    assert compare(made(own)).stragglers == ()


@pytest.mark.parametrize(("is_explained", "seed"), [(True, 1), (False, 2)])
def test_loads_that_differ_in_turn_are_an_imbalance_and_batches_explain_it_where_they_do(
    is_explained: bool, seed: int
) -> None:
    chance = random.Random(seed)
    sizes = [[chance.choice((16.0, 64.0)) for _ in range(60)] for _ in range(2)]
    own = [[STEP * size / 40 for size in row] for row in sizes]
    if not is_explained:
        sizes = [[chance.choice((16.0, 64.0)) for _ in range(60)] for _ in range(2)]
    found = compare(made(own, sizes))
    assert (found.is_imbalanced, found.batches_explain, found.stragglers) == (True, is_explained, ())


def test_loads_that_differ_are_told_on_a_busy_machine_too() -> None:
    chance = random.Random(3)
    sizes = [[chance.choice((16.0, 64.0)) for _ in range(60)] for _ in range(2)]
    ranks = made([[STEP * size / 40 for size in row] for row in sizes], sizes)
    calm = compare(ranks)
    waits = 0.1  # for a core, in each step of each rank
    busy = [
        replace(each, seconds=[seconds + waits for seconds in each.seconds], queued=[waits] * len(each.seconds))
        for each in ranks
    ]
    assert compare(busy).is_imbalanced
    assert compare(busy).imbalance == pytest.approx(calm.imbalance)


def test_without_batches_nothing_is_said_of_them() -> None:
    assert compare(made(noisy(3))).batches_explain is None


def test_what_the_last_rank_waits_is_the_communication_that_is_exposed() -> None:
    found = compare(made([[0.036] * 40, [0.030] * 40]))
    assert found.exposed == pytest.approx(0.1)
    assert found.imbalance == pytest.approx(0.003 / 0.040)


def test_only_updates_that_all_ranks_have_made_are_compared() -> None:
    own = [[0.03] * 60, [0.03] * 60]
    assert compare(made(own, first=(0, 20))).updates == 40
    assert compare(made(own)).updates == 60 - WARM_UP


def test_of_few_updates_or_one_rank_nothing_is_said() -> None:
    few = WARM_UP + FEWEST - 1
    assert compare(made([[0.03] * few, [0.09] * few])) == Comparison(FEWEST - 1)
    assert compare(made([[0.03] * 60])) == Comparison()
    assert compare(made([[0.0] * 60, [0.0] * 60], exchange=0.0)) == Comparison(60 - WARM_UP)


def test_the_spread_of_batches_is_the_fullest_over_the_mean_step_by_step() -> None:
    assert spread_of_batches([[10, 30], [30, 10]]) == pytest.approx(1.5)
    assert spread_of_batches([[10, 30], [10, 30]]) == 1.0
    assert spread_of_batches([[0, 0], [0, 0]]) is None
    steps = made([[0.01] * 60, [0.01] * 60], elements=[[10.0] * 60, [30.0] * 60])
    assert compare(steps).batch_spread == pytest.approx(1.5)
