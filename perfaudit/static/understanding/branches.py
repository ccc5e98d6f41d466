"""Under which conditions code runs: the branches around a node, and the same conditions written at another place."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from perfaudit.static.source import FUNCTIONS, LOOPS, Source
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.members import attributes

Branch = tuple[ast.AST, bool | None]
Path = tuple[Branch, ...]  # outermost first
Where = tuple[tuple[ast.expr, bool], ...]  # tests that are all as said; empty: always

_SCOPES = (*FUNCTIONS, ast.Lambda, ast.ClassDef, ast.Module)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_OPPOSITE: dict[type[ast.cmpop], str] = {
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Lt: ">=",
    ast.GtE: "<",
    ast.Gt: "<=",
    ast.LtE: ">",
}


def branches(source: Source, node: ast.AST) -> Path:
    """The conditions (true or false side), loops and guarded blocks around a node in its function, outermost first."""
    found: list[Branch] = []
    child = node
    for ancestor in source.ancestors(node):
        if isinstance(ancestor, _SCOPES):
            break
        if isinstance(ancestor, (ast.If, ast.IfExp)):
            if child is not ancestor.test:
                body = ancestor.body if isinstance(ancestor.body, list) else [ancestor.body]
                found.append((ancestor, any(child is item for item in body)))
        elif isinstance(ancestor, (*LOOPS, *_COMPREHENSIONS, ast.Try, ast.TryStar, ast.ExceptHandler, ast.match_case)):
            found.append((ancestor, None))
        child = ancestor
    return tuple(reversed(found))


def exclude_each_other(first: Path, second: Path) -> bool:
    """Whether one stands on the true and the other on the false side of one condition."""
    sides = {id(node): side for node, side in first if side is not None}
    return any(side is not None and sides.get(id(node), side) != side for node, side in second)


def leaves_between(source: Source, first: ast.expr, second: ast.expr) -> bool:
    """Whether the function can be left, or a loop go on, after the first and before the second."""
    begin, end = _position(first), _position(second)
    return any(
        begin < _position(jump) < end and not exclude_each_other(branches(source, first), branches(source, jump))
        for jump in _jumps(source).get(source.scope(first), ())
    )


@remember
def _jumps(source: Source) -> dict[ast.AST, list[ast.stmt]]:
    """The statements that leave a function or a turn of a loop, by the function they stand in."""
    table: dict[ast.AST, list[ast.stmt]] = {}
    for kind in (ast.Return, ast.Break, ast.Continue):
        for jump in source.nodes(kind):
            table.setdefault(source.scope(jump), []).append(jump)
    return table


def _position(node: ast.expr | ast.stmt) -> tuple[int, int]:
    return node.lineno, node.col_offset


# ---- a condition at another place ------------------------------------------------------------------------------------


def is_steady(source: Source, test: ast.expr, other: ast.expr) -> bool:
    """Whether a condition calls nothing, and has the same value at another place of the same block or loop turn."""
    if isinstance(test, (ast.BoolOp, ast.Tuple, ast.List)):
        return all(
            is_steady(source, part, other) for part in getattr(test, "values", None) or getattr(test, "elts", [])
        )
    if isinstance(test, ast.UnaryOp):
        return is_steady(source, test.operand, other)
    if isinstance(test, ast.BinOp):
        return is_steady(source, test.left, other) and is_steady(source, test.right, other)
    if isinstance(test, ast.Compare):
        return all(is_steady(source, part, other) for part in (test.left, *test.comparators))
    if isinstance(test, ast.Name):
        return _is_steady_name(source, test, other)
    if isinstance(test, ast.Attribute) and isinstance(test.value, ast.Name):
        scope = source.scope(test)
        return len(source.lookup(test.value)) <= 1 and not any(
            not isinstance(node.ctx, ast.Load) and source.scope(node) is scope and _position(node) >= _position(other)
            for node in attributes(source)[test.attr]
        )
    return isinstance(test, ast.Constant)


def _is_steady_name(source: Source, name: ast.Name, other: ast.expr) -> bool:
    """Whether a variable is bound before both places and not between them."""
    bindings = source.lookup(name)
    if not bindings:
        return name.id in source.aliases
    begin, end = sorted((_position(name), _position(other)))
    path = branches(source, other)
    bound = False
    for binding in bindings:
        if isinstance(binding, ast.arg):
            bound = True
        elif not isinstance(binding, ast.Name) or begin < _position(binding) < end:
            return False
        elif _position(binding) < begin:
            around = branches(source, binding)
            bound |= source.scope(binding) is not source.scope(other) or path[: len(around)] == around
    return bound


def text_where_none(source: Source, alternatives: Sequence[Where]) -> str:
    """An expression that is true where none of the alternatives holds; "False" where one of them always does."""
    terms: list[list[tuple[ast.expr, bool]]] = []
    known: set[tuple[str, bool]] = set()  # conditions that alone are a term: false where later terms are looked at
    for where in alternatives:
        term = [(test, side) for test, side in where if (ast.dump(test), not side) not in known]
        if not term:
            return "False"
        terms.append(term)
        if len(term) == 1:
            known.add((ast.dump(term[0][0]), term[0][1]))
    if len(terms) == 1 and len(terms[0]) == 1:
        test, side = terms[0][0]
        return _text(source, test, not side)
    return f"not ({' or '.join(text_where_all(source, term) for term in terms)})"


def text_where_all(source: Source, where: Sequence[tuple[ast.expr, bool]]) -> str:
    """An expression that is true where all the tests are as said."""
    return " and ".join(_text(source, test, side) for test, side in where)


def _text(source: Source, test: ast.expr, side: bool) -> str:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _text(source, test.operand, not side)
    text = source.text_of(test)
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and not side:
        left, right = source.text_of(test.left), source.text_of(test.comparators[0])
        return f"{left} {_OPPOSITE[type(test.ops[0])]} {right}"
    if not isinstance(test, (ast.Name, ast.Attribute, ast.Constant, ast.Call, ast.Subscript, ast.Compare)):
        text = f"({text})"
    return text if side else f"not {text}"
