"""What a child can be asked: one table of verbs, and a module for each subject.

A verb takes the child's `Holder` and what the command says beside "do"; its result is the reply. Nothing of another part is
known here: a command names it (`measure.attribute_names`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perfaudit.measure.verbs import asking, building, first_losses, looking, racing, timing

Reply = dict[str, Any]  # JSON

VERBS: dict[str, Callable[..., Reply]] = {
    "build": building.build,
    "imported": building.libraries_so_far,
    "strays": building.strays,
    "trace": building.trace,
    "ask": asking.ask,
    "call": asking.call,
    "losses": first_losses.losses,
    "sensitivity": first_losses.sensitivity,
    "exact": first_losses.exact,
    "block": timing.block,
    "asleep": timing.asleep,
    "screen": racing.screen,
    "race": racing.race,
    "process": looking.process,
    "has_ended": looking.has_ended,
    "memory": looking.memory,
    "room": looking.room,
    "observe": looking.observe,
    "count": looking.count,
}
