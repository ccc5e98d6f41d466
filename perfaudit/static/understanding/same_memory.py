"""Calls that hand out the memory of a tensor they are given: views, and `Variable(...)`."""

from __future__ import annotations

import ast

from perfaudit.static.source import Source

VIEWS = {"view", "reshape", "squeeze", "unsqueeze", "flatten"}  # of a contiguous tensor: the same memory
VARIABLE = "torch.autograd.Variable"


def viewed_tensor(source: Source, call: ast.Call) -> ast.expr | None:
    """The tensor of which a call returns the same memory: `x` of `x.view(-1)` and of `torch.unsqueeze(x, 1)`."""
    name = source.qualified_name(call.func) or ""
    if name.startswith("torch."):
        return call.args[0] if call.args and name.removeprefix("torch.") in VIEWS else None
    if isinstance(call.func, ast.Attribute) and call.func.attr in VIEWS:
        return call.func.value
    return None


def without_variable(source: Source, node: ast.expr) -> ast.expr:
    """What is wrapped in `Variable(...)`, which hands out the same tensor since torch 0.4; else the node."""
    while isinstance(node, ast.Call) and node.args and source.qualified_name(node.func) == VARIABLE:
        node = node.args[0]
    return node
