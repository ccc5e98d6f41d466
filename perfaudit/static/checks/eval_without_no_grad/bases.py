"""What a class derives from, here and in other files of the project."""

from __future__ import annotations

import ast
from collections.abc import Callable

from perfaudit.static.project.neighbours import Neighbours
from perfaudit.static.source import Source

_MAX_BASES = 4  # classes looked through, each with its bases


def derives_from(
    source: Source,
    definition: ast.ClassDef,
    neighbours: Neighbours | None,
    is_wanted: Callable[[Source, ast.expr], bool],
    hops: int = _MAX_BASES,
) -> bool:
    """Whether a class has a base of which `is_wanted` says so, itself or by a base of it.

    is_wanted: given the file of a class and one of its bases as written there. neighbours: of the file that is looked at.
    """
    for base in definition.bases:
        if is_wanted(source, base):
            return True
        above = source.lookup(base) if isinstance(base, ast.Name) else []
        found: tuple[Source, ast.AST] | None = (source, above[0]) if len(above) == 1 else None
        dotted = source.qualified_name(base) or ""
        if found is None and dotted and neighbours is not None:
            found = neighbours.definition_of(dotted, None if source.neighbours is neighbours else source)
        if found is None or not isinstance(found[1], ast.ClassDef) or not hops:
            continue
        if derives_from(found[0], found[1], neighbours, is_wanted, hops - 1):
            return True
    return False
