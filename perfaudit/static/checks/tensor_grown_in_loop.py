"""PA207: a tensor that is copied whole each time a loop appends to it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import LOOPS, Loop, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.branches import branches, exclude_each_other
from perfaudit.static.understanding.how_often import runs_every_step
from perfaudit.static.understanding.loaders import passes
from perfaudit.static.understanding.values import constant

JOINS = [f"torch.{name}" for name in ("cat", "concat", "concatenate", "hstack", "vstack")]
FEW = 8  # turns; copying so few times costs less than reading about it


@check("PA207", call=JOINS)
def tensor_grown_in_loop(source: Source, call: ast.Call) -> Iterator[Seen]:
    name = _grown_name(source, call)
    loop = source.enclosing(call, *LOOPS, within=source.scope(call))
    if name is None or not isinstance(loop, LOOPS) or _has_few_turns(source, loop):
        return
    if not any(call is node for statement in loop.body for node in walk(statement)):
        return
    if any(not _is_part_of_growing(source, mention, call) for mention in _mentions(loop, name)):
        return
    yield Seen(
        call,
        f"`{name}` grows piece by piece: `{source.text_of(call.func)}` copies the whole tensor again in each turn",
        Proposal(f"append the pieces to a list and call `{source.text_of(call.func)}` once behind the loop"),
        hot=runs_every_step(source, call) or any(item.loop is loop for item in passes(source)),
    )


def _grown_name(source: Source, call: ast.Call) -> str | None:
    """The variable of `x = torch.cat([x, …])`, also as one side of `x = first if x is None else torch.cat([x, …])`."""
    value: ast.expr = call
    parent = source.parent(call)
    if isinstance(parent, ast.IfExp) and parent.test is not call:
        value, parent = parent, source.parent(parent)
    if not isinstance(parent, ast.Assign) or parent.value is not value or len(parent.targets) != 1:
        return None
    target, pieces = parent.targets[0], call.args[0] if call.args else None
    if not isinstance(target, ast.Name) or not isinstance(pieces, (ast.List, ast.Tuple)) or len(pieces.elts) < 2:
        return None
    if any(keyword.arg in (None, "out") for keyword in call.keywords):
        return None
    is_piece = [isinstance(piece, ast.Name) and piece.id == target.id for piece in pieces.elts]
    return target.id if is_piece.count(True) == 1 else None


def _mentions(loop: Loop, name: str) -> list[ast.Name]:
    return [node for node in walk(loop) if isinstance(node, ast.Name) and node.id == name]


def _is_part_of_growing(source: Source, mention: ast.Name, call: ast.Call) -> bool:
    """Whether a mention in the loop is the growing itself, or the first piece and the question whether this is it.

    Anything else reads the tensor on every turn, so it has to be whole there, or starts it anew.
    """
    if source.statement(mention) is source.statement(call):
        parent = source.parent(mention)
        return isinstance(mention.ctx, ast.Store) or parent is call.args[0] or _asks_for_none(parent)
    if isinstance(mention.ctx, ast.Store):
        assigned = source.parent(mention)
        is_alone = isinstance(assigned, ast.Assign) and len(assigned.targets) == 1
        return is_alone and exclude_each_other(branches(source, mention), branches(source, call))
    test = source.parent(mention)
    condition = source.parent(test) if test is not None else None
    return _asks_for_none(test) and isinstance(condition, ast.If) and condition.test is test


def _asks_for_none(node: ast.AST | None) -> bool:
    """`x is None`, `x is not None`."""
    return (
        isinstance(node, ast.Compare)
        and isinstance(node.ops[0], (ast.Is, ast.IsNot))
        and isinstance(node.comparators[0], ast.Constant)
    )


def _has_few_turns(source: Source, loop: Loop) -> bool:
    if isinstance(loop, ast.While):
        return False
    over = loop.iter
    if (
        isinstance(over, ast.Call)
        and isinstance(over.func, ast.Name)
        and over.func.id in ("enumerate", "reversed")
        and over.args
    ):
        over = over.args[0]
    if isinstance(over, (ast.List, ast.Tuple, ast.Set, ast.Dict)):
        return True
    if isinstance(over, ast.Call) and isinstance(over.func, ast.Name) and over.func.id == "range":
        turns = constant(source, over.args[-1 if len(over.args) < 3 else 1]) if over.args else None
        return isinstance(turns, int) and turns < FEW
    return False
