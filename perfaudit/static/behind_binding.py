"""A statement about a thing put behind those that give its name a value: `model.compile()` where the model is built.

As in `static.edit`, the verb returns the edits, or None where it cannot be done without a doubt.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from perfaudit.static import edit
from perfaudit.static.behind_initialising import last_initialising
from perfaudit.static.edit import Edits
from perfaudit.static.source import FUNCTIONS, LOOPS, Function, Source

MODULE = "<module>"
_OWN = "self."


def state_behind(
    source: Source, function: str, first_line: int, name: str, before_line: int, text: str, initialised: bool = False
) -> tuple[Edits, ast.stmt] | None:
    """Put one line behind the last statement that gives a name its value before a line, and that statement.

    function, first_line: the qualified name of the function that has the name, and where its code begins; "<module>" for the
    file itself. name: "model", or "self.model", whose value one method of the class gives. text: the line; `{}` stands for the
    name. initialised: behind what gives the thing its first values, too, as far as that stands in the same block. Where several
    branches give the name a value, the line comes behind all of them. None in a loop, and for a name that is a parameter, an
    import or bound otherwise than by assignment.
    """
    scope: ast.AST | None = source.tree if function == MODULE else _function_at(source, function, first_line)
    if scope is None:
        return None
    if name.startswith(_OWN):
        statements = _of_attribute(source, scope, name.removeprefix(_OWN), before_line)
    else:
        statements = _of_name(source, scope, name, before_line)
    if not statements:
        return None
    around = [source.enclosing(statement, *LOOPS, *FUNCTIONS, ast.ClassDef) for statement in statements]
    if any(isinstance(each, LOOPS) or each is not around[0] for each in around):
        return None
    place = _behind_all(source, statements)
    is_running = source.scope(statements[0]) is scope
    if place is not None and is_running and (place.end_lineno or 0) >= before_line:
        return None
    if place is not None and initialised:
        place = last_initialising(source, place, name, before_line if is_running else None)
    edits = edit.insert_after(source, place, text.replace("{}", name)) if place is not None else None
    return (edits, place) if edits and place is not None else None


def _function_at(source: Source, qualified: str, first_line: int) -> Function | None:
    name = qualified.rpartition(".")[2]
    functions: list[Function] = [*source.nodes(ast.FunctionDef), *source.nodes(ast.AsyncFunctionDef)]
    found = [each for each in functions if each.name == name and edit.first_line(each) == first_line]
    return found[0] if len(found) == 1 else None


def _of_name(source: Source, scope: ast.AST, name: str, before_line: int) -> list[ast.stmt] | None:
    """The assignments of a name in a scope up to a line, in their order; None where something else binds it."""
    found: list[ast.stmt] = []
    for node in source.bound_in(scope).get(name, []):
        statement = _assignment_of(source, node)
        if statement is None or source.scope(node) is not scope:  # also a function that says `global`
            return None
        found += [statement] if statement.lineno < before_line else []
    return sorted(found, key=lambda statement: statement.lineno)


def _of_attribute(source: Source, method: ast.AST, name: str, before_line: int) -> list[ast.stmt] | None:
    """The same of `self.name` in the class of a method: in this method up to a line, or all in one other method."""
    owner = source.enclosing(method, ast.ClassDef)
    stores = [
        node
        for node in (source.nodes(ast.Attribute) if owner is not None else ())
        if node.attr == name
        and not isinstance(node.ctx, ast.Load)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
        and source.enclosing(node, ast.ClassDef) is owner
    ]
    statements = [_assignment_of(source, node) for node in stores]
    found = [each for each in statements if each is not None]
    if len(found) < len(statements) or len({id(source.scope(each)) for each in found}) > 1:
        return None
    here = [each for each in found if source.scope(each) is not method or each.lineno < before_line]
    return sorted(here, key=lambda statement: statement.lineno)


def _assignment_of(source: Source, target: ast.AST) -> ast.stmt | None:
    """The plain assignment that gives a target its value, also one of several; None where it is given otherwise."""
    parent = source.parent(target)
    while isinstance(parent, (ast.Tuple, ast.List)):
        parent = source.parent(parent)
    if isinstance(parent, ast.Assign) or (isinstance(parent, ast.AnnAssign) and parent.value is not None):
        return parent
    return None


def _behind_all(source: Source, statements: Sequence[ast.stmt]) -> ast.stmt | None:
    """The statement that holds the last of these, in the innermost block that holds all of them."""
    place: ast.AST | None = statements[-1]
    while isinstance(place, ast.stmt):
        block = source.block(place)
        inside = {id(node) for statement in block for node in ast.walk(statement)}
        if all(id(statement) in inside for statement in statements):
            return place
        place = source.parent(place)
        while place is not None and not isinstance(place, ast.stmt):
            place = source.parent(place)
    return None
