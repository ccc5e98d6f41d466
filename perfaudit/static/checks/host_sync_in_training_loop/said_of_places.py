"""What findings say of places that make the host wait: how one reads, how many more there are, and what to do about it."""

from __future__ import annotations

import ast
from collections.abc import Sized

from perfaudit.static.source import Source
from perfaudit.static.understanding.names import dotted_name, last_name


def place_text(source: Source, place: ast.AST) -> str:
    """The text of a place. Inside an f-string positions are not reliable before Python 3.12: from the tree, then."""
    in_text = any(isinstance(ancestor, ast.JoinedStr) for ancestor in source.ancestors(place))
    text = ast.unparse(place) if in_text else source.brief(place)
    return text if len(text) <= 60 else f"{text[:59]}…"


def more_places(places: Sized, where: str) -> str:
    """How many places there are beside the first one; "" for none."""
    more = len(places) - 1
    return f"; {more} more such place{'s' if more > 1 else ''} {where}" if more else ""


def advice(source: Source, place: ast.expr, is_of_lightning: bool = False) -> str:
    """What to do about the first place, for what cannot be patched without knowing the use of the value.

    is_of_lightning: whether the place is in a step of Lightning's, so that `self.log` is Lightning's too.
    """
    parent = source.parent(place)
    statement = source.statement(place)
    if is_of_lightning and isinstance(parent, ast.Call) and dotted_name(parent.func) == "self.log":
        return "give `self.log` the tensor: Lightning reads it only where it is shown"
    if isinstance(parent, ast.Call) and last_name(parent.func) == "append":
        return "append the detached tensor, and read the values once after the loop: `torch.stack(losses).tolist()`"
    if isinstance(statement, ast.Return):
        return "return the detached tensor, and read it where it is shown"
    if isinstance(statement, (ast.If, ast.While, ast.Assert)):
        return "test it every so many steps, or stay on the device with `torch.where`"
    if isinstance(statement, ast.AugAssign) or (
        isinstance(statement, ast.Assign) and isinstance(statement.value, ast.BinOp)
    ):
        return "add up the detached tensor, and read the sum only where it is shown"
    if isinstance(statement, ast.Expr):
        return "show it every so many steps (`if step % 100 == 0`); until then keep the detached tensor"
    return "keep the detached tensor, and read it only on the steps that show it"
