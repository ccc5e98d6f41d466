"""Flags that are True wherever a program computes on a GPU: a loader that pins by one pins wherever batches are copied there."""

from __future__ import annotations

import ast

from perfaudit.expressions import regex
from perfaudit.static.checks.transfer_blocks_host.option_of_gpu import is_off_by_option_only
from perfaudit.static.source import Source
from perfaudit.static.understanding.devices import asks_for_gpu, device_text
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.values import assigned_value, constant, resolve

_FLAG = regex(r"^(use_?|is_?|on_?|has_?|with_?|enable_?)?cuda(_?available)?$|^(use|is|on|has|with|enable)_?gpus?$")
_NO_GPU = regex(r"^(no|disable|without)_?(cuda|gpu)s?$|^(use_|force_)?cpu(_only)?$")
_FOLLOW = 4  # names and choices followed to a question


def is_on_with_gpu(source: Source, node: ast.expr, depth: int = _FOLLOW) -> bool:
    """Whether an expression is True wherever the program computes on a GPU, as it is written or by the names in it.

    `torch.cuda.is_available()`, `device.type == "cuda"`, `args.cuda`, `not args.no_cuda and torch.cuda.is_available()`,
    `True if use_cuda else False`; and a name that is set to True where such a question holds, and to False before or else.
    """
    if not depth:
        return False
    if is_off_by_option_only(source, node) or _is_switched_on(source, node, depth):
        return True
    value = resolve(source, node)
    match value:
        case ast.IfExp():
            return constant(source, value.body) is True and _is_of_gpu(source, value.test, depth - 1)
        case ast.BoolOp(op=ast.And()):
            return all(_is_of_gpu(source, part, depth - 1) for part in value.values)
    return _asks(source, node if value is None else value)


def _is_of_gpu(source: Source, node: ast.expr, depth: int) -> bool:
    """The same, or `not args.no_cuda` beside another question: who turns the GPU off copies nothing there."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not) and _NO_GPU.search(last_name(node.operand)):
        return True
    return is_on_with_gpu(source, node, depth)


def _asks(source: Source, node: ast.expr) -> bool:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        kind = device_text(node.comparators[0])
        return kind == (
            "cuda" if isinstance(node.ops[0], ast.Eq) else "cpu" if isinstance(node.ops[0], ast.NotEq) else "?"
        )
    return asks_for_gpu(source, node) or _FLAG.search(last_name(node).lower()) is not None


def _is_switched_on(source: Source, node: ast.expr, depth: int) -> bool:
    """Whether a flag is set to True where there is a GPU, and is False before or otherwise."""
    if isinstance(node, ast.Attribute):
        stores: list[ast.AST] = [a for a in source.nodes(ast.Attribute) if a.attr == node.attr and _is_stored(a)]
    else:
        stores = list(source.lookup(node)) if isinstance(node, ast.Name) else []
    on = [store for store in stores if _is_set_to(source, store, value=True)]
    off = [store for store in stores if _is_set_to(source, store, value=False)]
    if not on or len(on) + len(off) < len(stores):
        return False
    choices = [_choice_around(source, store) for store in on]
    if not all(choice is not None and _holds_with_gpu(source, choice, depth) for choice in choices):
        return False
    otherwise = {id(statement) for choice in choices if choice is not None for statement in choice.orelse}
    before = [store for store in off if id(source.statement(store)) not in otherwise]
    if any(source.enclosing(store, ast.If) for store in before):
        return False
    last = max((source.span(store).end for store in before), default=0)
    return all(source.span(store).start > last for store in on)


def _is_stored(node: ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Store)


def _is_set_to(source: Source, store: ast.AST, *, value: bool) -> bool:
    written = assigned_value(source, store)
    return isinstance(written, ast.Constant) and written.value is value


def _choice_around(source: Source, node: ast.AST) -> ast.If | None:
    """The `if` whose body holds a statement directly."""
    around = source.enclosing(node, ast.If)
    is_in_body = isinstance(around, ast.If) and any(source.statement(node) is item for item in around.body)
    return around if isinstance(around, ast.If) and is_in_body else None


def _holds_with_gpu(source: Source, choice: ast.If, depth: int) -> bool:
    """Whether a part of a condition asks for a GPU: `if not args.cpu and torch.cuda.is_available():`."""
    joined = isinstance(choice.test, ast.BoolOp) and isinstance(choice.test.op, ast.And)
    tests = choice.test.values if joined and isinstance(choice.test, ast.BoolOp) else [choice.test]
    return any(is_on_with_gpu(source, test, depth - 1) for test in tests)
