"""How many steps of a variant are timed in one go. Knows no torch: whoever plans a race asks, and whoever drives one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

LEAST_BLOCK_SECONDS = 0.005  # of a block on the CPU: long against what switching and a clock take
# Of a block between two waits for a device, so that the host may run ahead as in real life.
LEAST_DEVICE_STEPS, LEAST_DEVICE_SECONDS = 5, 0.05
# Of a block with a second loader that has workers. 2 made quads of photo_resnet scatter by 40 %. Beside two workers a quad is
# then 12 steps long, and with 6 it is 16: by `_steps_by_variance` the shorter one tells more in the same time.
LEAST_LOADER_STEPS = 4


@dataclass(frozen=True, slots=True)
class Pace:
    """How a variant is timed: steps of a block, uncounted steps after each switch to it, and before its first look."""

    block: int = 1
    skipped: int = 0
    warm_up: int = 1


PLAIN = Pace()


def block_steps(seconds_per_step: float, runs_behind: bool) -> int:
    """How many steps a block needs. runs_behind: a device runs behind the host."""
    if runs_behind:
        return max(LEAST_DEVICE_STEPS, round(LEAST_DEVICE_SECONDS / seconds_per_step))
    return max(1, round(LEAST_BLOCK_SECONDS / seconds_per_step))


def pace_of(block: int, workers: int, prefetch: int, is_long: bool, take_turns: bool = True, period: int = 1) -> Pace:
    """How steps with a loader are timed: whole rounds of its workers, one of them left out after each switch.

    period: of steps of several kinds that take turns, whose rounds are whole, too: see `step_kinds`.

    A worker may have waited for a disk while it stood still, so the first batch of each comes too early. take_turns: whether any
    stand still in this race; where all go on, no batch comes too early, and no step is left out. is_long: blocks of a
    second loader, which takes turns, are longer: how many batches its workers have ready when a turn ends is chance, and one
    more or less is a batch's time in so few steps. Rivals need no such blocks: the fastest of them is measured afterwards.
    """
    rounds = math.lcm(workers or 1, period)
    if not workers:
        return Pace(rounds * math.ceil(block / rounds))
    least = max(block, LEAST_LOADER_STEPS) if is_long else block
    return Pace(rounds * math.ceil(least / rounds), workers if take_turns else 0, workers * prefetch + 2)


def steps_of_quad(entrant: Pace, base: Pace) -> int:
    """Steps that a quad takes: two blocks of the entrant and one of the base, which quads share."""
    return steps_of_turns(entrant) + steps_of_base(base)


def steps_of_turns(entrant: Pace) -> int:
    """Those of a quad that the entrant makes."""
    return entrant.skipped + 2 * entrant.block


def steps_of_base(base: Pace) -> int:
    """Those of a quad that the base makes."""
    return base.skipped + base.block


def balance_paces(paces: Mapping[str, Pace], base: str) -> dict[str, Pace]:
    """The paces, with short blocks beside long ones doubled where that tells more in the same time.

    A quad's ratio is that of 2·e steps of an entrant to 2·b of the base, of independent steps with one variance, so that its own
    goes by 1/2e + 1/2b; it takes the steps of `steps_of_quad`. What a step tells goes by the product of the two. Beside blocks of
    four steps of another loader, one step of the base makes that 6.9, and two make it 4.5. Where all blocks are alike, longer
    ones tell no more. None is made longer than half of the longest beside it: an interval needs some quads, however long.
    """
    found, others = dict(paces), [pace for key, pace in paces.items() if key != base]
    longest = max((pace.block for pace in others), default=0)
    own = min(_longer(paces[base], longest), key=lambda pace: sum(_steps_by_variance(other, pace) for other in others))
    found[base] = own
    for key, pace in paces.items():
        if key != base:
            found[key] = min(_longer(pace, own.block), key=lambda each: _steps_by_variance(each, own))
    return found


def _longer(pace: Pace, longest: int) -> list[Pace]:
    """The pace, and with a block twice as long where that is at most half of the longest beside it."""
    return [pace, *([replace(pace, block=2 * pace.block)] if 4 * pace.block <= longest else [])]


def _steps_by_variance(entrant: Pace, base: Pace) -> float:
    return steps_of_quad(entrant, base) * (1 / (2 * entrant.block) + 1 / (2 * base.block))
