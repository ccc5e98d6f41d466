"""Whether a patched script began as the user's does: with its parameters, its batches and its random numbers."""

from __future__ import annotations

from collections.abc import Collection

from perfaudit.measure.runner import TrialFailed
from perfaudit.tune.gradients import rounds
from perfaudit.tune.tolerance import Curve

STREAMS_FURTHER = "that moves the losses further than another random stream of your own code"
NOT_ON_A_SCRIPT = "it could not be checked: it draws other random numbers than your code, and"
BEGAN_ALIKE = (
    "; for this, both began with the parameters of your code and with random streams seeded alike, as the patch draws other "
    "numbers for its own"
)
_NOT_HELD = {"rng", "algorithm", "order"}  # changes after which a training need not draw the same random numbers


def has_other_parameters(changes: Collection[str]) -> bool:
    """Whether a patch draws other numbers for the parameters that it has than the user's code for all of its own."""
    return {"rng", "checkpoint"} <= set(changes)


def doubt_of_start(curve: Curve, base: Curve) -> str:
    """Why the first step of a script did not begin as the base's did, or draws otherwise; "" where it did and draws as many."""
    if curve.start is None or base.start is None:
        return STREAMS_FURTHER
    if why := base.start or curve.start:
        return f"it could not begin with the parameters of your code: {why}"
    if curve.gradients is not None and not curve.gradients.same_batch:
        return "the first batch comes from numbers that were drawn before an optimizer is built or a loader is begun"
    return "" if curve.streams == base.streams else "so does its first step"


def refuse_other_draws(curve: Curve, base: Curve, changes: Collection[str]) -> None:
    """Raise TrialFailed where a script draws other random numbers than the base up to the end of its first step, unannounced.

    Losses do not show it: streams are seeded alike in both before the first step, and again behind it. In the user's own run
    they are not, and the batches and the dropout would be others.
    """
    if _NOT_HELD & set(changes):
        return
    when = "before" if curve.stood != base.stood else "in" if curve.streams != base.streams else ""
    if when:
        raise TrialFailed(
            f"more than the promised change ({rounds(changes)}): {when} its first step, other random numbers are drawn than in "
            "your code"
        )
