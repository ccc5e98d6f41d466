"""Layer 2 of the gate: the counters of two states of the code, compared exactly, growth traced to lines."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from perfaudit.gate.counting import Counted, Spot
from perfaudit.verdicts import CounterChange, CountersVerdict, GateVerdict, Place

PLACES_SHOWN = 10  # of operators; a changed layer touches every line behind it

# What a step works on, which is nobody's fault; other counters are compared where it is the same.
SAMPLES, DATA = "samples", "dataset_samples"
_FOLLOWS_SAMPLES = ("flops", "bytes_allocated", "peak_live_bytes", "bytes_to_device", "samples_skipped")
_FOLLOWS_DATA = ("samples_repeated", "samples_skipped")


def compared(target: str, before: Counted, after: Counted, tolerated: Mapping[str, float]) -> CountersVerdict:
    """The verdict on the counters of one target.

    tolerated: share by which a counter may grow, by name, 0 where it is not there; nothing may grow from 0. Any other
    growth is a regression; a gain is shown where something fell and nothing grew. Not comparable and so set aside, with
    words, is what only one side has or set aside itself. Where the batch has another number of samples, what grows with it
    (operations, bytes) is no longer of the same work and set aside too, while operators, syncs and launches, which a step
    makes whatever its batch, are compared; likewise the loader's counters where the dataset has another length.
    Counters of another device, torch or dtype are not compared at all.
    """
    if reason := _not_comparable(before, after):
        return CountersVerdict(target, "not_judged", reason, dict(after.values))
    aside = _set_aside(before, after)
    both = [name for name in after.values if name in before.values and name not in aside]
    if not both:
        return CountersVerdict(
            target, "not_judged", "no counter can be compared", dict(after.values), set_aside=_in_order(aside)
        )
    changes = tuple(
        _change(name, before, after, tolerated.get(name, 0.0))
        for name in sorted(both)
        if before.values[name] != after.values[name]
    )
    return CountersVerdict(target, _verdict(changes), "", dict(after.values), changes, _in_order(aside))


def _verdict(changes: tuple[CounterChange, ...]) -> GateVerdict:
    grown = [change for change in changes if change.grew]
    if any(not change.allowed for change in grown):
        return "regressed"
    return "improved" if changes and not grown else "pass"


def _not_comparable(before: Counted, after: Counted) -> str:
    """Why no counter of one can be compared with the other's, "" where they can."""
    pairs = [
        (what, getattr(before, what), getattr(after, what))
        for what in ("device", "torch", "dtype")
        if getattr(before, what) != getattr(after, what)
    ]
    if not pairs:
        return ""
    told = " and ".join(f"{what} {old or 'unknown'} before and {new or 'unknown'} now" for what, old, new in pairs)
    return f"counted with {told}: counters of these are not comparable"


def _set_aside(before: Counted, after: Counted) -> dict[str, str]:
    """Counters that are not compared, and why."""
    aside: dict[str, str] = {}
    for name in {*before.values, *after.values, *before.set_aside, *after.set_aside, *before.absent, *after.absent}:
        if words := _one_sided(name, before, after):
            aside[name] = words
    for descriptive, unit, followers in (
        (SAMPLES, "samples a step", _FOLLOWS_SAMPLES),
        (DATA, "samples in the dataset", _FOLLOWS_DATA),
    ):
        old, new = before.values.get(descriptive), after.values.get(descriptive)
        if old is None or new is None or old == new:
            continue
        told = f"{old:,} {unit} before and {new:,} now"
        aside[descriptive] = told
        for name in followers:
            if name in before.values and name in after.values:
                values = f"{before.values[name]:,} and {after.values[name]:,}"
                aside.setdefault(name, f"{told}: {values} are not of the same work")
    return aside


def _one_sided(name: str, before: Counted, after: Counted) -> str:
    """Why a counter is not there on both sides, "" where it is."""
    sides = ((before, after, "before"), (after, before, "now"))
    for side, _, when in sides:
        if name in side.set_aside:
            return f"not reproducible {when}: {side.set_aside[name]}"
    for side, other, when in sides:
        if name in side.values:
            continue
        why = side.absent.get(name, "")
        if name in other.values:
            return f"{other.values[name]:,} {_other(when)}, not counted {when}{f': {why}' if why else ''}"
        return f"not counted: {why or other.absent.get(name, '')}"
    return ""


def _other(when: str) -> str:
    return "now" if when == "before" else "before"


def _change(name: str, before: Counted, after: Counted, tolerated: float) -> CounterChange:
    old, new = before.values[name], after.values[name]
    parts, others = after.by_name.get(name, {}), before.by_name.get(name, {})
    differences = {part: parts.get(part, 0) - others.get(part, 0) for part in {*parts, *others}}
    by_name = dict(sorted(((p, d) for p, d in differences.items() if d), key=lambda item: (-item[1], item[0])))
    places: tuple[Place, ...] = ()
    if new > old and name in before.places and name in after.places:
        places = grown_places(before.places[name], after.places[name])
        places = places[:PLACES_SHOWN] if name == "operators" else places
    allowed = old < new <= old * (1 + tolerated)
    return CounterChange(name, old, new, by_name, places, allowed=allowed)


def grown_places(before: list[Spot], after: list[Spot]) -> tuple[Place, ...]:
    """Lines on which something is done more often than before, the most growth first.

    Lines are told by path, text and what is done there, so one that moved is not new; one that moved to another file
    makes up for itself there. Of several lines with the same text, the one where it is done most often is named.
    """
    growth = _by_line(after)
    growth.subtract(_by_line(before))
    moved: Counter[tuple[str, str]] = Counter()
    for (_, text, what), difference in growth.items():
        if difference < 0:
            moved[(text, what)] -= difference
    lines: dict[tuple[str, str, str], list[Spot]] = defaultdict(list)
    for spot in after:
        lines[(spot.path, spot.text, spot.what)].append(spot)
    places = []
    for key in sorted(key for key, difference in growth.items() if difference > 0):
        path, text, what = key
        known = min(growth[key], moved[(text, what)])
        moved[(text, what)] -= known
        if growth[key] > known:
            most = max(lines[key], key=lambda spot: (spot.count, spot.line))
            places.append(Place(path, most.line, growth[key] - known, what))
    return tuple(sorted(places, key=lambda place: (-place.count, place.path, place.line, place.what)))


def _by_line(spots: list[Spot]) -> Counter[tuple[str, str, str]]:
    found: Counter[tuple[str, str, str]] = Counter()
    for spot in spots:
        found[(spot.path, spot.text, spot.what)] += spot.count
    return found


def _in_order(aside: dict[str, str]) -> dict[str, str]:
    return dict(sorted(aside.items()))
