"""Which candidates of a screening can be in place at the same time in one training, and which exclude each other."""

from __future__ import annotations

from collections.abc import Sequence

from perfaudit.measure.entrants import CONTROL
from perfaudit.measure.preparation import Candidate, Preparation
from perfaudit.training import Variant
from perfaudit.training.code_variant import CodeVariant
from perfaudit.training.switches import SwitchVariant
from perfaudit.training.together import Together


def slots_of(candidates: Sequence[Candidate], prepared: Preparation) -> list[list[str]]:
    """By keys, candidates that say which thing they are a setting of, those of one thing in one list; the control has its own.

    Those that change the same function or statement count as settings of one thing. [] where there are none: another loader and
    a second training are raced by themselves.
    """
    found: list[tuple[set[object], list[str]]] = []
    for candidate in candidates:
        key = candidate.key
        if (
            not candidate.slot
            or candidate.way == "control"
            or key not in prepared.variants
            or not _can_stand_beside_others(prepared.ways[key])
        ):
            continue
        marks, keys = {candidate.slot, *code_of(prepared.variants[key])}, [key]
        apart = []
        for other, mine in found:
            if other & marks:
                marks, keys = marks | other, mine + keys
            else:
                apart.append((other, mine))
        found = [*apart, (marks, keys)]
    return [*(keys for _, keys in found), [CONTROL]] if found else []


def code_of(variant: Variant) -> set[object]:
    """What names the functions and statements that a variant changes, the same of two that change the same."""
    if isinstance(variant, Together):
        return {each for part in variant.variants for each in code_of(part)}
    if isinstance(variant, CodeVariant):
        return {id(swap.function) for swap in variant.swaps}
    if isinstance(variant, SwitchVariant):
        return {("region", turn.region.number) for turn in variant.turns}
    return set()


def _can_stand_beside_others(way: str) -> bool:
    return way in ("code", "setting", "code and setting")
