"""Models whose parts are put into eval mode one by one: `net.encoder.eval()`, `net.decoder.eval()`."""

from __future__ import annotations

import ast

from perfaudit.records import NamedTuple
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.elsewhere import class_of
from perfaudit.static.understanding.members import is_own
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.values import assigned_value

_FEWEST = 2  # of one part the others may be trained


class Whole(NamedTuple):
    """A model by its name; is_all: whether its class is in sight, and has no part that is left out."""

    name: str
    is_all: bool


def whole_of_parts(source: Source, statement: ast.stmt) -> Whole | None:
    """The model whose parts are put into eval mode one behind another, of the statement that does so with the last of them.

    None of one part alone, in a constructor, which may freeze these parts for a training, and where the class has further parts.
    """
    model = _model_asked(statement)
    whole = dotted_name(model.value) if model is not None else ""
    if model is None or not whole or whole == "self" or _is_constructor(source.parent(statement)):
        return None
    block, place = source.place_in_block(statement)
    if any(_whole_asked(item) == whole for item in block[place + 1 : place + 2]):
        return None  # of the last one
    first = place
    while first and _whole_asked(block[first - 1]) == whole:
        first -= 1
    asked = {part.attr for item in block[first : place + 1] if (part := _model_asked(item)) is not None}
    if len(asked) < _FEWEST:
        return None
    found = class_of(source, model.value)
    if found is None or not isinstance(found[1], ast.ClassDef):
        return Whole(whole, is_all=False)
    return Whole(whole, is_all=True) if _parts(found[0], found[1]) <= asked else None


def _model_asked(statement: ast.stmt) -> ast.Attribute | None:
    """`net.encoder` of the statement `net.encoder.eval()`."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or call.args or call.keywords:
        return None
    asked = call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr == "eval" else None
    return asked if isinstance(asked, ast.Attribute) else None


def _whole_asked(statement: ast.stmt) -> str:
    model = _model_asked(statement)
    return dotted_name(model.value) if model is not None else ""


def _is_constructor(node: ast.AST | None) -> bool:
    return isinstance(node, FUNCTIONS) and node.name == "__init__"


def _parts(source: Source, definition: ast.ClassDef) -> set[str]:
    """The attributes of a class that may be modules: objects of classes, and what it is given and calls."""
    called = {dotted_name(node.func) for node in walk(definition) if isinstance(node, ast.Call)}
    found: set[str] = set()
    for node in walk(definition):
        if isinstance(node, ast.Attribute) and is_own(node) and isinstance(node.ctx, ast.Store):
            value = assigned_value(source, node)
            is_object = isinstance(value, ast.Call) and last_name(value.func)[:1].isupper()
            if is_object or f"self.{node.attr}" in called:
                found.add(node.attr)
    return found
