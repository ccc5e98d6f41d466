"""Which functions of a file may be running where a step ends, as its text has it: code of theirs cannot be swapped. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from perfaudit.training.edited_places import Place, Way, nodes_on, statements_at

LOOPS = (ast.For, ast.AsyncFor, ast.While)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
STEPS = frozenset({"step", "backward"})  # methods whose callers may be on the stack where a step ends


def stepping_units(tree: ast.Module, others: frozenset[str]) -> dict[Way, str]:
    """Outermost functions that make steps, or call by name one that does, with their names; () for the top level.

    More than these may be among them: what is called `step` need not be an optimizer's.
    """
    units = dict(_units(tree))
    calls = {
        way: {_last_name(n.func) for n in ast.walk(node) if isinstance(n, ast.Call)} for way, node in units.items()
    }
    found: dict[Way, str] = {}
    names = STEPS | others
    while True:
        new = {way for way in units if way not in found and calls[way] & names}
        if not new:
            return found
        for way in new:
            node = units[way]
            found[way] = node.name if isinstance(node, FUNCTIONS) else ""
            names |= {found[way]} - {""}


def _units(tree: ast.Module) -> Iterator[tuple[Way, ast.AST]]:
    """Functions at the top level and in classes, and the rest of the file, with the ways to them."""
    top: list[ast.stmt] = []

    def inside(body: Sequence[ast.stmt], way: Way) -> Iterator[tuple[Way, ast.AST]]:
        for at, statement in enumerate(body):
            if isinstance(statement, FUNCTIONS):
                yield (*way, at), statement
            elif isinstance(statement, ast.ClassDef):
                yield from inside(statement.body, (*way, at, "body"))
            elif len(way) == 1:
                top.append(statement)

    yield from inside(tree.body, ("body",))
    yield (), ast.Module(top, [])


def _last_name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def unit_of(tree: ast.Module, way: Way) -> Way:
    """The way to the outermost function around a body, () where there is none."""
    at: object = tree
    for number, step in enumerate(way):
        at = getattr(at, step) if isinstance(step, str) else at[step]  # type: ignore[index]  # a list follows a field
        if isinstance(at, FUNCTIONS):
            return way[: number + 1]
    return ()


def may_be_switched(tree: ast.Module, place: Place, units: dict[Way, str]) -> bool:
    """Whether a place lies where a frame may stay alive: in a function that makes steps, or in a loop at the top level."""
    unit = unit_of(tree, place.way)
    around = list(nodes_on(tree, place.way))
    if isinstance(around[-1] if around else None, ast.ClassDef):
        return False
    if place.start == 0 and place.stop > 0 and _is_text(statements_at(tree, place.way)[0]):
        return False  # a docstring
    return unit in units and (bool(unit) or any(isinstance(node, LOOPS) for node in around))


def running_loop_in(tree: ast.Module, place: Place, stepping: frozenset[str]) -> ast.stmt | None:
    """A loop among the statements of a place that makes steps: it is entered once, whatever a switch says then."""
    for statement in statements_at(tree, place.way)[place.start : place.stop]:
        for loop in ast.walk(statement):
            if isinstance(loop, LOOPS) and any(
                isinstance(node, ast.Call) and _last_name(node.func) in stepping for node in ast.walk(loop)
            ):
                return loop
    return None


def _is_text(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )
