"""What an argument or a name is worth, where the text alone settles it; everything else is UNKNOWN, and unknown is silent."""

from __future__ import annotations

import ast
import enum
import operator
from collections.abc import Callable
from typing import Any

from perfaudit.static.source import FUNCTIONS, Source


class Known(enum.Enum):
    """What can be said of an argument that is not an expression in the text."""

    ABSENT = "absent"  # the call provably does not pass it
    UNKNOWN = "unknown"  # the call may pass it; nothing may be concluded


ABSENT, UNKNOWN = Known.ABSENT, Known.UNKNOWN
Argument = ast.expr | Known

_NAMES_FOLLOWED = 4  # from one to the next, to what an expression stands for

_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {  # Any: arithmetic on literals
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}


def argument(source: Source, call: ast.Call, name: str, position: int | None = None) -> Argument:
    """The expression passed for a parameter, ABSENT if the call provably leaves it out, UNKNOWN otherwise.

    position: its 0-based place when passed by position, None for a keyword-only parameter. Keywords behind `**` count
    where the dict can be read (see `dict_items`), and so does what `functools.partial` was given.
    """
    made = source.partial_behind(call)
    if made is None:
        return _argument_in_call(source, call, name, position)
    first = [item for item in made.args[1:] if not isinstance(item, ast.Starred)]
    if position is not None and len(first) < len(made.args) - 1:
        return UNKNOWN
    if position is not None and position < len(first):
        return first[position]
    own = _argument_in_call(source, call, name, None if position is None else position - len(first))
    return _argument_in_call(source, made, name, None) if own is ABSENT else own


