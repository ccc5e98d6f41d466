"""The first update without the setup that is in its record. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perfaudit.script.spans import PHASES

Json = dict[str, Any]  # Any: nested JSON
_DATA_WAIT, _OTHER = PHASES.index("data_wait"), PHASES.index("other")


def without_setup(updates: Sequence[Json], facts: Mapping[str, Any]) -> list[Json]:
    """Records of updates, of which the first one begins where the setup ends: when its first batch was there.

    facts: when that was, see `Counts`. Without them the records are as they were. Of the setup, the time from the loader on is
    waiting for data, and what is left is no phase; an evaluation before the training has others.
    """
    batch_at, update_at = facts.get("first_batch_at"), facts.get("first_update_at")
    if not updates or batch_at is None or update_at is None:
        return list(updates)
    first = updates[0]
    seconds = min(first["seconds"], max(0.0, update_at - batch_at))
    phases, left = list(first["phases"]), first["seconds"] - seconds
    waited = max(0.0, batch_at - (facts.get("loader_at") or batch_at))
    most = {_DATA_WAIT: waited, _OTHER: left} if phases else {}
    for number in (*most, *range(len(phases))):
        taken = min(phases[number], left, most.pop(number, left))
        phases[number] -= taken
        left -= taken
    return [{**first, "seconds": seconds, "phases": phases}, *updates[1:]]
