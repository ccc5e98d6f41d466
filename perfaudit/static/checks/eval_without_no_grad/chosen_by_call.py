"""What a call leaves out by its arguments: `run_epoch(loader, train=False)` runs nothing that stands under `if train:`."""

from __future__ import annotations

import ast

from perfaudit.static.source import FUNCTIONS, Function, Source


def test_that_leaves_out(source: Source, node: ast.AST, function: Function, call: ast.Call) -> str:
    """The condition around a node in a function under which it runs, if this call makes it false; "" if none is."""
    given = _values_given(function, call)
    child = node
    for ancestor in source.ancestors(node):
        if isinstance(ancestor, FUNCTIONS):
            return ""
        if isinstance(ancestor, ast.If) and child is not ancestor.test:
            is_in_body = any(child is item for item in ancestor.body)
            if _truth(ancestor.test, given) is (not is_in_body):
                text = source.text_of(ancestor.test)
                return text if is_in_body else f"not ({text})"
        child = ancestor
    return ""


def _values_given(function: Function, call: ast.Call) -> dict[str, object]:
    """The parameters that hold a constant in this call, given or by default, and are not bound anew."""
    arguments = function.args
    if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
        return {}
    plain = [*arguments.posonlyargs, *arguments.args]
    values: dict[str, ast.expr | None] = {}
    for argument, default in (
        *zip(plain[len(plain) - len(arguments.defaults) :], arguments.defaults, strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ):
        values[argument.arg] = default
    is_bound = isinstance(call.func, ast.Attribute) and bool(plain)
    values |= {a.arg: value for a, value in zip(plain[is_bound:], call.args, strict=False)}
    values |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    bound = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    return {
        name: value.value for name, value in values.items() if isinstance(value, ast.Constant) and name not in bound
    }


def _truth(test: ast.expr, given: dict[str, object]) -> bool | None:
    """Whether a test is true for what parameters hold; None where they do not tell."""
    match test:
        case ast.Name() if test.id in given:
            return bool(given[test.id])
        case ast.UnaryOp(op=ast.Not()):
            truth = _truth(test.operand, given)
            return None if truth is None else not truth
        case ast.BoolOp():
            truths = [_truth(value, given) for value in test.values]
            decides = isinstance(test.op, ast.Or)
            return decides if decides in truths else None if None in truths else not decides
        case ast.Compare(left=ast.Name(id=name), ops=[ast.Is() | ast.IsNot() as op], comparators=[ast.Constant(None)]):
            return (given[name] is None) is isinstance(op, ast.Is) if name in given else None
        case ast.Compare(left=ast.Name(id=name), ops=[ast.Eq() | ast.NotEq() as op], comparators=[ast.Constant(value)]):
            return (given[name] == value) is isinstance(op, ast.Eq) if name in given else None
    return None
