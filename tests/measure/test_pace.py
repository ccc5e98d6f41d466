"""How long blocks are beside each other, on paper."""

from __future__ import annotations

import pytest

from perfaudit.measure.pace import PLAIN, Pace, balance_paces, pace_of, steps_of_quad

LOADER = Pace(6, skipped=2, warm_up=6)
ROUNDS = Pace(2, skipped=2, warm_up=6)  # whole rounds of two workers


@pytest.mark.parametrize(
    ("paces", "blocks"),
    [
        ({"base": PLAIN, "a": PLAIN, "b": PLAIN}, (1, 1, 1)),  # longer ones tell no more
        ({"base": Pace(5), "a": Pace(5)}, (5, 5)),
        ({"base": PLAIN, "loader": LOADER}, (2, 6)),
        ({"base": PLAIN, "loader": LOADER, "a": PLAIN}, (2, 6, 1)),
        ({"base": LOADER, "own": PLAIN, "without": LOADER}, (6, 2, 6)),
        ({"base": ROUNDS, "loader": LOADER, "a": ROUNDS}, (2, 6, 2)),  # four would be more than half of six
        ({"base": PLAIN}, (1,)),
    ],
)
def test_short_blocks_beside_long_ones_are_made_longer(paces: dict[str, Pace], blocks: tuple[int, ...]) -> None:
    found = balance_paces(paces, "base")
    assert tuple(pace.block for pace in found.values()) == blocks
    assert [*found] == [*paces]
    for key, pace in found.items():
        assert (pace.skipped, pace.warm_up) == (paces[key].skipped, paces[key].warm_up)
        assert pace.block % paces[key].block == 0


def variance(entrant: Pace, base: Pace) -> float:
    """Of a quad's log ratio, of independent steps of variance 1, as `race.Race` takes it: two blocks of each."""
    return 1 / (2 * entrant.block) + 1 / (2 * base.block)


@pytest.mark.parametrize("entrant", [LOADER, Pace(8, 4), Pace(4)])
def test_a_longer_block_of_the_base_tells_more_in_the_same_time(entrant: Pace) -> None:
    own = balance_paces({"base": PLAIN, "a": entrant}, "base")["base"]
    steps_by_variance = [steps_of_quad(entrant, base) * variance(entrant, base) for base in (own, PLAIN)]
    assert steps_by_variance[0] < steps_by_variance[1]


@pytest.mark.parametrize(
    ("block", "workers", "period", "length"),
    [(1, 0, 2, 2), (5, 0, 2, 6), (4, 0, 4, 4), (1, 3, 2, 6), (1, 2, 2, 4), (1, 2, 1, 4)],
)
def test_blocks_have_whole_rounds_of_workers_and_of_steps_that_take_turns(
    block: int, workers: int, period: int, length: int
) -> None:
    assert pace_of(block, workers, 2, is_long=True, period=period).block == length
