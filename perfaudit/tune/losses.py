"""Whether the losses of a patched training's first steps are the user's, as the fix promises."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from perfaudit.measure.runner import TrialFailed
from perfaudit.measurements import NOT_CLAIMED
from perfaudit.tune.gradients import rounds
from perfaudit.tune.same_start import NOT_ON_A_SCRIPT
from perfaudit.tune.tolerance import (
    ANOTHER_STREAM,
    SMALL_NOISE,
    STEPS_SURE,
    STREAMS,
    Curve,
    Reference,
    Tolerance,
    average_gap,
    gaps,
    largest,
    least_tolerance,
    tolerance,
)

NOT_COMPARED = "not compared"
_EQUALITY = f"{NOT_CLAIMED}, because the patch changes"


def was_compared(said: str) -> bool:
    """Whether what was said of a check means that losses were compared, or that nothing was promised of them."""
    return bool(said) and not said.startswith(NOT_COMPARED)


def said_of_losses(
    curve: Curve,
    base: Curve,
    changes: tuple[str, ...],
    names: list[str],
    reference: Reference,
    doubt: str,
    note: Callable[[Tolerance], None],
) -> str:
    """What comparing them shows, in words. Raises TrialFailed where they are not what was promised.

    changes, names: what the fix changes, and the types that take part (see `tolerance.types_of`). doubt: why random numbers of
    a script are not the same in both, "" for another training. note: is told the tolerance that the losses keep within.
    """
    if not base.is_finite:
        return f"{NOT_COMPARED}: the losses of the unpatched code are not finite"
    if not curve.is_finite:
        raise TrialFailed(f"the patched code does not train: its losses are {list(curve.losses)}")
    if len(curve.losses) != len(base.losses) or len(curve.average) != len(base.average):
        raise TrialFailed(
            f"the patched code gives {len(curve.losses)} losses and {len(curve.average)} sums of an average, "
            f"the unpatched {len(base.losses)} and {len(base.average)}"
        )
    if curve.missing:
        return _elsewhere(curve, base, reference)
    if (curve.losses, curve.average) == (base.losses, base.average):
        still = "; all of them are one loss, so that says little" if base.stands_still else ""
        return f"{len(base.losses)} steps from one seed give the same losses to the bit{still}"
    if broken := set(changes) & {"algorithm", "order"}:
        return f"the losses of {len(curve.losses)} steps are finite{_largest(curve, base)}; {_unequal(broken)}"
    found, average = gaps(curve, base), average_gap(curve, base)
    if "checkpoint" in changes:  # an average of other parameters has other sums
        average = 0.0
    if changes:
        limit = least_tolerance(len(found))
        if not limit.allows(found, average):
            limit = tolerance(reference, names, len(found), ())
        if limit.allows(found, average):
            note(limit)
            close = f"; the sums over the average agree within {average:.1e} (tolerance {limit.average:.1e})"
            return limit.words(found) + (close if average else "")
        if "rng" in changes and (said := _streams(found, average, limit, reference)):
            return said
        if "rng" in changes and doubt:
            raise TrialFailed(f"{NOT_ON_A_SCRIPT} {doubt}")
    return _against_itself(found, average, changes, names, reference)


def _elsewhere(curve: Curve, base: Curve, reference: Reference) -> str:
    """Words for a training that could not start from the base's parameters: no further away than another seed's."""
    found = gaps(curve, base)
    mean, spread = statistics.fmean(found), reference.seed()[0]
    limit = max(ANOTHER_STREAM, STREAMS * (spread or 0.0))
    if mean > limit:
        raise TrialFailed(
            f"its losses differ by {mean:.1e} of the loss on average{_largest(curve, base)}, more than another "
            f"initialisation explains ({limit:.1e})"
        )
    return (
        f"not compared step by step: the patch changes which parameters there are, {curve.missing}; the losses of "
        f"{len(found)} steps differ by {mean:.1e} on average, as from another initialisation"
    )


def _streams(found: list[float], average: float, limit: Tolerance, reference: Reference) -> str:
    """Words for gaps that another random stream makes in the user's code as well, "" where they are larger."""
    stream = reference.stream()
    mean = statistics.fmean(found)
    allowed = min(ANOTHER_STREAM, STREAMS * (stream if stream is not None else ANOTHER_STREAM))
    if mean > max(allowed, *limit.steps) or average > max(ANOTHER_STREAM, limit.average):
        return ""
    step = largest(found)
    own = "" if stream is None else f"; in your own code another random stream makes {stream:.1e}"
    return (
        f"from the same parameters the losses of {len(found)} steps differ by {mean:.1e} on average "
        f"(largest {found[step]:.1e} at step {step + 1}){own}"
    )


def _against_itself(
    found: list[float], average: float, changes: tuple[str, ...], names: list[str], reference: Reference
) -> str:
    """Words for gaps that the user's code has between two runs of its own; raises TrialFailed for larger ones."""
    repeats = reference.again() or []
    noise = max(repeats, default=0.0)
    own = f"your code does not repeat its own losses: two runs from one seed differ by up to {noise:.1e}"
    if max(repeats[:STEPS_SURE], default=0.0) > SMALL_NOISE:
        raise TrialFailed(f"verification refused: {own}, so the patch could not be told from a wrong one")
    if noise:
        limit = tolerance(reference, names, len(found), repeats)
        if limit.allows(found, average):
            unproven = "" if changes else ", so equality to the bit could not be checked"
            return f"{limit.words(found)}; {own}{unproven}"
    step = largest(found)
    promised = "another random stream" if "rng" in changes else rounds(changes)
    gap = f"the losses of {len(found)} steps from one seed differ by up to {found[step]:.1e} of the loss"
    if average > found[step]:
        gap = f"the sums of the average behind {len(found)} steps from one seed differ by {average:.1e}"
    where = f" (largest at step {step + 1})" if found[step] else ""
    raise TrialFailed(f"more than the promised change ({promised}): {gap}{where}{f'; {own}' if noise else ''}")


def _largest(curve: Curve, base: Curve) -> str:
    found = gaps(curve, base)
    step = largest(found)
    return f" (they differ by up to {found[step]:.1e}, at step {step + 1})" if found[step] else ""


def _unequal(broken: set[str]) -> str:
    what = {"algorithm": "what is computed", "order": "the order in which samples come"}
    return f"{_EQUALITY} {' and '.join(what[name] for name in sorted(broken))}"
