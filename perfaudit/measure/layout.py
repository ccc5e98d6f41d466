"""Where memory lies: drawn anew for each child, because it makes code faster or slower, and forks of one process share it."""

from __future__ import annotations

import random

PIECES = 5, 60
SIZES = 16, 200_000  # bytes: on both sides of what malloc takes from the heap and what it maps


def layout_padding() -> list[bytearray]:
    """Blocks of memory, a few megabytes in all, that push what is allocated after them to other places while they are kept.

    Two programs that differ in nothing that counts differ in their layout of memory, and may differ by some percent in speed
    for that alone, in the same direction as often as they are run with it (Mytkowicz et al., "Producing wrong data without
    doing anything obviously wrong!", ASPLOS 2009). With a layout drawn for each process it is part of the spread between
    processes, which intervals include (Curtsinger & Berger, "Stabilizer", ASPLOS 2013).
    """
    drawn = random.SystemRandom()  # the user's seeds stay as they are
    return [bytearray(drawn.randint(*SIZES)) for _ in range(drawn.randint(*PIECES))]
