"""How many steps of a variant are timed in one go. Knows no torch: whoever plans a race asks, and whoever drives one."""

from __future__ import annotations

import math
from dataclasses import dataclass

LEAST_BLOCK_SECONDS = 0.005  # of a block on the CPU: long against what switching and a clock take
# Of a block between two waits for a device, so that the host may run ahead as in real life.
LEAST_DEVICE_STEPS, LEAST_DEVICE_SECONDS = 5, 0.05
LEAST_LOADER_STEPS = 6  # of a block with a second loader that has workers; 2 made quads of photo_resnet scatter by 40 %


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


def pace_of(block: int, workers: int, prefetch: int, is_long: bool, take_turns: bool = True) -> Pace:
    """How steps with a loader are timed: whole rounds of its workers, one of them left out after each switch.

    A worker may have waited for a disk while it stood still, so the first batch of each comes too early. take_turns: whether any
    stand still in this race; where all go on, no batch comes too early, and no step is left out. is_long: blocks of a
    second loader, which takes turns, are longer: how many batches its workers have ready when a turn ends is chance, and one
    more or less is a batch's time in so few steps. Rivals need no such blocks: the fastest of them is measured afterwards.
    """
    if not workers:
        return Pace(block)
    least = max(block, LEAST_LOADER_STEPS) if is_long else block
    return Pace(workers * math.ceil(least / workers), workers if take_turns else 0, workers * prefetch + 2)


def steps_of_quad(entrant: Pace, base: Pace) -> int:
    """Steps that a quad takes: two blocks of the entrant and one of the base, which quads share."""
    return steps_of_turns(entrant) + steps_of_base(base)


def steps_of_turns(entrant: Pace) -> int:
    """Those of a quad that the entrant makes."""
    return entrant.skipped + 2 * entrant.block


def steps_of_base(base: Pace) -> int:
    """Those of a quad that the base makes."""
    return base.skipped + base.block
