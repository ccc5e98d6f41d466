"""Which classes of a file are related: by what they descend from in the same file."""

from __future__ import annotations

import ast

from perfaudit.static.source import Source
from perfaudit.static.understanding.answers import remember


def family(source: Source, definition: ast.ClassDef) -> frozenset[int]:
    """A class and the classes of this file it descends from, by id."""
    return _all_behind(definition, _bases(source))


@remember
def relatives(source: Source, definition: ast.ClassDef) -> frozenset[int]:
    """A class, those of this file it descends from, and those that descend from it, by id."""
    return family(source, definition) | _all_behind(definition, _derivations(source))


def _all_behind(definition: ast.ClassDef, next_ones: dict[int, list[int]]) -> frozenset[int]:
    """A class and all that lie behind it, by id. next_ones: those behind each."""
    found: set[int] = set()
    pending = [id(definition)]
    while pending:
        item = pending.pop()
        if item not in found:
            found.add(item)
            pending += next_ones.get(item, ())
    return frozenset(found)


@remember
def roots_of(source: Source) -> dict[int, frozenset[int]]:
    """By class: those of its family that descend from none. Two classes share a part of their families where they share a root.

    Classes that only descend from each other (each is a base of the other under some condition) are roots as well.
    """
    bases = _bases(source)
    endless = set(bases)  # until a root is found among what they descend from
    derived = _derivations(source)
    pending = [item for item, above in bases.items() if not above]
    while pending:
        item = pending.pop()
        if item in endless:
            endless.discard(item)
            pending += derived.get(item, ())
    ends = {item for item, above in bases.items() if not above} | endless
    return {id(definition): family(source, definition) & ends for definition in source.nodes(ast.ClassDef)}


@remember
def derived_from(source: Source) -> dict[int, list[int]]:
    """By root: itself and the classes that descend from it."""
    table: dict[int, list[int]] = {}
    for item, roots in roots_of(source).items():
        for root in roots:
            table.setdefault(root, []).append(item)
    return table


@remember
def _derivations(source: Source) -> dict[int, list[int]]:
    """By class: those of which it is a base."""
    table: dict[int, list[int]] = {}
    for item, above in _bases(source).items():
        for base in above:
            table.setdefault(base, []).append(item)
    return table


@remember
def _bases(source: Source) -> dict[int, list[int]]:
    """The bases of each class that may be classes of the same file."""
    here = source.bound_in(source.tree)
    return {
        id(definition): [
            id(found)
            for base in definition.bases
            if isinstance(base, ast.Name)
            for found in here.get(base.id, ())
            if isinstance(found, ast.ClassDef)
        ]
        for definition in source.nodes(ast.ClassDef)
    }
