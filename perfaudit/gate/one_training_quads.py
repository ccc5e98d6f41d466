"""What quads of one training count as, and when they are looked at. Knows no torch, no process and no clock.

Both versions run in the same objects there, so there is no layout of memory to draw again, and no second process. What
remains is the machine: a mood of it cancels within a quad, but neighbours may resemble each other all the same. So the
quads are cut into BATCHES consecutive batches, which stand where pairs of processes stand: Student's interval is over their
centres (batch means: Law & Kelton, Simulation Modeling and Analysis, 5th ed. 2015, ch. 9.5.3), the signed-rank one over what
is in them. From UNITS quads on, several in a row count as one, as their median: so the later a look is, the less it takes
neighbours for independent. How often identical code is called slower then: benchmarks/gate_one_training.md.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from perfaudit.gate import signed_rank
from perfaudit.gate.bounds import both
from perfaudit.gate.records import OneTraining
from perfaudit.measure.quads import Interval
from perfaudit.measure.stats import Look, looks_made

# Quads, and how often a bound may miss on its side; together as often as over pairs of processes (`decision.ALPHA`).
# The last ones are for short steps on a machine that others use, where a quad tells little.
LOOKS = (
    *(Look(quads, 0.001) for quads in (16, 32, 64, 128)),
    *(Look(quads, 0.0015) for quads in (256, 512, 1024, 2048)),
)
QUADS = LOOKS[-1].generations
BATCHES, UNITS = 8, 64
# Times the error of a bound of the reference: what one of the control's may miss, 5 % over all looks and both sides.
CONTROL_ERROR = 2.5


def batches(log_ratios: Sequence[float]) -> list[list[float]]:
    """Quads in the order they were run as BATCHES batches, or fewer of one quad each; what fills no batch is left out."""
    each = max(1, len(log_ratios) // UNITS)
    units = [statistics.median(part) for part in _parts(log_ratios, each)]
    return _parts(units, max(1, len(units) // BATCHES))[:BATCHES]


def _parts(values: Sequence[float], length: int) -> list[list[float]]:
    return [list(values[at : at + length]) for at in range(0, len(values) - length + 1, length)]


def control(one: OneTraining, ended: bool) -> Interval | None:
    """The ratio of identical code to itself, by all looks together right in 95 % of races; None before the first.

    Looked at when the reference is, in the same batches, and of the bounds of all looks the tightest count, as there. Where
    they contradict each other, those of the last one do.
    """
    logs, found = one.control, list[tuple[float, float]]()
    for quads, alpha in looks_made(LOOKS, len(logs), ended):
        bounds = both(batches(logs[:quads]), 0.0, CONTROL_ERROR * alpha, CONTROL_ERROR * alpha)
        found.append((bounds.low, bounds.high))
    if not found or math.isinf(found[-1][0]) or math.isinf(found[-1][1]):
        return None
    low, high = max(low for low, _ in found), min(high for _, high in found)
    low, high = (low, high) if low <= high else found[-1]
    centre = signed_rank.hodges_lehmann([value for batch in batches(logs) for value in batch])
    return Interval(math.exp(min(max(centre, low), high)), math.exp(low), math.exp(high), len(logs))


def differs_from_itself(one: OneTraining, ended: bool) -> str:
    """Why a race cannot be believed, because identical code is called different in it; "" where it is not."""
    found = control(one, ended)
    if found is None or found.low <= 1 <= found.high:
        return ""
    return f"in one training the same code differed from itself (ratio {found.ratio:.3f}, {found.low:.3f} to {found.high:.3f})"
