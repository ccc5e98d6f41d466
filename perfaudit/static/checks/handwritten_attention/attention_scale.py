"""The scale of a written-out attention: whether it is a number, and whether it is the one that the library takes by itself."""

from __future__ import annotations

import ast
from collections.abc import Callable

from perfaudit.static.source import Source
from perfaudit.static.understanding.members import own_values
from perfaudit.static.understanding.values import assigned_value, constant

_ROOTS = {"math.sqrt", "numpy.sqrt"}
_NUMBERS = _ROOTS | {"float", "int"}


def is_root_of_width(source: Source, node: ast.expr | None, names: tuple[str, ...]) -> bool:
    """`math.sqrt(q.size(-1))`, of the query or the key by name: the scale that the library takes by itself."""
    if isinstance(node, ast.Call) and source.qualified_name(node.func) in _ROOTS and len(node.args) == 1:
        node = node.args[0]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and constant(source, node.right) == 0.5:
        node = node.left
    else:
        return False
    owner = _size_owner(source, node)
    return isinstance(owner, ast.Name) and owner.id in names


def is_number(source: Source, node: ast.expr, depth: int = 3) -> bool:
    """Whether an expression is provably a Python number, not a tensor that a step trains."""
    value = constant(source, node)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return True
    if isinstance(node, ast.Call):
        name = source.qualified_name(node.func) or (node.func.id if isinstance(node.func, ast.Name) else "")
        return name in _NUMBERS or _is_size(node)
    if isinstance(node, ast.Subscript):
        return isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.Pow) and isinstance(constant(source, node.right), float):
            return _is_count(source, node.left, depth)
        return is_number(source, node.left, depth) and is_number(source, node.right, depth)
    return depth > 0 and _is_named(source, node, depth - 1, is_number)


def _is_count(source: Source, node: ast.expr, depth: int) -> bool:
    """Whether what a root is taken of is a number: a size, a parameter of the constructor, a quotient."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv):
        return True
    if isinstance(node, ast.Name):
        bindings = source.lookup(node)
        function = source.enclosing(node, ast.FunctionDef)
        if function is not None and function.name == "__init__":
            return all(isinstance(b, (ast.arg, ast.Name)) for b in bindings)
        if bindings and all(_is_unpacked_size(source, b) for b in bindings):
            return True
    return is_number(source, node, depth) or (depth > 0 and _is_named(source, node, depth - 1, _is_count))


def _is_named(source: Source, node: ast.expr, depth: int, holds: Callable[[Source, ast.expr, int], bool]) -> bool:
    """Whether a name, or an attribute the class sets, stands for such a number wherever it is set."""
    values: list[ast.expr | None] = []
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        values = own_values(source, node, node.attr)
    elif isinstance(node, ast.Name):
        values = [assigned_value(source, b) for b in source.lookup(node)]
    return bool(values) and all(value is not None and holds(source, value, depth) for value in values)


def inverse(source: Source, node: ast.expr) -> ast.expr | None:
    """`math.sqrt(d)` of `1 / math.sqrt(d)`."""
    is_inverse = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and constant(source, node.left) == 1
    return node.right if isinstance(node, ast.BinOp) and is_inverse else None


def _size_owner(source: Source, node: ast.expr) -> ast.expr | None:
    """`q` of `q.size(-1)` and `q.shape[-1]`."""
    if isinstance(node, ast.Call) and _is_size(node) and isinstance(node.func, ast.Attribute):
        return node.func.value if constant(source, node.args[0]) == -1 else None
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
        return node.value.value if constant(source, node.slice) == -1 else None
    return None


def _is_unpacked_size(source: Source, binding: ast.AST) -> bool:
    """`C` of `B, T, C = x.shape`."""
    parent = source.parent(binding)
    assignment = source.parent(parent) if isinstance(parent, ast.Tuple) else None
    if not isinstance(assignment, ast.Assign):
        return False
    value = assignment.value
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Attribute) and value.func.attr == "size" and not value.args
    return isinstance(value, ast.Attribute) and value.attr == "shape"


def _is_size(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Attribute) and node.func.attr == "size" and len(node.args) == 1
