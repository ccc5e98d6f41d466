"""Names as they are written, without what they stand for."""

from __future__ import annotations

import ast

from perfaudit.expressions import regex

_OF_OPTIMIZERS = regex(r"opt|scaler|adam|sgd|solver")


def last_name(node: ast.AST) -> str:
    """The last part of a name or an attribute chain: "loss" of `loss` and of `self.out.loss`; "" for anything else."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def dotted_name(node: ast.AST) -> str:
    """`self.model.head` as text where an expression is a name with attributes and nothing else; otherwise ""."""
    if isinstance(node, ast.Attribute):
        base = dotted_name(node.value)
        return f"{base}.{node.attr}" if base else ""
    return node.id if isinstance(node, ast.Name) else ""


def is_like_an_optimizer(name: str) -> bool:
    """Whether a name is one that people give to an optimizer, or to a GradScaler, which steps it: a `step` of it is an update."""
    return bool(_OF_OPTIMIZERS.search(name.lower()))
