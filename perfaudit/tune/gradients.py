"""Whether the gradients of a patched training's first step are the user's: losses hardly feel the model while it knows nothing.

Before the first update nothing has been amplified by training, so what a patch moves is its own doing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from perfaudit.measure.runner import TrialFailed
from perfaudit.tune.tolerance import (
    NUDGE_MOST,
    ROUNDOFF,
    SMALL_NOISE,
    Curve,
    FirstGradients,
    Reference,
    Sensitivity,
    coarsest,
    roundoff,
)

# Gaps seen on a CPU in one thread (torch 2.13): of right patches, of wrong ones, and what NUDGE does to the user's own.
#   minGPT            attention in one operator 8e-7, GELU in one 8e-7, bfloat16 9e-3; erf for tanh GELU 1.1e-4, scores doubled
#                     5e-2, no mask 8e-1; nudged 1.4e-5, in bfloat16 1.5e-2
#   char_gpt.py       3e-7, 3e-7, 4e-3; 2.4e-4, 2e-1, 3e-1; 1.1e-5, 1.1e-2
#   digits_cnn.py     GELU 2e-6, biases folded 2e-6, channels_last 7e-3, bfloat16 1e-1; erf GELU 3e-2, another eps of the norms
#                     1e-2 (too small to be told); 7e-3, 1.4e-1
#   photo_resnet.py   biases folded 2e-6, channels_last 7e-3, bfloat16 4e-1; a branch detached 1; 2e-2, 6e-1
# PA402 leaves all of them equal to the bit.
FLOOR = 512.0  # roundings of a gradient's norm, but at most FLOOR_MOST
FLOOR_MOST = 2**-4
NUDGE = 64.0  # roundings that the user's parameters are moved by, up or down by chance, but at most NUDGE_MOST
# The gradients of the first two models follow the nudge, 3 to 4 times as far. Those of the others jump where a pooling or a
# ReLU goes the other way, a few hundred times as far, and another draw may jump further.
SMOOTH = 16.0  # times the nudge
SPREAD_OF_SMOOTH = 2.0  # times what a nudge does
SPREAD_OF_JUMPS = 4.0
# Of a parameter that is left out, in eight times what its layer's weight feels per element. Biases before a norm of digits_cnn.py
# and photo_resnet.py had up to 1.3e-6 (channels_last), in bfloat16 6e-4; with the norms in eval mode 1, in a smaller net 3e-2.
LOST_MOST = 2**-7
MOST = 0.75  # of a gradient's norm; a branch that is lost makes 1

_WHAT = "the gradients of the first step"


def said_of_gradients(
    curve: Curve, base: Curve, changes: Collection[str], names: Sequence[str], reference: Reference
) -> str:
    """What comparing them shows, to be added to what the losses show; "" where nothing is promised of them.

    changes, names: what the fix changes, and the types that take part (see `tolerance.types_of`).
    Raises TrialFailed where they are not what was promised.
    """
    found = curve.gradients
    if found is None or {"algorithm", "order"} & set(changes):
        return ""
    if found.why and "checkpoint" in changes:
        raise TrialFailed(
            f"nothing shows that what the patch leaves out is not trained: {_WHAT} are not compared, {found.why}"
        )
    if found.why:
        return f"; {_WHAT} are not compared: {found.why}"
    if found.gap == 0:
        return f"; {_WHAT} are equal to the bit"
    one, kind = roundoff(names), coarsest(names)
    lost, whose = found.lost
    # The gradient is one of the user's own code, so neither another stream nor a nudge explains that it is gone.
    if lost > min(_floor(one), LOST_MOST):
        raise TrialFailed(
            f"the patch leaves out {whose}, which is trained: its first gradient is {lost:.1e} of what is usual there"
        )
    if changes and reference.is_of_script and found.gap <= _floor(one):  # to know more would take several starts of it
        return _agree(found, None, changes)
    if kind and (own := reference.sensitivity(0.0, kind)) is not None:
        one = ROUNDOFF["float32"]  # what is coarser was measured
    else:
        own = None
    if changes and found.gap <= _floor(one):
        return _agree(found, None, changes)
    nudge = 0.0  # below it, nothing is smooth
    if own is None:
        one = max(one, roundoff(reference.seed()[1]))
        nudge = max(one, min(NUDGE * one, NUDGE_MOST))
        own = reference.sensitivity(nudge)
    allowed = _allowed_gap(one, own, nudge)
    equal = not changes and (curve.losses, curve.average) == (base.losses, base.average)
    if own is not None and own.again > SMALL_NOISE:
        return f"; {_WHAT} are not compared: two runs of your own code differ by {own.again:.1e}"
    if found.gap <= allowed and not (equal and (own is None or not own.again)):
        return _agree(found, allowed, changes)
    if "rng" in changes and (reason := _why_other_stream(found, own, allowed)):
        return f"; {_WHAT} are not compared: {reason}"
    promised = rounds(changes)
    limit = f", tolerance {allowed:.1e}" if changes else ""
    raise TrialFailed(
        f"more than the promised change ({promised}): {_WHAT} differ by {found.gap:.1e} of their norm "
        f"(worst: {found.name}{limit})"
    )


def _why_other_stream(found: FirstGradients, own: Sensitivity | None, allowed: float) -> str:
    """Why another random stream explains the gap, "" if it does not."""
    if not found.same_batch:
        return "another random stream gives another batch"
    if own is None or own.stream is None:
        return "whether the step draws random numbers is not known"
    return "the step draws random numbers" if own.stream > allowed else ""


def _floor(one: float) -> float:
    return min(FLOOR * one, FLOOR_MOST)


def _allowed_gap(one: float, own: Sensitivity | None, nudge: float) -> float:
    """How far gradients may lie apart where the coarsest type rounds by `one`."""
    if own is None:
        return _floor(one)
    spread = SPREAD_OF_SMOOTH if own.nudged <= SMOOTH * nudge else SPREAD_OF_JUMPS
    return max(_floor(one), min(max(spread * own.nudged, SPREAD_OF_JUMPS * own.again), MOST))


def rounds(changes: Collection[str]) -> str:
    """What these changes make of the last digits."""
    return "precision" if "precision" in changes else "rounding" if changes else "nothing but speed"


def _agree(found: FirstGradients, allowed: float | None, changes: Collection[str]) -> str:
    limit = "" if allowed is None else f", tolerance {allowed:.1e}"
    if "precision" in changes:
        return f"; fewer bits move {_WHAT} by {100 * found.gap:.2g} % of their norm (worst: {found.name}{limit})"
    return f"; {_WHAT} agree within {found.gap:.1e} (worst: {found.name}{limit})"
