"""What is asked of nodes without their file: kinds that go together, whether one lies in another."""

from __future__ import annotations

import ast

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
Function = ast.FunctionDef | ast.AsyncFunctionDef
Loop = ast.For | ast.AsyncFor | ast.While


def lies_in(node: ast.expr | ast.stmt, around: ast.AST) -> bool:
    """Whether a node begins on one of the lines of another."""
    first, last = getattr(around, "lineno", 0), getattr(around, "end_lineno", 0)
    return bool(first <= node.lineno <= last)
