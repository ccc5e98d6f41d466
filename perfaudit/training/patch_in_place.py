"""A patch put into a training that runs, as its text says: the code of functions is swapped, statements of loops are switched.

Child only. Who hands in a patch need not know which: what was loaded with switches is switched, everything else is swapped.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perfaudit.target.working_folder import full_path
from perfaudit.training import Variant
from perfaudit.training.code_change import CodeChange, NotSwappable, change_of_trees, code_change
from perfaudit.training.code_variant import prepare
from perfaudit.training.edited_places import Place, edited_places, statements_at
from perfaudit.training.multiplexed_file import Multiplexed, SwitchSetting
from perfaudit.training.switches import file_with_switches, switch_variant


@dataclass(frozen=True, slots=True)
class PatchInPlace:
    """The variants that make a patch, with the code that they swap and the switches that they turn."""

    variants: tuple[Variant, ...]
    changes: tuple[CodeChange, ...]
    turns: tuple[SwitchSetting, ...]


def patch_in_place(texts: Mapping[str, Sequence[str]], others: Sequence[types.ModuleType] = ()) -> PatchInPlace:
    """The patch that makes of each first text the second one, by path. Raises NotSwappable with the reason.

    others: modules of another training in this process, which stay as they are.
    """
    changes: list[CodeChange] = []
    variants: list[Variant] = []
    turns: list[SwitchSetting] = []
    for path, (before, after) in texts.items():
        name = full_path(path)
        file = file_with_switches(name)
        if file is None:
            changes.append(code_change(name, before, after))
            continue
        if before != file.text:
            raise NotSwappable(f"{path} is not what it was when the script was started")
        edited = edited_places(before, after, name)
        places, left = file.split(edited)
        if left or not places:
            changes.append(_rest(file, after, left))
        if places:
            variant = switch_variant(file, edited, others)
            variants.append(variant)
            turns += variant.turns
    if changes:
        code = prepare(changes, others)
        if not code.swaps and not turns:
            raise NotSwappable("the patch changes no function")
        variants.insert(0, code)
    return PatchInPlace(tuple(variants), tuple(changes), tuple(turns))


def _rest(file: Multiplexed, after: str, left: Sequence[Place]) -> CodeChange:
    """What swapping code has to do of a patch whose other places are switched."""
    tree = copy.deepcopy(file.tree)
    for place in sorted(left, key=lambda each: each.order, reverse=True):
        statements_at(tree, place.way)[place.start : place.stop] = [copy.deepcopy(each) for each in place.after]
    imports = edited_places(file.text, after, file.path).imports
    change = change_of_trees(file.path, file.tree, tree)
    return CodeChange(change.path, change.functions, imports)
