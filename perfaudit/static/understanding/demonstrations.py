"""Code that is there to be tried out: under a main guard that trains nothing, in tests."""

from __future__ import annotations

import ast

from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.source.syntax import lies_in
from perfaudit.static.understanding.step_loops import step_loops


def is_main_guard(statement: ast.AST) -> bool:
    """Whether a statement is `if __name__ == "__main__":`."""
    if not isinstance(statement, ast.If) or not isinstance(statement.test, ast.Compare):
        return False
    left = statement.test.left
    return isinstance(left, ast.Name) and left.id == "__name__"


def is_test(source: Source, node: ast.AST) -> bool:
    """Whether the node stands in a test, by the name of a function around it or of the file."""
    if source.path.rpartition("/")[2].startswith(("test_", "smoke_test", "smoketest")):
        return True
    return any(isinstance(a, FUNCTIONS) and a.name.startswith("test_") for a in source.ancestors(node))


def is_shown_only(source: Source, node: ast.AST) -> bool:
    """Whether the node is under a main guard in which nothing is trained."""
    guard = next((ancestor for ancestor in source.ancestors(node) if is_main_guard(ancestor)), None)
    return guard is not None and not any(lies_in(step.loop, guard) for step in step_loops(source))
