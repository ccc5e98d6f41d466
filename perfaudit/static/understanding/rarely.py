"""What runs on few turns of a loop: under `if step % 100 == 0`, behind `if step % 100: continue`, in the handler of an error."""

from __future__ import annotations

import ast
import re

from perfaudit.expressions import regex
from perfaudit.static.source import Source
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.names import dotted_name, last_name

_RARE_NAME = regex(
    r"(?<![a-z])(debug|verbose|log(?!it|in|ic)|print|profil|last|first|save|report|vis|plot|should|dump|display|summar|every)"
)
_TROUBLE = regex(r"debug|verbose|profil", re.IGNORECASE)


def runs_rarely(source: Source, node: ast.AST, within: ast.AST) -> bool:
    """Whether a condition between the node and the loop makes it run on few iterations (`if step % 100 == 0`)."""
    child = node
    for ancestor in source.ancestors(node):
        if is_rare_part(source, ancestor, child) or (
            isinstance(child, ast.stmt) and skip_before(source, child) is not None
        ):
            return True
        if ancestor is within:
            return False
        child = ancestor
    return False


def is_rare_part(source: Source, parent: ast.AST, child: ast.AST) -> bool:
    """Whether this part of a statement or expression runs seldom: a rare branch, an error's handler or message."""
    if isinstance(parent, (ast.If, ast.IfExp)) and child is not parent.test:
        body = parent.body if isinstance(parent.body, list) else [parent.body]
        return _rare_outcome(source, parent.test) is any(part is child for part in body)
    if isinstance(parent, ast.BoolOp):
        before = parent.values[: next((n for n, value in enumerate(parent.values) if value is child), 0)]
        return any(_rare_outcome(source, value) is isinstance(parent.op, ast.And) for value in before)
    if isinstance(parent, ast.Assert):
        return child is parent.msg
    return isinstance(parent, (ast.ExceptHandler, ast.Raise))


def skip_before(source: Source, statement: ast.stmt) -> ast.If | None:
    """The `if step % 100: continue` that stands before the statement in its block."""
    block, place = source.place_in_block(statement)
    first = _first_skip(source, block[0])
    return first if first is not None and source.place_in_block(first)[1] < place else None


@remember
def _first_skip(source: Source, first: ast.stmt) -> ast.If | None:
    """The first `if step % 100: continue` of the block that begins with this statement."""
    for statement in source.block(first):
        leaves = isinstance(statement, ast.If) and isinstance(statement.body[-1], (ast.Continue, ast.Return))
        if leaves and isinstance(statement, ast.If) and rare_when(statement.test) is False:
            return statement
    return None


@remember  # asked for each place behind it, of which a chain of `elif` has many
def _rare_outcome(_: Source, test: ast.expr) -> bool | None:
    return rare_when(test)


def rare_when(test: ast.expr) -> bool | None:
    """The outcome that a condition seldom has: True for `step % 100 == 0`, False for `step % 100`, None if unknown."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        outcome = rare_when(test.operand)
        return None if outcome is None else not outcome
    if isinstance(test, ast.BoolOp):
        outcomes = [rare_when(value) for value in test.values]
        return True if True in outcomes else False if False in outcomes else None
    if isinstance(test, ast.BinOp) and _is_remainder(test):
        return False
    if (is_broken := _broken_when(test)) is not None:
        return is_broken
    if isinstance(test, ast.Compare):
        if any(_is_remainder(part) for part in ast.walk(test)):
            return not isinstance(test.ops[0], (ast.NotEq, ast.Gt, ast.GtE))
        if isinstance(test.ops[0], (ast.Is, ast.IsNot)) and not any(
            _TROUBLE.search(last_name(n)) for n in ast.walk(test)
        ):
            return None  # `logger is not None` is a question of set-up
        if any(dotted_name(part.func).startswith("time.") for part in ast.walk(test) if isinstance(part, ast.Call)):
            return True
    return True if any(_RARE_NAME.search(last_name(part).lower()) for part in ast.walk(test)) else None


def _broken_when(test: ast.expr) -> bool | None:
    """The outcome of `torch.isnan(x).any()` or `torch.isfinite(x).all()` for which a training is broken; None of others."""
    while isinstance(test, ast.Call):
        name = last_name(test.func)
        if name in ("isnan", "isinf"):
            return True
        if name == "isfinite":
            return False
        if name not in ("any", "all", "item", "bool"):
            return None
        inner = test.func.value if isinstance(test.func, ast.Attribute) and not test.args else (*test.args, None)[0]
        if inner is None:
            return None
        test = inner
    return None


def _is_remainder(node: ast.AST) -> bool:
    is_text = isinstance(node, ast.BinOp) and isinstance(node.left, ast.Constant) and isinstance(node.left.value, str)
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and not is_text
