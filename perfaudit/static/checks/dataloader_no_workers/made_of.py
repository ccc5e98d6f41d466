"""What the data set and the collate function of a DataLoader are made of in its own file, and what binds their names there."""

from __future__ import annotations

import ast
import functools

from perfaudit.static.source import FUNCTIONS, LOOPS, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.values import argument

COLLATE = 6  # position of the parameter in DataLoader.__init__ of every torch since 1.0
_FOLLOW = 6  # names followed from the call to the tensors of the dataset; real code needs two or three


@functools.lru_cache(maxsize=4)  # several questions of one call
def reachable_nodes(source: Source, call: ast.Call) -> tuple[ast.AST, ...]:
    """Every node of the expressions and definitions of this file that dataset and collate function are made from."""
    given = (argument(source, call, "dataset", 0), argument(source, call, "collate_fn", COLLATE))
    edge: list[ast.AST] = [node for node in given if isinstance(node, ast.expr)]
    nodes: dict[int, ast.AST] = {}
    for _ in range(_FOLLOW + 1):
        new = []
        for root in edge:
            if id(root) not in nodes:
                new += [node for node in walk(root) if id(node) not in nodes]
                nodes.update((id(node), node) for node in new)
        asked = {_key(n): n for n in new if isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Load)}
        edge = [definition for node in asked.values() for definition in _definitions(source, node)]
    return tuple(nodes.values())


def _key(node: ast.Name | ast.Attribute) -> object:
    """What tells apart names to look up: an attribute by its name alone, a name by its place too."""
    return node.attr if isinstance(node, ast.Attribute) else id(node)


def _definitions(source: Source, node: ast.Name | ast.Attribute) -> list[ast.AST]:
    """What a name or an attribute stands for in this file: the values assigned to it, its function or class."""
    if isinstance(node, ast.Name):
        bindings = [binding for binding in source.lookup(node) if not comes_later(source, binding, node)]
    else:
        bindings = attribute_stores(source).get(node.attr, [])
    found: list[ast.AST] = []
    for binding in bindings:
        statement = source.statement(binding) if not isinstance(binding, ast.arg) else None
        if isinstance(binding, (*FUNCTIONS, ast.ClassDef)):
            found.append(binding)
        elif isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and statement.value is not None:
            found.append(statement.value)
    return found


def comes_later(source: Source, binding: ast.AST, use: ast.Name) -> bool:
    """Whether a name is bound below where it is read, in the same function and no loop around both."""
    if (
        not isinstance(binding, ast.Name)
        or binding.lineno <= use.lineno
        or source.scope(binding) is not source.scope(use)
    ):
        return False
    around = {id(ancestor) for ancestor in source.ancestors(use) if isinstance(ancestor, LOOPS)}
    return not any(id(ancestor) in around for ancestor in source.ancestors(binding))


@remember
def attribute_stores(source: Source) -> dict[str, list[ast.AST]]:
    """Attributes that are assigned to, by their name."""
    table: dict[str, list[ast.AST]] = {}
    for node in source.nodes(ast.Attribute):
        if isinstance(node.ctx, ast.Store):
            table.setdefault(node.attr, []).append(node)
    return table
