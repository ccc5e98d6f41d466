"""Steps added up as they come: what is kept of many, and that it says the same as all of them."""

from __future__ import annotations

import statistics
from typing import Any

import pytest

from perfaudit.script.observe import Seen
from perfaudit.script.spans import PHASES
from perfaudit.script.summary import summarize
from perfaudit.script.tally import MOST_KINDS, MOST_TIMES, MOST_UPDATES, Tally, samples_of


def update(optimizer: int, seconds: float, epochs: int = 0) -> dict[str, Any]:
    phases = [0.5 * seconds if name in ("forward", "data_wait") else 0.0 for name in PHASES]
    return {
        "optimizer": optimizer, "seconds": seconds, "phases": phases, "batches": 1, "samples": 4, "epochs": epochs,
        "without_gradients": 0, "backwards": 1, "backwards_in_update": 0, "gradients": 0, "zeroed": 0,
    }  # fmt: skip


def seen_of(updates: list[dict[str, Any]], at_once: int = 100) -> Seen:
    seen = Seen(0.0, facts={"device": "cpu"}, ended="finished", keep=10)
    for first in range(0, len(updates), at_once):
        seen.add(updates[first : first + at_once])
    return seen


def test_a_long_run_keeps_few_updates_and_says_the_same() -> None:
    updates = [update(number % 2, 1.0 + number % 2 + number % 5 / 10) for number in range(3 * MOST_UPDATES + 7)]
    seen = seen_of(updates)
    assert len(seen.updates) < MOST_UPDATES + 100
    assert (seen.number, seen.kept) == (len(updates), updates[:10])
    run = summarize(seen, "gan.py")
    assert (run.steps, run.counted, run.updates_per_step, run.is_regular) == (len(updates) // 2, run.steps - 3, 2, True)
    assert run.seconds_per_step == pytest.approx(3.5, abs=0.11)
    assert run.phases == pytest.approx({name: 0.5 if name in ("forward", "data_wait") else 0.0 for name in PHASES})
    assert len(seen.tally.usual.times) == MOST_TIMES


def test_a_sample_of_times_is_of_all_of_them() -> None:
    """A step that becomes slower and slower: the median is that of the whole run."""
    seen = seen_of([update(0, 1.0 + number / 1e4) for number in range(4 * MOST_UPDATES)])
    usual = seen.tally.with_rest(seen.updates).usual
    assert statistics.median(usual.times) == pytest.approx(1 + 2 * MOST_UPDATES / 1e4, rel=0.03)


def test_kinds_of_steps_are_bounded() -> None:
    tally = Tally()
    tally.fold([update(0, 1.0, epochs=number) for number in range(3 * MOST_KINDS)], is_last=True)
    assert (len(tally.kinds), sum(kind.count for kind in tally.kinds.values())) == (MOST_KINDS, 3 * MOST_KINDS - 3)


def test_a_short_run_is_what_it_was() -> None:
    run = summarize(seen_of([update(0, seconds) for seconds in (9.0, 1.0, 2.0, 3.0)]), "train.py")
    assert (run.steps, run.counted, run.seconds_per_step, run.quartiles) == (4, 3, 2.0, (1.5, 2.5))


@pytest.mark.parametrize(
    ("taken", "samples"),
    [
        ([(1, 4)], 4),
        ([(1, 4), (0, 4)], 4),  # two optimizers on one batch, each of whose models is called with it
        ([(1, 4), (1, 4)], 8),  # a batch for each
        ([(2, 8)], 8),  # gradients of two batches
        ([(0, 4)], 4),  # no loader: what the model is called with
    ],
)
def test_samples_of_a_step_are_those_of_its_batches(taken: list[tuple[int, int]], samples: int) -> None:
    updates = [{"optimizer": at, "batches": batches, "samples": number} for at, (batches, number) in enumerate(taken)]
    assert samples_of(updates) == samples


@pytest.mark.parametrize(
    ("unknown", "rate"),
    [(0, 4.0), (2, 4.0), (3, None), (6, None)],
)
def test_samples_a_second_are_those_of_the_steps_that_tell_if_most_do(unknown: int, rate: float | None) -> None:
    """One step of many may be told by chance, as by a module that is called with something else."""
    updates = [update(0, 1.0) | ({"samples": 0} if number < 1 + unknown else {}) for number in range(7)]
    assert summarize(seen_of(updates), "train.py").samples_per_second == rate


@pytest.mark.parametrize(
    ("made", "samples"),
    [
        ([(0, False), (0, False), (1, True)], 8),  # two draws of a buffer, on the second of which another trains, too
        ([(0, True)], 4),  # the whole set in each step
        ([(0, False), (0, False)], 8),
        ([(0, False), (1, False)], 4),  # a GAN: noise for the one, paintings for the other
        ([(0, False)] * 5 + [(1, False)], 20),
        (
            [(5, False), (6, False), (7, False), (8, False), (0, False)],
            16,
        ),  # of tasks, each with an optimizer built anew
    ],
)
def test_samples_without_batches_are_those_of_the_optimizer_that_has_most(
    made: list[tuple[int, bool]], samples: int
) -> None:
    updates = [
        {"optimizer": number, "batches": 0, "samples": 4} | ({"same_inputs": True} if same else {})
        for number, same in made
    ]
    assert samples_of(updates, {0, 1}) == samples


def test_steps_whose_phases_were_not_timed_count_by_their_time() -> None:
    """A tenth is watched. Every hundredth has an evaluation, which is told whether it is watched or not."""
    tally = Tally()
    rest: list[dict[str, Any]] = []
    for number in range(20_003):
        is_watched, has_evaluation = number % 10 == 0, number % 100 in (0, 7)
        rest.append(
            update(0, 2.0 if has_evaluation else 1.0)
            | {"without_gradients": 5 * has_evaluation}
            | ({} if is_watched else {"phases": [], "samples": 0, "backwards": 0, "batches": 0})
        )
        if len(rest) > 1000:
            rest = tally.fold(rest)
    usual = tally.with_rest(rest).usual
    assert (usual.count, usual.watched, usual.watched_seconds, usual.seconds) == (19600, 1800, 1800.0, 19600.0)
    assert set(usual.times) == {1.0}
    assert len(usual.times) <= 2 * MOST_TIMES
    assert usual.samples == 1800 * 4
    assert sum(kind.count for kind in tally.with_rest(rest).uneven) == 400


def test_of_kinds_that_alternate_one_is_usual_whether_watched_or_not() -> None:
    """Two batches an epoch: chance says of which kind more steps are watched, and of which more are only counted."""
    counted = {"phases": [], "samples": 0, "backwards": 0, "batches": 0}
    first, second = update(0, 3.0, epochs=1), update(0, 1.0)
    tally = Tally()
    tally.fold(
        [first] * 3 + [first] * 51 + [second] * 49 + [first | counted] * 490 + [second | counted] * 510, is_last=True
    )
    usual = tally.usual
    assert (usual.count, usual.watched, set(usual.times)) == (541, 51, {3.0})
    assert sorted(kind.count for kind in tally.uneven) == [49, 510]
