"""The limit of a batch is one that a real step has shown, whatever libraries take beside tensors."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from perfaudit.knobs._memory_limit import Limit, RealStep, Untried, between, confirm

BUDGET = 1000


def predicted(size: int) -> int:
    return 10 + size  # so that 990 are predicted to fit


LIBRARIES: dict[str, tuple[Callable[[int], float], int]] = {
    # what a real step takes, and how many samples fit in truth
    "nothing": (predicted, 990),
    "a share": (lambda size: 1.4 * predicted(size), 704),
    "a constant": (lambda size: predicted(size) + 300, 690),
    "both": (lambda size: 1.2 * predicted(size) + 100, 740),
    "segments": (lambda size: -(-predicted(size) // 64) * 64 + 64, 886),  # whole ones, and one more
    "a workspace from 500 on": (lambda size: predicted(size) + 300 * (size >= 500), 690),
    "a workspace from 900 on": (lambda size: predicted(size) + 300 * (size >= 900), 899),
    "a workspace from 300 to 600": (lambda size: predicted(size) + 900 * (300 <= size < 600), 990),
    "more and more": (lambda size: predicted(size) + size * size / 1000, 613),
    "more than there is": (lambda size: predicted(size) + 2000, 0),
}


@pytest.mark.parametrize("name", LIBRARIES)
def test_what_is_confirmed_fits_and_the_next_does_not(name: str) -> None:
    taken, truth = LIBRARIES[name]
    tried = []

    def take(size: int) -> RealStep:
        tried.append(size)
        return RealStep(size, int(taken(size)))

    found = confirm(predicted, BUDGET, 990, take)
    if truth:
        assert found.step is not None and found.step.size == found.size in tried
        assert taken(found.size) <= BUDGET
        assert truth * 0.97 <= found.size <= truth
        assert found.more == ""
    else:
        assert (found.size, found.step) == (0, None) and "took more than the budget" in found.unconfirmed
    assert len(tried) <= 6 and len(set(tried)) == len(tried)


def test_a_share_of_two_fifths_is_settled_by_two_real_steps() -> None:
    tried: list[int] = []

    def take(size: int) -> RealStep:
        tried.append(size)
        return RealStep(size, predicted(size) * 7 // 5)

    assert confirm(predicted, BUDGET, 990, take).size == 698
    assert tried == [247, 698]


def test_a_step_that_runs_out_of_memory_is_too_large() -> None:
    found = confirm(predicted, BUDGET, 990, lambda size: RealStep(size, predicted(size) if size < 400 else None))
    assert found.step is not None and found.step.fits(BUDGET) and 350 <= found.size < 400


def test_a_real_step_over_the_budget_confirms_nothing_larger() -> None:
    """Of 300 it is known that they do not fit, so 990, which would, are not looked for."""
    found = confirm(predicted, BUDGET, 990, lambda size: RealStep(size, predicted(size)), [RealStep(300, 1400)])
    assert found.size < 300 and found.step is not None


NO_TIME = "no time was left for real steps of 247 samples"


def fails(size: int) -> RealStep:
    assert size == 247
    raise Untried(NO_TIME)


@pytest.mark.parametrize(
    ("known", "limit"),
    [
        ([], Limit(990, None, NO_TIME)),
        ([RealStep(32, 42)], Limit(32, RealStep(32, 42), "", f"a larger step was not tried: {NO_TIME}")),
    ],
)  # fmt: skip
def test_without_a_real_step_nothing_is_confirmed(known: list[RealStep], limit: Limit) -> None:
    assert confirm(predicted, BUDGET, 990, fails, known) == limit


def test_predictions_between_those_that_are_known() -> None:
    at = between({10: 100, 20: 200, 40: 600})
    assert [at(size) for size in (5, 10, 15, 30, 40, 50)] == [50, 100, 150, 400, 600, 800]
    assert between({10: 100})(30) == 300
