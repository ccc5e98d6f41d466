"""How many cores other programs hold just now."""

from __future__ import annotations

import time
from pathlib import Path

from perfaudit.machine.limits import ROOT, text_of

WATCHED = 0.2  # seconds
IDLE = (3, 4)  # of the columns of /proc/stat: idle, and waiting for a disk


def busy_and_all(root: Path = ROOT) -> tuple[int, int, int] | None:
    """Ticks that all cores of the machine were busy since its start, all ticks, and how many cores; None where none tells."""
    lines = (text_of(root / "proc/stat") or "").splitlines()
    words = lines[0].split() if lines else []
    if words[:1] != ["cpu"] or len(words) < 9:
        return None
    ticks = [int(word) for word in words[1:9]]
    cores = sum(line.startswith("cpu") for line in lines) - 1
    return sum(ticks) - sum(ticks[column] for column in IDLE), sum(ticks), cores


def cores_missing(usable: int, root: Path = ROOT, seconds: float = WATCHED) -> float:
    """Of the usable cores, how many are not free while this process waits so long; 0 where the system does not tell.

    usable: cores of this process. On a machine that has more, others may hold those.
    """
    before = busy_and_all(root)
    if before is None:
        return 0.0
    time.sleep(seconds)
    after = busy_and_all(root) or before
    spent = after[1] - before[1]
    if spent <= 0:
        return 0.0
    free = (1 - (after[0] - before[0]) / spent) * after[2]
    return max(0.0, usable - free)
