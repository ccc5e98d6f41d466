"""What code makes of weights or of an optimizer's groups where it makes nothing but numbers of them, or sets numbers."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from perfaudit.static.understanding.names import last_name

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_REDUCES = {"sum", "any", "all"}  # of a comprehension, which is looked at by itself
_COMPUTES = {"norm", "abs", "pow", "square", "sum", "mean", "numel"}  # methods of a weight that give something else
_GIVES_NUMBERS = {"int", "float", "str", "bool", "len", "isinstance", "hasattr", "id", "type", "repr"}  # of Python
_OF_GROUPS = {"lr", "initial_lr", "lr_scale", "weight_decay", "momentum", "betas"}  # numbers of an optimizer's groups
_MAKES_NUMBERS = {"item", "numel", "tolist", "size", "dim"}  # methods of a tensor


def is_number(node: ast.AST) -> bool:
    """Whether an expression is a number, a text or an answer, whatever it is of: `int(model.stride.max())`, `scaler is None`."""
    if isinstance(node, ast.Call):
        name = last_name(node.func)
        return name in (_GIVES_NUMBERS if isinstance(node.func, ast.Name) else _MAKES_NUMBERS)
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Constant) and node.slice.value in _OF_GROUPS
    is_answer = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    return is_answer or isinstance(node, (ast.Compare, ast.JoinedStr))


def is_setting(node: ast.Subscript) -> bool:
    """Whether this is a number of an optimizer: `optimizer.param_groups[0]["lr"]`."""
    return _is_key(node.slice) and isinstance(node.value, ast.Subscript) and _is_groups(node.value.value)


def only_sets_numbers(loop: ast.For) -> bool:
    """Whether a loop over an optimizer's groups reads and sets their numbers alone.

    `for group in optimizer.param_groups:`, or over `enumerate(optimizer.param_groups)`.
    """
    inside = [node for statement in loop.body for node in ast.walk(statement)]
    groups, target = loop.iter, loop.target
    if isinstance(groups, ast.Call) and isinstance(groups.func, ast.Name) and groups.func.id == "enumerate":
        if not (isinstance(target, ast.Tuple) and len(target.elts) == 2 and groups.args):
            return False
        groups, target = groups.args[0], target.elts[1]
    return _is_groups(groups) and _has_numbers_alone(target, inside)


def reduces(call: ast.Call) -> bool:
    """Whether this is `sum(p.norm() for p in ...)`, and the like."""
    return (
        last_name(call.func) in _REDUCES and bool(call.args) and all(isinstance(a, COMPREHENSIONS) for a in call.args)
    )


def is_penalty(node: ast.AST) -> bool:
    """Whether this is a number of all weights: `sum(p.norm() for p in model.parameters())`."""
    return (
        isinstance(node, ast.Call)
        and reduces(node)
        and all(isinstance(each, COMPREHENSIONS) and only_computes_of_each(each) for each in node.args)
    )


def only_computes_of_each(node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> bool:
    """Whether a comprehension makes something else of each weight, or reads numbers of an optimizer's groups.

    `p.norm() for p in model.parameters()`, `group["lr"] for group in optimizer.param_groups`.
    """
    each = node.generators[0]
    if len(node.generators) > 1 or not isinstance(each.target, ast.Name):
        return False
    made = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
    inside = [child for part in (*made, *each.ifs) for child in ast.walk(part)]
    if _is_groups(each.iter):
        return _has_numbers_alone(each.target, inside)
    methods = [
        call.func.value
        for call in inside
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _COMPUTES
    ]
    is_of_weights = isinstance(each.iter, ast.Call) and last_name(each.iter.func) == "parameters"
    return is_of_weights and _stands_among(each.target, inside, methods)


def _has_numbers_alone(target: ast.expr, inside: Sequence[ast.AST]) -> bool:
    """Whether a group is asked for numbers alone: `group["lr"]`, `group.get("lr_scale", 1)`, `"momentum" in group`."""
    numbers = [node.value for node in inside if isinstance(node, ast.Subscript) and _is_key(node.slice)]
    numbers += [
        node.func.value
        for node in inside
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "get"
        and node.args
        and _is_key(node.args[0])
    ]
    numbers += [
        node.comparators[0]
        for node in inside
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn))
    ]
    return isinstance(target, ast.Name) and _stands_among(target, inside, numbers)


def _stands_among(name: ast.Name, inside: Sequence[ast.AST], places: Sequence[ast.expr]) -> bool:
    """Whether a name is in these places and in no others."""
    return all(
        any(node is each for each in places) for node in inside if isinstance(node, ast.Name) and node.id == name.id
    )


def _is_key(node: ast.expr) -> bool:
    """Whether this is the name of a number in a group."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value != "params"


def _is_groups(node: ast.expr) -> bool:
    return last_name(node) == "param_groups"
