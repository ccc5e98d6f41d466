"""How long this process' threads have waited for a core: what others hold of the machine."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def queued_seconds() -> float:
    """Seconds this process' threads have waited for a core so far, all together; 0 where the system does not say.

    It is asked between steps, and `Path.glob` would take three times as long.
    """
    total = 0
    with contextlib.suppress(OSError), os.scandir("/proc/self/task") as threads:
        for thread in threads:
            with contextlib.suppress(OSError, ValueError, IndexError):  # one that ended meanwhile
                total += int(Path(thread.path, "schedstat").read_text().split()[1])
    return total / 1e9
