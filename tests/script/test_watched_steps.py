"""Which steps are watched in full."""

from __future__ import annotations

import pytest

from perfaudit.script.watched_steps import EVENT_SECONDS, LEAST_SHARE, MOST_COST, WatchedSteps


@pytest.mark.parametrize(
    ("updates", "seconds", "events", "share"),
    [
        (10, 100.0, 10, 1.0),  # the first ones
        (100, 0.1, 10, 1.0),  # in the first moment
        (100, 20.0, 10, 1.0),  # 0.2 s a step
        (1000, 1.0, 1, 1e-3 * MOST_COST / EVENT_SECONDS),
        (1000, 4.0, 8, 4e-3 * MOST_COST / EVENT_SECONDS / 8),
        (10**6, 1.0, 10, LEAST_SHARE),
    ],
)
@pytest.mark.parametrize("updates_per_step", [1, 5])
def test_watching_costs_so_much_of_the_time(
    updates: int, seconds: float, events: float, share: float, updates_per_step: int
) -> None:
    chosen, share = WatchedSteps(), min(1.0, share)
    chosen.weigh(updates, seconds, events, updates_per_step)
    rows: list[tuple[bool, int]] = [chosen.next_row() for _ in range(100_000)]
    watched = sum(number for is_watched, number in rows if is_watched)
    assert watched / sum(number for _, number in rows) == pytest.approx(share, rel=0.05)
    # A whole step is among them, wherever they begin.
    assert share == 1.0 or min(number for is_watched, number in rows if is_watched) == 2 * updates_per_step - 1


def test_the_first_steps_of_many_updates_are_watched_also_where_that_is_seen_late() -> None:
    chosen = WatchedSteps()
    chosen.weigh(12, 1.0, 400, updates_per_step=1)  # the first row of a GAN's discriminator
    assert chosen.share < 1.0
    chosen.weigh(50, 4.0, 400, updates_per_step=40)
    assert chosen.share == 1.0 and chosen.next_row()[0]
    chosen.weigh(240, 20.0, 400, updates_per_step=40)
    assert chosen.share < 1.0
