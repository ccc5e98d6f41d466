"""Whether objects of a class stay in host memory, as far as the program's own classes and functions show it."""

from __future__ import annotations

import ast
import builtins
import sys

from perfaudit.records import NamedTuple
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.devices import moves_to_device

_MAX_FOLLOWED = 64  # classes and functions; what is behind so many is not in sight
_HARMLESS = {"torch", "torchvision", "numpy", *sys.stdlib_module_names}  # packages that move no model by themselves
_BUILTINS = frozenset(dir(builtins))


class _Part(NamedTuple):
    """A class or function that a model is made with, and its file."""

    source: Source
    definition: ast.AST


def moves_nothing(source: Source, there: Source, definition: ast.ClassDef) -> bool:
    """Whether nothing in a class moves to a device, nor in its bases, nor in what these call by name, and so on.

    What is called by a name of this program, or of a package that is not known, and is not in sight may move something. What
    is handed to a class, `norm_layer`, is taken for a layer, which does not.
    source: the file that is looked at; there: the file of the class.
    """
    pending, known = [_Part(there, definition)], {id(definition)}
    while pending:
        part = pending.pop()
        calls = [node for node in walk(part.definition) if isinstance(node, ast.Call)]
        if any(moves_to_device(part.source, call) or names_device(call) for call in calls):
            return False
        bases = part.definition.bases if isinstance(part.definition, ast.ClassDef) else []
        named = [base.value if isinstance(base, ast.Subscript) else base for base in bases]
        for name in (*named, *(call.func for call in calls)):
            meant = _meaning(source, part.source, name)
            if meant is None:
                return False
            new = [one for one in meant if id(one.definition) not in known]
            known |= {id(one.definition) for one in new}
            pending += new
        if len(known) > _MAX_FOLLOWED:
            return False
    return True


def names_device(call: ast.Call) -> bool:
    return any(keyword.arg in ("device", "device_map", "device_ids") for keyword in call.keywords)


def _meaning(source: Source, there: Source, name: ast.expr) -> list[_Part] | None:
    """The classes and functions that a name stands for; [] for what moves nothing, None for what may."""
    if isinstance(name, ast.Name):
        if bindings := there.lookup(name):
            return [_Part(there, one) for one in bindings if isinstance(one, (ast.ClassDef, *FUNCTIONS))]
        if name.id in _BUILTINS and name.id not in there.aliases:
            return []
    dotted = there.qualified_name(name) or ""
    if not dotted or dotted.partition(".")[0] in _HARMLESS:
        return []
    by = None if there is source else there
    found = source.neighbours.definition_of(dotted, by) if source.neighbours is not None else None
    return [_Part(*found)] if found is not None and isinstance(found[1], (ast.ClassDef, *FUNCTIONS)) else None
