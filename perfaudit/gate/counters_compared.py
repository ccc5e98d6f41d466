"""Layer 2 of the gate: the counters of two states of the code, compared exactly, growth traced to lines."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace

from perfaudit.gate.target_counters import Counted, Spot
from perfaudit.verdicts import CounterChange, CountersVerdict, GateVerdict, Place

OPERATORS = "operators"
PLACES_SHOWN = 10  # of operators; a changed layer touches every line behind it

# What a step works on, which is nobody's fault.
SAMPLES, DATA = "samples", "dataset_samples"
_UNITS = {SAMPLES: "samples a step", DATA: "samples in the dataset"}
_WORK = ("flops", "bytes_allocated", "peak_live_bytes", "bytes_to_device")  # grow with the samples, and never shrink
# Rest on what a step works on, and so are compared where that is the same, or where a conclusion holds anyway.
_RESTS_ON = {SAMPLES: (*_WORK, "samples_skipped"), DATA: ("samples_repeated", "samples_skipped")}


def compare_counters(target: str, before: Counted, after: Counted, tolerated: Mapping[str, float]) -> CountersVerdict:
    """The verdict on the counters of one target. after: as it was counted just now, before: in the same environment.

    Whether the environment of a file's counters is the same is asked in `comparable`, and nothing of it here.
    tolerated: share by which a counter may grow, by name, 0 where it is not there; nothing may grow from 0. Any other
    growth is a regression. A gain is shown where something fell and nothing grew, no single operator either, because not all
    cost the same. Other parts with the same sum are a change that decides nothing.
    A counter that was reproducible before and is not now, or that can no longer be taken, has grown where even the smallest
    of its values is beyond what is tolerated (the change then has that value). It has grown as well where both processes saw
    it take turns between two values, none of them below what it was, and on average beyond what is tolerated (the change has
    the larger value). Else it leaves the verdict "inconclusive", with words, unless another one regressed. One that is
    reproducible on neither side has grown where its smallest value now is beyond its largest before by more than it scatters
    on either side, because chance may have drawn other batches. Set aside, with words, is any other that the reference does
    not have or set aside itself, and what makes no sense for one side. Where the batch has another number of samples,
    operators, syncs and launches are compared all the same, which a step makes whatever its batch. Of operations and bytes
    more for fewer samples is growth and less for more samples a gain; anything else is of other work and set aside, as are
    the loader's counters where the dataset has another length.
    """
    aside = _set_aside(before, after)
    lost = [name for name in sorted(aside) if name in before.values and name in {**after.set_aside, **after.absent}]
    grown = {name: grown_to for name in lost if (grown_to := _grown_anyway(name, before, after, tolerated)) is not None}
    risen = {name: after.least[name] for name in aside if _has_risen(name, before, after, tolerated)}
    aside = {name: words for name, words in sorted(aside.items()) if name not in {*grown, *risen}}
    unknown = [name for name in lost if name not in grown]
    values = {name: value for name, value in after.values.items() if name in before.values and name not in aside}
    values |= grown
    if not values and not unknown and not risen:
        reason = "no counter can be compared"
        return CountersVerdict(target, "not_judged", reason, dict(after.values), set_aside=aside)
    found = [_change(name, before, after, value, tolerated.get(name, 0.0)) for name, value in sorted(values.items())]
    found += [CounterChange(name, before.most[name], value) for name, value in risen.items()]
    found.sort(key=lambda change: change.counter)
    changes = tuple(change for change in found if change.before != change.after or change.by_name)
    told = [
        f"{name} is reproducible neither before nor now, and {value:,} or more now" for name, value in risen.items()
    ]
    reason = "; ".join([*told, *(_judged_by(*item, after) for item in grown.items()), *_cannot_be_told(unknown, after)])
    return CountersVerdict(target, _verdict(changes, bool(unknown)), reason, dict(after.values), changes, aside)


def _verdict(changes: tuple[CounterChange, ...], is_open: bool) -> GateVerdict:
    grown = [change for change in changes if change.grew]
    if any(not change.allowed for change in grown):
        return "regressed"
    if is_open:
        return "inconclusive"
    is_dearer = any(change.counter == OPERATORS and change.more_and_less[0] for change in changes)
    has_fallen = any(change.after < change.before for change in changes)
    return "improved" if has_fallen and not grown and not is_dearer else "pass"


def _grown_anyway(name: str, before: Counted, after: Counted, tolerated: Mapping[str, float]) -> int | None:
    """The value to which a counter has grown that is not the same in each step or run now; None where that is not certain."""
    least, old = after.least.get(name), before.values[name]
    if least is None or name in _UNITS:
        return None
    most, allowed = after.most[name] if name in after.turns else least, old * (1 + tolerated.get(name, 0.0))
    value = least if least > allowed else most
    is_certain = value == least or (least >= old and (least + most) / 2 > allowed)
    return value if is_certain and value > allowed and not _other_work(name, old, value, before, after) else None


def _has_risen(name: str, before: Counted, after: Counted, tolerated: Mapping[str, float]) -> bool:
    """Whether a counter that is reproducible on neither side is far beyond all that was seen of it before."""
    if name in _UNITS or any(name not in side.set_aside or name not in side.least for side in (before, after)):
        return False
    most, least = before.most[name], after.least[name]
    scatter = max(side.most[name] - side.least[name] for side in (before, after))
    beyond = least - most * (1 + tolerated.get(name, 0.0))
    return beyond > scatter and not _other_work(name, most, least, before, after)


def _judged_by(name: str, value: int, after: Counted) -> str:
    least = after.least[name]
    if value == least:
        return f"{name} is not reproducible now and judged by the smallest value that was seen, {value:,}"
    return f"{name} takes turns from step to step now: {value:,} in every second step, {least:,} in the others"


def _cannot_be_told(unknown: list[str], after: Counted) -> list[str]:
    """Why there is no verdict on counters that there was one of before."""
    differing = [name for name in unknown if name in after.set_aside]
    missing = [name for name in unknown if name not in after.set_aside]
    return [
        f"{', '.join(names)} {'was' if len(names) == 1 else 'were'} {what}, so growth cannot be told"
        for names, what in (
            (differing, "reproducible before and not now"),
            (missing, "counted before and cannot be now"),
        )
        if names
    ]


def _set_aside(before: Counted, after: Counted) -> dict[str, str]:
    """Counters that are not compared as they are, and why."""
    aside: dict[str, str] = {}
    for name in {*before.values, *after.values, *before.set_aside, *after.set_aside, *before.absent, *after.absent}:
        if words := _one_sided(name, before, after):
            aside[name] = words
            continue
        old, new = before.values[name], after.values[name]
        if words := _other_work(name, old, new, before, after):
            aside[name] = f"{words}: {old:,} and {new:,} are not of the same work"
        elif name in _UNITS and old != new:
            aside[name] = _basis(name, before, after)
    return aside


def _other_work(name: str, old: int, new: int, before: Counted, after: Counted) -> str:
    """In what the work differs that a counter rests on, "" where two values of it can be compared all the same."""
    for basis, counters in _RESTS_ON.items():
        was, now = before.values.get(basis), after.values.get(basis)
        if name not in counters or was == now:
            continue
        if name in _WORK and was is not None and now is not None and (new > old if now < was else new <= old):
            continue
        return _basis(basis, before, after)
    return ""


def _basis(basis: str, before: Counted, after: Counted) -> str:
    was, now = before.values.get(basis), after.values.get(basis)
    if was is None or now is None:
        known, when = (was, "before") if was is not None else (now, "now")
        return f"{known:,} {_UNITS[basis]} {when} and an unknown number {_other(when)}"
    return f"{was:,} {_UNITS[basis]} before and {now:,} now"


def _one_sided(name: str, before: Counted, after: Counted) -> str:
    """Why a counter is not there on both sides, "" where it is."""
    sides = ((before, after, "before"), (after, before, "now"))
    for side, other, when in sides:
        if name in side.set_aside:
            known = f" ({other.values[name]:,} {_other(when)})" if name in other.values else ""
            return f"not reproducible {when}: {side.set_aside[name]}{known}"
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


def _change(name: str, before: Counted, after: Counted, new: int, tolerated: float) -> CounterChange:
    old = before.values[name]
    known = after.most.get(name) if name in after.turns else after.values.get(name)
    if known != new:  # nor are its parts and lines the same in two runs
        return CounterChange(name, old, new)
    allowed = old < new <= old * (1 + tolerated)
    if any(value and name not in side.by_name for value, side in ((old, before), (new, after))):
        return CounterChange(name, old, new, allowed=allowed)
    parts, others = after.by_name.get(name, {}), before.by_name.get(name, {})
    differences = {part: parts.get(part, 0) - others.get(part, 0) for part in {*parts, *others}}
    by_name = dict(sorted(((p, d) for p, d in differences.items() if d), key=lambda item: (-item[1], item[0])))
    places: tuple[Place, ...] = ()
    if new > old and name in before.places and name in after.places:
        places = _places_of_growth(grown_places(before.places[name], after.places[name]), by_name)
        places = places[:PLACES_SHOWN] if name == OPERATORS else places
    return CounterChange(name, old, new, by_name, places, allowed=allowed)


def _places_of_growth(places: tuple[Place, ...], by_name: Mapping[str, int]) -> tuple[Place, ...]:
    """The places of what grew in all, up to that growth: a line that was edited has everything on it anew."""
    if not by_name:  # it has no parts
        return places
    capped = [replace(place, count=min(place.count, by_name.get(place.what, 0))) for place in places]
    grown = [place for place in capped if place.count > 0]
    return tuple(sorted(grown, key=lambda place: (-place.count, place.path, place.line, place.what)))


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
