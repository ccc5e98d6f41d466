"""Checks of one device in a trace: each module has `RULES` and `look(view)`; it is found by its file's name."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache

from perfaudit.trace.device_view import DeviceView
from perfaudit.trace.host_threads import Instant
from perfaudit.trace.intervals import total

WARM_UP = "PA908"
CAPTURING = 0.3  # of the window, from which on it shows the start of a program and nothing else
LEAST = 0.02  # of the window; what could save less is not worth a line


@dataclass(frozen=True, slots=True)
class Seen:
    """What a check saw: the rule, what is there, and what it could save at most, in microseconds of the window.

    recurring: the part that steps have again and again, so that it can be told as a time of a step; None for all of it.
    at: instants of the host that belong to it, for its annotation and source line; the costliest first.
    """

    rule: str
    message: str
    microseconds: float
    at: tuple[Instant, ...] = field(default=())
    recurring: float | None = None

    def share(self, view: DeviceView) -> float:
        """The same as a part of the usual steps; of warm-up, and without marked steps, of the window."""
        return min(1.0, self.microseconds / (view.length if self.rule == WARM_UP else view.usual.shares_are_of))


Look = Callable[[DeviceView], Iterable[Seen]]


@cache
def all_checks() -> tuple[tuple[tuple[str, ...], Look], ...]:
    """The rules and the function of every check, in the order of their files."""
    found = []
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda item: item.name):
        check = importlib.import_module(f"{__name__}.{module.name}")
        found.append((check.RULES, check.look))
    return tuple(found)


def look_at(view: DeviceView) -> Iterator[Seen]:
    """What all checks see of a device and what is worth a line; what two of them see for one rule is one thing.

    They look at what is behind the warm-up or the set-up, which has a check of its own.
    """
    if total(view.captures) > CAPTURING * view.length:
        lost = sum(one.end - one.start for one in view.idle if one.start < view.captures[-1][1])
        said = "a CUDA graph is captured inside the trace, which belongs to the start of a program"
        yield Seen(WARM_UP, said, lost, recurring=0.0)
        return
    by_rule: dict[str, list[Seen]] = {}
    for rules, look in all_checks():
        for seen in look(view.usual) if view.usual.rows or rules == (WARM_UP,) else ():
            by_rule.setdefault(seen.rule, []).append(seen)
    for rule, several in by_rule.items():
        several.sort(key=lambda seen: -seen.microseconds)
        worth = [seen for seen in several if seen.share(view) >= LEAST / 2]
        parts = [seen.microseconds for seen in several]
        whole = max(parts) if rule == WARM_UP else sum(parts)  # what warm-up steps take longer holds its parts
        shown = worth or several[:1]
        together = Seen(
            rule,
            ". ".join([shown[0].message, *(seen.message[:1].upper() + seen.message[1:] for seen in shown[1:])]),
            min(whole, view.length if rule == WARM_UP else view.usual.length),
            tuple(at for seen in shown for at in seen.at),
            sum(seen.microseconds if seen.recurring is None else seen.recurring for seen in several),
        )
        if together.share(view) >= LEAST:
            yield together
