"""Whether averages of its weights that a script keeps move with a patch as far, and to the same side, as without it.

An average follows the weights slowly: next to itself its motion is small, and no loss depends on it. So each tensor is held to
how far it has moved (`training.script_average`), and what moves by less than roundings of the average can explain is not seen.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from perfaudit.measure.runner import TrialFailed

AVERAGE = 1e-3  # of a tensor's motion: another formula for the same average, beyond its own roundings
ANOTHER_STREAM = 0.25  # of the motion of all together, where a patch draws other random numbers
SPREAD = 16.0  # times what nudged parameters do, as in `tune.tolerance`
REPEATS = 2.0  # times the gap of two runs of the user's code
# Of a patch of an average itself, the most that a tensor's motion may differ in size, whatever roundings do: an average that was
# forgotten does not move at all. So what moves by less than 1 / HALF times its roundings is not seen.
HALF = 0.5
UNSEEN = "the average of the weights was not seen to move in the steps that were compared"


@dataclass(frozen=True, slots=True)
class Moved:
    """How far a tensor has moved. trained: whether an optimizer moves what it stands for, in an average that moves.

    doubts: what roundings make of the two sums.
    """

    name: str
    trained: bool
    absolute: float  # Σ|Δ|
    norm: float  # √ΣΔ²
    doubts: tuple[float, float]
    products: tuple[float, ...]  # of Δ with random signs

    @property
    def is_seen(self) -> bool:
        return HALF * self.norm > self.doubts[1] and HALF * self.absolute > self.doubts[0]


Averages = tuple[Moved, ...]


def averages_of(reply: Sequence[Sequence[Any]] | None) -> Averages | None:
    """What a child said of a script under "averages"; None of factories."""
    if reply is None:
        return None
    found = []
    for name, trained, *hexed in reply:
        absolute, norm, *more = map(float.fromhex, hexed)
        found.append(Moved(str(name), bool(trained), absolute, norm, (more[0], more[1]), tuple(more[2:])))
    return tuple(found)


def said_of_averages(
    mine: Averages | None,
    base: Averages | None,
    changes: Collection[str],
    is_of_average: bool,
    is_alike: bool,
    again: Callable[[], Averages | None],
    nudged: Callable[[], Averages | None],
) -> str:
    """What comparing them shows, to be added to what the losses show. Raises TrialFailed where they are not what was promised.

    is_of_average: whether the patch is one of an average, which is refused where it could not be seen. is_alike: whether the
    losses are the same to the bit: of a patch of an average, nothing but its formula is left to differ. Another one may move
    what no loss depends on, as the bias of the keys of an attention, whose gradient is rounding alone. again, nudged: of the
    user's code, run again and with its parameters nudged.
    """
    if base is None:
        return ""
    if is_of_average:
        _refuse_unseen(base)
    trains_otherwise = bool({"algorithm", "order"} & set(changes))
    if not is_of_average and (mine is None or trains_otherwise or "checkpoint" in changes):
        return ""
    if trains_otherwise:
        raise TrialFailed("the average of the weights cannot be compared beside a patch that changes what is computed")
    if mine is None:
        raise TrialFailed("the average of the weights cannot be compared: it has other parameters")
    found = gaps(mine, base, changes)
    if not found:
        return ""
    least = AVERAGE if changes else 0.0
    own = dict.fromkeys(found, least)
    if _beyond(found, own, is_of_average) and "rng" in changes and not is_alike:
        return _said_of_streams(mine, base, is_of_average)
    for run, times in ((again, REPEATS), (nudged, SPREAD)):
        if not _beyond(found, own, is_of_average):
            continue
        if run is nudged and (not changes or (is_alike and is_of_average)):
            continue
        for key, (_, whole) in gaps(run() or base, base, changes).items():
            if math.isfinite(whole):
                own[key] = max(own.get(key, least), times * whole)
    if beyond := _beyond(found, own, is_of_average):
        key = max(beyond, key=lambda key: found[key])
        raise TrialFailed(
            f"more than the promised change: the motion of the average of the weights differs by {found[key][1]:.1e} of it "
            f"(worst: {key[0]}, tolerance {own[key]:.1e})"
        )
    worst = max(found, key=lambda key: found[key][1])
    if not found[worst][1]:
        return "; averages of the weights move as far"
    return f"; averages of the weights move as far within {found[worst][1]:.1e} (worst: {worst[0]}, tolerance {own[worst]:.1e})"


Key = tuple[str, int]  # the name, and which of several so named: dicts and lists have no names of their own


def gaps(mine: Averages, base: Averages, changes: Collection[str]) -> dict[Key, tuple[float, float]]:
    """Of each tensor that moves in one of them, by how much its size differs, and all of it, as shares of the base's motion.

    What roundings explain is taken off, but for a patch that changes nothing. Infinite for a tensor that moves in the patched
    code alone. Tensors of one name are matched with the nearest.
    """
    rounds = bool(changes)
    there = {each.name for each in mine}
    found: dict[Key, tuple[float, float]] = {}
    for name in dict.fromkeys(each.name for each in (*base, *mine)):
        theirs = sorted((e for e in base if e.name == name and e.norm), key=lambda each: -each.norm)
        left = [each for each in mine if each.name == name and each.norm]
        if "checkpoint" in changes and name not in there and name.endswith("bias"):
            continue  # it is left out
        for number, each in enumerate(theirs):
            apart = [_gap(other, each, rounds) for other in left]
            nearest = min(range(len(left)), key=lambda at: apart[at][::-1], default=None)
            found[name, number] = apart[nearest] if nearest is not None else _gap(None, each, rounds)
            if nearest is not None:
                left.pop(nearest)
        for number, each in enumerate(left, len(theirs)):
            is_rounding = rounds and each.absolute <= each.doubts[0] and each.norm <= each.doubts[1]
            found[name, number] = (0.0, 0.0) if is_rounding else (math.inf, math.inf)
    return found


def _gap(mine: Moved | None, base: Moved, rounds: bool) -> tuple[float, float]:
    """The gap in size and the whole one; None for what has not moved."""
    absolute, norm, products = (
        (mine.absolute, mine.norm, mine.products) if mine else (0.0, 0.0, (0.0,) * len(base.products))
    )
    doubts = base.doubts if rounds else (0.0, 0.0)
    size = max(
        _share(abs(absolute - base.absolute), doubts[0], base.absolute),
        _share(abs(norm - base.norm), doubts[1], base.norm),
    )
    apart = math.sqrt(statistics.fmean((a - b) ** 2 for a, b in zip(products, base.products, strict=True)))
    # Products of roundings with signs spread around their norm.
    return size, max(size, _share(apart, 2 * doubts[1], base.norm))


def _share(apart: float, doubt: float, of: float) -> float:
    if apart <= doubt:
        return 0.0
    share = (apart - doubt) / of if of else math.inf
    return share if math.isfinite(share) else math.inf


def _beyond(found: dict[Key, tuple[float, float]], own: dict[Key, float], is_of_average: bool) -> list[Key]:
    return [key for key, (size, whole) in found.items() if whole > own.get(key, 0.0) or (is_of_average and size > HALF)]


def _refuse_unseen(base: Averages) -> None:
    """Raise TrialFailed where no average has moved in the user's code, or one of its tensors by no more than its roundings."""
    moved = [each for each in base if each.trained]
    if not any(each.is_seen for each in moved):
        raise TrialFailed(UNSEEN)
    if hidden := [each.name for each in moved if not each.is_seen]:
        raise TrialFailed(f"{UNSEEN} by more than roundings: {', '.join(hidden[:3])}{', …' if hidden[3:] else ''}")


def _said_of_streams(mine: Averages, base: Averages, is_of_average: bool) -> str:
    if is_of_average:
        raise TrialFailed(
            "the average of the weights cannot be compared: the patch draws other random numbers than your code"
        )
    moved, theirs = (sum(each.absolute for each in every) for every in (mine, base))
    gap = _share(abs(moved - theirs), 0.0, theirs)
    if gap > ANOTHER_STREAM:
        why = "more than random numbers explain"
        raise TrialFailed(f"the motion of the averages of the weights differs by {gap:.1e} of it, {why}")
    return ""
