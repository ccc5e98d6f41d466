"""The largest batch whose real step stays within a budget: predicted peaks, corrected by what real steps were seen to take.

Knows no torch and no process. A size is a number of samples, everything else is bytes.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable
from dataclasses import dataclass

MOST_STEPS = 6  # real steps that are made; a constant, a proportion and one jump are settled after two to four
FIRST = 0.25  # of the predicted limit: small enough to fit although libraries take up to four times what is predicted
AIM = 0.99  # of the budget: expectations are straight lines, and allocators take whole segments (2 MiB on CUDA)
RESOLUTION = 0.02  # of the limit; a larger batch that gains less is not looked for


@dataclass(frozen=True, slots=True)
class RealStep:
    """One real step. taken: bytes of the budget, None where it ran out of memory."""

    size: int
    taken: int | None

    def fits(self, budget: int) -> bool:
        return self.taken is not None and self.taken <= budget


class Untried(Exception):
    """A real step that could not be made, for another reason than memory; the message says why.

    largest: the size above which nothing should be offered, None where the reason has nothing to do with the size.
    """

    def __init__(self, why: str, largest: int | None = None) -> None:
        super().__init__(why)
        self.largest = largest


@dataclass(frozen=True, slots=True)
class Limit:
    """The largest batch within a budget. step: the real step of that size, None where there is no such proof.

    unconfirmed: why there is none. more: why a larger one may fit all the same, "" where the next one is predicted not to.
    """

    size: int
    step: RealStep | None = None
    unconfirmed: str = ""
    more: str = ""


def confirm(
    predicted: Callable[[int], int],
    budget: int,
    limit: int,
    take: Callable[[int], RealStep],
    known: Iterable[RealStep] = (),
) -> Limit:
    """The limit with a real step as its proof: steps are made until one fits and the next larger one is expected not to.

    predicted: peak bytes by size. limit: the largest size whose prediction is within the budget. take: makes a real step,
    raises Untried. known: real steps that were made already. Between two real steps the excess over the prediction is taken
    to change evenly, beyond them to grow as it did. After a step that did not fit it is taken to be as large below, until
    one that fits has shown otherwise: a library that takes a workspace from some size on costs one more step.
    """
    steps = {step.size: step for step in known if step.size <= limit}
    for number in range(MOST_STEPS):
        size = _next(predicted, budget, limit, steps, first=not number)
        if size is None:
            return _proven(steps, budget, "")
        try:
            steps[size] = take(size)
        except Untried as error:
            if _largest(steps, budget):
                return _proven(steps, budget, f"a larger step was not tried: {error}")
            expected = _expected_limit(predicted, budget, limit, steps) if steps else limit
            return Limit(min(expected, limit if error.largest is None else error.largest), None, str(error))
    is_settled = _next(predicted, budget, limit, steps, first=False) is None
    return _proven(steps, budget, "" if is_settled else f"{MOST_STEPS} real steps were made, and a larger one may fit")


def _proven(steps: dict[int, RealStep], budget: int, more: str) -> Limit:
    low = _largest(steps, budget)
    if low:
        return Limit(low, steps[low], "", more)
    tried = min(steps) if steps else 0
    what = "took more than the budget" if tried and steps[tried].taken is not None else "ran out of memory"
    return Limit(0, None, f"a real step of {tried:,} samples {what}" if tried else "not one sample fits")


def _largest(steps: dict[int, RealStep], budget: int) -> int:
    """The largest size that was seen to fit, and that none smaller contradicts; 0 without one."""
    return max((size for size, step in steps.items() if step.fits(budget) and size < _lowest(steps, budget)), default=0)


def _lowest(steps: dict[int, RealStep], budget: int) -> int:
    """The smallest size that was seen not to fit."""
    return min((size for size, step in steps.items() if not step.fits(budget)), default=1 << 62)


def _next(
    predicted: Callable[[int], int], budget: int, limit: int, steps: dict[int, RealStep], first: bool
) -> int | None:
    """The size to try next, None where the largest one that fits is known as well as it needs to be."""
    low, high = _largest(steps, budget), min(_lowest(steps, budget), limit + 1)
    if high - low <= 1:
        return None
    size = min(_expected_limit(predicted, budget, limit, steps), high - 1)
    if high in steps and steps[high].taken is None:
        size = min(size, (low + high) // 2)  # nothing is known but that it is too large
    if not low and not size:
        size = max(1, high // 4)  # what was seen leaves no room, but nothing small was seen
    if first and int(FIRST * limit) > low:
        size = min(size, int(FIRST * limit))
    return size if size > low * (1 + RESOLUTION) else None


def _expected_limit(predicted: Callable[[int], int], budget: int, limit: int, steps: dict[int, RealStep]) -> int:
    """The largest size whose step is expected to stay within the budget, by what was seen; 0 for none."""
    points = sorted((step.size, step.taken) for step in steps.values() if step.taken is not None)
    least = 0
    if steps and not (last := list(steps.values())[-1]).fits(budget) and last.taken is not None:
        least = max(0, last.taken - predicted(last.size))
    aim = AIM * budget
    return bisect.bisect_right(
        range(1, limit + 1),
        aim,
        key=lambda size: max(predicted(size) + least, _expected_bytes(predicted, points, size)),
    )


def _expected_bytes(predicted: Callable[[int], int], points: list[tuple[int, int]], size: int) -> float:
    """Bytes that a real step of this size is expected to take. points: sizes and bytes that were seen, in order."""
    here = predicted(size)
    below = [point for point in points if point[0] <= size][-2:]
    above = next((point for point in points if point[0] > size), None)
    if not below:
        return here if above is None else here + max(0, above[1] - predicted(above[0]))
    end, other = below[-1], above or (below[0] if len(below) > 1 else None)
    run = predicted(end[0])
    rise = end[1] / max(1, run)  # one step alone: the excess may be a share of the prediction
    if other is not None and predicted(other[0]) != run:
        rise = (other[1] - end[1]) / (predicted(other[0]) - run)
    return end[1] + max(rise, 0.0 if above else 1.0) * (here - run)


def between(peaks: dict[int, int]) -> Callable[[int], int]:
    """Predicted bytes at any size, on straight lines through those that are known: no less than the peaks, which bend up."""
    sizes = sorted(peaks)

    def at(size: int) -> int:
        if size in peaks or len(sizes) == 1:
            return peaks.get(size, peaks[sizes[0]] * size // sizes[0])
        right = min(max(1, bisect.bisect_left(sizes, size)), len(sizes) - 1)
        (a, b) = sizes[right - 1], sizes[right]
        return max(0, peaks[a] + (peaks[b] - peaks[a]) * (size - a) // (b - a))

    return at
