"""Whether patched code computes what the user's does: the first steps of both with every float a double (`measure.exact`).

In single precision what roundings do to a convolution net hides a wrong constant: with TF32, and where a ReLU or a pooling turns,
gradients of right patches lie percents apart. In doubles, right ones lay 4.2e-11 apart or less in the trainings of
tests/tune/test_wrong_patches.py, and channels_last 1.0e-7 in sample_models/digits_cnn.py. Wrong ones lay from 3.4e-4 (`eps=1e-4`
for `1e-5` in a layer norm) up to 0.65. All of this was measured on a CPU.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from perfaudit.measure.runner import TrialFailed

Json = dict[str, Any]  # Any: nested JSON

STEPS = 2  # the second loss feels the first update, and what an optimizer and a norm carry over is in the second update
SAME_FUNCTION = frozenset({"rounding", "precision"})  # changes that leave the function what it is

# Library functions in place of written-out ones bring their own constants, which agree
# with those that people write down within single precision, so what single precision could not tell is none: 16 roundings.
FLOOR = 16 * 2**-24
# Where something amplifies roundings even so (an optimizer that takes the sign of a gradient that is 0), the user's own code
# does it too: its parameters moved by NUDGE show how far, row by row.
NUDGE = 64 * 2**-53
SPREAD = 16.0  # times what one nudge does, as in `tune.tolerance`
SMALL_SHARE = 0.1  # of the usual element of its kind: what is smaller is measured by that (see `measure.gradients`)

WHAT = "in double precision"


@dataclass(frozen=True, slots=True)
class Exact:
    """Losses, and by what it is and whose ("gradient of head.weight") elements, norm and products; or why there are none."""

    losses: tuple[float, ...] = ()
    rows: dict[str, tuple[float, ...]] = field(default_factory=dict)
    why: str = ""


def exact_of(reply: Json | None) -> Exact:
    """What a child replied to the command "exact", None for one that did not."""
    if reply is None:
        return Exact(why="it could not be run so")
    if "losses" not in reply:
        return Exact(why=str(reply.get("why") or "there was nothing to compare"))
    rows = {name: (float(elements), *map(float.fromhex, values)) for name, (elements, *values) in reply["rows"].items()}
    return Exact(tuple(map(float.fromhex, reply["losses"])), rows)


def gaps(mine: Exact, base: Exact) -> dict[str, float]:
    """By what differs, how far it lies from the base's, as a share of it; losses together. Infinite for what one has not.

    Of a tensor, |Δ| by the products with random signs over its norm or, where that is larger, SMALL_SHARE of the usual element
    of its kind times √n.
    """
    found = {"losses": max((_relative(a, b) for a, b in zip(mine.losses, base.losses, strict=False)), default=0.0)}
    if len(mine.losses) != len(base.losses):
        found["losses"] = math.inf
    usual = _usual(base)
    for name in {**base.rows, **mine.rows}:
        kind = name.partition(" ")[0]
        if name in base.rows and name in mine.rows:
            n, norm, *products = base.rows[name]
            apart = _root_of_mean(a - b for a, b in zip(mine.rows[name][2:], products, strict=True))
            least = SMALL_SHARE * usual[kind] * math.sqrt(n)
            found[name] = 0.0 if apart == 0 else apart / max(norm, least) if max(norm, least) else math.inf
            if mine.rows[name][0] not in (n, 0.0) and n:
                found[name] = math.inf
        elif kind != "buffer":  # a mask that is no longer needed
            found[name] = math.inf
    return {name: gap if math.isfinite(gap) else math.inf for name, gap in found.items()}


def said_of_exact(mine: Exact, base: Exact, nudged: Callable[[], Exact]) -> str:
    """What comparing them shows, to be added to what single precision shows. Raises TrialFailed where they differ.

    nudged: gives the base with its parameters moved by NUDGE; asked only where something differs.
    """
    if base.why or mine.why:
        return f"; not compared {WHAT}: {base.why or mine.why}"
    found = gaps(mine, base)
    worst = max(found, key=lambda name: found[name])
    if found[worst] > FLOOR:
        own = gaps(moved, base) if not (moved := nudged()).why else {}
        beyond = {name: gap for name, gap in found.items() if gap > max(FLOOR, SPREAD * own.get(name, 0.0))}
        if beyond:
            worst = max(beyond, key=lambda name: beyond[name])
            limit = max(FLOOR, SPREAD * own.get(worst, 0.0))
            raise TrialFailed(
                f"more than the promised change: {WHAT}, where rounding cannot explain it, the {worst} differ"
                f"{'' if worst == 'losses' else 's'} by {beyond[worst]:.1e} (tolerance {limit:.1e})"
            )
    return f"; {WHAT} losses, gradients and updates of {len(base.losses)} steps agree within {found[worst]:.1e}"


def _usual(base: Exact) -> dict[str, float]:
    """By kind, the root mean square of an element."""
    kinds: dict[str, list[tuple[float, float]]] = {}
    for name, (n, norm, *_) in base.rows.items():
        kinds.setdefault(name.partition(" ")[0], []).append((n, norm))
    return {
        kind: math.sqrt(sum(norm**2 for _, norm in rows) / max(sum(n for n, _ in rows), 1))
        for kind, rows in kinds.items()
    }


def _root_of_mean(values: Any) -> float:
    return math.sqrt(statistics.fmean([value**2 for value in values] or [0.0]))


def _relative(value: float, base: float) -> float:
    return abs(value - base) / max(abs(base), 1e-12)