def _argument_in_call(source: Source, call: ast.Call, name: str, position: int | None) -> Argument:
    """What the call itself passes."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    starred = next((i for i, a in enumerate(call.args) if isinstance(a, ast.Starred)), None)
    if position is not None:
        if starred is not None and starred <= position:
            return UNKNOWN
        if position < len(call.args):
            return call.args[position]
    for keyword in call.keywords:
        if keyword.arg is None:
            items = dict_items(source, keyword.value)
            if items is None:
                return UNKNOWN
            if name in items:
                return items[name]
    return ABSENT


def dict_items(source: Source, node: ast.expr, following: frozenset[str] = frozenset()) -> dict[str, Argument] | None:
    """The keys of a dict expression with their values, or None where they cannot all be read.

    Follows a name to the one place that binds it in its function or module, and `self.kw` to the one in its class, with what
    `kw["x"] = ...`, `kw.update(...)` and `kw.pop("x")` touch as UNKNOWN values (they may depend on a branch). A dict that is
    handed to anything else may grow: None.
    `following` are the names on the way here: `kw = dict(kw)` cannot be read.
    """
    if isinstance(node, ast.Dict):
        items: dict[str, Argument] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                inner = dict_items(source, value, following)
                if inner is None:
                    return None
                items.update(inner)
            elif isinstance(key, ast.Constant) and isinstance(key.value, str):
                items[key.value] = value
            else:
                return None
        return items
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
        items = {}
        for argument_ in node.args:
            inner = dict_items(source, argument_, following)
            if inner is None:
                return None
            items.update(inner)
        for keyword in node.keywords:
            if keyword.arg is None:
                inner = dict_items(source, keyword.value, following)
                if inner is None:
                    return None
                items.update(inner)
            else:
                items[keyword.arg] = keyword.value
        return items
    if isinstance(node, ast.IfExp):
        branches = [dict_items(source, branch, following) for branch in (node.body, node.orelse)]
        if branches[0] is None or branches[1] is None:
            return None
        return {key: UNKNOWN for branch in branches if branch for key in branch}
    if isinstance(node, ast.Name):
        return None if node.id in following else _named_dict(source, node, following | {node.id})
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        name = f"self.{node.attr}"
        return None if name in following else _own_dict(source, node, following | {name})
    return None


def _own_dict(source: Source, node: ast.Attribute, following: frozenset[str]) -> dict[str, Argument] | None:
    """The same of `self.kw`, which a class sets once, to a dict that its file shows and hands to nobody else."""
    owner = source.enclosing(node, ast.ClassDef)
    uses = [use for use in source.nodes(ast.Attribute) if use.attr == node.attr]
    stores = [use for use in uses if not isinstance(use.ctx, ast.Load)]
    if owner is None or len(stores) != 1 or source.enclosing(stores[0], ast.ClassDef) is not owner:
        return None
    value = assigned_value(source, stores[0])
    items = dict_items(source, value, following) if value is not None else None
    for use in uses if items is not None else ():
        added = {} if use is stores[0] else _keys_added(source, use, following)
        if added is None or items is None:
            return None
        items.update(added)
    return items


def _named_dict(source: Source, name: ast.Name, following: frozenset[str]) -> dict[str, Argument] | None:
    bindings = source.lookup(name)
    if not bindings:
        return None
    items: dict[str, Argument] = {}
    for binding in bindings:
        value = assigned_value(source, binding)
        inner = dict_items(source, value, following) if value is not None else None
        if inner is None:
            return None
        items.update(inner if len(bindings) == 1 else dict.fromkeys(inner, UNKNOWN))
    for use in source.uses_of(bindings[0], name.id):
        added = _keys_added(source, use, following)
        if added is None:
            return None
        items.update(added)
    return items


def _keys_added(source: Source, use: ast.expr, following: frozenset[str]) -> dict[str, Argument] | None:
    """What one use of a dict adds to it: nothing for reading, keys for writing, None when it cannot be told."""
    parent = source.parent(use)
    if isinstance(parent, ast.keyword) and parent.arg is None:
        return {}
    if isinstance(parent, ast.Subscript) and parent.value is use:
        if isinstance(parent.ctx, ast.Load):
            return {}
        key = parent.slice
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            return {key.value: UNKNOWN}
        return None
    if isinstance(parent, ast.Compare):
        return {}
    if isinstance(parent, ast.Attribute):
        call = source.parent(parent)
        if not isinstance(call, ast.Call):
            return None
        if parent.attr in ("get", "items", "keys", "values", "copy"):
            return {}
        if parent.attr == "update":
            added: dict[str, Argument] = {k.arg: UNKNOWN for k in call.keywords if k.arg}
            for item in [*call.args, *(k.value for k in call.keywords if k.arg is None)]:
                inner = dict_items(source, item, following)
                if inner is None:
                    return None
                added.update(dict.fromkeys(inner, UNKNOWN))
            return added
        if parent.attr in ("setdefault", "pop") and call.args and isinstance(call.args[0], ast.Constant):
            return {str(call.args[0].value): UNKNOWN}
    return None


def assigned_value(source: Source, binding: ast.AST) -> ast.expr | None:
    """The expression a binding name gets in a plain `name = value`, else None (loop targets, parameters, unpacking)."""
    parent = source.parent(binding)
    if isinstance(parent, ast.Assign) and any(target is binding for target in parent.targets):
        return parent.value
    if isinstance(parent, (ast.AnnAssign, ast.NamedExpr)) and parent.target is binding:
        return parent.value
    return None


def value_bound(source: Source, binding: ast.AST) -> ast.expr | None:
    """What an assignment gives a name, also one of several: `first, second = iter(a), iter(b)`."""
    targets = source.parent(binding)
    statement = source.parent(targets) if isinstance(targets, ast.Tuple) else None
    if not isinstance(statement, ast.Assign) or not isinstance(targets, ast.Tuple):
        return assigned_value(source, binding)
    values = statement.value.elts if isinstance(statement.value, ast.Tuple) else []
    if len(values) != len(targets.elts) or any(isinstance(e, ast.Starred) for e in (*targets.elts, *values)):
        return None
    return values[next(n for n, element in enumerate(targets.elts) if element is binding)]


def resolve(source: Source, node: ast.expr) -> ast.expr | None:
    """The expression itself, or what the name stands for when one plain assignment binds it; None when it is not clear."""
    for _ in range(_NAMES_FOLLOWED):
        if not isinstance(node, ast.Name):
            return node
        bindings = source.lookup(node)
        value = assigned_value(source, bindings[0]) if len(bindings) == 1 else None
        if value is None:
            return None
        node = value
    return None if isinstance(node, ast.Name) else node


def constant(source: Source, node: Argument, depth: int = 8) -> object:
    """The value of literals, of names bound once to one, and of plain arithmetic on them; else UNKNOWN.

    Names are followed `depth` times: `n = n + 1` would never end.
    """
    if isinstance(node, Known) or not depth:
        return UNKNOWN
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.Not)):
        value = constant(source, node.operand, depth)
        if isinstance(node.op, ast.Not):
            return UNKNOWN if value is UNKNOWN else not value
        return -value if isinstance(value, (int, float)) else UNKNOWN
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left = constant(source, node.left, depth)
        right = UNKNOWN if left is UNKNOWN else constant(source, node.right, depth)  # else `n = n * n` costs 2 ** depth
        if isinstance(left, (int, float)) and isinstance(right, (int, float)):
            try:
                return _OPERATORS[type(node.op)](left, right)
            except (ZeroDivisionError, OverflowError):
                return UNKNOWN
        return UNKNOWN
    if isinstance(node, ast.Name):
        value_node = resolve(source, node)
        return constant(source, value_node, depth - 1) if value_node is not None else UNKNOWN
    return UNKNOWN


def is_false(source: Source, node: Argument) -> bool:
    """Provably False (the literal, or a name bound once to it)."""
    return constant(source, node) is False


def is_true(source: Source, node: Argument) -> bool:
    """Provably True (the literal, or a name bound once to it)."""
    return constant(source, node) is True


def local_class(source: Source, node: ast.expr) -> ast.ClassDef | None:
    """The class of this file that an expression is an instance of, through one name."""
    node = resolve(source, node) or node
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        for definition in source.bound_in(source.tree).get(node.func.id, []):
            if isinstance(definition, ast.ClassDef):
                return definition
    return None


def enclosing_function(source: Source, node: ast.AST) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The function around a node, or None at module level."""
    around = source.enclosing(node, *FUNCTIONS)
    return around if isinstance(around, FUNCTIONS) else None
