"""Functions of other files that come with everything else of their module: `from utils import *`."""

from __future__ import annotations

import ast

from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.understanding.elsewhere import Elsewhere


def called_through_star(source: Source, call: ast.Call) -> Elsewhere | None:
    """The function of a module that the file imports everything from, where only one such module has that name."""
    name = call.func.id if isinstance(call.func, ast.Name) and not source.lookup(call.func) else ""
    if not name or name in source.aliases or source.neighbours is None:
        return None
    stars = [s for s in source.nodes(ast.ImportFrom) if any(alias.name == "*" for alias in s.names)]
    modules = ("." * s.level + (s.module or "") for s in stars)
    found = [there for m in modules if (there := source.neighbours.definition_of(f"{m}.{name}")) is not None]
    if len(found) != 1 or not isinstance(found[0][1], FUNCTIONS):
        return None
    return Elsewhere(found[0][0], found[0][1], call)
